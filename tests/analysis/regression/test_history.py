"""Histories: the runs of a night, and the segments of a series."""

import json

import numpy as np
import pandas as pd
import pytest

from benchkit.analysis.regression.history import build_history
from benchkit.measure.run_ids import new_id
from validation.run_records import FIRST, run_record


def history(rows, **options):
    return build_history(pd.DataFrame(rows), metrics=["duration"], **options)


def test_history_value_is_median_of_ok_runs():
    rows = [run_record(0, duration=value) for value in (10.0, 11.0, 30.0)]
    rows += [
        run_record(0, duration=99.0, outcome="failed"),
        run_record(1, comparable=False),
        run_record(1, duration=8.0),
    ]
    found = history(rows)
    assert found.values.tolist() == [[11.0, 8.0]]
    assert found.outcomes.tolist() == [["failed", "ok"]]


def test_history_leaves_simulated_runs_out():
    rows = [run_record(0, duration=10.0), run_record(0, duration=99.0, simulated=1)]

    assert history(rows).values.tolist() == [[10.0]]


def test_history_untagged_runs_belong_to_start_day():
    rows = [
        run_record(0, tagged=False, started=pd.Timestamp("2026-03-01T01:00Z"), duration=10.0),
        run_record(0, tagged=False, started=pd.Timestamp("2026-03-01T23:00Z"), duration=20.0),
        run_record(0, tagged=False, started=pd.Timestamp("2026-03-02T00:30Z"), duration=40.0),
    ]
    assert history(rows).values.tolist() == [[15.0, 40.0]]


def test_history_excludes_confirmations_and_experiments():
    rows = [
        run_record(0),
        run_record(1, tags='{"confirm": "x"}'),
        run_record(2, tags='{"bisect": "y"}'),
    ]
    rows += [run_record(3, tagged=False, experiment="ab", arm=arm) for arm in ("base", "new")]
    assert history(rows).times.size == 1


def test_history_has_series_per_environment_host_scale():
    rows = [
        run_record(0),
        run_record(0, environment="control"),
        run_record(0, host="other"),
        run_record(0, scale=0.1),
    ]
    found = history(rows)
    assert len(found) == 4
    assert found.values.shape == (4, 1)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"version": 2}, "version 1 -> 2 changed"),
        ({"source_hash": "b"}, "source changed"),
        ({"n_workers": 4}, "workers 2 -> 4 changed"),
    ],
)
def test_history_starts_segment_at_incomparable_night(changed, reason):
    rows = [run_record(night, duration=10.0) for night in range(20)]
    rows += [run_record(night, duration=14.0, **changed) for night in range(20, 40)]
    found = history(rows)
    assert found.segments[["night", "reason"]].values.tolist() == [[20, reason]]
    assert found.changes == [[]]
    assert found.segment_start(0, 30) == 20


def test_history_continues_segment_despite_accidents_of_the_cluster():
    rng = np.random.default_rng(0)
    accidents = [
        {"memory_limit": 2**31 - 4096 * int(rng.integers(0, 2000))},
        {"n_workers": 1, "n_threads": 1, "memory_limit": 2**30, "workers_requested": 2},
        {"workers_requested": 2},
    ]
    rows = [run_record(night, duration=10.0, **accidents[night % 3]) for night in range(30)]
    assert len(history(rows).segments) == 0
    addresses = [run_record(n, cluster=f"tcp://10.0.0.{n}:{40000 + n}") for n in range(30)]
    assert len(history(addresses).segments) == 0


def test_history_starts_segment_at_another_memory_limit():
    rows = [run_record(n, memory_limit=2**31 if n < 20 else 2**32) for n in range(40)]
    assert history(rows).segments["night"].tolist() == [20]


def test_history_starts_segment_at_another_number_of_requested_workers():
    rows = [run_record(n, workers_requested=2 if n < 20 else 3) for n in range(40)]
    assert history(rows).segments["reason"].tolist()[-1] == "workers 2 -> 3 changed"


def test_history_leaves_out_night_of_the_future():
    now = pd.Timestamp.now("UTC").floor("s")
    rows = [run_record(0, duration=10.0) for night in range(20)]
    for ago, row in enumerate(reversed(rows)):
        started = now - pd.Timedelta(days=ago)
        tags = json.dumps({"night": started.tz_localize(None).isoformat()})
        row |= {"started": started, "tags": tags}
    wrong = now + pd.Timedelta(days=4000)
    tags = json.dumps({"night": wrong.tz_localize(None).isoformat()})
    future = {**run_record(0, duration=10.0), "id": "x", "started": wrong, "tags": tags}
    found = history([*rows, future])
    assert found.future == ("x",)
    assert len(found.times) == 20
    assert found.times[-1] == np.datetime64(now.tz_localize(None))


def test_history_detects_step_within_segment():
    rows = [run_record(night, duration=10.0 if night < 20 else 14.0) for night in range(40)]
    (change,) = history(rows).changes[0]
    assert (change.index, round(change.ratio, 3)) == (20, 1.4)


def test_history_continues_segment_for_accepted_source():
    rows = [run_record(night, source_hash="a" if night < 20 else "b") for night in range(25)]
    mark = {"id": new_id(), "kind": "accept", "workload": "array.*", "metric": "source_hash"}
    assert len(history(rows).segments) == 1
    assert len(history(rows, marks=[mark]).segments) == 0
    # A mark made before the change does not apply to it.
    early = mark | {"at": (FIRST + pd.Timedelta(days=3)).isoformat()}
    assert len(history(rows, marks=[early]).segments) == 1


def test_history_accepted_change_starts_segment_of_metric():
    rows = [run_record(n, memory_peak=1e9, duration=10.0 if n < 20 else 14.0) for n in range(40)]
    mark = {
        "id": new_id(),
        "kind": "accept",
        "workload": "array.sum",
        "metric": "duration",
        "at": (FIRST + pd.Timedelta(days=20)).isoformat(),
        "reason": "safer",
    }
    found = build_history(pd.DataFrame(rows), metrics=["duration", "memory_peak"], marks=[mark])
    assert found.segments["reason"].tolist() == ["accepted: safer"]
    assert [mark is not None for mark in found.restarts] == [True, False]
    assert found.changes == [[], []]


def test_history_changes_do_not_depend_on_later_nights():
    rng = np.random.default_rng(0)
    values = 10 * np.exp(0.01 * rng.standard_normal(80))
    values[40:] *= 1.15
    whole = history([run_record(night, duration=value) for night, value in enumerate(values)])
    seen = [change.detected_at for change in whole.changes[0]]
    for night in range(30, 80):
        known = [change.detected_at for change in whole.before(night).changes[0]]
        assert known == [at for at in seen if at <= night]


def test_history_of_empty_store_is_empty():
    found = build_history(pd.DataFrame([run_record(0)]).iloc[:0])
    assert (len(found), found.times.size, found.changes) == (0, 0, [])
    assert "empty" in repr(found)


def test_history_html_shows_series_and_escapes_names():
    rows = [
        run_record(night, workload="<b>", duration=10.0 if night < 20 else 14.0)
        for night in range(40)
    ]
    html = history(rows)._repr_html_()
    assert "1 series, 40 nights" in html
    assert "&lt;b&gt;" in html
    assert "+40 % on 2026-03-21" in html
    assert "<b>" not in html


def test_history_html_counts_series_beyond_the_limit():
    rows = [run_record(0, workload=f"a.w{i:02d}") for i in range(23)]
    html = history(rows)._repr_html_()
    assert html.count("<tr>") == 21
    assert "and 3 more series" in html
