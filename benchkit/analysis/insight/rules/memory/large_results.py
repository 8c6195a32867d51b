"""Find results that are too large for the memory of a thread."""

from __future__ import annotations

import numpy as np

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.formatting import format_quantity

__all__ = ["find"]

#: Share of a worker's memory per thread: a task needs its inputs and its result at once.
LARGE = 0.4


def find(case: Case) -> Finding | None:
    """Return the finding of this rule."""
    # returned: None: nothing found.
    tasks, limit = case.tasks, case.workers["memory_limit"].values
    share = limit / np.maximum(case.workers["nthreads"].values, 1)
    if tasks.empty or not limit.all():
        return None
    largest = tasks.groupby("task_group", observed=True)["nbytes"].max()
    group = str(largest.idxmax())
    part = float(largest.max()) / float(share.min())
    if part < LARGE:
        return None
    return Finding(
        what="single results take a large part of a worker's memory",
        seconds=max(case.metric("disk_write_time") / case.n_threads, case.least_cost),
        evidence=f"the largest result of {group} has {format_quantity(float(largest.max()), 'B')}, "
        f"{part:.0%} of the memory per thread",
        change="smaller chunks or partitions",
        group=group,
    )
