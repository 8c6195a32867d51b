"""Convert samples of workers and scheduler to the groups of a run file that are time series."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import xarray as xr

from benchkit.measure.capture import (
    CLIENT,
    CLIENT_COLUMNS,
    HELD_COLUMNS,
    MEMORY_COLUMNS,
    SAMPLE_COLUMNS,
    SCHEDULER_COLUMNS,
    THREAD_COLUMNS,
)
from benchkit.measure.capture.columns import SCHEDULER
from benchkit.measure.capture.samples import MAXIMA
from benchkit.measure.recording import Recording
from benchkit.store.build.shape import Window, first_finite, shaped
from benchkit.store.build.worker_reports import trimmed_memory
from benchkit.values import clean_text


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
