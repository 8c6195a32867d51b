"""Convert the raw columns of a recording to the groups of a run file.

The recording of a killed process gives groups with all data that reached the disk.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from benchkit.measure.capture.columns import (
    ACTIONS,
    CLIENT,
    CLIENT_COLUMNS,
    EVENT_COLUMNS,
    HELD_COLUMNS,
    MEMORY_COLUMNS,
    ROW,
    SAMPLE_COLUMNS,
    SCHEDULER,
    SCHEDULER_COLUMNS,
    TASK_COLUMNS,
    THREAD_COLUMNS,
)
from benchkit.measure.capture.samples import MAXIMA
from benchkit.measure.recording import Recording
from benchkit.store.build.facts import restarted_workers
from benchkit.store.build.processes import add_up_memory
from benchkit.store.build.prometheus import assemble_prometheus
from benchkit.store.build.shape import Window, columns_of, first_finite, shaped
from benchkit.store.build.worker_reports import assemble_worker_reports, trimmed_memory
from benchkit.store.schema import ACTIVITIES
from benchkit.store.task_graph import encode_rows
from benchkit.values import clean_text

#: Maximum number of events for recomputed tasks; a lost worker may hold a million results.
MAX_RECOMPUTED = 10_000
#: Activities that fine metrics have per prefix.
_SPILLING = ("disk-read", "disk-write")
_TASK_ACTIVITIES = ("serialize", "deserialize", "failed", *_SPILLING)
#: Spilling outside tasks gets a row of its own above this many seconds.
MIN_SPILLING_S = 1e-3


class RecomputedTask(NamedTuple):
    """A task that ran again because the worker with its result left."""

    row: int  # Row of the second success in the group `tasks`
    key: str  # Key of the task
    lost_worker: int  # Index of the worker that left


def assemble_groups(recording: Recording, window: Window) -> dict[str, xr.Dataset]:
    """Return the Datasets of a run file by group name; empty if the clock never started."""
    if not window.started:
        return {}
    prometheus = assemble_prometheus(recording, window)
    if recording.last("state") is None:  # capture was off
        return prometheus
    tasks, task_groups, task_threads = _tasks_and_groups(recording, window)
    workers = assemble_workers(recording, window)
    return {
        "workers": workers,
        "memory_samples": assemble_memory(recording, window),
        "scheduler": add_up_memory(assemble_scheduler(recording, window), workers),
        "client": assemble_client(recording, window),
        "thread_times": assemble_threads(recording, window, task_threads),
        "task_groups": task_groups,
        "fine": _fine(recording),
        **tasks,
        "events": _events(recording, window, tasks["tasks"], workers["left"].values.copy()),
        "errors": _errors(recording, window),
        **assemble_worker_reports(recording, window),
        **prometheus,
    }


def recomputed_tasks(tasks: xr.Dataset, left: np.ndarray) -> list[RecomputedTask]:
    """Return tasks that succeeded again after the worker of their first success had left."""
    # left: (workers,), time at which each worker left, in s after the clock started; NaN if it
    # stayed.
    if not np.isfinite(left).any() or not tasks.sizes["task"]:
        return []
    keys = zlib.decompress(tasks["key_blob"].values.tobytes()).decode().split("\n")
    worker, start = tasks["worker"].values, tasks["start"].values
    last_worker: dict[str, int] = {}
    recomputed = []
    for row in np.flatnonzero(tasks["ok"].values == 1).tolist():
        key = keys[row]
        previous = last_worker.get(key, -1)
        if previous >= 0 and left[previous] <= start[row]:
            recomputed.append(RecomputedTask(row, key, previous))
        last_worker[key] = int(worker[row])
    return recomputed


# -- tasks and their groups -----------------------------------------------------------------------


def _tasks_and_groups(
    recording: Recording, window: Window
) -> tuple[dict[str, xr.Dataset], xr.Dataset, dict[tuple[int, int], int]]:
    columns = {
        name: np.asarray(recording.column("tasks", name, code))
        for name, code in TASK_COLUMNS.items()
    }
    columns["duration"] = columns.pop("stop") - columns["start"]
    idents = columns.pop("thread_id")
    columns["thread"] = _thread_numbers(columns["worker"], idents)
    # The number of each thread by its worker and the number that Python gave it.
    keys = zip(columns["worker"].tolist(), idents.tolist(), strict=True)
    task_threads = dict(zip(keys, columns["thread"].tolist(), strict=True))
    rows = list(recording.last("groups", []))
    names = recording.last("group_names", [])
    # A process killed between two snapshots: new groups have names and tasks, but no sums.
    rows += [_empty_row(name) for name in names[len(rows) :]]
    n_groups = int(columns["group"].max()) + 1 if len(columns["group"]) else 0
    rows += [_empty_row(f"group {index}") for index in range(len(rows), n_groups)]

    used = np.zeros(len(rows), bool)
    used[np.unique(columns["group"])] = True
    merged: dict[str, _Row] = {}
    for index, row in enumerate(rows):
        if (
            used[index]
            or row["n_tasks"]
            or (row["nbytes"] or 0) > 0
            or any(row["seconds"].values())
        ):
            _add_row(merged.setdefault(row["name"], _empty_row(row["name"])), row)
    # Several consecutive groups can have the same name: merge them.
    order = {name: number for number, name in enumerate(merged)}
    new_index = np.array([order.get(row["name"], -1) for row in rows], np.int32)
    if len(columns["group"]):
        columns["group"] = new_index[columns["group"]]

    for (prefix, _), value in _fine_seconds(recording).items():
        if prefix.startswith("(") and value > MIN_SPILLING_S:
            merged.setdefault(prefix, {**_empty_row(prefix), "prefix": prefix})
    seceded = _seconds_seceded(recording, columns["duration"])
    groups = _task_groups(list(merged.values()), recording, window, seceded)
    names = [row["name"] for row in rows]
    datasets = _task_datasets(recording, window, columns, new_index, names)
    return datasets, groups, task_threads


#: A task group, by the capture's names: name, seconds, nbytes, n_tasks, ...
_Row = dict[str, Any]


def _seconds_seceded(recording: Recording, durations: np.ndarray) -> dict[str, float]:
    """Return the seconds that tasks of each group waited after they had seceded.

    Only the task stream has the duration of each task.
    """
    rows = recording.last("state", {}).get("seceded") or ()
    computed = {key: (group, seconds) for key, group, seconds in rows}
    waits: dict[str, float] = {}
    if computed and len(durations):
        keys = recording.blob("keys")[:-1].decode().split("\n")
        for key, duration in zip(keys, durations.tolist(), strict=True):
            group, seconds = computed.get(key, ("", duration))
            if duration > (seconds or 0.0) and group:
                waits[group] = waits.get(group, 0.0) + duration - seconds
    return waits


def _thread_numbers(workers: np.ndarray, idents: np.ndarray) -> np.ndarray:
    """Return numbers of threads over all workers, in order of appearance."""
    codes, unique_idents = pd.factorize(idents)
    numbers, _ = pd.factorize(workers.astype(np.int64) * len(unique_idents) + codes)
    return np.asarray(numbers, np.int32)


def _empty_row(name: str) -> _Row:
    return {
        "name": name,
        "seconds": {},
        "nbytes": 0,
        "n_tasks": 0,
        "n_erred": 0,
        "n_retried": 0,
        "start": float("nan"),
        "stop": float("nan"),
        "prefix": "",
        "dependencies": [],
        "span": "",
    }


def _add_row(into: _Row, row: _Row) -> None:
    for action, seconds in row["seconds"].items():
        into["seconds"][action] = into["seconds"].get(action, 0.0) + seconds
    for name in ("nbytes", "n_tasks", "n_erred", "n_retried"):
        # A light capture does not record retries, an engine no sizes: None, not 0.
        is_unknown = row[name] is None or into[name] is None
        into[name] = None if is_unknown else into[name] + row[name]
    into["start"] = float(np.fmin(into["start"], row["start"]))
    into["stop"] = float(np.fmax(into["stop"], row["stop"]))
    into["prefix"] = into["prefix"] or row["prefix"]
    into["span"] = into["span"] or row["span"]
    into["dependencies"] = sorted({*into["dependencies"], *row["dependencies"]})


def _task_groups(
    rows: list[_Row], recording: Recording, window: Window, seceded: dict[str, float]
) -> xr.Dataset:
    seconds = np.zeros((len(rows), len(ACTIVITIES)))
    for index, row in enumerate(rows):
        for action, value in row["seconds"].items():
            known = action if action in ACTIVITIES else "other"
            seconds[index, ACTIVITIES.index(known)] += max(value, 0.0)
        wait = min(seceded.get(row["name"], 0.0), seconds[index, ACTIVITIES.index("compute")])
        seconds[index, ACTIVITIES.index("compute")] -= wait
        seconds[index, ACTIVITIES.index("seceded")] += wait
    totals = _fine_seconds(recording)
    _distribute_fine_metrics(seconds, rows, totals)
    if recording.last("fine"):
        spilled = {(prefix, activity) for prefix, activity in totals if activity in _SPILLING}
        for index, row in enumerate(rows):
            for activity in _SPILLING:
                if (row["prefix"], activity) not in spilled:
                    seconds[index, ACTIVITIES.index(activity)] = 0.0
    data = {
        "seconds": seconds,
        "start": np.maximum(window.seconds([row["start"] for row in rows]), 0.0),
        "stop": window.seconds([row["stop"] for row in rows]),
        "dependencies": [json.dumps(row["dependencies"]) for row in rows],
        **{
            name: [row[name] for row in rows]
            for name in ("nbytes", "n_tasks", "n_erred", "n_retried", "prefix", "span")
        },
    }
    for name in ("nbytes", "n_retried"):
        if None in data[name]:
            del data[name]
    coordinates = {"task_group": [row["name"] for row in rows], "action": list(ACTIVITIES)}
    return shaped("task_groups", data, coordinates)


def _fine_seconds(recording: Recording) -> dict[tuple[str, str], float]:
    """Return fine metrics in seconds by (prefix of tasks, activity).

    Spilling outside tasks, such as by the memory monitor, has the context in place of the prefix:
    ``(memory-monitor)``. The context ``p2p`` is no spilling: a P2P shuffle writes its own files.
    """
    totals: dict[tuple[str, str], float] = {}
    for context, prefix, activity, unit, value, *_ in recording.last("fine", []):
        in_task = context == "execute"
        if context == "p2p":
            continue
        if unit == "seconds" and activity in (_TASK_ACTIVITIES if in_task else _SPILLING):
            key = prefix if in_task else f"({context})", activity
            totals[key] = totals.get(key, 0.0) + value
    return totals


def _can_have_spilled(recording: Recording) -> bool:
    """Return whether a worker spilled, or whether this is unknown.

    distributed notes "disk-write" for each result that took more than 5 ms to store, whatever the
    reason: a busy process, or one that waited for the GIL. Fine metrics know what was spilled.
    """
    if not recording.last("fine"):
        return True
    return any(activity in _SPILLING for _, activity in _fine_seconds(recording))


def _distribute_fine_metrics(
    seconds: np.ndarray, rows: list[_Row], totals: dict[tuple[str, str], float]
) -> None:
    """Distribute seconds that are recorded per prefix over the groups of the prefix.

    Weights are the groups' own seconds of spilling, else their numbers of tasks.
    """
    by_prefix: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        by_prefix.setdefault(row["prefix"], []).append(index)
    for (prefix, activity), value in totals.items():
        members = by_prefix.get(prefix, [])
        own = seconds[members, ACTIVITIES.index(activity)]
        weights = np.array([max(rows[index]["n_tasks"], 0) for index in members], float)
        if activity in _SPILLING and own.sum():
            weights = own
        weights = weights / weights.sum() if weights.sum() else np.full(len(members), 1.0)
        share = weights * value
        # Releases before 2024 also report (de)serialisation in the groups: use the larger value.
        # Of spilling, groups lack what took less than 5 ms.
        new = share if activity in _SPILLING else np.maximum(own, share)
        seconds[members, ACTIVITIES.index(activity)] = new


def _task_datasets(
    recording: Recording,
    window: Window,
    columns: dict[str, np.ndarray],
    new_group: np.ndarray,
    names: list[str],
) -> dict[str, xr.Dataset]:
    # Variable-length strings in HDF5 take 25 times the space of one compressed blob.
    blob = np.frombuffer(zlib.compress(recording.blob("keys")[:-1], 6), np.uint8)
    graph, submissions = assemble_graph(recording, window, new_group, columns.pop("node"))
    data = {**columns, "start": window.seconds(columns["start"]), "key_blob": blob, **graph}
    tasks = shaped("tasks", data, {})
    tasks.attrs["keys"] = "key_blob: zlib-compressed UTF-8, one key a line, in the order of tasks"
    tasks.attrs["n_dropped"] = int(recording.last("state", {}).get("n_dropped", 0))

    events = {
        name: np.asarray(recording.column("task_events", name, code))
        for name, code in EVENT_COLUMNS.items()
    }
    events["task"] = events.pop("place") // ROW
    events["start"], events["stop"] = (window.seconds(events[name]) for name in ("start", "stop"))
    if not _can_have_spilled(recording):
        is_spilling = np.isin(events["action"], [ACTIONS.index(name) for name in _SPILLING])
        events = {name: values[~is_spilling] for name, values in events.items()}
    task_events = shaped("task_events", events, {})
    task_events.attrs["actions"] = json.dumps(ACTIONS)
    datasets = {"tasks": tasks, "task_events": task_events}
    if submissions is not None:
        datasets["submissions"] = submissions
    if recording.blob("held"):  # not at level "light"
        datasets["held"] = assemble_held(recording, window, names)
    return datasets


# -- lists ----------------------------------------------------------------------------------------


def _fine(recording: Recording) -> xr.Dataset:
    rows = recording.last("fine", [])
    columns = columns_of(rows, ("context", "prefix", "activity", "unit", "value"))
    columns["span"] = [row[5] if len(row) > 5 else "" for row in rows]
    return shaped("fine", columns, columns)


def _events(
    recording: Recording, window: Window, tasks: xr.Dataset, left: np.ndarray
) -> xr.Dataset:
    """Return cluster events and an event per recomputed task, ordered by time."""
    recorded = recording.rows("events")
    times = window.seconds([row[0] for row in recorded])
    rows = [(time, *row[1:]) for time, row in zip(times, recorded, strict=True)]
    left[list(restarted_workers(_event_table(rows), left))] = np.nan
    recomputed = recomputed_tasks(tasks, left)
    starts, workers = tasks["start"].values, tasks["worker"].values
    for task in recomputed[:MAX_RECOMPUTED]:
        message = json.dumps({"key": clean_text(task.key), "lost": task.lost_worker})
        rows.append((starts[task.row], "task-recomputed", workers[task.row], message))
    events = _event_table(sorted(rows, key=lambda row: row[0]))
    n_dropped = int(recording.last("state", {}).get("n_events_dropped", 0))
    events.attrs["n_dropped"] = n_dropped + len(recomputed[MAX_RECOMPUTED:])
    return events


def _event_table(rows: list[tuple[Any, ...]]) -> xr.Dataset:
    return shaped("events", columns_of(rows, ("time", "topic", "worker", "message")), {})


def _errors(recording: Recording, window: Window) -> xr.Dataset:
    names = ("time", "key", "worker", "exception", "traceback")
    data = columns_of(recording.rows("task_errors"), names)
    errors = shaped("errors", {**data, "time": window.seconds(data["time"])}, {})
    errors.attrs["n_errors"] = int(recording.last("state", {}).get("n_errors", 0))
    return errors


def assemble_workers(recording: Recording, window: Window) -> xr.Dataset:
    """Align heartbeats on one time axis: a value holds until the next heartbeat of the worker."""
    infos = recording.last("workers", [])
    width = len(SAMPLE_COLUMNS)
    block = np.asarray(recording.block("samples", width)).reshape(-1, width)
    block = block[block[:, 1] >= 0]
    times, row = np.unique(block[:, 0], return_inverse=True)
    grid = np.full((len(times), len(infos), width - 2), np.nan)
    grid[row, block[:, 1].astype(int)] = block[:, 2:]
    has_heartbeat = np.zeros(grid.shape[:2], bool)
    has_heartbeat[row, block[:, 1].astype(int)] = True

    # The index of the newest heartbeat at each time; -1 before the first.
    newest = np.where(has_heartbeat, np.arange(len(times))[:, None], -1)
    newest = np.maximum.accumulate(newest, axis=0)
    filled = np.take_along_axis(grid, np.maximum(newest, 0)[:, :, None], axis=0)
    left = np.array([first_finite(info["left"]) for info in infos])
    has_left = times[:, None] > np.where(np.isnan(left), np.inf, left)[None, :]
    filled[(newest < 0) | has_left] = np.nan

    names = SAMPLE_COLUMNS[2:]
    # Peaks from before the clock started are not peaks of this run: those of the first heartbeat,
    # and of the second if the heartbeat for the start of the clock came after it.
    late = recording.last("state", {}).get("late_at_on", [])
    n_before = np.array([info["joined"] < window.on for info in infos], int)
    n_before += [info["worker"] in late for info in infos]
    is_before = np.cumsum(has_heartbeat, axis=0) <= n_before
    for name in MAXIMA:
        filled[:, :, names.index(name)][is_before] = np.nan

    data = {name: filled[:, :, index] for index, name in enumerate(names)}
    ahead = recording.last("state", {}).get("clock_ahead", {})
    ahead = [ahead.get(str(info["worker"]), 0.0) for info in infos]
    data["monitor_time"] = window.seconds(data["monitor_time"]) + ahead
    for name in ("gpu_utilization", "gpu_memory_used"):
        if np.isnan(data[name]).all():  # no GPU, or distributed does not watch it
            del data[name]
    for kind in ("process", "machine"):
        numbers = numbers_by_server(recording, kind)
        data[f"{kind}_id"] = np.array([numbers.get(index, -1) for index in range(len(infos))])
    data["trimmed"] = trimmed_memory(recording, len(infos))
    coordinates = {
        "time": window.seconds(times),
        "address": [info["address"] for info in infos],
        "name": [info["name"] for info in infos],
        "host": [info["host"] for info in infos],
        "nthreads": [info["nthreads"] for info in infos],
        "memory_limit": [info["memory_limit"] or 0 for info in infos],
        "joined": window.seconds([info["joined"] for info in infos]),
        "left": window.seconds(left),
    }
    return shaped("workers", data, coordinates)


def assemble_memory(recording: Recording, window: Window) -> xr.Dataset:
    """Return the memory samples of all workers, ordered by time."""
    width = len(MEMORY_COLUMNS)
    block = np.asarray(recording.block("memory", width)).reshape(-1, width)
    block = block[block[:, 1] >= 0]
    # Times are on the worker's clock.
    for index, ahead in recording.last("state", {}).get("clock_ahead", {}).items():
        block[block[:, 1] == int(index), 0] += ahead
    block = block[np.argsort(block[:, 0], kind="stable")]
    data = {name: block[:, index] for index, name in enumerate(MEMORY_COLUMNS)}
    return shaped("memory_samples", {**data, "time": window.seconds(data["time"])}, {})


def assemble_held(recording: Recording, window: Window, names: list[str]) -> xr.Dataset:
    """Return the bytes of results by task group and worker over time."""
    width = len(HELD_COLUMNS)
    block = np.asarray(recording.block("held", width)).reshape(-1, width)
    data = {name: block[:, index] for index, name in enumerate(HELD_COLUMNS)}
    codes, unique = pd.factorize(np.array([*names, ""], object)[data["group"].astype(int)])
    data["group"] = np.where(unique[codes] == "", -1, codes) if len(codes) else codes
    held = shaped("held", {**data, "time": window.seconds(data["time"])}, {})
    held.attrs["groups"] = json.dumps([clean_text(name) for name in unique])
    return held


def assemble_scheduler(recording: Recording, window: Window) -> xr.Dataset:
    """Return the samples of the scheduler."""
    width = len(SCHEDULER_COLUMNS)
    block = np.asarray(recording.block("scheduler", width)).reshape(-1, width)
    data = {name: block[:, i] for i, name in enumerate(SCHEDULER_COLUMNS) if i}
    data["monitor_time"] = window.seconds(data["monitor_time"])
    scheduler = shaped("scheduler", data, {"time": window.seconds(block[:, 0])})
    scheduler.attrs |= ids_of(recording, SCHEDULER)
    return scheduler


_SERVERS = {SCHEDULER: "scheduler", CLIENT: "client"}
_ROLES = ("loop", "task", "main")


def numbers_by_server(recording: Recording, kind: str) -> dict[int, int]:
    """Return the number in the run of the process or machine of each worker and other server."""
    # kind: "process" or "machine".
    # returned: By index of a worker, SCHEDULER and CLIENT; workers have the lowest numbers.
    width = len(SAMPLE_COLUMNS)
    block = np.asarray(recording.block("samples", width)).reshape(-1, width)
    values = block[:, [1, SAMPLE_COLUMNS.index(f"{kind}_number")]]
    values = values[np.isfinite(values).all(axis=1) & (values[:, 0] >= 0)]
    found = {int(worker): number for worker, number in values.tolist()}
    found = dict(sorted(found.items()))
    place = ("machine", "process").index(kind)
    own = {SCHEDULER: recording.last("state", {}).get("process")}
    own[CLIENT] = recording.last("client_process")
    found |= {server: float(pair[place]) for server, pair in own.items() if pair}
    dense = {number: index for index, number in enumerate(dict.fromkeys(found.values()))}
    return {server: dense[number] for server, number in found.items()}


def ids_of(recording: Recording, server: int) -> dict[str, int]:
    """Return the attributes with the numbers of a server's process and machine."""
    numbers = {kind: numbers_by_server(recording, kind) for kind in ("process", "machine")}
    return {f"{kind}_id": found.get(server, -1) for kind, found in numbers.items()}


def assemble_client(recording: Recording, window: Window) -> xr.Dataset:
    """Return the samples of the client's process."""
    width = len(CLIENT_COLUMNS)
    block = np.asarray(recording.block("client", width)).reshape(-1, width)
    data = {name: block[:, index] for index, name in enumerate(CLIENT_COLUMNS) if index}
    client = shaped("client", data, {"time": window.seconds(block[:, 0])})
    client.attrs |= ids_of(recording, CLIENT)
    return client


def assemble_threads(
    recording: Recording, window: Window, task_threads: dict[tuple[int, int], int]
) -> xr.Dataset:
    """Return how long threads ran and waited for a processor."""
    # task_threads: number in `tasks` by worker and the number that Python gave the thread.
    width, state = len(THREAD_COLUMNS), recording.last("state", {})
    tables = [np.asarray(recording.block(name, width)) for name in ("threads", "client_threads")]
    block = np.concatenate(tables).reshape(-1, width)
    for index, ahead in state.get("clock_ahead", {}).items():  # times are on the worker's clock
        block[block[:, 1] == int(index), 0] += ahead
    # In order of time; a heartbeat whose reply was lost was sent again.
    block = np.unique(block, axis=0)
    identities, thread = np.unique(block[:, 1:5], axis=0, return_inverse=True)
    server, role, ident, native_id = identities.astype(np.int64).T
    keys = zip(server.tolist(), ident.tolist(), strict=True)
    processes = numbers_by_server(recording, "process")
    data = {
        "server": [_SERVERS.get(index, "worker") for index in server.tolist()],
        "worker": np.maximum(server, -1),
        "role": [_ROLES[number] for number in role.tolist()],
        "task_thread": [task_threads.get(key, -1) for key in keys],
        "thread_process": [processes.get(index, -1) for index in server.tolist()],
        "native_id": native_id,
        "sample_time": window.seconds(block[:, 0]),
        "sample_thread": thread.reshape(-1),
        "ran": block[:, 5],
        "waited": block[:, 6],
    }
    threads = shaped("thread_times", data, {})
    reasons = {int(index): text for index, text in (state.get("threads_absent") or {}).items()}
    reasons[CLIENT] = recording.last("client_threads_absent", "the client did not sample")
    named = {_SERVERS.get(index, f"worker {index}"): text for index, text in reasons.items()}
    threads.attrs["absent"] = json.dumps({name: text for name, text in named.items() if text})
    return threads


#: Phases of the client, by column of the rows in the tail of a recording.
_CALLS = ("optimised", "serialised", "sent")
_TIMES = ("received", "materialized", "ordered", "started")


def assemble_graph(
    recording: Recording, window: Window, new_group: np.ndarray, node_of_task: np.ndarray
) -> tuple[dict[str, Any], xr.Dataset | None]:
    """Return the variables of ``tasks`` that describe the graph, and the group ``submissions``."""
    groups, counts, order = (
        np.asarray(recording.column("nodes", name, "i"))
        for name in ("group", "n_dependencies", "order")
    )
    n_nodes = len(groups)
    dependencies = _numbers(recording, "dependencies")
    complete = len(counts) == len(order) == n_nodes and counts.sum() == len(dependencies)
    if not n_nodes or not complete or dependencies.max(initial=-1) >= n_nodes:
        return {}, None
    sent = {
        name: np.asarray(recording.column("submissions", name, "i"))
        for name in ("first_node", "n_wanted")
    }
    submission = np.searchsorted(sent["first_node"], np.arange(n_nodes), side="right") - 1
    by_place = _topological_order(counts, dependencies, order, submission)
    place = _inverse(by_place)
    # Nodes without an order were not submitted: scattered data, results of earlier work.
    submission[order < 0] = -1

    indptr, indices = _permuted(counts, dependencies, by_place, place)
    producer = np.zeros(n_nodes, np.int8)
    producer[place[_known(_numbers(recording, "producers"), n_nodes)]] = 1
    known_groups = np.append(new_group, -1)[np.minimum(groups, len(new_group))]
    inside = (node_of_task >= 0) & (node_of_task < n_nodes)
    variables = {
        "task_node": np.where(inside, place[np.where(inside, node_of_task, 0)], -1),
        "node_group": known_groups[by_place],
        "n_dependencies": np.diff(indptr),
        "producer": producer,
        "dependency": encode_rows(indptr, indices),
    }
    return variables, _submissions(recording, window, sent["n_wanted"], place, submission)


def _numbers(recording: Recording, table: str) -> np.ndarray:
    return np.frombuffer(recording.blob(table), np.int32)


def _known(nodes: np.ndarray, n_nodes: int) -> np.ndarray:
    return nodes[nodes < n_nodes]


def _inverse(permutation: np.ndarray) -> np.ndarray:
    inverse = np.empty_like(permutation)
    inverse[permutation] = np.arange(len(permutation))
    return inverse


def _topological_order(
    counts: np.ndarray, dependencies: np.ndarray, order: np.ndarray, submission: np.ndarray
) -> np.ndarray:
    """Return nodes by submission and Dask's order, which has dependencies first."""
    nodes = np.arange(len(counts))
    by_place = np.lexsort((nodes, order, submission))
    place, owner = _inverse(by_place), np.repeat(nodes, counts)
    depth = np.zeros(len(counts), np.int64)
    while not (place[dependencies] < place[owner]).all():
        # The client gave other priorities.
        deeper = depth.copy()
        np.maximum.at(deeper, owner, depth[dependencies] + 1)
        if (deeper == depth).all():
            break
        depth = deeper
        by_place = np.lexsort((nodes, order, depth, submission))
        place = _inverse(by_place)
    return by_place


def _permuted(
    counts: np.ndarray, dependencies: np.ndarray, by_place: np.ndarray, place: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the graph with new numbers of nodes, ascending within each row."""
    owner = place[np.repeat(np.arange(len(counts)), counts)]
    target = place[dependencies]
    chosen = np.lexsort((target, owner))
    return np.concatenate([[0], np.cumsum(counts[by_place])]), target[chosen]


def _submissions(
    recording: Recording,
    window: Window,
    n_wanted: np.ndarray,
    place: np.ndarray,
    submission: np.ndarray,
) -> xr.Dataset:
    # New nodes of one submission are neighbours in both numberings.
    first = np.full(len(n_wanted), len(place))
    chosen = submission >= 0
    np.minimum.at(first, submission[chosen], place[chosen])
    released = np.asarray(recording.column("releases", "node", "i"))
    release_times = np.asarray(recording.column("releases", "time", "d"))
    options = [row for row in recording.rows("node_options") if row[0] < len(place)]
    nbytes = np.asarray(recording.column("submissions", "nbytes", "q"))
    calls = np.array(recording.tail.get("client_phases") or (), float).reshape(-1, 3)
    data = {
        **dict(zip(_CALLS, window.seconds(calls).T, strict=True)),
        **{name: window.seconds(recording.column("submissions", name, "d")) for name in _TIMES},
        "first_node": first,
        "n_nodes": np.bincount(submission[chosen], minlength=len(n_wanted)),
        "n_wanted": n_wanted,
        # Recordings of earlier versions have no sizes.
        "nbytes": nbytes if len(nbytes) == len(n_wanted) else np.full(len(n_wanted), -1),
        "wanted": place[_numbers(recording, "wanted")],
        "release_time": window.seconds(release_times[: len(released)]),
        "release_node": place[released],
        "option_node": place[np.asarray([row[0] for row in options], np.int64)],
        "options": [row[1] for row in options],
    }
    return shaped("submissions", data, {})
