"""Find workers that were lost."""

from __future__ import annotations

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.formatting import counted

__all__ = ["find"]


def find(case: Case) -> Finding | None:
    """Return the finding of this rule."""
    # returned: None: nothing found.
    n_lost = int(case.metric("n_workers_lost"))
    if not n_lost:
        return None
    restarts = case.events("worker-restart-memory")
    why = "the nanny ended them: memory" if len(restarts) else "they died or lost the connection"
    return Finding(
        what="workers were lost",
        seconds=max(case.least_cost, case.blamed("scheduler")),
        evidence=f"{counted(n_lost, 'worker')}; {why}",
        change="more memory per worker or smaller chunks"
        if len(restarts)
        else "read the worker's logs",
    )
