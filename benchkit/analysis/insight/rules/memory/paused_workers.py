"""Find workers that were paused because their memory was full."""

from __future__ import annotations

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.formatting import counted, format_quantity

__all__ = ["find"]


def find(case: Case) -> Finding | None:
    """Return the finding of this rule."""
    # returned: None: nothing found.
    seconds = case.blamed("worker paused")
    status = case.events("worker-status-change")
    paused = status[['"status": "paused"' in message for message in status["message"]]]
    if not len(paused):
        return None
    return Finding(
        what="workers were paused",
        seconds=max(seconds, case.least_cost),
        evidence=f"{counted(len(paused), 'time')}; the walk back waited "
        f"{format_quantity(seconds, 's')} for them",
        change="more memory per worker, or smaller chunks",
        worker=str(case.workers["name"].values[int(paused["worker"].iloc[0])]),
        window=case.longest_span("worker paused"),
    )
