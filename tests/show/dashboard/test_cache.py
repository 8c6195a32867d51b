"""Cached data that all visitors share."""

from __future__ import annotations

import gc
import weakref

import pytest
from helpers.dashboard_server import with_record
from helpers.history_data import FASTER, SLOWER

from benchkit.measure.run_ids import new_id
from benchkit.show.dashboard.state import cache, nights
from benchkit.store.store import Store


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
