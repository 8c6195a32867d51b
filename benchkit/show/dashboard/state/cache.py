"""Cached reads of the store, its index, nightly series and runs, shared by all sessions.

Run files never change, so runs are cached by id. Results from the index are cached by the names
of the index files, which never change either.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import panel as pn

from benchkit.analysis.regression.history import History, build_history, night_name
from benchkit.analysis.regression.level_events import worse_direction
from benchkit.analysis.regression.regression import Regression, read_ledger
from benchkit.analysis.regression.status import SeriesStatus, series_statuses
from benchkit.analysis.run.baseline import metrics_against_previous
from benchkit.analysis.run.noise import run_noise
from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.errors import BenchkitError
from benchkit.experiment.paths import folders_of
from benchkit.measure.discovery import Collection, collect
from benchkit.store.run import Run
from benchkit.store.schema import METRICS
from benchkit.store.store import Store

__all__ = [
    "STORE_VARIABLE",
    "all_nights",
    "attributes_of",
    "kept",
    "noise_of",
    "nights_of",
    "nights_of_workload",
    "open_run",
    "open_store",
    "regressions",
    "run_times",
    "runs_table",
    "shown_metrics",
    "series_statuses_of",
    "usual_of",
    "warm_up",
    "workload_catalogue",
]

#: Environment variable with the path of the store.
STORE_VARIABLE = "BENCHKIT_STORE"


def open_store() -> Store:
    """Return the store that this server shows.

    Raises
    ------
    InvalidStoreError
        The store does not exist.
    """
    return _store(os.environ.get(STORE_VARIABLE) or "")


# A Store caches the records that it has read: the first read of 5000 records takes 0.3 s.
@pn.cache(max_items=1)
def _store(path: str) -> Store:
    return Store(path or None, create=False)


def runs_table() -> pd.DataFrame:
    """Return the index of the store, newest run first; do not modify."""
    store = open_store()
    return _newest_first(str(store.path), _version(store))


@pn.cache(max_items=1)
def _newest_first(path: str, version: str) -> pd.DataFrame:
    return open_store().runs().iloc[::-1].reset_index(drop=True)


def all_nights() -> History:
    """Return the nightly series of every metric that has a direction; do not modify."""
    store = open_store()
    return _nights(str(store.path), _version(store))


def nights_of(metric: str, night: str = "") -> History:
    """Return the nightly series of one metric, with the data up to a night; do not modify.

    Without a night, or with an unknown night, returns all data.
    """
    # Results for a metric (its changes) are cached with its series; the runs are shared.
    history = kept(lambda: all_nights().select(metric=metric), "nights", metric)
    names = [night_name(time) for time in history.times] if night else []
    if night not in names:
        return history
    return kept(lambda: _begun(history.before(names.index(night))), "nights", metric, night)


def nights_of_workload(workload: str) -> History:
    """Return the nightly series of every metric of one workload; do not modify.

    Change points are computed on request, for this workload only.
    """
    return kept(lambda: all_nights().select(workload=workload), "workload", workload)


def _begun(history: History) -> History:
    """Return the series that have a value or an attempted run."""
    has_value = np.isfinite(history.values).any(axis=1)
    was_tried = (history.outcomes != "").any(axis=1)[history.series["key"].to_numpy(int)]
    keep = has_value | was_tried
    series = history.series[keep].reset_index(drop=True)
    return replace(history, series=series, values=history.values[keep])


def shown_metrics() -> list[str]:
    """Return the metrics of which the store has nightly series, in the order of the table."""
    return list(dict.fromkeys(all_nights().series["metric"]))


def series_statuses_of(metric: str, night: str = "") -> tuple[History, list[SeriesStatus]]:
    """Return the history of a metric up to a night (default: the last) and its series states.

    Do not modify. Returns both at once: states of one history do not match the rows of a later one.
    """

    def make() -> tuple[History, list[SeriesStatus]]:
        store, history = open_store(), nights_of(metric, night)
        return history, series_statuses(history, store.events(), store.marks())

    return kept(make, "standings", metric, night)


def regressions() -> list[Regression]:
    """Return the regressions in the ledger of the store; do not modify."""

    def make() -> list[Regression]:
        store = open_store()
        return read_ledger(store.events(), store.marks())

    return kept(make, "regressions")


def _version(store: Store) -> str:
    """Return a hash that changes when runs, marks or events are added."""
    names = [
        *store.files.list("index/new", ".json"),
        *store.files.list("index", ".parquet"),
        *store.files.list("marks", ".json"),
        *store.files.list("ledger", ".json"),
    ]
    return hashlib.sha256("\n".join(names).encode()).hexdigest()


@pn.cache(max_items=1)
def _nights(path: str, version: str) -> History:
    directed = [name for name in METRICS if worse_direction(name)]
    store = open_store()
    return build_history(store.runs(), metrics=directed, marks=store.marks())


def open_run(run_id: str) -> Run:
    """Return a run by its id or the beginning of it.

    Raises
    ------
    UnknownRun
        No run has this id.
    UnreadableRun
        Its file is damaged.
    """
    return Run(_tree(str(open_store().path), _resolved(run_id)))


def _resolved(run_id: str) -> str:
    """Return the complete id of a run, from the cached ids: listing all ids takes long."""
    whole = kept(lambda: frozenset(runs_table()["id"].astype(str)), "ids")
    return run_id if run_id in whole else open_store().resolve(run_id)


# Eight runs: several pages of a few users.
@pn.cache(max_items=8, policy="LRU")
def _tree(path: str, run_id: str) -> Any:
    return Store(path, create=False).open(run_id).tree.load()


def run_times(run_id: str) -> TaskTimeline:
    """Return the task timeline of a run, shared by sessions; do not modify."""
    return _times(str(open_store().path), _resolved(run_id))


# 40 MB at 1 M tasks; cached so that sessions share one copy.
@pn.cache(max_items=8, policy="LRU")
def _times(path: str, run_id: str) -> TaskTimeline:
    return TaskTimeline(_tree(path, run_id))


def usual_of(run: Run) -> pd.DataFrame:
    """Return the metrics of a run and the medians of earlier runs; do not modify."""
    return kept(
        lambda: metrics_against_previous(runs_table().iloc[::-1], run.record), "usual", run.id
    )


def noise_of(metric: str) -> pd.DataFrame:
    """Return the noise of one metric in each set of comparable runs; do not modify."""
    return kept(lambda: run_noise(runs_table(), metric), "noise", metric)


def attributes_of(run_id: str) -> dict[str, Any]:
    """Return the attributes of a run file; do not modify.

    Raises
    ------
    UnknownRun
        No run has this id.
    UnreadableRun
        Its file is damaged.
    """
    return _attributes_of(str(open_store().path), _resolved(run_id))


# Packages and configuration of a run are 40 kB of text; the groups of the file are not read.
@pn.cache(max_items=200, policy="LRU")
def _attributes_of(path: str, run_id: str) -> dict[str, Any]:
    tree = Store(path, create=False).open(run_id).tree
    try:
        return {str(name): value for name, value in tree.attrs.items()}
    finally:
        tree.close()


@pn.cache(max_items=1)
def workload_catalogue() -> Collection:
    """Return the workloads of ``./workloads``, else the shipped ones; collected once.

    Empty if the folder is missing: measured workloads are shown without it.
    """
    try:
        return collect(folders_of("workloads"))
    except BenchkitError:
        return Collection()


def warm_up() -> None:
    """Fill the cache for the most frequent pages; takes seconds with 10 000 runs.

    Runs in a background thread. Errors are ignored here: the page that needs the data reports them.
    """
    with contextlib.suppress(Exception):
        for metric in shown_metrics()[:1] or ["duration"]:
            series_statuses_of(metric)
            noise_of(metric)
        regressions()


def kept(make: Callable[[], Any], *name: str) -> Any:
    """Return the result of `make`, cached by name until the store changes; do not modify.

    For results that take seconds, such as the explanation of an experiment.
    """
    store = open_store()
    return _answers(str(store.path), _version(store))(_Question(name, [make]))


@dataclass(frozen=True)
class _Question:
    """Cache key with its function; the function is dropped after use because it may hold a run."""

    name: tuple[str, ...]
    makers: list[Callable[[], Any]] = field(compare=False)


@pn.cache(max_items=1)
def _answers(path: str, version: str) -> Callable[[_Question], Any]:
    return lru_cache(maxsize=100)(lambda question: question.makers.pop()())
