"""Write a run for viewers: a trace (Perfetto, ``chrome://tracing``), call stacks (speedscope).

The trace is JSON in Chrome's trace event format. A process per worker: its threads with the tasks,
lanes with the activities of its event loop (fetches, disk, serialisation), and counters of its
memory. Flows connect a fetch with the worker that sent the result, and the end of a task with the
start of the tasks that depend on it.
"""

from __future__ import annotations

import gzip
import heapq
import json
from collections.abc import Iterator
from decimal import Decimal
from json.encoder import encode_basestring_ascii as quote
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from benchkit.errors import UnreadableRun, UsageError
from benchkit.store.run import Run, worker_names
from benchkit.store.task_graph import event_actions, has_task_graph

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
#: Events that are made at once: about 20 MB of text.
_EVENTS_PER_BLOCK = 100_000
#: Dependencies that are drawn at most: a million would double time and size of the file.
_MAX_DEPENDENCIES = 200_000
#: Seconds before the end of a slice at which a flow begins: at the end the slice is closed.
_BEFORE_END_S = 1e-9


def write_trace(run: Run, path: Path) -> None:
    """Write the tasks, activities, fetches and memory of a run as a trace."""
    stream = run.task_stream()
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
    with gzip.open(path, "wb", _GZIP_LEVEL) if path.suffix == ".gz" else path.open("wb") as file:
        file.write(f'{json.dumps(header)[:-1]}, "traceEvents": [\n'.encode())
        # Each further event begins with a comma.
        file.write(_metadata("process_name", _SCHEDULER, 0, "scheduler").lstrip(b","))
        file.writelines(_names(run, stream))
        file.writelines(_tasks(run, stream))
        file.writelines(_flows(run, producers, consumers))
        file.writelines(_activities(run, stream))
        file.writelines(_counters(run))
        file.write(b"]}\n")


def _metadata(kind: str, process: int, thread: int, name: str) -> bytes:
    event = {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}
    return f",{json.dumps(event)}\n".encode()


def _events(*parts: str | np.ndarray | pa.Array) -> Iterator[memoryview]:
    """Yield lines with an event each in blocks: the texts and values of its row, joined.

    Pyarrow takes a third of the time of an f-string per event. A line of which a value is NaN or
    null is left out.
    """
    n_events = max(len(part) for part in parts if not isinstance(part, str))
    for begin in range(0, n_events, _EVENTS_PER_BLOCK):
        block = slice(begin, begin + _EVENTS_PER_BLOCK)
        columns = [part if isinstance(part, str) else _texts(part[block]) for part in parts]
        lines = pc.binary_join_element_wise(",{", *columns, "}\n", "")
        _, ends, text = lines.buffers()
        if text is not None:  # the lines, one after the other
            yield memoryview(text)[: np.frombuffer(ends, np.int32)[len(lines)]]


def _texts(values: np.ndarray | pa.Array) -> pa.Array:
    """Return texts of numbers; floats are times in s, written in microseconds to the nanosecond."""
    if isinstance(values, pa.Array):
        return values
    if values.dtype.kind != "f":
        return pa.array(values).cast(pa.string())
    finite = np.isfinite(values)
    nanoseconds = np.rint(np.where(finite, values, 0) * 1e9).astype(np.int64)
    decimals = pa.array(nanoseconds, mask=~finite).cast(pa.decimal128(19))
    return pc.multiply(decimals, pa.scalar(Decimal("0.001"))).cast(pa.string())


def _names(run: Run, stream: pd.DataFrame) -> Iterator[bytes]:
    """Yield the names of workers and threads."""
    for number, name in enumerate(worker_names(run.tree), 1):
        yield _metadata("process_name", number, 0, f"worker {name}")
    if len(stream):
        pairs = stream[["worker", "thread"]].drop_duplicates().itertuples(index=False)
        for worker, thread in pairs:
            yield _metadata("thread_name", worker + 1, thread + 1, f"thread {thread}")


def _tasks(run: Run, stream: pd.DataFrame) -> Iterator[memoryview]:
    """Yield a slice per task."""
    if stream.empty:
        return
    yield from _events(
        '"ph":"X","cat":"compute","name":',
        _group_names(stream),
        ',"pid":',
        stream["worker"].to_numpy() + 1,
        ',"tid":',
        stream["thread"].to_numpy() + 1,
        ',"ts":',
        stream["start"].to_numpy(),
        ',"dur":',
        stream["duration"].to_numpy(),
        ',"args":{"key":',
        _quoted(run.task_keys()),
        ',"bytes":',
        stream["nbytes"].to_numpy(),
        pc.if_else(stream["ok"].to_numpy() > 0, "", ',"failed":true'),
        "}",
    )


def _quoted(texts: list[str]) -> pa.Array:
    # Most keys have no characters to escape: one call for all shows whether any has.
    joined = "\n".join(texts)
    if len(quote(joined)) > len(joined) + len(texts) + 1:
        return pa.array([quote(text) for text in texts])
    return pc.binary_join_element_wise('"', pa.array(texts), '"', "")


def _group_names(stream: pd.DataFrame) -> pa.Array:
    """Return the quoted name of the task group of each task."""
    names = _quoted([str(name) for name in stream["task_group"].cat.categories])
    return names.take(pa.array(stream["task_group"].cat.codes.to_numpy()))


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
    if n_dependencies > _MAX_DEPENDENCIES:
        # Rows are ordered by the end of the tasks; the dependencies of a task are neighbours.
        first = np.flatnonzero(np.diff(consumers, prepend=-1))
        producers, consumers = np.maximum.reduceat(producers, first), consumers[first]
        duration = run.tree["tasks"].to_dataset()["duration"].values[consumers]
        chosen = np.sort(np.argsort(-duration, kind="stable")[:_MAX_DEPENDENCIES])
        producers, consumers = producers[chosen], consumers[chosen]
    return producers, consumers, f"{len(producers)} of {n_dependencies}"


def _flows(run: Run, producers: np.ndarray, consumers: np.ndarray) -> Iterator[memoryview]:
    """Yield a flow per dependency, from the end of one task to the start of another."""
    if not len(producers):
        return
    tasks = run.tree["tasks"].to_dataset()
    process, thread = tasks["worker"].values + 1, tasks["thread"].values + 1
    start, stop = tasks["start"].values, (tasks["start"] + tasks["duration"]).values
    number = _texts(np.arange(len(producers)))
    for kind, rows, times in (
        ('"ph":"s"', producers, np.maximum(start, stop - _BEFORE_END_S)),
        ('"ph":"f","bp":"e"', consumers, start),
    ):
        yield from _events(
            f'{kind},"cat":"dependency","name":"dependency","id":',
            number,
            ',"pid":',
            process[rows],
            ',"tid":',
            thread[rows],
            ',"ts":',
            times[rows],
        )


def _activities(run: Run, stream: pd.DataFrame) -> Iterator[bytes | memoryview]:
    """Yield a slice per activity that is no computation, and a flow per fetch.

    Slices on one track must not overlap, and a worker does many of them at once: each goes to the
    first lane that is free.
    """
    events = run.tree["task_events"].to_dataset() if "task_events" in run.tree.children else None
    if events is None or not events.sizes.get("event"):
        return
    actions = event_actions(events)
    other = events["action"].values != actions.index("compute")
    events = events.isel(event=other)
    events = events.isel(event=np.argsort(events["start"].values, kind="stable"))
    tasks = events["task"].values
    start, stop = events["start"].values, events["stop"].values
    workers = stream["worker"].to_numpy()[tasks]
    lanes = np.array(_lanes(workers.tolist(), start.tolist(), stop.tolist()))
    process, thread = workers + 1, _FIRST_LANE + lanes
    for number, track in sorted(set(zip(process.tolist(), thread.tolist(), strict=True))):
        yield _metadata("thread_name", number, track, f"activities {track - _FIRST_LANE + 1}")
    action = events["action"].values
    names = _quoted([str(name) for name in actions]).take(pa.array(action))
    yield from _events(
        '"ph":"X","cat":',
        names,
        ',"name":',
        names,
        ',"pid":',
        process,
        ',"tid":',
        thread,
        ',"ts":',
        start,
        ',"dur":',
        stop - start,
        ',"args":{"for":',
        _group_names(stream).take(pa.array(tasks)),
        "}",
    )
    source = events["source"].values
    fetches = np.flatnonzero((np.array(actions)[action] == "transfer") & (source >= 0))
    at_sender = ('"pid":', source[fetches] + 1, f',"tid":{_SENT},"ts":', start[fetches])
    at_receiver = ('"pid":', process[fetches], ',"tid":', thread[fetches], ',"ts":', start[fetches])
    flow = ('"cat":"fetch","name":"fetch","id":', fetches, ",")
    # A flow begins in a slice: a short one on the sender's own track.
    yield from _events('"ph":"X","cat":"sent","name":"sent","dur":0,', *at_sender)
    yield from _events('"ph":"s",', *flow, *at_sender)
    yield from _events('"ph":"f","bp":"e",', *flow, *at_receiver)
    for sender in np.unique(source[fetches] + 1).tolist():
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


def _counters(run: Run) -> Iterator[memoryview]:
    """Yield the memory of each worker and the counters of the scheduler."""
    for group, names in (("workers", _MEMORY), ("scheduler", _SCHEDULER_COUNTERS)):
        if group not in run.tree.children:
            continue
        data = run.tree[group].to_dataset()
        for name in names:
            if name not in data:
                continue
            values = np.atleast_2d(data[name].transpose(..., "time").values)
            label = f"memory: {name} (B)" if group == "workers" else name
            for index, series in enumerate(values):
                process = index + 1 if group == "workers" else _SCHEDULER
                texts = pa.array(
                    # An absent value is no sample.
                    [f"{value:.6g}" if value == value else None for value in series.tolist()],
                    pa.string(),
                )
                yield from _events(
                    f'"ph":"C","name":"{label}","pid":{process},"ts":',
                    data["time"].values,
                    ',"args":{"value":',
                    texts,
                    "}",
                )


_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def write_speedscope(run: Run, path: Path) -> None:
    """Write the call stacks of a run for https://www.speedscope.app."""
    frames, stacks, weights = _stacks(run)
    profile = {
        "type": "sampled",
        "name": run.workload,
        "unit": "none",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": stacks,
        "weights": weights,
    }
    names = [{"name": name, "file": file, "line": line} for name, file, line in frames]
    content = {
        "$schema": _SCHEMA,
        "name": f"{run.workload} {run.id}",
        "exporter": "benchkit",
        "shared": {"frames": names},
        "profiles": [profile],
    }
    path.write_text(json.dumps(content), encoding="utf-8")


def _stacks(run: Run) -> tuple[list[tuple[str, str, int]], list[list[int]], list[int]]:
    """Return frames (function, file, line), stacks of frame numbers, and samples per stack."""
    profile = run.profile()
    if profile.empty:
        raise UsageError(
            f"run {run.id} has no call stacks: they are sampled by --capture full in tasks that "
            "take longer than 10 ms"
        )
    parents, counts = profile["parent"].to_numpy(), profile["count"].to_numpy()
    within = np.bincount(parents[parents >= 0], counts[parents >= 0], len(counts)).astype(int)
    own = np.maximum(counts - within, 0)
    names = zip(profile["function"], profile["file"], profile["line"], strict=True)
    frames: dict[tuple[Any, ...], int] = {}
    numbers = [frames.setdefault(name, len(frames)) for name in names]
    paths: list[list[int]] = []
    for number, parent in zip(numbers, parents.tolist(), strict=True):
        paths.append([*(paths[parent] if parent >= 0 else []), number])
    chosen = np.flatnonzero(own).tolist()
    return list(frames), [paths[row] for row in chosen], own[chosen].tolist()
