"""Larger chunks: the workflow of a run in which tasks of a group are merged in pairs.

A merged task takes as long as both and has the results of both. So the cost of each task between
the tasks is saved, and parallel work is lost; what the code saves by larger chunks is not known.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from benchkit.errors import UsageError
from benchkit.formatting import short_group
from benchkit.predict.workflow import Workflow
from benchkit.store.task_graph import TaskGraph

#: Half-width of the interval, as a logarithm: that of another shape of the cluster. Against Dask's
#: scheduler, with tasks that take exactly twice as long, the error is a third of it
#: (tests/predict/test_chunks.py); how code takes to larger chunks was not measured.
CHUNKS_REACH = 0.15
CHUNKS_NOTE = (
    "a task with a larger chunk is assumed to take as long as the tasks that it replaces; the "
    "memory that it needs is not predicted"
)


def with_larger_chunks(given: Workflow, factor: int) -> Workflow:
    """Return a workflow whose chunks are as many times as large, a power of two."""
    if given.allowed or given.rank is not None:
        raise UsageError("chunks: its tasks have workers or priorities of their own")
    for _ in range(factor.bit_length() - 1):
        given = _merged(given)
    return given


def _merged(given: Workflow) -> Workflow:
    """Return the workflow with half as many tasks of each group."""
    graph = given.graph
    levels = _levels(graph)
    classes = _classes(graph, levels)
    _refuse(graph, classes)
    rank = np.arange(len(graph)) if given.rank is None else given.rank
    merged = _pairs(graph, levels, classes, rank)
    # The first part of each task, and the place of the best in Dask's order.
    _, part = np.unique(merged, return_index=True)
    n_tasks = len(part)
    best = np.full(n_tasks, len(graph))
    np.minimum.at(best, merged, rank)
    own = np.repeat(merged, np.diff(graph.indptr))
    edges = np.unique(own * n_tasks + merged[graph.indices])
    counts = np.bincount(edges // n_tasks, minlength=n_tasks)

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(merged, values, n_tasks)

    start, stop = np.full(n_tasks, np.inf), np.full(n_tasks, -np.inf)
    np.fmin.at(start, merged, graph.start)
    np.fmax.at(stop, merged, graph.stop)
    start[np.isinf(start)] = stop[np.isinf(stop)] = np.nan  # it did not run
    sent, releases = graph.submissions, graph.releases
    wanted = [np.unique(merged[nodes]).astype(np.int32) for nodes in sent["wanted"]]
    after = replace(
        graph,
        indptr=np.concatenate([[0], np.cumsum(counts)]),
        indices=(edges % n_tasks).astype(np.int32),
        **{
            name: getattr(graph, name)[part]
            for name in ("group", "row", "worker", "thread", "ok", "producer", "submission")
        },
        start=start,
        duration=stop - start,
        nbytes=total(np.maximum(graph.nbytes, 0)).astype(np.int64),
        submissions=sent.assign(wanted=pd.Series(wanted, sent.index, dtype=object)),
        # A result is released with its last part.
        releases=releases.assign(node=merged[releases["node"].to_numpy()]).drop_duplicates(
            "node", keep="last"
        ),
        options={},
    )
    return replace(
        given,
        graph=after,
        seconds=total(given.seconds),
        disk=total(given.disk),
        gates=[
            gate._replace(after=int(merged[gate.after])) if gate.after >= 0 else gate
            for gate in given.gates
        ],
        rank=np.argsort(np.argsort(best)),
        merged=merged if given.merged is None else merged[given.merged],
    )


def _levels(graph: TaskGraph) -> np.ndarray:
    """Return the number of tasks before each task on its longest chain."""
    levels = [0] * len(graph)
    row, edge = graph.indptr.tolist(), graph.indices.tolist()
    for node in range(len(levels)):
        inputs = edge[row[node] : row[node + 1]]
        if inputs:
            levels[node] = 1 + max(levels[other] for other in inputs)
    return np.array(levels, np.int64)


def _classes(graph: TaskGraph, levels: np.ndarray) -> np.ndarray:
    """Return a number for the tasks of a group, submission and level; -1: they did not run."""
    ran = np.isfinite(graph.start)
    classes = np.column_stack([graph.group, graph.submission, levels])
    _, found = np.unique(classes, axis=0, return_inverse=True)
    return np.where(ran, found.ravel(), -1)


def _refuse(graph: TaskGraph, classes: np.ndarray) -> None:
    """Raise a UsageError if other chunks would make another graph."""
    sizes = np.bincount(classes + 1)  # of -1, 0, 1, ...
    if not (sizes[1:] > 1).any():
        raise UsageError("chunks: no task group has several tasks that could run at a time")
    own = np.repeat(np.arange(len(graph)), np.diff(graph.indptr))
    ran = classes[own] >= 0
    own, inputs = own[ran], graph.indices[ran]
    edges, count = np.unique(np.column_stack([inputs, classes[own]]), axis=0, return_counts=True)
    split = (count > 1) & (sizes[classes[edges[:, 0]] + 1] > 1)
    if split.any():
        node, place = edges[np.flatnonzero(split)[0]]
        user = int(own[(inputs == node) & (classes[own] == place)][0])
        raise UsageError(
            f"chunks: several tasks of {_name(graph, user)} use each result of "
            f"{_name(graph, int(node))} (rechunk, shuffle, overlap, product): with other chunks "
            "there would be other tasks"
        )
    single = (sizes[classes[own] + 1] == 1) & (sizes[classes[inputs] + 1] == 1)
    chain = single & (graph.group[own] == graph.group[inputs]) & (graph.group[own] >= 0)
    if chain.any():
        raise UsageError(
            f"chunks: each task of {_name(graph, int(own[chain][0]))} waits for the one before it: "
            "how long they take with other chunks is not known"
        )


def _name(graph: TaskGraph, node: int) -> str:
    group = int(graph.group[node])
    return short_group(graph.group_names[group]) if group >= 0 else "earlier work"


def _pairs(
    graph: TaskGraph, levels: np.ndarray, classes: np.ndarray, rank: np.ndarray
) -> np.ndarray:
    """Return a number for each task, the same for two neighbours of a class, ascending by level.

    Neighbours use results that are merged, too; without dependencies, they follow each other in
    Dask's order, in which parts of one later task are together.
    """
    found = np.full(len(graph), -1)
    n_found = 0
    order = np.lexsort((classes, levels))
    for nodes in np.split(order, np.flatnonzero(np.diff(classes[order])) + 1):
        size = 2 if classes[nodes[0]] >= 0 else 1
        if size == 2:
            rows = (graph.indices[graph.indptr[node] : graph.indptr[node + 1]] for node in nodes)
            before = np.array([found[row].min(initial=n_found) for row in rows])
            nodes = nodes[np.lexsort((rank[nodes], before))]
        found[nodes] = n_found + np.arange(len(nodes)) // size
        n_found = int(found[nodes[-1]]) + 1
    return found
