"""The graph of a run: its tasks, their dependencies, and what is known of each task."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from benchkit.errors import UnreadableRun

#: Tasks whose largest dependency is found at once: few enough for the processor's cache.
LARGE_BLOCK = 8192


@dataclass(frozen=True, eq=False)
class TaskGraph:
    """The submitted graph in compressed sparse row format, with a node per task.

    Nodes are ordered so that a dependency comes before its dependents: by submission, within a
    submission by Dask's own order, which is the priority of the tasks.
    """

    # indptr, indices: `indices[indptr[i]:indptr[i + 1]]` are the direct dependencies of node i,
    # ascending.
    indptr: np.ndarray
    indices: np.ndarray
    # Index of each node's task group in `group_names`; -1: no task of the group ran.
    group: np.ndarray
    group_names: list[str]  # Names of the task groups of the run
    # Row of each node in `Run.task_stream`: its last success, else its last failure; -1: it did not
    # run while the clock was on.
    row: np.ndarray
    # start, duration: Start (s after clock on) and duration of computing in s; NaN without a row.
    start: np.ndarray
    duration: np.ndarray
    nbytes: np.ndarray  # Size of the result in B; -1: unknown
    worker: np.ndarray  # worker, thread: Index of the worker and number of the thread; -1: unknown
    thread: np.ndarray
    ok: np.ndarray  # Whether the node succeeded
    producer: np.ndarray  # Whether the task makes data, so that the scheduler queues it
    # Row of each node in `submissions`; -1: not submitted while the clock was on (results of
    # earlier work, scattered data).
    submission: np.ndarray
    # A row per submitted graph; times in s after clock on: received by the scheduler, materialized
    # (NaN before distributed 2024.5), ordered (the same), started (first tasks sent to workers);
    # first_node, n_nodes, nbytes (-1: unknown), and wanted, an array of nodes.
    submissions: pd.DataFrame
    # A row per graph that the client sent, s after clock on: optimised (begin; NaN: nothing to
    # optimise), serialised (begin), sent.
    calls: pd.DataFrame
    releases: pd.DataFrame  # Time (s) and node of each result that a client released
    # By node: priority, retries, workers, resources, allow_other_workers, actor, where set.
    options: dict[int, dict[str, Any]]

    @classmethod
    def of(cls, tree: xr.DataTree) -> TaskGraph:
        """Return the graph in a run file."""
        tasks, sent = tree["tasks"].to_dataset(), tree["submissions"].to_dataset()
        counts = tasks["n_dependencies"].values
        n_nodes = len(counts)
        indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        indices = decode_rows(indptr, tasks["dependency"].values)
        if (indices >= np.repeat(np.arange(n_nodes), counts)).any():
            raise ValueError("a task depends on itself or on a later task")
        first, n_new = sent["first_node"].values, sent["n_nodes"].values
        submission = np.full(n_nodes, -1, np.int32)
        for number, (begin, count) in enumerate(zip(first.tolist(), n_new.tolist(), strict=True)):
            submission[begin : begin + count] = number
        row = _rows(tasks, n_nodes)

        def value(name: str, missing: float) -> np.ndarray:
            values = tasks[name].values
            out = np.full(n_nodes, missing, values.dtype)
            out[row >= 0] = values[row[row >= 0]]
            return out

        times = ("received", "materialized", "ordered", "started")
        frame = pd.DataFrame({name: sent[name].values for name in times})
        # Wide, or 300 kB for each of 7,159 tasks is a negative number.
        frame["first_node"], frame["n_nodes"] = first.astype(np.int64), n_new.astype(np.int64)
        frame["nbytes"] = sent["nbytes"].values.astype(np.int64) if "nbytes" in sent else -1
        ends = np.cumsum(sent["n_wanted"].values)
        frame["wanted"] = pd.Series(np.split(sent["wanted"].values, ends)[:-1], dtype=object)
        options = zip(sent["option_node"].values.tolist(), sent["options"].values, strict=True)
        return cls(
            indptr=indptr,
            indices=indices,
            group=tasks["node_group"].values,
            group_names=tree["task_groups"].to_dataset()["task_group"].values.tolist(),
            row=row,
            start=value("start", np.nan),
            duration=value("duration", np.nan),
            nbytes=value("nbytes", -1),
            worker=value("worker", -1),
            thread=value("thread", -1),
            ok=value("ok", 0) == 1,
            producer=tasks["producer"].values == 1,
            submission=submission,
            submissions=frame,
            calls=pd.DataFrame(
                {name: sent[name].values for name in ("optimised", "serialised", "sent")}
            ),
            releases=pd.DataFrame(
                {"time": sent["release_time"].values, "node": sent["release_node"].values}
            ),
            options={node: json.loads(str(text)) for node, text in options},
        )

    def __len__(self) -> int:
        return len(self.group)

    def __repr__(self) -> str:
        return (
            f"<benchkit.TaskGraph {len(self)} tasks, {len(self.indices)} dependencies, "
            f"{len(self.submissions)} submissions>"
        )

    @cached_property
    def dependents(self) -> tuple[np.ndarray, np.ndarray]:
        """The transposed graph: `indptr` and `indices` of the direct dependents of each node."""
        order = np.argsort(self.indices, kind="stable")
        counts = np.bincount(self.indices, minlength=len(self))
        rows = np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.indptr))
        return np.concatenate([[0], np.cumsum(counts)]), rows[order]

    @property
    def stop(self) -> np.ndarray:
        """End of computing of each node, s after clock on; NaN without a row."""
        stop: np.ndarray = self.start + self.duration
        return stop

    @cached_property
    def last_dependency(self) -> np.ndarray:
        """The dependency of each node that ended last; -1: none."""
        return largest_dependency(self.indptr, self.indices, self.stop)

    @cached_property
    def ready(self) -> np.ndarray:
        """Time from which each node could run: its graph had arrived, its dependencies had ended.

        Infinitely early if neither is known.
        """
        sent = np.append(self.submissions["started"].to_numpy(), -np.inf)[self.submission]
        last = self.last_dependency
        ready: np.ndarray = np.fmax(sent, np.where(last >= 0, self.stop[last], -np.inf))
        return ready

    @cached_property
    def previous(self) -> np.ndarray:
        """The node that ran before each node in its thread; -1: none."""
        ran = np.flatnonzero(np.isfinite(self.start))
        order = ran[np.lexsort((self.start[ran], self.thread[ran]))]
        same = self.thread[order][1:] == self.thread[order][:-1]
        previous = np.full(len(self), -1, np.int64)
        previous[order[1:][same]] = order[:-1][same]
        return previous

    @property
    def thread_free(self) -> np.ndarray:
        """Time at which the thread of each node had ended the one before; else infinitely early."""
        return np.where(self.previous >= 0, self.stop[self.previous], -np.inf)

    @cached_property
    def released(self) -> np.ndarray:
        """Time from which nothing needs the result of a node, s after clock on.

        The end of its last dependent, or the release by the client if that is later; infinite if a
        client still wants it or a dependent did not run; NaN if the node did not run.
        """
        stop = self.stop
        needed = np.where(np.isnan(stop), np.inf, stop)
        released = stop.copy()
        consumers = np.repeat(needed, np.diff(self.indptr))
        np.fmax.at(released, self.indices, consumers)
        wanted = np.concatenate([*self.submissions["wanted"], np.zeros(0, np.int32)])
        by_client = np.full(len(self), -np.inf)
        by_client[wanted] = np.inf
        by_client[self.releases["node"].values] = self.releases["time"].values
        return np.where(np.isnan(stop), np.nan, np.fmax(released, by_client))


def event_actions(events: xr.Dataset) -> list[str]:
    """Return the names of the activities in ``/task_events``, by their number there."""
    try:
        names: list[str] = json.loads(events.attrs["actions"])
    except (KeyError, TypeError, ValueError):
        raise UnreadableRun("task_events: its attribute `actions` is missing or invalid") from None
    return names


def has_task_graph(tree: xr.DataTree) -> bool:
    """Return whether a run file contains the graph of its tasks."""
    return "submissions" in tree.children and "dependency" in tree["tasks"].data_vars


def _rows(tasks: xr.Dataset, n_nodes: int) -> np.ndarray:
    """Return the row of each node: the last success, else the last failure, else -1."""
    node, ok = tasks["task_node"].values, tasks["ok"].values
    row = np.full(n_nodes, -1, np.int64)
    for succeeded in (0, 1):  # rows are ordered by end: a later assignment replaces an earlier one
        chosen = np.flatnonzero((node >= 0) & (ok == succeeded))
        row[node[chosen]] = chosen
    return row


def largest_dependency(indptr: np.ndarray, indices: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the dependency of each task with the largest value."""
    # values: A value per task; NaN counts as smaller than all others.
    out = np.full(len(indptr) - 1, -1, np.int64)
    known = np.where(np.isnan(values), -np.inf, values)
    for first in range(0, len(out), LARGE_BLOCK):
        rows = indptr[first : first + LARGE_BLOCK + 1]
        edges = indices[rows[0] : rows[-1]]
        counts = np.diff(rows)
        some = np.flatnonzero(counts)
        if len(some):
            value = known[edges]
            best = np.maximum.reduceat(value, rows[some] - rows[0])
            is_best = np.flatnonzero(value == np.repeat(best, counts[some]))
            out[first + np.repeat(some, counts[some])[is_best]] = edges[is_best]
    return out


def encode_rows(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Encode the rows of a sparse matrix as differences, which compress well.

    The first index of a row is the difference to the first of the row before that is not empty,
    the others are differences to their left neighbours.
    """
    # indptr, indices: Compressed sparse rows, indices ascending within a row.
    firsts = indptr[:-1][np.diff(indptr) > 0]
    out = np.diff(indices, prepend=0)
    out[firsts] = np.diff(indices[firsts], prepend=0)
    return out.astype(np.int32)


def decode_rows(indptr: np.ndarray, encoded: np.ndarray) -> np.ndarray:
    """Return the indices that `encode_rows` encoded."""
    counts = np.diff(indptr)
    counts, firsts = counts[counts > 0], indptr[:-1][counts > 0]
    sums = np.cumsum(encoded, dtype=np.int64)
    starts = np.cumsum(encoded[firsts], dtype=np.int64) - sums[firsts]
    decoded: np.ndarray = (sums + np.repeat(starts, counts)).astype(np.int32)
    return decoded
