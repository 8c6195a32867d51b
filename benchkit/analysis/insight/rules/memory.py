"""Rules about the memory of workers."""

from __future__ import annotations

import numpy as np

from benchkit.analysis.insight.blame import BETWEEN_TASKS, COMPUTING
from benchkit.analysis.insight.findings import Case, Finding, rule
from benchkit.formatting import counted, format_quantity
from benchkit.store.build.processes import share_processes

#: Share of a worker's memory per thread: a task needs its inputs and its result at once.
MIN_RESULT_SHARE = 0.4


@rule("disk", "worker paused")
def large_results(case: Case) -> Finding | None:
    """Find results that are too large for the memory of a thread."""
    tasks, limit = case.tasks, case.workers["memory_limit"].values
    share = limit / np.maximum(case.workers["nthreads"].values, 1)
    if tasks.empty or not limit.all():
        return None
    largest = tasks.groupby("task_group", observed=True)["nbytes"].max()
    group = str(largest.idxmax())
    part = float(largest.max()) / float(share.min())
    if part < MIN_RESULT_SHARE:
        return None
    return Finding(
        what="single results take a large part of a worker's memory",
        seconds=case.metric("disk_write_time") / case.n_threads,
        is_always_reported=True,
        evidence=f"the largest result of {group} has {format_quantity(float(largest.max()), 'B')}, "
        f"{part:.0%} of the memory per thread",
        change="smaller chunks or partitions",
        group=group,
    )


@rule("worker paused")
def paused_workers(case: Case) -> Finding | None:
    """Find workers that were paused because their memory was full."""
    seconds = case.blamed("worker paused")
    status = case.events("worker-status-change")
    paused = status[['"status": "paused"' in message for message in status["message"]]]
    if not len(paused):
        return None
    return Finding(
        what="workers were paused",
        seconds=seconds,
        is_always_reported=True,
        evidence=f"{counted(len(paused), 'time')}; the walk back waited "
        f"{format_quantity(seconds, 's')} for them",
        change="more memory per worker, or smaller chunks",
        worker=str(case.workers["name"].values[int(paused["worker"].iloc[0])]),
        window=case.longest_span("worker paused"),
    )


@rule("disk", "worker paused", *BETWEEN_TASKS, *COMPUTING)
def spilling(case: Case) -> Finding | None:
    """Find spilling: results are written to disk and read back."""
    seconds = case.metric("disk_write_time") + case.metric("disk_read_time")
    if not seconds:
        return None
    saved = case.saving(no_spill=True)
    limit = int(case.workers["memory_limit"].values.max())
    return Finding(
        what="workers spill results to disk",
        seconds=max(saved or 0.0, seconds / case.n_threads),
        evidence=f"{format_quantity(seconds, 's')} of writing and reading; at most "
        f"{format_quantity(case.metric('spilled_peak'), 'B')} on disk",
        change="more memory per worker, smaller chunks, or fewer results that are needed at once",
        settings={"cluster.memory_limit": 2 * limit} if limit else None,
        window=case.longest_span("disk"),
    )


#: Share of the memory limit. Above it, results have too little room.
MIN_UNMANAGED_SHARE = 0.5
#: What the process of a worker needs before its first task, with NumPy and pandas imported; it is
#: no leak, and fills a small limit.
IMPORTS_BYTES = 120e6


@rule("disk", "worker paused")
def unmanaged(case: Case) -> Finding | None:
    """Find memory outside of results: leaks, caches, fragmentation."""
    limit = case.workers["memory_limit"].values
    unmanaged = case.workers["unmanaged_old"].values
    if not len(limit) or not limit.all() or not np.isfinite(unmanaged).any():
        return None
    if share_processes(case.workers):  # the results of other workers look like unmanaged memory
        return None
    share = (np.nanmax(unmanaged, axis=0) - IMPORTS_BYTES) / limit
    if np.nanmax(share) < MIN_UNMANAGED_SHARE:
        return None
    worker = int(np.nanargmax(share))
    return Finding(
        what="memory that Dask does not manage fills the workers",
        seconds=case.blamed("disk", "worker paused"),
        is_always_reported=True,
        evidence=f"{np.nanmax(share):.0%} of the limit of worker "
        f"{case.workers['name'].values[worker]}, without what imported modules need",
        change="look for leaks and caches in tasks; MALLOC_TRIM_THRESHOLD_=65536",
        settings={"variables.MALLOC_TRIM_THRESHOLD_": "65536"},
        worker=str(case.workers["name"].values[worker]),
    )
