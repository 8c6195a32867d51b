"""Find memory outside of results: leaks, caches, fragmentation."""

from __future__ import annotations

import numpy as np

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.store.build.processes import share_processes

__all__ = ["find"]

#: Share of the memory limit from which on results have too little room.
LARGE = 0.5
#: What the process of a worker needs before its first task, with NumPy and pandas imported; it is
#: no leak, and fills a small limit.
IMPORTS_BYTES = 120e6


def find(case: Case) -> Finding | None:
    """Return the finding of this rule."""
    # returned: None: nothing found.
    limit = case.workers["memory_limit"].values
    unmanaged = case.workers["unmanaged_old"].values
    if not len(limit) or not limit.all() or not np.isfinite(unmanaged).any():
        return None
    if share_processes(case.workers):  # the results of other workers look like unmanaged memory
        return None
    share = (np.nanmax(unmanaged, axis=0) - IMPORTS_BYTES) / limit
    if np.nanmax(share) < LARGE:
        return None
    worker = int(np.nanargmax(share))
    return Finding(
        what="memory that Dask does not manage fills the workers",
        seconds=max(case.blamed("disk", "worker paused"), case.least_cost),
        evidence=f"{np.nanmax(share):.0%} of the limit of worker "
        f"{case.workers['name'].values[worker]}, without what imported modules need",
        change="look for leaks and caches in tasks; MALLOC_TRIM_THRESHOLD_=65536",
        settings={"variables.MALLOC_TRIM_THRESHOLD_": "65536"},
        worker=str(case.workers["name"].values[worker]),
    )
