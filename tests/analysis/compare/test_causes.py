"""Causes of a difference in duration, of runs whose causes are known."""

from __future__ import annotations

import pytest

from benchkit.analysis.compare.causes import cause_changes
from benchkit.analysis.compare.explain import explain
from benchkit.errors import NotRecorded
from benchkit.store.run import Run
from validation.graph_runs import MadeTask, graph_run


def chain(folder, fetch=0.6, compute=1.0, **more):
    """Return a run of two tasks, the second of which fetches the result of the first."""
    start = 2.0 + fetch
    tasks = [
        MadeTask("load-0", 0, 2),
        MadeTask(
            "sum-0", start, start + compute, ["load-0"], worker=1, thread=1,
            events=[("transfer", 2.0, start)],
        ),
    ]  # fmt: skip
    folder.mkdir()
    return graph_run(folder, tasks, duration=start + compute, n_workers=2, **more)


def test_cause_changes_name_the_fetches(tmp_path):
    before = [chain(tmp_path / f"a{n}", 0.6 + 0.1 * n) for n in range(2)]
    after = [chain(tmp_path / f"b{n}", 1.8 + 0.1 * n, 1.5) for n in range(2)]
    found = cause_changes(before, after)

    assert found.total_s == pytest.approx(1.7)
    first, second = found.causes.to_dict("records")
    assert (first["cause"], first["group"]) == ("transfer", "sum")
    assert first["baseline_s"] == pytest.approx(0.65)
    assert first["contender_s"] == pytest.approx(1.85)
    assert first["seconds"] == pytest.approx(1.2)
    assert first["low"] < 1.2 < first["high"]
    assert (second["cause"], second["group"]) == ("not parallel", "sum")
    assert found.bounds.loc["network"].tolist() == pytest.approx([0.65, 1.85])
    assert found.sentence == (
        "+1.20 s waiting for transfers (sum), +0.50 s computing with most threads idle (sum); "
        "the largest lower bound, critical path, went from 3.00 s to 3.50 s."
    )


def test_cause_changes_name_a_new_lower_bound(tmp_path):
    found = cause_changes([chain(tmp_path / "a")], [chain(tmp_path / "b", 3.5)])

    assert found.sentence == (
        "+2.90 s waiting for transfers (sum); "
        "the largest lower bound is network (3.50 s), it was critical path (3.00 s)."
    )
    assert found.causes["low"].isna().all()  # one run a side has no interval


def test_cause_changes_of_a_faster_arm_are_negative(tmp_path):
    found = cause_changes([chain(tmp_path / "a", 1.6)], [chain(tmp_path / "b")])

    assert found.sentence == "−1.00 s waiting for transfers (sum)."


def test_cause_changes_use_pairs_of_blocks(tmp_path):
    before = [chain(tmp_path / f"a{n}", fetch) for n, fetch in enumerate((0.5, 1.5))]
    after = [chain(tmp_path / f"b{n}", fetch) for n, fetch in enumerate((1.5, 2.5))]
    row = cause_changes(before, after, blocked=True).causes.iloc[0]

    assert row["low"] == pytest.approx(row["high"]) == pytest.approx(1.0)


def test_explanation_has_causes_of_runs_with_graphs(tmp_path):
    found = explain([chain(tmp_path / "a")], [chain(tmp_path / "b", 1.6)])

    assert found.causes.total_s == pytest.approx(found.total_s) == pytest.approx(1.0)
    assert found.sentence.endswith(" By cause: +1.00 s waiting for transfers (sum).")


def test_runs_without_graph_have_no_causes(tmp_path):
    whole = chain(tmp_path / "a")
    without = Run(whole.tree.copy())
    del without.tree["submissions"]

    with pytest.raises(NotRecorded):
        cause_changes([without], [whole])
    assert explain([without], [whole]).causes is None
