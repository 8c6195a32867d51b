"""The longest chain of dependent tasks of a graph."""

from __future__ import annotations

import numpy as np

__all__ = ["critical_path", "finish_times", "largest_dependency"]

#: Tasks whose dependencies outside of the block are looked up at once; those inside of it are
#: looped over. Chosen with a million tasks: others take up to twice as long.
BLOCK = 256
#: Tasks whose largest dependency is found at once: few enough for the processor's cache.
LARGE_BLOCK = 8192


def finish_times(indptr: np.ndarray, indices: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Return the earliest end of each task if threads, transfers and scheduling cost nothing."""
    # seconds: Duration of each task; NaN counts as 0.
    own = np.nan_to_num(seconds)
    finish = np.full(len(own), -np.inf)
    for first in range(0, len(own), BLOCK):
        rows = indptr[first : first + BLOCK + 1]
        edges = indices[rows[0] : rows[-1]]
        counts = np.diff(rows)
        some = np.flatnonzero(counts)
        begin = np.zeros(len(counts))
        if len(some):
            begin[some] = np.maximum.reduceat(finish[edges], rows[some] - rows[0])
        block = slice(first, first + len(counts))
        inside = np.flatnonzero(edges >= first)
        if len(inside):
            owner = np.repeat(np.arange(len(counts)), counts)[inside]
            begin = _begin_in_block(begin, own[block], edges[inside] - first, owner)
        finish[block] = begin + own[block]
    return finish


def _begin_in_block(
    begin: np.ndarray, own: np.ndarray, source: np.ndarray, target: np.ndarray
) -> np.ndarray:
    """Return the earliest begin of each task, given dependencies in the order of their targets."""
    begins, seconds = begin.tolist(), own.tolist()
    for before, after in zip(source.tolist(), target.tolist(), strict=True):
        stop = begins[before] + seconds[before]
        if stop > begins[after]:
            begins[after] = stop
    return np.array(begins)


def largest_dependency(indptr: np.ndarray, indices: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the dependency of each task with the largest value."""
    # values: A value per task; NaN counts as smaller than all others.
    out = np.full(len(indptr) - 1, -1, np.int64)
    known = np.where(np.isnan(values), -np.inf, values)
    for first in range(0, len(out), LARGE_BLOCK):
        rows = indptr[first : first + LARGE_BLOCK + 1]
        edges = indices[rows[0] : rows[-1]]
        counts = np.diff(rows)
        some = np.flatnonzero(counts)
        if len(some):
            value = known[edges]
            best = np.maximum.reduceat(value, rows[some] - rows[0])
            is_best = np.flatnonzero(value == np.repeat(best, counts[some]))
            out[first + np.repeat(some, counts[some])[is_best]] = edges[is_best]
    return out


def critical_path(
    indptr: np.ndarray, indices: np.ndarray, seconds: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return the chain of dependent tasks with the largest sum of durations."""
    # seconds: Duration of each task; NaN counts as 0.
    if not len(seconds):
        return np.zeros(0, np.int64), 0.0
    finish = finish_times(indptr, indices, seconds)
    node = int(finish.argmax())
    length = float(finish[node])
    chosen = largest_dependency(indptr, indices, finish).tolist()
    path = [node]
    while (node := chosen[node]) >= 0:
        path.append(node)
    return np.array(path[::-1]), length
