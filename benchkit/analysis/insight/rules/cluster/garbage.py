"""Find garbage collections that take a noticeable part of the time."""

from __future__ import annotations

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.formatting import format_quantity

__all__ = ["find"]

#: Share of the duration.
MIN_SHARE = 0.08


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
    workers = float(case.increase(case.workers, "gc_time").max(initial=0.0))
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
