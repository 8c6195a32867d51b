"""Find threads that wait for the GIL."""

from __future__ import annotations

from benchkit.analysis.insight.findings import Case, Finding

__all__ = ["find"]

#: Share of the time in which a thread waited for the GIL.
HIGH = 0.4


def find(case: Case) -> Finding | None:
    """Return the finding of this rule."""
    # returned: None: nothing found.
    share = case.metric("gil_contention_mean")
    nthreads = int(case.workers["nthreads"].values.max(initial=1))
    if share < HIGH or nthreads < 2:
        return None
    lost = share * (1 - 1 / nthreads)
    return Finding(
        what="threads of one worker wait for each other (GIL)",
        seconds=lost * case.metric("compute_time") / case.n_threads,
        evidence=f"contended for {share:.0%} of the time with {nthreads} threads a worker",
        change="more workers with one thread each",
        settings={
            "cluster.n_workers": case.n_threads,
            "cluster.threads_per_worker": 1,
        },
    )
