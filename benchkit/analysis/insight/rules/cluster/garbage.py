"""Find garbage collections that take a noticeable part of the time."""

from __future__ import annotations

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.analysis.insight.full_memory import collecting_seconds
from benchkit.formatting import format_quantity

__all__ = ["find"]

#: Share of the duration.
MIN_SHARE = 0.08


def find(case: Case) -> Finding | None:
    """Return the finding of this rule."""
    # returned: None: nothing found.
    scheduler = float(case.increase(case.scheduler, "gc_time").max())
    workers = (case.increase(case.workers, "gc_time") - collecting_seconds(case)).max()
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
