"""Runs made of given tasks: graphs whose critical path and causes of time are known."""

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

from benchkit.measure.capture.columns import GRAPH_COLUMNS, ROW
from benchkit.store.build.run_from_recording import run_from_recording
from benchkit.store.run import Run
from validation.synthetic_recordings import ON, group, record, segment, table, worker


class MadeTask(NamedTuple):
    """A task of a made run; times in s after clock on."""

    key: str
    start: float
    stop: float
    dependencies: Sequence[str] = ()
    worker: int = 0
    thread: int = 0
    #: Transfers and disk events: action, start, stop.
    events: Sequence[tuple[str, float, float]] = ()
    nbytes: int = 100
    ok: int = 1

    @property
    def group(self) -> str:
        return self.key.rpartition("-")[0]


def graph_run(
    folder: Path,
    tasks: Sequence[MadeTask],
    *,
    duration: float,
    n_workers: int = 1,
    nthreads: int = 1,
    submissions: Sequence[tuple[float, int]] = (),
    calls: Sequence[tuple[float | None, float, float]] = (),
    wanted: Sequence[Sequence[int]] = (),
    left: Mapping[int, float] | None = None,
    graph_bytes: int = 0,
    options: Mapping[int, Mapping[str, Any]] | None = None,
    release: str = "",
    hosts: Sequence[str] = (),
    **tables: Any,
) -> Run:
    """Return a run of these tasks.

    A submission is the time at which its first tasks were sent to workers and its number of tasks;
    by default all tasks are submitted at 0. Of each submission, `calls` are the client's phases,
    and `wanted` the places of the tasks that the client wants. `left` are times at which workers
    left, each submission has `graph_bytes`, `options` are those of tasks by place, `release` is
    that of Dask, and `hosts` are those of the workers. A task that starts at NaN does not run.
    """
    names = list(dict.fromkeys(task.group for task in tasks))
    places = {task.key: place for place, task in enumerate(tasks)}
    submissions = submissions or [(0.0, len(tasks))]
    nodes = [
        {"group": names.index(t.group), "n_dependencies": len(t.dependencies), "order": place}
        for place, t in enumerate(tasks)
    ]
    first, rows = 0, list[dict[str, Any]]()
    for started, count in submissions:
        rows.append(
            {
                "received": ON + started - 0.3 * bool(started),
                "materialized": ON + started - 0.2 * bool(started),
                "ordered": ON + started - 0.1 * bool(started),
                "started": ON + started,
                "first_node": first,
                "nbytes": graph_bytes,
                "n_wanted": len(wanted[len(rows)]) if wanted else 0,
            }
        )
        first += count
    ran = [place for place, task in enumerate(tasks) if not isnan(task.start)]
    by_end = sorted(ran, key=lambda place: tasks[place].stop)
    events = [
        {"place": row * ROW, "action": action, "source": 0, "start": ON + start, "stop": ON + stop}
        for row, place in enumerate(by_end)
        for action, start, stop in tasks[place].events
    ]
    made = segment(
        workers=[
            worker(
                number,
                nthreads=nthreads,
                left=ON + left[number] if left and number in left else None,
                **({"host": hosts[number]} if hosts else {}),
            )
            for number in range(n_workers)
        ],
        keys=[tasks[place].key for place in by_end],
        tasks=[
            {
                "group": names.index(tasks[place].group),
                "worker": tasks[place].worker,
                "thread_id": tasks[place].thread,
                "ok": tasks[place].ok,
                "nbytes": tasks[place].nbytes,
                "start": ON + tasks[place].start,
                "stop": ON + tasks[place].stop,
                "node": place,
            }
            for place in by_end
        ],
        task_events=events,
        groups=[_group(name, tasks) for name in names],
        nodes=table(GRAPH_COLUMNS["nodes"], *nodes),
        dependencies=_packed(places[key] for task in tasks for key in task.dependencies),
        submissions=table(GRAPH_COLUMNS["submissions"], *rows),
        wanted=_packed(number for row in wanted for number in row),
        releases=table(GRAPH_COLUMNS["releases"]),
        producers=b"",
        node_options=[[place, json.dumps(given)] for place, given in (options or {}).items()],
        **tables,
    )
    phases = [[None if time is None else ON + time for time in call] for call in calls]
    versions = dict.fromkeys(("dask", "distributed"), release) if release else {}
    tail: dict[str, Any] = {"cluster": {"versions": {"client": versions}}} if release else {}
    path = record(folder, made, t_off=ON + duration, client_phases=phases, **tail)
    run = Run(run_from_recording(path))
    if "cpu_time" not in run.metrics:
        run.tree["cpu_time"] = 0.0  # the tasks wait
    return run


def _packed(numbers: Iterable[int]) -> bytes:
    return array("i", numbers).tobytes()


def _group(name: str, tasks: Sequence[MadeTask]) -> dict[str, Any]:
    members = [task for task in tasks if task.group == name and not isnan(task.start)]
    seconds = {"compute": sum(task.stop - task.start for task in members)}
    return group(name, n_tasks=len(members), seconds=seconds, nbytes=sum(t.nbytes for t in members))


def tasks_of(*rows: tuple[str, float, float, str], **common: Any) -> list[MadeTask]:
    """Return tasks from rows of key, start, stop and the keys of dependencies."""
    return [
        MadeTask(key, start, stop, dependencies.split(), **common)
        for key, start, stop, dependencies in rows
    ]
