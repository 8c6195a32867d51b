"""Cached nightly series of the store, shared by all sessions."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np
import pandas as pd
import panel as pn

from benchkit.analysis.regression.history import History, build_history, night_name
from benchkit.analysis.regression.level_events import worse_direction
from benchkit.analysis.regression.nights import nightly_runs
from benchkit.analysis.regression.regression import Regression, read_ledger
from benchkit.analysis.regression.status import SeriesStatus, series_statuses
from benchkit.show.dashboard.state.cache import (
    SHOWN_COLUMNS,
    cached,
    noise_of,
    open_store,
    runs_table,
    store_version,
)
from benchkit.store.schema import METRICS

__all__ = [
    "all_nights",
    "left_out_nights",
    "nights_of",
    "nights_of_workload",
    "regressions",
    "series_statuses_of",
    "shown_metrics",
    "warm_up",
]

#: Runs of nights that the pages read, the newest first: bounds the time of the first page and the
#: memory of the server. With 300 runs a night these are eleven months.
MOST_NIGHTLY_RUNS = 100_000
#: Runs that are searched for a nightly run, before all are.
READ_PER_NIGHTLY_RUN = 2
#: Columns that show whether a run belongs to a night.
_NIGHT_FIELDS = ("id", "started", "tags", "experiment", "arm", "simulated", "comparable")


def all_nights() -> History:
    """Return the nightly series of every metric that has a direction; do not modify.

    Returns
    -------
    History
        The series; of a large store only the newest nights, see `left_out_nights`.
    """
    return _all_nights()[0]


def left_out_nights() -> list[str]:
    """Return which nights the pages do not show.

    Returns
    -------
    list of str
        A sentence; empty if all nights are shown.
    """
    history, is_whole = _all_nights()
    if is_whole:
        return []
    first, n_runs = night_name(history.times[0])[:10], len(history.runs)
    return [
        f"Nights before {first} are not shown: the pages of nights read the newest {n_runs:,} "
        "nightly runs."
    ]


def _all_nights() -> tuple[History, bool]:
    """Return the nightly series, and whether they begin with the first night of the store."""
    store = open_store()
    return _nights(str(store.path), store_version(store))


def nights_of(metric: str, night: str = "") -> History:
    """Return the nightly series of one metric, with the data up to a night; do not modify.

    Parameters
    ----------
    metric : str
        Name of the metric.
    night : str, optional
        Start of the last night; without it, or if it is unknown, all nights.

    Returns
    -------
    History
        The series.
    """
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

    Parameters
    ----------
    workload : str
        Name of the variant.

    Returns
    -------
    History
        The series.
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
    """Return the metrics of which the store has nightly series.

    Returns
    -------
    list of str
        Names, in the order of the metrics table.
    """
    return list(dict.fromkeys(all_nights().series["metric"]))


def series_statuses_of(metric: str, night: str = "") -> tuple[History, list[SeriesStatus]]:
    """Return the history of a metric and the state of each series; do not modify.

    Returns both at once: states of one history do not match the rows of a later one.

    Parameters
    ----------
    metric : str
        Name of the metric.
    night : str, optional
        Start of the last night; by default the last night of the store.

    Returns
    -------
    history : History
        The series.
    statuses : list of SeriesStatus
        State of each series, most serious first.
    """

    def make() -> tuple[History, list[SeriesStatus]]:
        store, history = open_store(), nights_of(metric, night)
        return history, series_statuses(history, store.events(), store.marks())

    return cached(make, "statuses", metric, night)


def regressions() -> list[Regression]:
    """Return the regressions in the ledger of the store; do not modify.

    Returns
    -------
    list of Regression
        Open and closed regressions.
    """

    def make() -> list[Regression]:
        store = open_store()
        return read_ledger(store.events(), store.marks())

    return cached(make, "regressions")


@pn.cache(max_items=1)
def _nights(path: str, version: str) -> tuple[History, bool]:
    directed = [name for name in METRICS if worse_direction(name)]
    runs, is_whole = _nightly_runs()
    return build_history(runs, metrics=directed, marks=open_store().marks()), is_whole


def _nightly_runs() -> tuple[pd.DataFrame, bool]:
    """Return all columns of the runs of the newest nights, oldest first, and whether it is all."""
    store, started = open_store(), runs_table(["started"])["started"]
    # Few columns show which runs belong to nights; of a million runs they take 300 MB.
    n_read = READ_PER_NIGHTLY_RUN * MOST_NIGHTLY_RUNS
    since = started.iloc[n_read] if len(started) > n_read else None
    runs = nightly_runs(store.runs(columns=_NIGHT_FIELDS, since=since))
    if since is not None and len(runs) <= MOST_NIGHTLY_RUNS:  # most runs belong to experiments
        since, runs = None, nightly_runs(store.runs(columns=_NIGHT_FIELDS))
    n_runs = runs.groupby("moment").size().sort_index(ascending=False).cumsum()
    shown = n_runs.index[: max(int((n_runs <= MOST_NIGHTLY_RUNS).sum()), 1)]
    ids = list(runs.loc[runs["moment"].isin(shown), "id"])
    every = len(ids) == len(started)
    table = store.runs(columns=SHOWN_COLUMNS, id=None if every else ids)
    return table, since is None and len(shown) == len(n_runs)


def warm_up() -> None:
    """Fill the cache for the most frequent pages; takes seconds with 10 000 runs.

    Runs in a background thread. Errors are ignored here: the page that needs the data reports them.
    """
    with contextlib.suppress(Exception):
        # Without nights, the first page is the list of runs, which needs no noise.
        for metric in shown_metrics()[:1]:
            series_statuses_of(metric)
            noise_of(metric)
        regressions()
