"""Cached reads of the store, its index and its runs, shared by all sessions.

Run files never change, so runs are cached by id. Results from the index are cached by the names
of the index files, which never change either.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import pandas as pd
import panel as pn
import pyarrow as pa
import xarray as xr

from benchkit.analysis.run.baseline import COMPARABLE_FIELDS, metrics_against_previous
from benchkit.analysis.run.noise import run_noise
from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.errors import BenchkitError
from benchkit.experiment.paths import collect_workloads
from benchkit.measure.discovery import Collection
from benchkit.show.pages.run import RunData, read_timeline
from benchkit.store.run import Run
from benchkit.store.schema import MARK_COLUMNS, METRICS, RECORD_FIELDS, SERIES_FIELDS
from benchkit.store.storage import in_parallel
from benchkit.store.store import Store

T = TypeVar("T")
#: Environment variable with the path of the store.
STORE_VARIABLE = "BENCHKIT_STORE"
#: The newest runs of the store, of which the pages read nights and noise: bounds the time of the
#: first page and the memory of the server. With 300 runs a day these are eleven months.
MAX_RUNS_READ = 100_000
#: Columns of the index that pages show: all but a text that is different in each run.
SHOWN_COLUMNS = [name for name in (*RECORD_FIELDS, *METRICS, *MARK_COLUMNS) if name != "digest"]
#: Fields that `run_noise` reads.
_NOISE_FIELDS = (
    *SERIES_FIELDS,
    *COMPARABLE_FIELDS,
    "workers_requested",
    "started",
    "outcome",
    "comparable",
    "metric_versions",
)
_READING = threading.Lock()


def open_store() -> Store:
    """Return the store that this server shows."""
    return _store(os.environ.get(STORE_VARIABLE) or "")


# A Store caches the records that it has read: the first read of 5000 records takes 0.3 s.
@pn.cache(max_items=1)
def _store(path: str) -> Store:
    return Store(path or None, create=False)


def runs_table(columns: Sequence[str]) -> pd.DataFrame:
    """Return columns of the index of the store; do not modify.

    Columns are read when a page asks for them first, because no page needs all of them.
    """
    store = open_store()
    version = store_version(store)
    read = _columns(str(store.path), version)
    with _READING:
        missing = [name for name in columns if name not in read]
        if missing:
            frame = store.runs(columns=missing)
            if store_version(store) != version:  # the columns read before may have fewer rows
                return _newest_first(store.runs(columns=columns))
            for name in missing:  # the frame and its copy at once: 200 MB of a million runs
                read[name] = frame.pop(name).iloc[::-1].reset_index(drop=True)
            release_memory()
    return pd.DataFrame({name: read[name] for name in columns}, copy=False)


@pn.cache(max_items=1)
def _columns(path: str, version: str) -> dict[str, pd.Series]:
    """Return the columns of the index that were read; `runs_table` adds to them."""
    return {}


def _newest_first(runs: pd.DataFrame) -> pd.DataFrame:
    return runs.iloc[::-1].reset_index(drop=True)


def release_memory() -> None:
    """Return memory that reads of a large store have freed to the system: 500 MB of a million runs.

    Arrow and the C library else keep it, and the next read does not always use it.
    """
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # only glibc has the function
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def newest_since() -> pd.Timestamp | None:
    """Return the start of the oldest run of the newest `MAX_RUNS_READ`."""
    started = runs_table(["started"])["started"]
    return None if len(started) <= MAX_RUNS_READ else started.iloc[MAX_RUNS_READ - 1]


def runs_of_workload(name: str) -> pd.DataFrame:
    """Return all fields and metrics of the runs of one variant; not cached."""
    has_runs = bool((runs_table(["workload"])["workload"] == name).any())
    runs = open_store().runs(name if has_runs else [], columns=SHOWN_COLUMNS)
    return _newest_first(runs[runs["workload"] == name])  # a name without brackets finds variants


def stored_metrics() -> list[str]:
    """Return the metrics that at least one of the newest `MAX_RUNS_READ` runs has."""

    def read() -> list[str]:
        # Not by `runs_table`: the columns are not needed afterwards, and are large.
        newest = open_store().runs(columns=list(METRICS), since=newest_since())
        is_measured = newest.notna().any()
        return [name for name in METRICS if is_measured[name]]

    return cached(read, "metrics")


def store_version(store: Store) -> str:
    """Return a hash that changes when runs, marks or events are added."""
    folders = ("index/new", "index", "marks", "ledger")
    parts = in_parallel(store.files.list, folders, store.files.n_threads)
    names = "\n".join(name for part in parts for name in part)
    return hashlib.sha256(names.encode()).hexdigest()


def open_run(run_id: str) -> Run:
    """Return a run, shared by sessions; do not modify."""
    store = open_store()
    run = Run(_tree(str(store.path), store.resolve(run_id)))
    run.store = store
    return run


def load_run(run_id: str) -> RunData:
    """Return a run with its task timeline and its baseline, shared by sessions."""
    run = open_run(run_id)

    def baseline() -> pd.DataFrame:
        earlier = runs_of_workload(str(run.record["workload"])).iloc[::-1]
        return metrics_against_previous(earlier, run.record)

    timeline, problem = _timeline(str(open_store().path), run.id)
    return RunData(run, timeline, problem, cached(baseline, "baseline", run.id))


# Eight runs: several pages of a few users.
@pn.cache(max_items=8, policy="LRU")
def _tree(path: str, run_id: str) -> xr.DataTree:
    return Store(path, create=False).open(run_id).tree.load()


# 40 MB at 1 M tasks; cached so that sessions share one copy.
@pn.cache(max_items=8, policy="LRU")
def _timeline(path: str, run_id: str) -> tuple[TaskTimeline, str]:
    return read_timeline(_tree(path, run_id))


def noise_of(metric: str) -> pd.DataFrame:
    """Return the noise of one metric in the sets of comparable newest runs; do not modify."""

    def make() -> pd.DataFrame:
        # Not by `runs_table`: the columns are not needed afterwards, and are large.
        runs = open_store().runs(columns=[*_NOISE_FIELDS, metric], since=newest_since())
        return run_noise(_newest_first(runs), metric)

    return cached(make, "noise", metric)


@pn.cache(max_items=1)
def workload_catalogue() -> Collection:
    """Return the workloads of ``./workloads`` and the shipped ones; collected once."""
    try:
        return collect_workloads()
    except BenchkitError:
        return Collection()


def cached(make: Callable[[], T], *name: str) -> T:
    """Return the result of a function, cached until the store changes; do not modify.

    For results that take seconds, such as the explanation of an experiment.
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


#: Number of newest run files to try, in case files are damaged.
MAX_FILES = 3


def attributes_of(run_id: str) -> dict[str, Any]:
    """Return the attributes of a run file; do not modify."""
    return _attributes_of(str(open_store().path), open_store().resolve(run_id))


# Packages and configuration of a run are 40 kB of text; the groups of the file are not read.
@pn.cache(max_items=200, policy="LRU")
def _attributes_of(path: str, run_id: str) -> dict[str, Any]:
    tree = Store(path, create=False).open(run_id).tree
    try:
        return {str(name): value for name, value in tree.attrs.items()}
    finally:
        tree.close()


def newest_attributes(runs: pd.DataFrame) -> dict[str, Any]:
    """Return the attributes of the newest readable run file."""
    for run_id in runs["id"].head(MAX_FILES) if len(runs) else ():
        with contextlib.suppress(BenchkitError):
            return attributes_of(str(run_id))
    return {}
