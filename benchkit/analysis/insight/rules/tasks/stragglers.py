"""Find last tasks that run alone at the end."""

from __future__ import annotations

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.formatting import format_quantity

__all__ = ["find"]

#: Share of the duration: every run ends with some tasks that run alone.
MIN_SHARE = 0.1
#: Share of the threads that were busy before the last tasks ran alone, on average.
MIN_BUSY = 0.5


def find(case: Case) -> Finding | None:
    """Return the finding of this rule."""
    # returned: None: nothing found.
    seconds = case.blamed("straggler")
    if case.limits is None or seconds < MIN_SHARE * case.duration:
        return None
    # A chain of tasks also ends with one: then the graph never was parallel.
    blame = case.limits.blame
    begin = blame.loc[blame["cause"] == "straggler", "start"].min()
    stop = (case.tasks["start"] + case.tasks["duration"]).clip(upper=begin)
    if (stop - case.tasks["start"]).clip(lower=0).sum() < MIN_BUSY * case.n_threads * begin:
        return None
    group = str(case.limits.groups["seconds"]["straggler"].idxmax())
    # Equal tasks that do not divide evenly among the threads end at most one task apart.
    equal = case.tasks.loc[case.tasks["task_group"] == group, "duration"]
    if len(equal) > case.n_threads and seconds < equal.median() * case.disturbance:
        return None
    return Finding(
        what="the last tasks run alone",
        seconds=seconds,
        evidence=f"for {format_quantity(seconds, 's')} at the end most threads were idle",
        change="smaller tasks in this group, or start its long tasks first: dask.annotate",
        group=group,
        window=(float(begin), case.duration),
    )
