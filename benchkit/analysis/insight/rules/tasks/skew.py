"""Find groups of which single tasks take many times as long as the others."""

from __future__ import annotations

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.analysis.insight.full_memory import beside_pauses
from benchkit.formatting import format_quantity

__all__ = ["find"]

#: Longest duration / median from which on a group is skewed; first tasks import modules. Larger by
#: `Case.disturbance` where other processes make single tasks wait for a processor.
SKEWED = 5.0
MIN_TASKS = 8
#: Tasks below this duration are never skewed in a way that matters.
MIN_S = 0.02


def find(case: Case) -> Finding | None:
    """Return the finding of this rule."""
    # returned: None: nothing found.
    tasks = case.tasks
    if tasks.empty or case.limits is None:
        return None
    on_path = case.limits.blame.loc[case.limits.blame["cause"] != "scheduler", "group"]
    skewed, is_beside = SKEWED * case.disturbance, beside_pauses(case)
    worst, cost, evidence, window = "", 0.0, "", None
    for name, durations in tasks.groupby("task_group", observed=True)["duration"]:
        if len(durations) < MIN_TASKS or name not in set(on_path):
            continue
        median = durations.median()
        # While memory fills until a worker is paused, its task waits: that is no work.
        waits = case.waits_in_tasks(str(name)) if is_beside[durations.index].any() else 0.0
        work = durations - waits * is_beside[durations.index]
        longest = work.max()
        if longest > skewed * max(median, MIN_S) and longest - median > cost:
            worst, cost = str(name), float(longest - median)
            start = float(tasks.loc[work.idxmax(), "start"])
            window = start, start + float(longest)
            evidence = (
                f"the longest of {len(durations)} tasks takes {format_quantity(longest, 's')}, "
                f"the median {format_quantity(median, 's')}"
            )
    if not worst or cost < 0.1 * case.duration:
        return None
    return Finding(
        what="one task has much more work than the others of its group",
        seconds=min(cost * (1 - 1 / case.n_threads), case.imbalance),
        evidence=evidence,
        change="divide the data evenly: repartition, or another key for grouping and shuffling",
        group=worst,
        window=window,
    )
