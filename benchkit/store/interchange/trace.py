"""Write a run as a trace for Perfetto and ``chrome://tracing`` (Chrome's trace event format, JSON).

A process per worker: its threads with the tasks, lanes with the activities of its event loop
(fetches, disk, serialisation), and counters of its memory. Flows connect a fetch with the worker
that sent the result, and the end of a task with the start of the tasks that depend on it.
"""

from __future__ import annotations

import gzip
import heapq
import json
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from json.encoder import encode_basestring_ascii as quote
from pathlib import Path
from typing import TextIO

import numpy as np

from benchkit.errors import UnreadableRun
from benchkit.store.run import Run
from benchkit.store.run_tables import worker_names
from benchkit.store.task_graph import event_actions, has_task_graph

__all__ = ["write_trace"]

#: Process of the scheduler and of rows whose worker is unknown; worker 0 is process 1.
_SCHEDULER = 0
#: Number of the first lane of activities; threads of tasks have the numbers below.
_FIRST_LANE = 1_000
#: Track of the moments at which a worker began to send a result.
_SENT = _FIRST_LANE - 1
#: Counters of a worker and of the scheduler: variable -> name in the trace.
_MEMORY = ("process", "managed", "spilled")
_SCHEDULER_COUNTERS = ("n_tasks", "queued", "cpu", "lag_max")
#: A fast level: level 6 makes a file 15 % smaller in three times the time.
_GZIP_LEVEL = 3
_LINES_PER_WRITE = 50_000
#: Dependencies that are drawn at most: a million would double time and size of the file.
_MOST_DEPENDENCIES = 200_000
#: Seconds before the end of a slice at which a flow begins: at the end the slice is closed.
_BEFORE_END_S = 1e-9


def write_trace(run: Run, path: Path) -> None:
    """Write the tasks, activities, fetches and memory of a run as a trace.

    Parameters
    ----------
    run : Run
        The run. The sums of the slices' durations are the sums of the run's tasks and activities.
        If it has more than `_MOST_DEPENDENCIES` dependencies, those that a task waited for last
        are drawn, of the longest tasks if these are still too many.
    path : path
        File to write, compressed if its suffix is ``.gz``.
    """
    producers, consumers, drawn = _dependencies(run)
    header = {
        "displayTimeUnit": "ms",
        "otherData": {
            "run": run.id,
            "workload": run.workload,
            "outcome": run.outcome,
            "dependencies": drawn,
        },
    }
    with _open(path) as file:
        file.write(json.dumps(header)[:-1] + ', "traceEvents": [\n')
        lines = chain(
            _names(run),
            _tasks(run),
            _flows(run, producers, consumers),
            _activities(run),
            _counters(run),
        )
        first = True
        while block := ",\n".join(islice(lines, _LINES_PER_WRITE)):
            file.write(block if first else ",\n" + block)
            first = False
        file.write("\n]}\n")


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "wt", compresslevel=_GZIP_LEVEL, encoding="ascii")
    return path.open("w", encoding="ascii")


def _names(run: Run) -> Iterator[str]:
    """Yield the names of processes and threads."""
    names = ["scheduler", *(f"worker {name}" for name in worker_names(run.tree))]
    for process, name in enumerate(names):
        yield _metadata("process_name", process, 0, name)
    stream = run.task_stream()
    if len(stream):
        pairs = stream[["worker", "thread"]].drop_duplicates().itertuples(index=False)
        for worker, thread in pairs:
            yield _metadata("thread_name", worker + 1, thread + 1, f"thread {thread}")


def _metadata(kind: str, process: int, thread: int, name: str) -> str:
    return json.dumps(
        {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}
    )


def _tasks(run: Run) -> Iterator[str]:
    """Yield a slice per task."""
    stream = run.task_stream()
    if stream.empty:
        return
    labels = [quote(str(name)) for name in stream["task_group"].cat.categories]
    columns = zip(
        stream["task_group"].cat.codes.tolist(),
        (stream["worker"] + 1).tolist(),
        (stream["thread"] + 1).tolist(),
        _microseconds(stream["start"].to_numpy()),
        _microseconds(stream["duration"].to_numpy()),
        stream["nbytes"].tolist(),
        stream["ok"].tolist(),
        run.task_keys(),
        strict=True,
    )
    for group, process, thread, start, duration, nbytes, ok, key in columns:
        failed = "" if ok else ',"failed":true'
        yield (
            f'{{"ph":"X","cat":"compute","name":{labels[group]},"pid":{process},"tid":{thread},'
            f'"ts":{start},"dur":{duration},'
            f'"args":{{"key":{quote(key)},"bytes":{nbytes}{failed}}}}}'
        )


def _dependencies(run: Run) -> tuple[np.ndarray, np.ndarray, str]:
    """Return producers and consumers to draw, as rows of tasks, and how many they are of all."""
    nothing = np.zeros(0, np.int64)
    if not has_task_graph(run.tree):
        return nothing, nothing, "not recorded"
    try:
        graph = run.task_graph()
    except UnreadableRun as error:  # the rest can be drawn
        return nothing, nothing, str(error)
    consumers = np.repeat(graph.row, np.diff(graph.indptr))
    producers = graph.row[graph.indices]
    ran = (producers >= 0) & (consumers >= 0)
    producers, consumers = producers[ran], consumers[ran]
    n_dependencies = len(producers)
    if n_dependencies > _MOST_DEPENDENCIES:
        # Rows are ordered by the end of the tasks.
        order = np.lexsort((producers, consumers))
        producers, consumers = producers[order], consumers[order]
        last = np.append(consumers[1:] != consumers[:-1], True)
        producers, consumers = producers[last], consumers[last]
        duration = run.tree["tasks"].to_dataset()["duration"].values[consumers]
        chosen = np.sort(np.argsort(-duration, kind="stable")[:_MOST_DEPENDENCIES])
        producers, consumers = producers[chosen], consumers[chosen]
    return producers, consumers, f"{len(producers)} of {n_dependencies}"


def _flows(run: Run, producers: np.ndarray, consumers: np.ndarray) -> Iterator[str]:
    """Yield a flow per dependency, from the end of one task to the start of another."""
    if not len(producers):
        return
    tasks = run.tree["tasks"].to_dataset()
    process, thread = tasks["worker"].values + 1, tasks["thread"].values + 1
    start, stop = tasks["start"].values, (tasks["start"] + tasks["duration"]).values
    columns = zip(
        process[producers].tolist(),
        thread[producers].tolist(),
        _microseconds(np.maximum(start, stop - _BEFORE_END_S)[producers]),
        process[consumers].tolist(),
        thread[consumers].tolist(),
        _microseconds(start[consumers]),
        strict=True,
    )
    for number, (from_process, from_thread, end, process, thread, begin) in enumerate(columns):
        flow = f'"cat":"dependency","name":"dependency","id":{number}'
        yield f'{{"ph":"s",{flow},"pid":{from_process},"tid":{from_thread},"ts":{end}}}'
        yield f'{{"ph":"f","bp":"e",{flow},"pid":{process},"tid":{thread},"ts":{begin}}}'


def _activities(run: Run) -> Iterator[str]:
    """Yield a slice per activity that is no computation, and a flow per fetch.

    Slices on one track must not overlap, and a worker does many of them at once: each goes to the
    first lane that is free.
    """
    events = run.tree["task_events"].to_dataset() if "task_events" in run.tree.children else None
    stream = run.task_stream()
    if events is None or not events.sizes.get("event"):
        return
    actions = event_actions(events)
    other = events["action"].values != actions.index("compute")
    events = events.isel(event=other)
    events = events.isel(event=np.argsort(events["start"].values, kind="stable"))
    tasks = events["task"].values
    labels = [quote(str(name)) for name in stream["task_group"].cat.categories]
    start, stop = events["start"].values, events["stop"].values
    workers = stream["worker"].to_numpy()[tasks]
    lanes = _lanes(workers.tolist(), start.tolist(), stop.tolist())
    for worker, lane in sorted(set(zip(workers.tolist(), lanes, strict=True))):
        yield _metadata("thread_name", worker + 1, _FIRST_LANE + lane, f"activities {lane + 1}")
    columns = zip(
        events["action"].values.tolist(),
        stream["task_group"].cat.codes.to_numpy()[tasks].tolist(),
        (workers + 1).tolist(),
        lanes,
        events["source"].values.tolist(),
        _microseconds(start),
        _microseconds(stop - start),
        strict=True,
    )
    senders = set()
    for number, (action, group, process, lane, source, begin, duration) in enumerate(columns):
        name = actions[action]
        thread = _FIRST_LANE + lane
        yield (
            f'{{"ph":"X","cat":"{name}","name":"{name}","pid":{process},"tid":{thread},'
            f'"ts":{begin},"dur":{duration},"args":{{"for":{labels[group]}}}}}'
        )
        if name == "transfer" and source >= 0:
            sender = source + 1
            senders.add(sender)
            place = f'"cat":"fetch","name":"fetch","id":{number},"ts":{begin}'
            # A flow begins in a slice: a short one on the sender's own track.
            at_sender = f'"pid":{sender},"tid":{_SENT}'
            yield f'{{"ph":"X","cat":"sent","name":"sent",{at_sender},"ts":{begin},"dur":0}}'
            yield f'{{"ph":"s",{place},{at_sender}}}'
            yield f'{{"ph":"f","bp":"e",{place},"pid":{process},"tid":{thread}}}'
    for sender in sorted(senders):
        yield _metadata("thread_name", sender, _SENT, "sent")


def _lanes(workers: list[int], starts: list[float], stops: list[float]) -> list[int]:
    """Return the first free lane of the worker for each slice, in order of start."""
    free: dict[int, list[int]] = {}
    busy: dict[int, list[tuple[float, int]]] = {}
    used: dict[int, int] = {}
    lanes = []
    for worker, start, stop in zip(workers, starts, stops, strict=True):
        ended, waiting = busy.setdefault(worker, []), free.setdefault(worker, [])
        while ended and ended[0][0] <= start:
            heapq.heappush(waiting, heapq.heappop(ended)[1])
        if waiting:
            lane = heapq.heappop(waiting)
        else:
            lane = used.get(worker, 0)
            used[worker] = lane + 1
        heapq.heappush(ended, (stop, lane))
        lanes.append(lane)
    return lanes


def _counters(run: Run) -> Iterator[str]:
    """Yield the memory of each worker and the counters of the scheduler."""
    for group, names in (("workers", _MEMORY), ("scheduler", _SCHEDULER_COUNTERS)):
        if group not in run.tree.children:
            continue
        data = run.tree[group].to_dataset()
        times = _microseconds(data["time"].values)
        for name in names:
            if name not in data:
                continue
            values = np.atleast_2d(data[name].transpose(..., "time").values)
            label = f"memory: {name} (B)" if group == "workers" else name
            for index, series in enumerate(values):
                process = index + 1 if group == "workers" else _SCHEDULER
                yield from _series(label, process, times, series)


def _series(label: str, process: int, times: Iterable[str], values: np.ndarray) -> Iterator[str]:
    for time, value in zip(times, values.tolist(), strict=True):
        if value == value:  # an absent value is no sample
            yield (
                f'{{"ph":"C","name":"{label}","pid":{process},"ts":{time},'
                f'"args":{{"value":{value:.6g}}}}}'
            )


def _microseconds(seconds: np.ndarray) -> list[str]:
    """Return times in microseconds, to the nanosecond, as the format wants them."""
    return [f"{value:.3f}" for value in (seconds * 1e6).tolist()]
