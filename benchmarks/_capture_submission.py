"""Measure what recording a submitted graph costs per task on the scheduler, without network."""

from __future__ import annotations

import gc
import random
import statistics
import time
from itertools import count as counting
from typing import Any

import dask
from _capture_tables import table
from dask._task_spec import Task
from distributed import Scheduler

from benchkit.measure.capture.task_graph import TaskGraph
from benchkit.measure.capture.task_groups import TaskGroups

__all__ = ["submission"]

#: Dependencies of each task: those of a tree reduction, a rechunk and a map.
WIDTHS = (0, 1, 2, 8)
#: Tasks of one group in a row.
LAYER = 100
#: Pieces of a round in which the arms take turns.
PIECES = 16
_numbers = counting()


async def submission(rounds: int, count: int) -> None:
    """Print CPU per task of creating the tasks of a graph, bare and recorded."""
    with dask.config.set({"distributed.scheduler.worker-ttl": None}):
        scheduler = Scheduler(port=0, dashboard=False, validate=False)
    async with scheduler:
        for width in WIDTHS:
            seconds: dict[str, list[float]] = {"bare": [], "bare again": [], "full": []}
            gc.collect()
            gc.freeze()
            for number in range(rounds + 1):
                pieces: dict[str, list[float]] = {name: [] for name in seconds}
                for _ in range(PIECES):
                    for name in random.sample(list(seconds), len(seconds)):
                        taken = _submit(scheduler, count // PIECES, width, name == "full")
                        pieces[name].append(taken)
                if number:  # the first round warms up
                    for name, taken_s in pieces.items():
                        seconds[name].append(statistics.median(taken_s))
            table(f"CPU per task of a submission, {width} dependencies a task", seconds)


def _submit(scheduler: Scheduler, count: int, width: int, recorded: bool) -> float:
    """Return thread CPU s per task of creating `count` tasks, and of recording them."""
    start = next(_numbers)
    keys = [(f"layer-{start}-{n // LAYER}", n % LAYER) for n in range(count)]
    graph = TaskGraph(scheduler, "bench", TaskGroups(), lambda: None, _fail)
    if recorded:
        graph.start()
    specs = [Task(key, abs, -1) for key in keys]
    begin = time.thread_time()
    tasks: list[Any] = []
    for number, (key, spec) in enumerate(zip(keys, specs, strict=True)):
        task = scheduler.new_task(key, spec, "released")
        task.priority = (0, 1, number)
        for other in tasks[max(0, number - width) :]:
            task.add_dependency(other)
        tasks.append(task)
    if recorded:
        vars(scheduler)["benchkit_task_graphs"].add_submission(time.time(), keys[-1:], None)
    taken = (time.thread_time() - begin) / count
    if recorded:
        graph.drain()
        graph.stop()
        assert graph.n_nodes == count
    scheduler.transitions(dict.fromkeys(keys, "forgotten"), stimulus_id="bench")
    return taken


def _fail(where: str, error: Any) -> None:
    raise AssertionError(f"{where}: {error}")
