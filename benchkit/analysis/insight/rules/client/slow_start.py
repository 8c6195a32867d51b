"""Find a long time before the first task."""

from __future__ import annotations

import numpy as np

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.formatting import format_quantity

__all__ = ["find"]

#: Share of the duration before the first task.
MIN_SHARE = 0.1
MIN_S = 0.5


def find(case: Case) -> Finding | None:
    """Return the finding of this rule."""
    # returned: None: nothing found.
    if case.tasks.empty or case.limits is None:
        return None
    graph = case.run.task_graph()
    # Attempts that failed are not in the list of tasks: then the first task was sent earlier.
    first = float(np.nanmin([case.tasks["start"].min(), graph.submissions["started"].min()]))
    if first < case.disturbance * max(MIN_S, MIN_SHARE * case.duration):
        return None
    calls = graph.calls
    built = calls["optimised"].fillna(calls["serialised"])
    build = f"; the client began to send a graph after {format_quantity(built.min(), 's')}"
    return Finding(
        what="it takes long until the first task starts",
        seconds=first,
        evidence=f"{format_quantity(first, 's')}{build if len(built) else ''}",
        change="a smaller graph: larger chunks, fewer layers, map_blocks for many operations",
        window=(0.0, first),
    )
