"""Find spilling: results are written to disk and read back."""

from __future__ import annotations

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.formatting import format_quantity

__all__ = ["find"]


def find(case: Case) -> Finding | None:
    """Return the finding of this rule."""
    # returned: None: nothing found.
    seconds = case.metric("disk_write_time") + case.metric("disk_read_time")
    if not seconds:
        return None
    saved = case.saving(no_spill=True)
    limit = int(case.workers["memory_limit"].values.max())
    return Finding(
        what="workers spill results to disk",
        seconds=max(saved or 0.0, seconds / case.n_threads),
        evidence=f"{format_quantity(seconds, 's')} of writing and reading; at most "
        f"{format_quantity(case.metric('spilled_peak'), 'B')} on disk",
        change="more memory per worker, smaller chunks, or fewer results that are needed at once",
        settings={"cluster.memory_limit": 2 * limit} if limit else None,
        window=case.longest_span("disk"),
    )
