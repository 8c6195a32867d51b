"""Find a worker whose tasks take longer than those of the others."""

from __future__ import annotations

from benchkit.analysis.insight.findings import Case, Finding

__all__ = ["find"]

#: Duration of its tasks / that of the same groups on the other workers.
SLOW = 1.4
#: The same on a machine whose other processes disturb single workers.
SLOW_IF_DISTURBED = 1.8
MIN_TASKS = 5
#: The durations of shorter tasks are noise.
MIN_S = 0.005


def find(case: Case) -> Finding | None:
    """Return the finding of this rule."""
    # returned: None: nothing found.
    tasks = case.tasks
    if tasks.empty or tasks["worker"].nunique() < 2:
        return None
    usual = tasks.groupby("task_group", observed=True)["duration"].transform("median")
    known = usual > MIN_S
    busy = tasks.loc[known].groupby("worker")["duration"].sum()
    expected = usual[known].groupby(tasks.loc[known, "worker"]).sum()
    counts = tasks.loc[known].groupby("worker").size()
    # Medians: a single task with more work than the others does not make its worker slow.
    ratios = (tasks["duration"] / usual)[known].groupby(tasks.loc[known, "worker"])
    ratio = ratios.median()[counts >= MIN_TASKS]
    slow = SLOW_IF_DISTURBED if case.is_disturbed else SLOW
    if len(ratio) < 2 or ratio.max() < slow * ratio.drop(ratio.idxmax()).median():
        return None
    worker = int(ratio.idxmax())
    # Groups whose tasks differ in their work have slow and fast tasks on each worker.
    if ratios.quantile(0.25)[worker] < ratios.quantile(0.75)[ratio.index].drop(worker).median():
        return None
    lost = float(busy[worker] - expected[worker])
    name = str(case.workers["name"].values[worker])
    return Finding(
        what=f"worker {name} is slower than the others",
        seconds=lost / int(case.workers["nthreads"].values[worker]) / 2,
        evidence=f"its tasks take {ratio.max():.2f} times as long as those of the same groups",
        change="look at its machine: other processes, temperature, memory; or leave it out",
        worker=name,
    )
