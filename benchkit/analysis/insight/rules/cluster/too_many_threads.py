"""Find clusters that are larger than the run can use."""

from __future__ import annotations

from benchkit.analysis.insight.findings import Case, Finding

__all__ = ["find"]

#: Share of the threads' time without a task.
IDLE = 0.6
#: Duration with half of the workers / measured duration.
SAME = 1.03


def find(case: Case) -> Finding | None:
    """Return the finding of this rule."""
    # returned: None: nothing found.
    n_workers = len(case.workers["nthreads"].values)
    if n_workers < 2 or case.metric("idle_time") < IDLE * case.n_threads * case.duration:
        return None
    idle = case.metric("idle_time") / case.n_threads / case.duration
    half = case.predict(workers=n_workers // 2)
    if half is None or half.ratio > SAME:
        return None
    return Finding(
        what="the cluster is larger than this run can use",
        seconds=max(0.05 * case.duration, case.least_cost),
        evidence=f"threads were idle for {idle:.0%} of the time; "
        f"{n_workers // 2} workers would take {half.ratio:.2f} times as long",
        change=f"{n_workers // 2} workers",
        settings={"cluster.n_workers": n_workers // 2},
    )
