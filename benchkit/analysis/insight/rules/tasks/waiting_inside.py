"""Find tasks that wait for something: storage, locks, other services."""

from __future__ import annotations

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.formatting import format_quantity

__all__ = ["find"]

#: Seconds of computing / seconds of waiting of tasks that do nothing but wait: with 18 processes on
#: two processors, tasks that compute wait 14 times as long as they compute.
NO_WORK = 0.02
#: Processor seconds in other threads / seconds of waiting of tasks that wait for their own threads.
OWN_THREADS = 0.4


def find(case: Case) -> Finding | None:
    """Return the finding of this rule."""
    # returned: None: nothing found.
    own = case.fine_seconds[case.fine_seconds["context"] == "execute"]
    waits = own[own["activity"] == "thread-noncpu"].groupby("prefix")["value"].sum()
    works = own[own["activity"] == "thread-cpu"].groupby("prefix")["value"].sum()
    works = works.reindex(waits.index).fillna(0.0)
    # Tasks that compute wait for processors, too: for those of the machine, and by chance.
    waits = (waits - works * max(1 / 3, case.processor_waits)).clip(lower=0)
    if waits.empty or waits.max() < 0.3 * own["value"].sum():
        return None
    prefix = str(waits.idxmax())
    # Tasks also wait for the GIL, and for processors that other processes use: then they compute.
    if case.other_threads > OWN_THREADS * waits[prefix]:
        return None
    computes = works[prefix] > NO_WORK * waits[prefix]
    if computes and (case.metric("gil_contention_mean") > 0.3 or case.is_disturbed):
        return None
    return Finding(
        what="tasks wait instead of computing",
        seconds=float(waits.max()) / case.n_threads / 2,
        evidence=f"{format_quantity(waits.max(), 's')} in tasks of {prefix} without using a "
        "processor: storage, network, locks, sleeping",
        change="more threads per worker, fewer and larger reads, or storage that is nearer",
        settings={"cluster.threads_per_worker": 2 * int(case.workers["nthreads"].values.max())},
        group=prefix,
    )
