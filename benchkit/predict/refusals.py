"""Why a run says nothing about other clusters: each reason once, for the replay and simulation."""

from __future__ import annotations

import numpy as np

from benchkit.errors import UsageError
from benchkit.simulation.graph import first_p2p
from benchkit.store.run import Run
from benchkit.store.task_graph import TaskGraph


class UnsupportedRun(UsageError):
    """Raised for a run, or a change of it, that cannot be predicted."""

    def __init__(self, run_id: str, reason: str) -> None:
        super().__init__(f"run {run_id[:13]}: no prediction: {reason}")


def refuse(run: Run, graph: TaskGraph) -> None:
    """Raise an UnsupportedRun with the first reason why nothing can be predicted from a run."""
    workers, ran = run.tree["workers"].to_dataset(), np.isfinite(graph.start)
    options = {name for given in graph.options.values() for name in given}
    # Arrays: comparing Datasets' variables imports dask.array.
    joined, left = workers["joined"].values, workers["left"].values
    changed = (joined > 0) | (left < run.metrics.get("duration", np.inf))
    p2p = first_p2p(graph.group_names)
    reasons = {
        f"its outcome is {run.outcome}": run.outcome != "ok",
        f"{p2p} is P2P, which moves data outside of the graph": p2p is not None,
        "tasks are missing from its task stream": bool(run.tree["tasks"].attrs.get("n_dropped")),
        "no task of its graph ran": not ran.any(),
        "its tasks failed": not graph.ok[ran].all(),
        "its tasks left their threads (secede, worker_client)": "seceded_time" in run.metrics
        and run.metrics["seceded_time"] > 0,
        "its tasks were computed again": run.metrics.get("n_tasks_recomputed", 0) > 0,
        "it lost workers": run.metrics.get("n_workers_lost", 0) > 0,
        "workers joined or left during the run": bool(changed.any()),
        "its workers differ in threads or memory": any(
            len(np.unique(workers[name])) != 1 for name in ("nthreads", "memory_limit")
        ),
        "it has actors": "actor" in options,
        "its tasks need resources, and how many workers have is not recorded": "resources"
        in options,
    }
    for reason, holds in reasons.items():
        if holds:
            raise UnsupportedRun(run.id, reason)


def refuse_without_sizes(run: Run, change: str) -> None:
    """Raise an UnsupportedRun if the sizes of results, which a change needs, were not recorded."""
    if "nbytes" not in run.tree["task_groups"].data_vars:
        engine = run.tree.attrs.get("engine")
        reason = f"{change} needs the sizes of results, which the engine {engine} does not report"
        raise UnsupportedRun(run.id, reason)
