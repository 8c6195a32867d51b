"""What a cluster is asked once, when the clock has stopped: transfers, call stacks, spans, logs.

Recording in, Datasets out. A worker that was gone by then told nothing: that is NaN, never 0.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import xarray as xr

from benchkit.measure.recording import Recording
from benchkit.store.shaping import Window, clean_text, shaped

__all__ = ["assemble_last_words", "trimmed_memory"]

#: Stands for whoever fetches without being a worker: the client, or the scheduler for it.
OUTSIDE = -1


def assemble_last_words(recording: Recording, window: Window) -> dict[str, xr.Dataset]:
    """Return the groups ``transfers``, ``profile``, ``spans`` and ``logs`` of a run file.

    Parameters
    ----------
    recording : Recording
        As read from disk.
    window : Window
        When the clock ran.
    """
    reports = {int(index): report for index, report in recording.last("reports", {}).items()}
    return {
        "transfers": _transfers(reports, recording.last("workers", [])),
        "profile": _profile(reports),
        "spans": _spans(recording.last("spans", []), window),
        "logs": _logs(reports, recording.last("logs", []), window),
    }


def trimmed_memory(recording: Recording, n_workers: int) -> np.ndarray:
    """Return RSS in B of each worker after the run and a trim; NaN where a worker was gone."""
    trimmed = np.full(n_workers, np.nan)
    for index, report in recording.last("reports", {}).items():
        if 0 <= int(index) < n_workers and report.get("memory") is not None:
            trimmed[int(index)] = report["memory"]
    return trimmed


def _transfers(reports: dict[int, dict], workers: list[dict]) -> xr.Dataset:
    """Lay transfers between workers out as a matrix, source by destination.

    Both ends keep a log. The receiver's counts; where it is gone, the sender's. Compressed bytes
    are known to the sender alone. A pair of which either end reported nothing had no transfer.
    """
    place = {info["address"]: info["worker"] for info in workers}  # the newest at an address
    heard = {index for index, report in reports.items() if "transfers" in report}
    indices = [info["worker"] for info in workers] if heard else []
    fields = ("count", "bytes", "bytes_compressed", "seconds")
    sent: dict[tuple[int, int], np.ndarray] = {}
    received: dict[tuple[int, int], np.ndarray] = {}
    for index in sorted(heard):
        for outgoing, peer, *numbers in reports[index]["transfers"]:
            other = place.get(peer, OUTSIDE)
            pair, log = ((index, other), sent) if outgoing else ((other, index), received)
            log[pair] = log.get(pair, np.zeros(4)) + np.asarray(numbers, float)
    if any(OUTSIDE in pair for pair in (*sent, *received)):
        indices = [*indices, OUTSIDE]
    table = {name: np.full((len(indices), len(indices)), np.nan) for name in fields}
    for row, source in enumerate(indices):
        for column, destination in enumerate(indices):
            pair = (source, destination)
            if not {source, destination} & heard:
                continue
            first = received if destination in heard else sent
            numbers = first.get(pair, np.zeros(4)).copy()
            numbers[2] = sent.get(pair, np.zeros(4))[2] if source in heard else np.nan
            for name, number in zip(fields, numbers, strict=True):
                table[name][row, column] = number
    dataset = shaped("transfers", table, {"source": indices, "destination": indices})
    dataset.attrs["unheard"] = len(workers) - len(heard)
    return dataset


def _profile(reports: dict[int, dict]) -> xr.Dataset:
    """Merge the workers' call stacks into one flat tree, a parent before its children."""
    places: dict[tuple, int] = {}  # function, file and line -> code
    tree: dict[tuple[int, int], int] = {}  # parent and code -> node
    counts: list[int] = []
    n_workers = 0
    for report in reports.values():
        stacks = report.get("profile")
        if not stacks:
            continue
        n_workers += 1
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
    dataset.attrs["n_workers"] = n_workers
    return dataset


def _spans(rows: list[list], window: Window) -> xr.Dataset:
    columns = list(zip(*rows, strict=True)) or [()] * 7
    names = ("id", "name", "parent", "enqueued", "start", "stop", "active_cpu_seconds")
    data: dict[str, Any] = dict(zip(names, columns, strict=True))
    for name in ("enqueued", "start", "stop"):
        data[name] = window.seconds(data[name])
    return shaped("spans", data, {})


def _logs(reports: dict[int, dict], others: list[list], window: Window) -> xr.Dataset:
    rows = [(*line, "worker", index) for index, r in reports.items() for line in r.get("logs", ())]
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
