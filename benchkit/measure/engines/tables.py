"""Convert the tasks that another engine executed to the tables of a recording."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from dask.utils import key_split
from distributed.utils import key_split_group

from benchkit.measure.capture.columns import TASK_COLUMNS, pack_columns
from benchkit.measure.capture.task_groups import row_of
from benchkit.measure.recording import Recording

#: In a column of whole numbers: what an engine does not report, as in the task stream.
UNKNOWN = -1


@dataclass
class Task:
    """One execution of a task. Times are Unix times in s of the scheduler's clock."""

    key: str
    worker: int  # index of the worker in the recording; -1: the client's process
    thread: int  # number that distinguishes the threads of a worker
    begin: float
    stop: float
    ok: bool = True
    #: Seconds of other activities than compute, by name.
    seconds: dict[str, float] = field(default_factory=dict)


def free_thread(ends: list[float], begin: float, stop: float) -> int:
    """Return the number of a worker's thread that is free at `begin`, and occupy it until `stop`.

    For records without threads: tasks that overlap get different numbers. `ends` are the times at
    which the threads are free.
    """
    thread = next((n for n, end in enumerate(ends) if end <= begin), len(ends))
    ends[thread : thread + 1] = [stop]
    return thread


def task_tables(recording: Recording, tasks: Iterable[Task]) -> dict[str, Any]:
    """Return the tables of tasks, and of all task groups with those of the capture before them.

    Bytes of results and places in the graph are unknown.
    """
    tasks = sorted(tasks, key=lambda task: task.stop)
    rows = list(recording.last("groups", []))
    numbers: dict[str, int] = {}
    columns: dict[str, list[Any]] = {name: [] for name in TASK_COLUMNS}
    for task in tasks:
        name = key_split_group(task.key)
        if name not in numbers:
            numbers[name] = len(rows)
            new = row_of(name, {}, [0, 0, 0], retries=False)
            known = {"prefix": key_split(name), "start": task.begin, "nbytes": None}
            rows.append({**new, **known})
        row = rows[numbers[name]]
        row["n_tasks" if task.ok else "n_erred"] += 1
        row["start"], row["stop"] = min(row["start"], task.begin), task.stop
        for activity, seconds in ({"compute": task.stop - task.begin} | task.seconds).items():
            row["seconds"][activity] = row["seconds"].get(activity, 0.0) + seconds
        values = {
            "group": numbers[name],
            "worker": task.worker,
            "thread_id": task.thread,
            "ok": task.ok,
            "nbytes": UNKNOWN,
            "start": task.begin,
            "stop": task.stop,
            "node": UNKNOWN,
        }
        for column, values_of_column in columns.items():
            values_of_column.append(values[column])
    keys = [task.key.replace("\n", "\\n") + "\n" for task in tasks]
    return {
        "tasks": pack_columns(TASK_COLUMNS, columns.values()),
        "keys": "".join(keys).encode("utf-8", "backslashreplace"),
        "groups": rows,
        "group_names": [row["name"] for row in rows],
    }
