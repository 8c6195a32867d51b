"""Find garbage collections that take a noticeable part of the time."""

from __future__ import annotations

import numpy as np

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.formatting import format_quantity

__all__ = ["find"]

#: Share of the duration.
MIN_SHARE = 0.08
#: Share of the time of which distributed collects garbage itself on a worker whose memory is full
#: (its ``ThrottledGC.max_in_gc_frac``), after the first collection. The remedy is more memory.
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
    workers = (case.increase(case.workers, "gc_time") - _because_memory_is_full(case)).max()
    # Collections cost what waits for them: tasks on a worker, all threads for the scheduler.
    share = min(1.0, case.metric("compute_time") / case.n_threads / case.duration)
    waits = case.blamed("scheduler", "graph") if case.limits else scheduler
    seconds = min(scheduler, waits) + share * max(0.0, workers)
    if seconds < MIN_SHARE * case.disturbance * case.duration:
        return None
    where, change = "the scheduler", "fewer, larger tasks"
    if workers > scheduler:
        where = "the slowest worker"
        change = "fewer Python objects in results: arrays and tables instead of lists and dicts"
    return Finding(
        what="garbage collection takes much time",
        seconds=seconds,
        evidence=f"{format_quantity(max(scheduler, workers), 's')} on {where}",
        change=change,
    )


def _because_memory_is_full(case: Case) -> np.ndarray | float:
    """Return the most seconds that distributed's own collections on each worker can have taken."""
    is_paused = case.events("worker-status-change")["message"].str.contains('"paused"').any()
    if "gc_max" in case.workers and (is_paused or case.metric("disk_write_time")):
        longest = np.nan_to_num(case.workers["gc_max"].values).max(axis=0, initial=0.0)
        return np.asarray(longest + THROTTLED_SHARE * case.duration)
    return 0.0
