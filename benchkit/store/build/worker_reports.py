"""Convert reports of workers and scheduler to groups: transfers, call stacks, spans, logs.

Workers are polled every few seconds and once after the clock stopped. For workers that left
earlier, values not yet received are NaN, never 0.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np
import xarray as xr

from benchkit.formatting import clean_text
from benchkit.measure.recording import Recording
from benchkit.store.build.shape import Window, shaped

__all__ = ["assemble_worker_reports", "trimmed_memory"]

#: Index of a peer that is not a worker: the client, or the scheduler on its behalf.
OUTSIDE = -1


def assemble_worker_reports(recording: Recording, window: Window) -> dict[str, xr.Dataset]:
    """Return the groups ``transfers``, ``profile``, ``spans`` and ``logs`` of a run file.

    Parameters
    ----------
    recording : Recording
        As read from disk.
    window : Window
        Start and end of the measured time.

    Returns
    -------
    dict of str to Dataset
        By group name.
    """
    parts = _parts(recording)
    complete = {int(index) for index in recording.last("reports", {})}
    return {
        "transfers": _transfers(parts, complete, recording.last("workers", [])),
        "profile": _profile(parts),
        "spans": _spans(recording.last("spans", []), window),
        "logs": _logs(parts, recording.last("logs", []), window),
    }


def _parts(recording: Recording) -> list[tuple[int, dict]]:
    """Return all reports with the index of their worker: partial reports, then final reports."""
    rest = ((int(index), report) for index, report in recording.last("reports", {}).items())
    return [*((index, part) for index, part in recording.rows("told")), *rest]


def trimmed_memory(recording: Recording, n_workers: int) -> np.ndarray:
    """Return RSS in B of each worker after the run and a trim; NaN for workers that left."""
    trimmed = np.full(n_workers, np.nan)
    for index, report in recording.last("reports", {}).items():
        if 0 <= int(index) < n_workers and report.get("memory") is not None:
            trimmed[int(index)] = report["memory"]
    return trimmed


def _transfers(
    parts: list[tuple[int, dict]], complete: set[int], workers: list[dict]
) -> xr.Dataset:
    """Return transfers between workers as a matrix, source by destination.

    Both ends keep a log. Use the log of the receiver; if the receiver left, that of the sender; if
    both left, the log with more transfers. Only the sender knows compressed bytes. If the report
    of either end is complete, a pair without entries had no transfers: 0.
    """
    place = {info["address"]: info["worker"] for info in workers}  # the newest at an address
    told = [(index, part["transfers"]) for index, part in parts if "transfers" in part]
    heard = complete & {index for index, _ in told}
    indices = [info["worker"] for info in workers] if told else []
    fields = ("count", "bytes", "bytes_compressed", "seconds")
    sent: dict[tuple[int, int], np.ndarray] = {}
    received: dict[tuple[int, int], np.ndarray] = {}
    for index, rows in told:
        for outgoing, peer, *numbers in rows:
            other = place.get(peer, OUTSIDE)
            pair, log = ((index, other), sent) if outgoing else ((other, index), received)
            log[pair] = log.get(pair, np.zeros(4)) + np.asarray(numbers, float)
    if any(OUTSIDE in pair for pair in (*sent, *received)):
        indices = [*indices, OUTSIDE]
    table = {name: np.full((len(indices), len(indices)), np.nan) for name in fields}
    for row, source in enumerate(indices):
        for column, destination in enumerate(indices):
            pair = (source, destination)
            if destination in heard:
                numbers = received.get(pair, np.zeros(4)).copy()
            elif source in heard:
                numbers = sent.get(pair, np.zeros(4)).copy()
            elif pair in sent or pair in received:
                known = [log[pair] for log in (sent, received) if pair in log]
                numbers = max(known, key=lambda row: row[0]).copy()
            else:
                continue
            numbers[2] = sent.get(pair, np.zeros(4))[2] if source in heard else np.nan
            for name, number in zip(fields, numbers, strict=True):
                table[name][row, column] = number
    dataset = shaped("transfers", table, {"source": indices, "destination": indices})
    dataset.attrs["unheard"] = len(workers) - len(heard)
    return dataset


def _profile(parts: list[tuple[int, dict]]) -> xr.Dataset:
    """Merge the workers' call stacks into one flat tree, a parent before its children."""
    places: dict[tuple, int] = {}  # function, file and line -> code
    tree: dict[tuple[int, int], int] = {}  # parent and code -> node
    counts: list[int] = []
    profiled = set()
    for index, part in parts:
        if "profile" not in part:
            continue
        profiled.add(index)
        if not part["profile"]:
            continue
        stacks = json.loads(zlib.decompress(part["profile"]))
        codes = [places.setdefault(tuple(frame), len(places)) for frame in stacks["frames"]]
        nodes = np.asarray(stacks["nodes"], int).reshape(-1, 3)
        here: list[int] = []
        for parent, frame, count in nodes.tolist():
            key = (here[parent] if parent >= 0 else -1, codes[frame])
            node = tree.setdefault(key, len(counts))
            if node == len(counts):
                counts.append(0)
            counts[node] += count
            here.append(node)
    lines = (
        "\t".join(" ".join(clean_text(word).split()) for word in (name, file, line))
        for name, file, line in places
    )
    parents, code = zip(*tree, strict=True) if tree else ((), ())
    data = {
        "parent": parents,
        "code": code,
        "count": counts,
        "code_blob": np.frombuffer(zlib.compress("\n".join(lines).encode(), 6), np.uint8),
    }
    dataset = shaped("profile", data, {})
    dataset.attrs["codes"] = (
        "code_blob: zlib-compressed UTF-8, a line each of function, file and line, with tabs; "
        "roots (parent -1) are prefixes of tasks"
    )
    dataset.attrs["n_workers"] = len(profiled)
    return dataset


def _spans(rows: list[list], window: Window) -> xr.Dataset:
    columns = list(zip(*rows, strict=True)) or [()] * 7
    names = ("id", "name", "parent", "enqueued", "start", "stop", "active_cpu_seconds")
    data: dict[str, Any] = dict(zip(names, columns, strict=True))
    for name in ("enqueued", "start", "stop"):
        data[name] = window.seconds(data[name])
    return shaped("spans", data, {})


def _logs(parts: list[tuple[int, dict]], others: list[list], window: Window) -> xr.Dataset:
    rows = [(*line, "worker", index) for index, part in parts for line in part.get("logs", ())]
    rows += [(*line, who, OUTSIDE) for who, *line in others]
    rows.sort(key=lambda row: row[0])
    data = {
        "time": window.seconds([row[0] for row in rows]),
        "level": [row[1] for row in rows],
        "text": [row[2] for row in rows],
        "server": [row[3] for row in rows],
        "worker": [row[4] for row in rows],
    }
    return shaped("logs", data, {})
