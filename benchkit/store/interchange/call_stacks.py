"""Write the call stacks of a run's tasks for speedscope and for pprof."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchkit.errors import UsageError
from benchkit.store.run import Run

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


def write_pprof(run: Run, path: Path) -> None:
    """Write the call stacks of a run for ``pprof``, as compressed protocol buffer."""
    frames, stacks, weights = _stacks(run)
    texts: dict[str, int] = {"": 0}

    def text(value: str) -> int:
        return texts.setdefault(value, len(texts))

    parts = [_field(1, _field(1, text("samples")) + _field(2, text("count")))]
    for stack, weight in zip(stacks, weights, strict=True):
        locations = b"".join(_varint(frame + 1) for frame in reversed(stack))  # leaf first
        parts.append(_field(2, _field(1, locations) + _field(2, _varint(weight))))
    for number, (name, file, line) in enumerate(frames, 1):
        parts.append(_field(4, _field(1, number) + _field(4, _field(1, number) + _field(2, line))))
        function = _field(1, number) + _field(2, text(name)) + _field(4, text(file))
        parts.append(_field(5, function))
    started = pd.Timestamp(run.tree.attrs["started"])
    parts.append(_field(9, started.value))
    parts.append(_field(10, round(run.metrics.get("duration", 0.0) * 1e9)))
    parts += [_field(6, value.encode()) for value in texts]
    path.write_bytes(gzip.compress(b"".join(parts)))


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


def _field(number: int, value: int | bytes) -> bytes:
    """Encode a field of a protocol buffer message: an integer, or bytes with their length."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
