"""Find garbage collections that take a noticeable part of the time."""

from __future__ import annotations

import numpy as np

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.formatting import format_quantity

__all__ = ["find"]

#: Share of the duration.
MIN_SHARE = 0.08
#: Share of the time of which distributed collects garbage itself on a worker whose memory is full:
#: its ``ThrottledGC.max_in_gc_frac``. The first collection is not throttled.
THROTTLED_SHARE = 0.05


def find(case: Case) -> Finding | None:
    """Return the finding of this rule.

    Parameters
    ----------
    case : Case
        The run.

    Returns
    -------
    Finding or None
        None: nothing found.
    """
    scheduler = float(case.increase(case.scheduler, "gc_time").max())
    workers = float((case.increase(case.workers, "gc_time") - _because_memory_is_full(case)).max())
    workers = max(0.0, workers)
    # Collections cost what waits for them: tasks on a worker, all threads for the scheduler.
    share = min(1.0, case.metric("compute_time") / case.n_threads / case.duration)
    waits = case.blamed("scheduler", "graph") if case.limits else scheduler
    seconds = min(scheduler, waits) + share * workers
    if seconds < MIN_SHARE * case.disturbance * case.duration:
        return None
    is_scheduler = scheduler > workers
    where = "the scheduler" if is_scheduler else "the slowest worker"
    return Finding(
        what="garbage collection takes much time",
        seconds=seconds,
        evidence=f"{format_quantity(max(scheduler, workers), 's')} on {where}",
        change="fewer, larger tasks"
        if is_scheduler
        else "fewer Python objects in results: arrays and tables instead of lists and dicts",
    )


def _because_memory_is_full(case: Case) -> np.ndarray | float:
    """Return the most seconds of each worker that distributed's own collections can have taken.

    It collects when a worker is paused or spills: the remedy is memory, not fewer objects.
    """
    is_paused = case.events("worker-status-change")["message"].str.contains('"paused"').any()
    if "gc_max" not in case.workers or not (is_paused or case.metric("disk_write_time")):
        return 0.0
    longest = np.nan_to_num(case.workers["gc_max"].values).max(axis=0, initial=0.0)
    return np.asarray(longest + THROTTLED_SHARE * case.duration)
