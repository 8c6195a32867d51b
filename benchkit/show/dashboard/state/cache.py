"""Cached reads of the store, its index and its runs, shared by all sessions.

Run files never change, so runs are cached by id. Results from the index are cached by the names
of the index files, which never change either.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import pandas as pd
import panel as pn
import pyarrow as pa
import xarray as xr

from benchkit.analysis.run.baseline import metrics_against_previous
from benchkit.analysis.run.noise import run_noise
from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.errors import BenchkitError
from benchkit.experiment.paths import collect_workloads
from benchkit.measure.discovery import Collection
from benchkit.store.reader import MARK_COLUMNS
from benchkit.store.run import Run
from benchkit.store.schema import METRICS, RECORD_FIELDS
from benchkit.store.storage import in_parallel
from benchkit.store.store import Store

__all__ = [
    "STORE_VARIABLE",
    "RunPage",
    "attributes_of",
    "cached",
    "load_run",
    "newest_attributes",
    "noise_of",
    "open_run",
    "open_store",
    "runs_by_time",
    "runs_table",
    "store_version",
    "workload_catalogue",
]

T = TypeVar("T")
#: Environment variable with the path of the store.
STORE_VARIABLE = "BENCHKIT_STORE"
#: Columns of the index that pages show; texts that differ in each run need 80 MB in a million.
_COLUMNS = [name for name in (*RECORD_FIELDS, *METRICS, *MARK_COLUMNS) if name != "digest"]
#: Number of newest run files to try, in case files are damaged.
MOST_FILES = 3


def open_store() -> Store:
    """Return the store that this server shows.

    Returns
    -------
    Store
        The store.

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
    """Return the index of the store; do not modify.

    Returns
    -------
    DataFrame
        Records of all runs, newest first.
    """
    store = open_store()
    return _newest_first(str(store.path), store_version(store))


@pn.cache(max_items=1)
def _newest_first(path: str, version: str) -> pd.DataFrame:
    return runs_by_time().iloc[::-1].reset_index(drop=True)


def runs_by_time() -> pd.DataFrame:
    """Return the index of the store; do not modify.

    Returns
    -------
    DataFrame
        Records of all runs, oldest first.
    """
    store = open_store()
    return _oldest_first(str(store.path), store_version(store))


@pn.cache(max_items=1)
def _oldest_first(path: str, version: str) -> pd.DataFrame:
    runs = open_store().runs(columns=_COLUMNS)
    pa.default_memory_pool().release_unused()  # 540 MB after reading a million runs
    return runs


def store_version(store: Store) -> str:
    """Return a hash that changes when runs, marks or events are added.

    Parameters
    ----------
    store : Store
        The store.

    Returns
    -------
    str
        SHA-256 of the names of the index files, in hexadecimal digits.
    """
    folders = ("index/new", "index", "marks", "ledger")
    parts = in_parallel(store.files.list, folders, store.files.n_threads)
    names = "\n".join(name for part in parts for name in part)
    return hashlib.sha256(names.encode()).hexdigest()


def open_run(run_id: str) -> Run:
    """Return a run, shared by sessions; do not modify.

    Parameters
    ----------
    run_id : str
        Id of the run, its beginning, or "latest".

    Returns
    -------
    Run
        The run.

    Raises
    ------
    UnknownRun
        No run has this id.
    UnreadableRun
        Its file is damaged.
    """
    return Run(_tree(str(open_store().path), _resolved(run_id)))


@dataclass(frozen=True)
class RunPage:
    """Data of a page about a run; do not modify.

    Parameters
    ----------
    run : Run
        The run.
    timeline : TaskTimeline
        Start and stop of its tasks.
    baseline : DataFrame
        Metrics of the run and the medians of comparable earlier runs.
    """

    run: Run
    timeline: TaskTimeline
    baseline: pd.DataFrame


def load_run(run_id: str) -> RunPage:
    """Return a run with its task timeline and its baseline, shared by sessions.

    Parameters
    ----------
    run_id : str
        Id of the run, its beginning, or "latest".

    Returns
    -------
    RunPage
        The run.

    Raises
    ------
    UnknownRun
        No run has this id.
    UnreadableRun
        Its file is damaged.
    """
    run = open_run(run_id)

    def baseline() -> pd.DataFrame:
        return metrics_against_previous(runs_by_time(), run.record)

    timeline = _timeline(str(open_store().path), run.id)
    return RunPage(run, timeline, cached(baseline, "baseline", run.id))


def _resolved(run_id: str) -> str:
    """Return the complete id of a run."""
    return open_store().resolve(run_id)


# Eight runs: several pages of a few users.
@pn.cache(max_items=8, policy="LRU")
def _tree(path: str, run_id: str) -> xr.DataTree:
    return Store(path, create=False).open(run_id).tree.load()


# 40 MB at 1 M tasks; cached so that sessions share one copy.
@pn.cache(max_items=8, policy="LRU")
def _timeline(path: str, run_id: str) -> TaskTimeline:
    return TaskTimeline(_tree(path, run_id))


def noise_of(metric: str) -> pd.DataFrame:
    """Return the noise of one metric in each set of comparable runs; do not modify.

    Parameters
    ----------
    metric : str
        Name of the metric.

    Returns
    -------
    DataFrame
        As from `run_noise`.
    """
    return cached(lambda: run_noise(runs_table(), metric), "noise", metric)


def attributes_of(run_id: str) -> dict[str, Any]:
    """Return the attributes of a run file; do not modify.

    Parameters
    ----------
    run_id : str
        Id of the run, or its beginning.

    Returns
    -------
    dict
        Name -> value.

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


def newest_attributes(runs: pd.DataFrame) -> dict[str, Any]:
    """Return the attributes of the newest readable run file.

    Parameters
    ----------
    runs : DataFrame
        Records of runs, newest first.

    Returns
    -------
    dict
        Name -> value; empty if none of the newest `MOST_FILES` files can be read.
    """
    for run_id in runs["id"].head(MOST_FILES) if len(runs) else ():
        with contextlib.suppress(BenchkitError):
            return attributes_of(str(run_id))
    return {}


@pn.cache(max_items=1)
def workload_catalogue() -> Collection:
    """Return the workloads of ``./workloads`` and the shipped ones; collected once.

    Returns
    -------
    Collection
        The workloads; empty if the folder is missing: measured workloads are shown without it.
    """
    try:
        return collect_workloads()
    except BenchkitError:
        return Collection()


def cached(make: Callable[[], T], *name: str) -> T:
    """Return the result of a function, cached until the store changes; do not modify.

    For results that take seconds, such as the explanation of an experiment.

    Parameters
    ----------
    make : callable
        Returns the result.
    *name : str
        Key in the cache.

    Returns
    -------
    object
        The result.
    """
    store = open_store()
    result: T = _results(str(store.path), store_version(store))(_CacheKey(name, [make]))
    return result


@dataclass(frozen=True)
class _CacheKey:
    """Cache key with its function; the function is dropped after use: it may refer to a run."""

    name: tuple[str, ...]
    makers: list[Callable[[], Any]] = field(compare=False)


@pn.cache(max_items=1)
def _results(path: str, version: str) -> Callable[[_CacheKey], Any]:
    return lru_cache(maxsize=100)(lambda key: key.makers.pop()())
