"""Find time that is spent waiting for transfers."""

from __future__ import annotations

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.analysis.insight.full_memory import share_of_disk
from benchkit.formatting import format_quantity

__all__ = ["find"]

#: Share of the duration from which on it is worth a change.
MIN_SHARE = 0.1


def find(case: Case) -> Finding | None:
    """Return the finding of this rule."""
    # returned: None: nothing found.
    waits = case.blamed("transfer") * (1 - share_of_disk(case))
    saved = case.saving(transfers=0)
    cost = waits if saved is None else min(max(saved, waits), 2 * waits)
    if waits < MIN_SHARE * case.disturbance * case.duration:
        return None
    return Finding(
        what="tasks wait for results of other workers",
        seconds=cost,
        evidence=f"the walk back waited {format_quantity(waits, 's')} for transfers of "
        f"{format_quantity(case.metric('transfer_bytes'), 'B')}",
        change="fewer, larger workers; chunks that stay on their worker; a faster network",
        window=case.longest_span("transfer"),
    )
