"""Find graphs that are not parallel enough: most threads have nothing to do."""

from __future__ import annotations

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.formatting import format_quantity

__all__ = ["find"]

#: Share of the duration from which on it is worth a change.
MIN_SHARE = 0.25


def find(case: Case) -> Finding | None:
    """Return the finding of this rule."""
    # returned: None: nothing found.
    # A thread that waits for spilled results looks idle.
    spilling = (case.metric("disk_write_time") + case.metric("disk_read_time")) / case.n_threads
    seconds = case.blamed("not parallel") - spilling
    if case.n_threads < 2 or case.limits is None or seconds < MIN_SHARE * case.duration:
        return None
    if case.blamed("scheduler") > seconds:  # threads are idle because their tasks come late
        return None
    groups = case.limits.groups["seconds"]
    group = str(groups["not parallel"].idxmax())
    return Finding(
        what="too few tasks can run at the same time",
        seconds=min(seconds / 2, case.imbalance),
        evidence=f"for {format_quantity(seconds, 's')} a task computed while most of the "
        f"{case.n_threads} threads were idle",
        change="smaller chunks of this group, or a tree reduction; else a smaller cluster",
        group=group,
        window=case.longest_span("not parallel"),
    )
