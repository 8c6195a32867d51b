"""Convert reports of workers and scheduler to groups: transfers, call stacks, spans, logs.

Workers are polled every few seconds and once after the clock stopped. For workers that left
earlier, values not yet received are NaN, never 0.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from benchkit.measure.capture.worker_log import ACKNOWLEDGED_LATE, INCOMING, OUTGOING
from benchkit.measure.recording import Recording
from benchkit.store.build.shape import Window, columns_of, shaped
from benchkit.values import clean_text

#: Index of a peer that is not a worker: the client, or the scheduler on its behalf.
OUTSIDE = -1


def assemble_worker_reports(recording: Recording, window: Window) -> dict[str, xr.Dataset]:
    """Return the groups ``transfers``, ``profile``, ``spans`` and ``logs`` of a run file."""
    parts = _parts(recording)
    own = [(OUTSIDE, {"profile": part}) for part in recording.rows("scheduler_profile") if part]
    complete = {int(index) for index in recording.last("reports", {})}
    return {
        "transfers": _transfers(parts, complete, recording.last("workers", [])),
        "profile": _profile("profile", parts, window),
        "scheduler_profile": _profile("scheduler_profile", own, window),
        "spans": _spans(recording.last("spans", []), window),
        "logs": _logs(parts, recording.last("logs", []), window),
    }


#: A report, by the capture's names: transfers, profile, logs, memory.
_Report = dict[str, Any]


def _parts(recording: Recording) -> list[tuple[int, _Report]]:
    """Return all reports with the index of their worker: partial reports, then final reports."""
    final = ((int(index), report) for index, report in recording.last("reports", {}).items())
    return [*((index, part) for index, part in recording.rows("told")), *final]


def trimmed_memory(recording: Recording, n_workers: int) -> np.ndarray:
    """Return the memory of each worker after the run and a trim."""
    # returned: (n_workers,), RSS in B; NaN for workers that left.
    trimmed = np.full(n_workers, np.nan)
    for index, report in recording.last("reports", {}).items():
        if 0 <= int(index) < n_workers and report.get("memory") is not None:
            trimmed[int(index)] = report["memory"]
    return trimmed


def _transfers(
    parts: list[tuple[int, _Report]], complete: set[int], workers: list[dict[str, Any]]
) -> xr.Dataset:
    """Return transfers between workers, an entry per pair with transfers.

    Both ends keep a log: use the log with more transfers. Only the sender's log has compressed
    bytes, once the receiver has acknowledged the transfer. A pair without an entry had no transfers
    if the report of either end is complete.
    """
    by_address = {info["address"]: info["worker"] for info in workers}  # the newest at an address
    logs = [(index, part["transfers"]) for index, part in parts if "transfers" in part]
    complete = complete & {index for index, _ in logs}
    numbers = ["count", "bytes", "bytes_compressed", "seconds"]
    entries = [
        (int(direction), index, by_address.get(peer, OUTSIDE), *row)
        for index, rows in logs
        for direction, peer, *row in rows
    ]
    frame = pd.DataFrame(entries, columns=["direction", "own", "peer", *numbers])
    incoming = frame["direction"] == INCOMING
    frame["source"] = frame["peer"].where(incoming, frame["own"])
    frame["destination"] = frame["own"].where(incoming, frame["peer"])
    sums = frame.groupby(["source", "destination", "direction"])[numbers].sum().unstack()
    directions = [INCOMING, OUTGOING, ACKNOWLEDGED_LATE]
    sums = sums.reindex(columns=pd.MultiIndex.from_product([numbers, directions])).fillna(0.0)
    received, sent, late = (sums.xs(direction, axis=1, level=1) for direction in directions)
    by_source, by_destination = (sums.index.get_level_values(level) for level in (0, 1))
    # A worker logs what it receives before it acknowledges; the log of a client is unknown.
    in_run = (sent["count"] + late["count"] <= received["count"]) | (by_destination == OUTSIDE)
    sent = sent.where(~in_run, sent + late)
    table = received.where(received["count"] >= sent["count"], sent)
    table = table[table["count"] > 0]
    known = by_source.isin(complete) & (sent["count"] >= received["count"])
    table["bytes_compressed"] = sent["bytes_compressed"].where(known)
    incomplete = sorted({info["worker"] for info in workers} - complete)
    dataset = shaped("transfers", {**table.reset_index(), "incomplete": incomplete}, {})
    dataset.attrs["unheard"] = len(incomplete)  # workers without a complete report
    # What must agree: Dask's counters with both logs, and both ends of a pair that was not
    # copied on request (by `scatter(broadcast=True)`, `replicate`), which only the sender logs.
    dataset.attrs["n_incoming"] = float(received["count"].sum())
    dataset.attrs["n_outgoing"] = float((sent["count"] + late["count"].where(~in_run, 0.0)).sum())
    both = (received["count"] == sent["count"]) & (by_destination != OUTSIDE)
    dataset.attrs["bytes_received"] = float(received["bytes"][both].sum())
    dataset.attrs["bytes_sent"] = float(sent["bytes"][both].sum())
    return dataset


def _profile(group: str, parts: list[tuple[int, _Report]], window: Window) -> xr.Dataset:
    """Merge call stacks into one flat tree, a parent before its children; list their cycles."""
    code_numbers: dict[tuple[str, ...], int] = {}  # function, file and line -> code
    tree: dict[tuple[int, int], int] = {}  # parent and code -> node
    counts: list[int] = []
    profiled = set()
    cycles: list[tuple[float, float, int]] = []  # begin, end, worker
    entries: list[np.ndarray] = []  # each of shape (3, n): cycle, node, samples
    for index, part in parts:
        if "profile" not in part:
            continue
        profiled.add(index)
        if not part["profile"]:
            continue
        stacks = json.loads(zlib.decompress(part["profile"]))
        codes = [
            code_numbers.setdefault(tuple(frame), len(code_numbers)) for frame in stacks["frames"]
        ]
        nodes = np.asarray(stacks["nodes"], int).reshape(-1, 3)
        merged: list[int] = []  # node of `tree` for each node of this report
        for parent, frame, count in nodes.tolist():
            key = (merged[parent] if parent >= 0 else -1, codes[frame])
            node = tree.setdefault(key, len(counts))
            if node == len(counts):
                counts.append(0)
            counts[node] += count
            merged.append(node)
        for begin, end, flat in stacks["cycles"]:
            own = np.asarray(flat, int).reshape(-1, 2)
            node = np.asarray(merged, int)[own[:, 0]]
            entries.append(np.stack([np.full(len(own), len(cycles)), node, own[:, 1]]))
            cycles.append((begin, end, index))
    lines = (
        "\t".join(" ".join(clean_text(word).split()) for word in frame) for frame in code_numbers
    )
    parents, code = zip(*tree, strict=True) if tree else ((), ())
    data: dict[str, Any] = {
        "parent": parents,
        "code": code,
        "count": counts,
        "code_blob": np.frombuffer(zlib.compress("\n".join(lines).encode(), 6), np.uint8),
        **columns_of(cycles, ("cycle_start", "cycle_stop", "cycle_worker")),
    }
    for name in ("cycle_start", "cycle_stop"):
        data[name] = window.seconds(data[name])
    table = np.concatenate(entries, axis=1) if entries else np.zeros((3, 0), int)
    data |= zip(("entry_cycle", "entry_frame", "entry_count"), table, strict=True)
    dataset = shaped(group, data, {})
    dataset.attrs["codes"] = (
        "code_blob: zlib-compressed UTF-8, a line each of function, file and line, with tabs; "
        "roots (parent -1) are prefixes of tasks"
    )
    dataset.attrs["n_workers"] = len(profiled)
    return dataset


def _spans(rows: list[list[Any]], window: Window) -> xr.Dataset:
    names = ("id", "name", "parent", "enqueued", "start", "stop", "active_cpu_seconds")
    data = columns_of(rows, names)
    times = {name: window.seconds(data[name]) for name in ("enqueued", "start", "stop")}
    return shaped("spans", {**data, **times}, {})


def _logs(parts: list[tuple[int, _Report]], others: list[list[Any]], window: Window) -> xr.Dataset:
    rows = [(*line, "worker", index) for index, part in parts for line in part.get("logs", ())]
    rows += [(*line, server, OUTSIDE) for server, *line in others]
    rows.sort(key=lambda row: row[0])
    data = columns_of(rows, ("time", "level", "text", "server", "worker"))
    return shaped("logs", {**data, "time": window.seconds(data["time"])}, {})
