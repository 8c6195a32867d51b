"""Find last tasks that run alone at the end."""

from __future__ import annotations

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.formatting import format_quantity

__all__ = ["find"]


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
    seconds = case.blamed("straggler")
    if not seconds or case.limits is None:
        return None
    group = str(case.limits.groups["seconds"]["straggler"].idxmax())
    return Finding(
        what="the last tasks run alone",
        seconds=seconds,
        evidence=f"for {format_quantity(seconds, 's')} at the end most threads were idle",
        change="smaller tasks in this group, or start its long tasks first: dask.annotate",
        group=group,
    )
