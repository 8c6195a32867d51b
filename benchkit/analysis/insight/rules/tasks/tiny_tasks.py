"""Find tasks that are too small: the scheduler takes longer than their work."""

from __future__ import annotations

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.formatting import format_quantity

__all__ = ["find"]

#: Tasks below this duration cost the scheduler about as much as they compute.
SMALL_S = 0.01
#: With fewer tasks their number does not matter.
MIN_TASKS = 500


def find(case: Case) -> Finding | None:
    """Return the finding of this rule."""
    # returned: None: nothing found.
    groups = case.run.task_groups()
    waits = case.blamed("scheduler")
    if groups.empty or groups["n_tasks"].sum() < MIN_TASKS:
        return None
    mean = groups["compute (s)"] / groups["n_tasks"].clip(lower=1)
    small = groups[(mean < SMALL_S) & (groups["n_tasks"] > 0)]
    n_small, n_all = int(small["n_tasks"].sum()), int(groups["n_tasks"].sum())
    if n_small < 0.5 * n_all:
        return None
    group = str(small["n_tasks"].idxmax())
    return Finding(
        what="tasks are too small",
        seconds=waits,
        evidence=f"{n_small} of {n_all} tasks take less than {format_quantity(SMALL_S, 's')} each; "
        f"threads waited {format_quantity(waits, 's')} for the scheduler",
        change="larger chunks or partitions, or fuse steps into one task",
        group=group,
        window=case.longest_span("scheduler"),
    )
