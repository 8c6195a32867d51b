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

from benchkit.measure.capture import (
    ACTIONS,
    EVENT_COLUMNS,
    ROW,
    SAMPLE_COLUMNS,
    SCHEDULER_COLUMNS,
    TASK_COLUMNS,
)
from benchkit.measure.recording import Recording
from benchkit.store.build.prometheus import assemble_prometheus
from benchkit.store.build.shape import Window, columns_of, first_finite, shaped
from benchkit.store.build.worker_reports import assemble_worker_reports, trimmed_memory
from benchkit.store.schema import ACTIVITIES
from benchkit.values import clean_text

__all__ = ["RecomputedTask", "Window", "assemble_groups", "recomputed_tasks"]

#: Maximum number of events for recomputed tasks; a lost worker may hold a million results.
MAX_RECOMPUTED = 10_000


class RecomputedTask(NamedTuple):
    """A task that ran again because the worker with its result left.

    Parameters
    ----------
    row : int
        Row of the second success in the group ``tasks``.
    key : str
        Key of the task.
    lost_worker : int
        Index of the worker that left.
    """

    row: int
    key: str
    lost_worker: int


def assemble_groups(recording: Recording, window: Window) -> dict[str, xr.Dataset]:
    """Return the Datasets of a run file by group name; empty if the clock never started.

    Parameters
    ----------
    recording : Recording
        As read from disk.
    window : Window
        Start and end of the measured time.

    Returns
    -------
    dict of str to Dataset
        Only prometheus if the capture was off.
    """
    if not window.started:
        return {}
    prometheus = assemble_prometheus(recording, window)
    if recording.last("state") is None:  # capture was off
        return prometheus
    tasks, task_groups = _tasks_and_groups(recording, window)
    workers = _workers(recording, window)
    return {
        "workers": workers,
        "scheduler": _scheduler(recording, window),
        "task_groups": task_groups,
        "fine": _fine(recording),
        **tasks,
        "events": _events(recording, window, tasks["tasks"], workers["left"].values),
        "errors": _errors(recording, window),
        **assemble_worker_reports(recording, window),
        **prometheus,
    }


def recomputed_tasks(tasks: xr.Dataset, left: np.ndarray) -> list[RecomputedTask]:
    """Return tasks that succeeded again after the worker of their first success had left.

    Parameters
    ----------
    tasks : Dataset
        The group ``tasks`` of a run, ordered by end time.
    left : ndarray, shape (workers,)
        Time at which each worker left, in s after the clock started; NaN if it stayed.

    Returns
    -------
    list of RecomputedTask
        In the order of `tasks`.
    """
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


# -- series ---------------------------------------------------------------------------------------


def _workers(recording: Recording, window: Window) -> xr.Dataset:
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
    # Peaks from before the clock started are not peaks of this run.
    first = has_heartbeat & (np.cumsum(has_heartbeat, axis=0) == 1)
    first &= np.array([info["joined"] < window.on for info in infos], bool)[None, :]
    for name in ("rss_peak", "tick_max"):
        column = filled[:, :, names.index(name)]
        column[np.maximum.accumulate(first, axis=0) & (newest == _first_row(first))] = np.nan

    data = {name: filled[:, :, index] for index, name in enumerate(names)}
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


def _first_row(first: np.ndarray) -> np.ndarray:
    if not first.size:
        return np.zeros((1, first.shape[1]), int)
    return np.where(first.any(axis=0), first.argmax(axis=0), -2)[None, :]


def _scheduler(recording: Recording, window: Window) -> xr.Dataset:
    width = len(SCHEDULER_COLUMNS)
    block = np.asarray(recording.block("scheduler", width)).reshape(-1, width)
    data = {name: block[:, i] for i, name in enumerate(SCHEDULER_COLUMNS) if i}
    return shaped("scheduler", data, {"time": window.seconds(block[:, 0])})


# -- tasks and their groups -----------------------------------------------------------------------


def _tasks_and_groups(
    recording: Recording, window: Window
) -> tuple[dict[str, xr.Dataset], xr.Dataset]:
    columns = {
        name: np.asarray(recording.column("tasks", name, code))
        for name, code in TASK_COLUMNS.items()
    }
    columns["duration"] = columns.pop("stop") - columns["start"]
    columns["thread"] = _thread_numbers(columns["worker"], columns.pop("thread_id"))
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
        if used[index] or row["n_tasks"] or row["nbytes"] > 0 or any(row["seconds"].values()):
            _add_row(merged.setdefault(row["name"], _empty_row(row["name"])), row)
    # Several consecutive groups can have the same name: merge them.
    order = {name: number for number, name in enumerate(merged)}
    new_index = np.array([order.get(row["name"], -1) for row in rows], np.int32)
    if len(columns["group"]):
        columns["group"] = new_index[columns["group"]]

    groups = _task_groups(list(merged.values()), recording, window)
    return _task_datasets(recording, window, columns), groups


#: A task group, by the capture's names: name, seconds, nbytes, n_tasks, ...
_Row = dict[str, Any]


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
    for name in ("nbytes", "n_tasks", "n_erred"):
        into[name] += row[name]
    # A light capture does not record retries: None, not 0.
    is_unknown = row["n_retried"] is None or into["n_retried"] is None
    into["n_retried"] = None if is_unknown else into["n_retried"] + row["n_retried"]
    into["start"] = float(np.fmin(into["start"], row["start"]))
    into["stop"] = float(np.fmax(into["stop"], row["stop"]))
    into["prefix"] = into["prefix"] or row["prefix"]
    into["span"] = into["span"] or row["span"]
    into["dependencies"] = sorted({*into["dependencies"], *row["dependencies"]})


def _task_groups(rows: list[_Row], recording: Recording, window: Window) -> xr.Dataset:
    seconds = np.zeros((len(rows), len(ACTIVITIES)))
    for index, row in enumerate(rows):
        for action, value in row["seconds"].items():
            activity = action if action in ACTIVITIES else "other"
            seconds[index, ACTIVITIES.index(activity)] += max(value, 0.0)
    _distribute_fine_metrics(seconds, rows, recording)
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
    if None in data["n_retried"]:
        del data["n_retried"]
    coordinates = {"task_group": [row["name"] for row in rows], "action": list(ACTIVITIES)}
    return shaped("task_groups", data, coordinates)


def _distribute_fine_metrics(seconds: np.ndarray, rows: list[_Row], recording: Recording) -> None:
    """Distribute (de)serialisation time, recorded per prefix, over groups by number of tasks."""
    by_prefix: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        by_prefix.setdefault(row["prefix"], []).append(index)
    for context, prefix, activity, unit, value, *_ in recording.last("fine", []):
        if context != "execute" or unit != "seconds" or prefix not in by_prefix:
            continue
        if activity not in ("serialize", "deserialize"):
            continue
        members = by_prefix[prefix]
        weights = np.array([max(rows[index]["n_tasks"], 0) for index in members], float)
        weights = weights / weights.sum() if weights.sum() else np.full(len(members), 1.0)
        column = ACTIVITIES.index(activity)
        # Releases before 2024 also report it in the task groups: use the larger value.
        seconds[members, column] = np.maximum(seconds[members, column], weights * value)


def _task_datasets(
    recording: Recording, window: Window, columns: dict[str, np.ndarray]
) -> dict[str, xr.Dataset]:
    # Variable-length strings in HDF5 take 25 times the space of one compressed blob.
    blob = np.frombuffer(zlib.compress(recording.blob("keys")[:-1], 6), np.uint8)
    data = {**columns, "start": window.seconds(columns["start"]), "key_blob": blob}
    tasks = shaped("tasks", data, {})
    tasks.attrs["keys"] = "key_blob: zlib-compressed UTF-8, one key a line, in the order of tasks"
    tasks.attrs["n_dropped"] = int(recording.last("state", {}).get("n_dropped", 0))

    events = {
        name: np.asarray(recording.column("task_events", name, code))
        for name, code in EVENT_COLUMNS.items()
    }
    events["task"] = events.pop("place") // ROW
    events["start"], events["stop"] = (window.seconds(events[name]) for name in ("start", "stop"))
    task_events = shaped("task_events", events, {})
    task_events.attrs["actions"] = json.dumps(ACTIONS)
    return {"tasks": tasks, "task_events": task_events}


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
    recomputed = recomputed_tasks(tasks, left)
    starts, workers = tasks["start"].values, tasks["worker"].values
    for task in recomputed[:MAX_RECOMPUTED]:
        message = json.dumps({"key": clean_text(task.key), "lost": task.lost_worker})
        rows.append((starts[task.row], "task-recomputed", workers[task.row], message))
    rows.sort(key=lambda row: row[0])
    events = shaped("events", columns_of(rows, ("time", "topic", "worker", "message")), {})
    n_dropped = int(recording.last("state", {}).get("n_events_dropped", 0))
    events.attrs["n_dropped"] = n_dropped + len(recomputed[MAX_RECOMPUTED:])
    return events


def _errors(recording: Recording, window: Window) -> xr.Dataset:
    names = ("time", "key", "worker", "exception", "traceback")
    data = columns_of(recording.rows("task_errors"), names)
    errors = shaped("errors", {**data, "time": window.seconds(data["time"])}, {})
    errors.attrs["n_errors"] = int(recording.last("state", {}).get("n_errors", 0))
    return errors
