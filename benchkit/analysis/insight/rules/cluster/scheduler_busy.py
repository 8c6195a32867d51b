"""Find a scheduler that has no time left."""

from __future__ import annotations

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.formatting import format_quantity

__all__ = ["find"]

#: Share of the duration in which the scheduler's thread was busy.
BUSY = 0.7


def find(case: Case) -> Finding | None:
    """Return the finding of this rule."""
    # returned: None: nothing found.
    if case.limits is None:
        return None
    busy = case.limits.bounds["scheduler"]
    # Time in which it unpacks graphs and sends data in them is the finding of another rule.
    unpacking = case.blamed("graph")
    waits = case.blamed("scheduler") - case.data_waits
    if busy < BUSY * case.duration or waits < max(unpacking, case.data_waits):
        return None
    n_tasks = int(case.metric("n_tasks"))
    return Finding(
        what="the scheduler is the bottleneck",
        seconds=waits + unpacking,
        evidence=f"its process was busy for {format_quantity(busy, 's')} of "
        f"{format_quantity(case.duration, 's')}, with {n_tasks} tasks",
        change="fewer, larger tasks; fewer workers do not help",
        window=case.longest_span("scheduler", "graph"),
    )
