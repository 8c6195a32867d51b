"""Rules about the memory of workers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchkit.analysis.insight.blame import BETWEEN_TASKS, COMPUTING, seconds_until, sum_over_time
from benchkit.analysis.insight.findings import WORTH_SHARE, Case, Finding, rule
from benchkit.analysis.insight.memory import memory_left
from benchkit.formatting import counted, format_quantity
from benchkit.measure.engines import ran_in_dask
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
        seconds=_spilling_seconds(case),
        is_always_reported=True,
        evidence=f"the largest result of {group} has {format_quantity(float(largest.max()), 'B')}, "
        f"{part:.0%} of the memory per thread",
        change="smaller chunks or partitions",
        group=group,
    )


@rule("worker paused")
def paused_workers(case: Case) -> Finding | None:
    """Find workers that were paused because their memory was full."""
    status = case.events("worker-status-change")
    paused = status[['"status": "paused"' in message for message in status["message"]]]
    if not len(paused):
        return None
    return Finding(
        what="workers were paused",
        seconds=_paused_seconds(case) * (1 - _kept_results(case).share),
        is_always_reported=True,
        evidence=f"{counted(len(paused), 'time')}; the walk back waited "
        f"{format_quantity(case.blamed('worker paused'), 's')} for them",
        change="more memory per worker, or smaller chunks",
        worker=str(case.workers["name"].values[int(paused["worker"].iloc[0])]),
        window=case.longest_span("worker paused"),
    )


@rule("disk", "worker paused", *BETWEEN_TASKS, *COMPUTING)
def spilling(case: Case) -> Finding | None:
    """Find spilling: results are written to disk and read back."""
    seconds = case.metric("disk_write_time") + case.metric("disk_read_time")
    saved = _spilling_seconds(case)
    if not saved:
        return None
    limit = int(case.workers["memory_limit"].values.max())
    return Finding(
        what="workers spill results to disk",
        seconds=saved * (1 - _kept_results(case).share),
        evidence=f"{format_quantity(seconds, 's')} of writing and reading; at most "
        f"{format_quantity(case.metric('spilled_peak'), 'B')} on disk",
        change="more memory per worker, smaller chunks, or fewer results that are needed at once",
        settings={"cluster.memory_limit": 2 * limit} if limit else None,
        window=case.longest_span("disk"),
    )


def _spilling_seconds(case: Case) -> float:
    """Return what the run would save without spilling."""
    seconds = case.metric("disk_write_time") + case.metric("disk_read_time")
    if not seconds or case.limits is None:
        return seconds / case.n_threads
    # Dask also writes between tasks, which the replay does not know: then something waits for it.
    unknown = min(seconds / case.n_threads, case.blamed("disk", "worker paused", *BETWEEN_TASKS))
    return max(case.saving(no_spill=True) or 0.0, unknown)


def _paused_seconds(case: Case) -> float:
    """Return what the run would save without pauses: other workers compute during them."""
    return min(case.even_load_saving("worker paused"), case.max_saving(["worker paused"]))


def _memory_seconds(case: Case) -> float:
    """Return what the run would save with enough memory."""
    limit = case.max_saving(["disk", "worker paused"])
    return min(_spilling_seconds(case) + _paused_seconds(case), limit)


@rule("disk", "worker paused")
def kept_results(case: Case) -> Finding | None:
    """Find results that futures hold although no task needs them any more, while memory is full."""
    kept = _kept_results(case)
    if not kept.share:
        return None
    size = format_quantity(kept.nbytes, "B")
    return Finding(
        what="futures keep results that no task needs any more",
        seconds=kept.share * _memory_seconds(case),
        evidence=f"up to {size}, most of {kept.group}, were held after the last task that used "
        f"them; while the run waited for disk or paused workers, they were {kept.share:.0%} of all "
        "results",
        change="drop the futures when the tasks that need them are submitted: del futures, or "
        "client.map(second, client.map(first, ...))",
        group=kept.group,
    )


class _Kept(NamedTuple):
    """Results that only futures hold."""

    share: float = 0.0  # Of the bytes of all results, while the run waited for disk or memory
    nbytes: float = 0.0  # At most, in B
    group: str = ""  # The task group with most of them


def _kept_results(case: Case) -> _Kept:
    """Return which results futures held after the last task that used them had ended."""
    waits = case.blamed("disk", "worker paused")
    if case.limits is None or not waits:
        return _Kept()
    graph = case.run.task_graph()
    ran = np.isfinite(graph.start)
    ends = np.where(ran, graph.stop, np.inf)
    last_use = np.full(len(graph), -np.inf)
    np.maximum.at(last_use, graph.indices, np.repeat(ends, np.diff(graph.indptr)))
    released = np.fmin(graph.released, case.duration)
    kept = ran & np.isfinite(last_use) & (released > last_use)
    if not kept.any():
        return _Kept()
    size = np.maximum(graph.nbytes, 0).astype(float)
    blame = case.limits.blame
    rows = blame[blame["origin"].isin(("disk", "worker paused"))]
    times, held = _bytes_over_time(last_use[kept], released[kept], size[kept])
    results = sum_over_time(*_bytes_over_time(ends[ran], released[ran], size[ran]))
    shares = seconds_until(sum_over_time(times, held), rows) / seconds_until(results, rows).clip(
        1.0
    )
    share = float((shares * (rows["stop"] - rows["start"])).sum() / waits)
    most = np.bincount(graph.group[kept], size[kept]).argmax()
    return _Kept(min(1.0, share), float(held.max()), graph.group_names[int(most)])


def _bytes_over_time(
    begin: np.ndarray, end: np.ndarray, size: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return times, and the bytes of the results that are there from then on."""
    times = np.concatenate([begin, np.maximum(begin, end)])
    order = np.argsort(times, kind="stable")
    return times[order], np.cumsum(np.concatenate([size, -size])[order])


#: Share of the memory limit. Above one half, results have too little room: Dask spills them at 60 %
#: of the limit.
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
    # Results of other workers in the process, or of another engine, look like unmanaged memory.
    if share_processes(case.workers) or not ran_in_dask(case.run.tree.attrs):
        return None
    share = (np.nanmax(unmanaged, axis=0) - IMPORTS_BYTES) / limit
    if np.nanmax(share) < MIN_UNMANAGED_SHARE:
        return None
    worker = int(np.nanargmax(share))
    return Finding(
        what="memory that Dask does not manage fills the workers",
        seconds=_memory_seconds(case),
        is_always_reported=True,
        evidence=f"{np.nanmax(share):.0%} of the limit of worker "
        f"{case.workers['name'].values[worker]}, without what imported modules need",
        change="look for leaks and caches in tasks; MALLOC_TRIM_THRESHOLD_=65536",
        settings={"variables.MALLOC_TRIM_THRESHOLD_": "65536"},
        worker=str(case.workers["name"].values[worker]),
    )


#: Share of a worker's memory that the second half of its tasks has to leave: all of them leave as
#: much as is worth a change of code.
MIN_LEFT_SHARE = WORTH_SHARE / 2


@rule("disk", "worker paused")
def left_memory(case: Case) -> Finding | None:
    """Find tasks that leave memory behind which is no result: leaks, and caches that grow."""
    left = memory_left(case.run)
    if left is None or left.share < MIN_LEFT_SHARE:
        return None
    name = str(case.workers["name"].values[left.worker])
    return Finding(
        what="tasks leave memory behind that is no result",
        seconds=_memory_seconds(case),
        is_always_reported=True,
        evidence=f"tasks of {left.group} leave about {format_quantity(left.per_task, 'B')} each; "
        f"those of the second half filled {left.share:.0%} of the memory of worker {name}",
        change="look for lists, caches and global variables that these tasks fill; if they free it "
        "all, MALLOC_TRIM_THRESHOLD_=65536",
        group=left.group,
        worker=name,
    )
