"""Cached data that all visitors share."""

import gc
import weakref

import pytest

from benchkit.measure.run_ids import new_id
from benchkit.show.dashboard.state import cache, nights
from benchkit.store.store import Store
from validation.dashboard_server import with_record
from validation.history_data import FASTER, SLOWER


class Large:
    """Stand-in for a run of a million tasks."""


def test_cache_keeps_result_not_its_input(nightly_store):
    run, made = Large(), []
    gone = weakref.ref(run)

    def make(run=run):
        made.append(type(run).__name__)
        return len(made)

    assert cache.cached(make, "test", "size") == 1
    assert cache.cached(make, "test", "size") == 1
    del run, make
    gc.collect()

    assert gone() is None
    assert made == ["Large"]


def test_cache_retries_after_error(nightly_store):
    def fail():
        raise ValueError("not yet")

    with pytest.raises(ValueError, match="not yet"):
        cache.cached(fail, "test", "later")
    assert cache.cached(lambda: 1, "test", "later") == 1


def test_cache_follows_store_version(nightly_store, a_run):
    before = cache.cached(lambda: len(nightly_store.runs()), "test", "runs")
    Store(nightly_store.path).add(with_record(a_run, id=new_id()))

    assert cache.cached(lambda: len(nightly_store.runs()), "test", "runs") == before + 1


def test_series_statuses_match_history_rows(nightly_store):
    history, statuses = nights.series_statuses_of("duration")

    assert statuses
    assert all(
        history.series["workload"][status.row] == status.about["workload"] for status in statuses
    )


def test_nights_of_workload_match_all_nights(nightly_store):
    own, complete = nights.nights_of_workload(SLOWER), nights.all_nights()

    assert set(own.series["workload"]) == {SLOWER}
    assert {SLOWER, FASTER} <= set(complete.series["workload"])
    for row, about in enumerate(own.series.to_dict("records")):
        assert own.changes[row] == complete.changes[complete.find(about)]


def test_runs_table_reads_each_column_once(nightly_store, monkeypatch, a_run):
    asked = []
    read = Store.runs
    monkeypatch.setattr(
        Store, "runs", lambda store, *args, columns, **filters: (
            asked.append(list(columns)), read(store, *args, columns=columns, **filters))[1]
    )  # fmt: skip
    newest_first = nightly_store.runs(columns=["id", "started", "duration"]).iloc[::-1]
    asked.clear()

    first = cache.runs_table(["id", "started"])
    more = cache.runs_table(["duration", "id"])

    assert asked == [["id", "started"], ["duration"]]
    assert list(more.columns) == ["duration", "id"]
    assert first["id"].tolist() == more["id"].tolist() == newest_first["id"].tolist()
    assert more["duration"].tolist() == pytest.approx(
        newest_first["duration"].tolist(), nan_ok=True
    )
    assert first.index.tolist() == list(range(len(newest_first)))

    nightly_store.add(with_record(a_run, id=new_id()))
    assert len(cache.runs_table(["id"])) == len(newest_first) + 1
    assert asked[2:] == [["id"]]


def test_runs_table_has_the_rows_of_one_store_version(nightly_store, monkeypatch, a_run):
    assert len(cache.runs_table(["id"])) > 0
    added = []
    read = Store.runs

    def add_before(store, *args, **filters):
        if not added:
            added.append(new_id())
            Store(store.path).add(with_record(a_run, id=added[0]))
        return read(store, *args, **filters)

    monkeypatch.setattr(Store, "runs", add_before)

    table = cache.runs_table(["id", "duration"])

    assert table["id"].isin(added).sum() == 1
    assert table["id"].nunique() == len(table)


def test_nights_read_the_other_columns_of_nightly_runs_only(nightly_store, monkeypatch, a_run):
    expected = nights.all_nights().runs["id"].tolist()
    extra = new_id()
    tags = '{"confirm": "1"}'
    Store(nightly_store.path).add(with_record(a_run, id=extra, tags=tags))
    asked = []
    read = Store.runs

    def runs_read(store, *args, columns, **filters):
        frame = read(store, *args, columns=columns, **filters)
        if "error" in columns:
            asked.append(frame["id"].tolist())
        return frame

    monkeypatch.setattr(Store, "runs", runs_read)

    found = nights.all_nights().runs["id"].tolist()

    assert found == expected
    assert len(asked) == 1
    assert sorted(asked[0]) == sorted(expected)
