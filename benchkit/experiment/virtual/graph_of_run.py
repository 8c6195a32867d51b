"""The input of a virtual cluster from a kept run: its graph, its durations and its cluster."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np

from benchkit.errors import UsageError
from benchkit.simulation.graph import Submission, UnsupportedGraph, VirtualGraph, check_graph
from benchkit.simulation.model import ClusterShape
from benchkit.store.run import Run
from benchkit.store.task_graph import TaskGraph

#: Options of tasks that the simulation does not follow.
_OPTIONS = ("actor", "priority", "resources", "workers")


class UnsupportedRun(UsageError):
    """Raised for a run that cannot be simulated."""

    def __init__(self, run: Run, reason: str) -> None:
        super().__init__(f"run {run.id[:13]} ({run.workload}) cannot be simulated: {reason}")


def shape_of_run(run: Run) -> ClusterShape:
    """Return the shape of the cluster of a run."""
    workers = run.tree["workers"].to_dataset()
    joined, left = workers["joined"].values, workers["left"].values
    if (joined > 0).any() or (left < run.metrics.get("duration", np.inf)).any():
        raise UnsupportedRun(run, "workers joined or left during the run")
    limits = {name: set(workers[name].values.tolist()) for name in ("nthreads", "memory_limit")}
    if any(len(values) != 1 for values in limits.values()):
        raise UnsupportedRun(run, "its workers differ in threads or memory")
    processes = workers["process_id"].values if "process_id" in workers else np.zeros(0)
    n_workers = workers.sizes["worker"]
    return ClusterShape(
        n_workers,
        int(limits["nthreads"].pop()),
        int(limits["memory_limit"].pop()),
        shared_loop=n_workers > 1 and len(set(processes.tolist())) == 1,
    )


def graph_of_run(run: Run) -> VirtualGraph:
    """Return the graph of a run with its durations and sizes."""
    if run.simulated:
        raise UnsupportedRun(run, "it is simulated itself: choose the measured run")
    if run.outcome != "ok":
        raise UnsupportedRun(run, f"its outcome is {run.outcome}")
    if run.metrics.get("seceded_time") or run.metrics.get("n_tasks_recomputed"):
        raise UnsupportedRun(run, "its tasks submit tasks, or were computed again")
    graph = run.task_graph()
    names = {name for options in graph.options.values() for name in options if name in _OPTIONS}
    if names:
        raise UnsupportedRun(run, f"its tasks have options: {', '.join(sorted(names))}")
    if (graph.row >= 0).any() and not graph.ok[graph.row >= 0].all():
        raise UnsupportedRun(run, "tasks failed")
    if not (graph.row >= 0).any():
        raise UnsupportedRun(run, "it has no tasks")
    keys = _keys(run, graph)
    try:
        check_graph(keys)
    except UnsupportedGraph as error:
        raise UnsupportedRun(run, str(error)) from None
    return _virtual_graph(run, graph, keys)


def _keys(run: Run, graph: TaskGraph) -> list[Any]:
    """Return a key per node; nodes that did not run get one from their group."""
    recorded = [_parse_key(text) for text in run.task_keys()]
    names = [*graph.group_names, "data"]  # -1: no task of the group ran
    keys: list[Any] = [
        recorded[row] if row >= 0 else (f"{names[group]}-kept", node)
        for node, (row, group) in enumerate(zip(graph.row, graph.group, strict=True))
    ]
    if len(set(keys)) != len(keys):
        raise UnsupportedRun(run, "a key was submitted twice")
    return keys


def _parse_key(text: str) -> Any:
    if text.startswith("("):
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            pass
    return text


def _virtual_graph(run: Run, graph: TaskGraph, keys: list[Any]) -> VirtualGraph:
    """Keep nodes that ran, and those of earlier work, which are in memory before the clock."""
    kept = (graph.row >= 0) | (graph.submission < 0)
    number = np.cumsum(kept) - 1
    nodes = np.flatnonzero(kept)
    starts, ends = graph.indptr[nodes], graph.indptr[nodes + 1]
    dependencies = [
        number[row[kept[row]]].tolist()
        for row in (graph.indices[a:b] for a, b in zip(starts, ends, strict=True))
    ]
    before = number[np.flatnonzero(kept & (graph.submission < 0))].tolist()
    submissions = [Submission(before, before)] if before else []
    tail_s = run.duration - _add_submissions(graph, kept, number, submissions)
    return VirtualGraph(
        keys=[keys[node] for node in nodes],
        dependencies=dependencies,
        seconds=np.nan_to_num(graph.duration[nodes]).tolist(),
        nbytes=np.maximum(graph.nbytes[nodes], 0).tolist(),
        submissions=submissions,
        producers=number[np.flatnonzero(kept & graph.producer)].tolist(),
        name=run.workload,
        n_before=len(submissions[:1]) if before else 0,
        tail_s=max(0.0, tail_s),
    )


def _add_submissions(
    graph: TaskGraph, kept: np.ndarray, number: np.ndarray, submissions: list[Submission]
) -> float:
    """Add the submissions of a run; return the time of its last result in s."""
    stop = graph.stop
    times = graph.submissions["received"].to_numpy(float)
    handled = graph.submissions["ordered"].to_numpy(float)
    released_at = graph.releases["time"].to_numpy(float)
    released = graph.releases["node"].to_numpy(int)
    last_received, results_at = 0.0, 0.0
    for position, received in enumerate(times):
        wanted = graph.submissions["wanted"].iloc[position]
        wanted = wanted[kept[wanted]]
        tasks = np.flatnonzero(kept & (graph.submission == position))
        between = released[(released_at > last_received) & (released_at <= received)]
        overlaps = bool(position > 0 and results_at > received)
        submissions.append(
            Submission(
                number[tasks].tolist(),
                number[wanted].tolist(),
                max(0.0, received - (last_received if overlaps else results_at)),
                number[between[kept[between]]].tolist(),
                overlaps,
                float(handled[position] - received) if np.isfinite(handled[position]) else None,
            )
        )
        last_received = received
        ran = wanted[np.isfinite(stop[wanted])]
        results_at = max(results_at, received, float(stop[ran].max(initial=0.0)))
    return results_at
