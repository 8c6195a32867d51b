"""Cached nightly series of the store, shared by all sessions."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace

import numpy as np
import pandas as pd
import panel as pn

from benchkit.analysis.regression.history import History, build_history, night_name
from benchkit.analysis.regression.level_events import worse_direction
from benchkit.analysis.regression.nights import nightly_runs
from benchkit.analysis.regression.regression import Regression, read_ledger
from benchkit.analysis.regression.status import (
    SeriesStatus,
    never_ok_statuses,
    series_statuses,
    workload_owners,
)
from benchkit.experiment.nightly.night import Night, night_of
from benchkit.show.dashboard.state import cache
from benchkit.show.dashboard.state.cache import (
    SHOWN_COLUMNS,
    cached,
    newest_since,
    noise_of,
    open_store,
    release_memory,
    runs_table,
    store_version,
)
from benchkit.show.pages.night import NightSeries
from benchkit.store.schema import METRICS

_READING = threading.Lock()
#: Columns that show whether a run belongs to a night.
_NIGHT_FIELDS = ("id", "started", "tags", "experiment", "arm", "simulated", "comparable")


def all_nights() -> History:
    """Return the nightly series of every metric that has a direction; do not modify."""
    return _all_nights()[0]


def left_out_nights() -> list[str]:
    """Return which nights the pages do not show."""
    _, since = _all_nights()
    if since is None:
        return []
    return [
        f"Nights until {since:%Y-%m-%d} are not shown: the pages of nights read the newest "
        f"{cache.MAX_RUNS_READ:,} runs of the store."
    ]


def _all_nights() -> tuple[History, pd.Timestamp | None]:
    """Return the nightly series, and the time before which runs were left out."""
    store = open_store()
    with _READING:  # `warm_up` and the first visitor would compute the same at once
        return _nights(str(store.path), store_version(store))


def nights_of(metric: str, night: str = "") -> History:
    """Return the nightly series of one metric, with the data up to a night; do not modify."""
    # Results for a metric (its changes) are cached with its series; the runs are shared.
    history = cached(lambda: all_nights().select(metric=metric), "nights", metric)
    names = [night_name(time) for time in history.times] if night else []
    if night not in names:
        return history
    until = names.index(night)
    return cached(lambda: _started_series(history.before(until)), "nights", metric, night)


def nights_of_workload(workload: str) -> History:
    """Return the nightly series of every metric of one workload; do not modify.

    Change points are computed on request, for this workload only.
    """
    return cached(lambda: all_nights().select(workload=workload), "workload", workload)


def _started_series(history: History) -> History:
    """Return the series that have a value or a run of any outcome."""
    has_value = np.isfinite(history.values).any(axis=1)
    has_run = (history.outcomes != "").any(axis=1)[history.series["key"].to_numpy(int)]
    keep = has_value | has_run
    series = history.series[keep].reset_index(drop=True)
    return replace(history, series=series, values=history.values[keep])


def shown_metrics() -> list[str]:
    """Return the metrics of which the store has nightly series, in the order of their table."""
    return list(dict.fromkeys(all_nights().series["metric"]))


def series_statuses_of(metric: str, night: str = "") -> tuple[History, list[SeriesStatus]]:
    """Return the history of a metric and the state of each series; do not modify.

    Returns both at once: states of one history do not match the rows of a later one.
    """

    def make() -> tuple[History, list[SeriesStatus]]:
        store, history = open_store(), nights_of(metric, night)
        return history, series_statuses(history, store.events(), store.marks())

    return cached(make, "statuses", metric, night)


def night_series(metric: str, night: str = "") -> NightSeries:
    """Return the state of each series of a metric in a night; do not modify."""

    def make() -> NightSeries:
        history, statuses = series_statuses_of(metric, night)
        never_ok = never_ok_statuses(_until(history), metric)
        return NightSeries(history, metric, [*never_ok, *statuses], owners())

    return cached(make, "series", metric, night)


def shown_night(history: History) -> Night:
    """Return the last night of a history; do not modify."""
    store, name = open_store(), str(len(history.times))
    return cached(
        lambda: night_of(_until(history), store, store.events(), store.marks()), "night", name
    )


def _until(history: History) -> History:
    """Return the series of every metric until the last night of a history."""
    return all_nights().before(len(history.times) - 1)


def owners() -> dict[str, str]:
    """Return the owner of each workload that declares one."""
    return workload_owners(runs_table(["workload", "started", "owner"]))


def regressions() -> list[Regression]:
    """Return the regressions in the ledger of the store; do not modify."""

    def make() -> list[Regression]:
        store = open_store()
        return read_ledger(store.events(), store.marks())

    return cached(make, "regressions")


@pn.cache(max_items=1)
def _nights(path: str, version: str) -> tuple[History, pd.Timestamp | None]:
    directed = [name for name in METRICS if worse_direction(name)]
    runs, since = _nightly_runs()
    release_memory()
    history = build_history(runs, metrics=directed, marks=open_store().marks())
    del runs
    release_memory()
    return history, since


def _nightly_runs() -> tuple[pd.DataFrame, pd.Timestamp | None]:
    """Return all columns of the runs of nights, oldest first, and before when runs are left out."""
    store, since = open_store(), newest_since()
    # Most runs of a large store can belong to experiments: few columns show which.
    if since is None:
        every = runs_table(_NIGHT_FIELDS)
        runs = nightly_runs(every)
    else:
        every = store.runs(columns=_NIGHT_FIELDS, since=since)
        runs = nightly_runs(every)
        runs = runs[runs["moment"] > since.tz_convert(None)]  # the first night can be incomplete
    ids = None if len(runs) == len(every) else runs["id"].tolist()
    del every
    return store.runs(columns=SHOWN_COLUMNS, since=since, id=ids), since


def warm_up() -> None:
    """Fill the cache for the most frequent pages; takes seconds with 10,000 runs.

    Runs in a background thread. Errors are ignored here: the page that needs the data reports them.
    """
    with contextlib.suppress(Exception):
        # Without nights, the first page is the list of runs, which needs no noise.
        for metric in shown_metrics()[:1]:
            series_statuses_of(metric)
            noise_of(metric)
        regressions()
