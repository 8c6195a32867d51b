"""Find tasks that were computed again after a worker was lost."""

from __future__ import annotations

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.formatting import format_quantity

__all__ = ["find"]


def find(case: Case) -> Finding | None:
    """Return the finding of this rule."""
    # returned: None: nothing found.
    again = case.events("task-recomputed")
    if not len(again) or case.tasks.empty:
        return None
    rows = case.tasks["start"].isin(again["time"])
    seconds = float(case.tasks.loc[rows, "duration"].sum())
    return Finding(
        what="results were computed again after a worker was lost",
        seconds=seconds / case.n_threads,
        evidence=f"{len(again)} tasks, {format_quantity(seconds, 's')} of computing",
        change="find out why the worker was lost; persist or store what is expensive",
    )
