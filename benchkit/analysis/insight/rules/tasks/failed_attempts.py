"""Find attempts of tasks that failed."""

from __future__ import annotations

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.formatting import format_quantity

__all__ = ["find"]


def find(case: Case) -> Finding | None:
    """Return the finding of this rule."""
    # returned: None: nothing found.
    seconds = case.metric("failed_time")
    if not seconds:
        return None
    return Finding(
        what="attempts of tasks failed",
        seconds=seconds / case.n_threads,
        evidence=f"{format_quantity(seconds, 's')} of thread-seconds ended in an error",
        change="mend the error; a retry repeats the whole task",
    )
