"""Convert the tasks that another engine executed to the tables of a recording."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dask.utils import key_split
from distributed.utils import key_split_group

from benchkit.measure.capture.columns import (
    ACTIONS,
    EVENT_COLUMNS,
    ROW,
    TASK_COLUMNS,
    pack_columns,
)
from benchkit.measure.capture.task_groups import row_of
from benchkit.measure.engines.graph import UNKNOWN, Graph, Submission
from benchkit.measure.recording import Recording


class Activity(NamedTuple):
    """What a task did or waited for other than computing, such as a transfer."""

    action: str  # One of `ACTIONS`
    begin: float
    stop: float
    source: int = UNKNOWN  # Index of the worker that sent the data


@dataclass
class Task:
    """One execution of a task. Times are Unix times in s of the scheduler's clock."""

    key: str
    worker: int  # index of the worker in the recording; -1: the client's process
    thread: int  # number that distinguishes the threads of a worker
    begin: float
    stop: float
    ok: bool = True
    nbytes: int = UNKNOWN  # Size of the result in B
    activities: list[Activity] = field(default_factory=list)


def free_thread(ends: list[float], begin: float, stop: float) -> int:
    """Return the number of a worker's thread that is free at `begin`, and occupy it until `stop`.

    For records without threads: tasks that overlap get different numbers. `ends` are the times at
    which the threads are free.
    """
    thread = next((n for n, end in enumerate(ends) if end <= begin), len(ends))
    ends[thread : thread + 1] = [stop]
    return thread


def task_tables(
    recording: Recording,
    tasks: Iterable[Task],
    submissions: Sequence[Submission] = (),
    *,
    retries: bool = True,
) -> dict[str, Any]:
    """Return the tables of tasks, and of all task groups with those of the capture before them.

    With the graphs that contain all tasks there are the tables of the graph, too. `retries`: all
    attempts of a task are there; a failed one that is not the last was retried.
    """
    tasks = sorted(tasks, key=lambda task: task.stop)
    graph = Graph(submissions, ((task.key, task.begin) for task in tasks))
    nodes = [graph.node_of(task.key, task.begin) for task in tasks]
    is_complete = bool(nodes) and UNKNOWN not in nodes
    groups = _Groups(recording.last("groups", []), retries=retries)
    attempts = [(task.key, node) for task, node in zip(tasks, nodes, strict=True)]
    last = {attempt: place for place, attempt in enumerate(attempts)}
    for place, task in enumerate(tasks):
        groups.add(task, is_last=last[attempts[place]] == place)
    # Tasks and nodes that Dask's scheduler had are in the tables before.
    n_tasks, n_nodes = (len(recording.column(name, "group", "i")) for name in ("tasks", "nodes"))
    columns = {
        "group": [groups.number(task.key) for task in tasks],
        "worker": [task.worker for task in tasks],
        "thread_id": [task.thread for task in tasks],
        "ok": [task.ok for task in tasks],
        "nbytes": [task.nbytes for task in tasks],
        "start": [task.begin for task in tasks],
        "stop": [task.stop for task in tasks],
        "node": [n_nodes + node if is_complete else UNKNOWN for node in nodes],
    }
    events = [
        ((n_tasks + place) * ROW, ACTIONS.index(each.action), each.source, each.begin, each.stop)
        for place, task in enumerate(tasks)
        for each in task.activities
    ]
    tables: dict[str, Any] = {}
    if is_complete:
        groups.add_dependencies(graph.pairs())
        tables = graph.tables(groups.number, n_nodes)
    keys = [task.key.replace("\n", "\\n") + "\n" for task in tasks]
    return {
        **tables,
        "tasks": pack_columns(TASK_COLUMNS, [columns[name] for name in TASK_COLUMNS]),
        "task_events": pack_columns(
            EVENT_COLUMNS, zip(*events, strict=True) if events else [()] * len(EVENT_COLUMNS)
        ),
        "keys": "".join(keys).encode("utf-8", "backslashreplace"),
        "groups": groups.rows,
        "group_names": [row["name"] for row in groups.rows],
    }


class _Groups:
    """The rows of task groups: those of the capture, then those of the engine."""

    def __init__(self, rows: Iterable[dict[str, Any]], *, retries: bool) -> None:
        self.rows, self.retries = list(rows), retries
        self._numbers: dict[str, int] = {}

    def number(self, key: str) -> int:
        """Return the number of a task's group; a number that no row has if none of it ran."""
        return self._numbers.get(key_split_group(key), len(self.rows))

    def add(self, task: Task, *, is_last: bool) -> None:
        """Add an execution; `is_last`: it is the last attempt."""
        name = key_split_group(task.key)
        if name not in self._numbers:
            self._numbers[name] = len(self.rows)
            known = {"prefix": key_split(name), "start": task.begin, "nbytes": None}
            self.rows.append({**row_of(name, {}, [0, 0, 0], retries=self.retries), **known})
        row = self.rows[self._numbers[name]]
        is_retried = self.retries and not is_last
        row["n_tasks" if task.ok else "n_retried" if is_retried else "n_erred"] += 1
        row["start"], row["stop"] = min(row["start"], task.begin), task.stop
        own = Activity("compute" if task.ok else "failed", task.begin, task.stop)
        for each in (own, *task.activities):
            seconds = row["seconds"].get(each.action, 0.0) + each.stop - each.begin
            row["seconds"][each.action] = seconds

    def add_dependencies(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Add the groups of the dependencies of tasks; `pairs` are the keys of both."""
        names = {tuple(map(key_split_group, pair)) for pair in pairs}
        for own, other in sorted(names):
            if own != other and {own, other} <= self._numbers.keys():
                self.rows[self._numbers[own]]["dependencies"].append(other)
