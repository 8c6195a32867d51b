"""Convert samples of threads and of the client's process to groups; number the processes."""

from __future__ import annotations

import json

import numpy as np
import xarray as xr

from benchkit.measure.capture import CLIENT, CLIENT_COLUMNS, SAMPLE_COLUMNS, THREAD_COLUMNS
from benchkit.measure.capture.columns import SCHEDULER
from benchkit.measure.recording import Recording
from benchkit.store.build.shape import Window, shaped

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
