"""The longest chain of dependent tasks of a graph."""

from __future__ import annotations

import numpy as np
from scipy import sparse

__all__ = ["critical_path", "finish_times", "largest_dependency"]

#: Levels of a graph that are computed by arrays; deeper graphs are narrow, and a loop over their
#: tasks is faster. Tasks of a path that are looked up one by one.
MAX_LEVELS = 4000
#: Below this mean number of tasks a level, a loop over the tasks is faster than arrays; decided
#: after some levels.
NARROW, DECIDING_LEVELS = 60, 50


def finish_times(indptr: np.ndarray, indices: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Return the earliest end of each task if threads, transfers and scheduling cost nothing.

    Parameters
    ----------
    indptr, indices : ndarray of int
        Dependencies of each task, as rows; a task comes after its dependencies.
    seconds : ndarray of float
        Duration of each task; NaN counts as 0.

    Returns
    -------
    ndarray of float
        In s after the start of the first task.
    """
    finish: np.ndarray = np.nan_to_num(seconds)
    counts = np.diff(indptr)
    done = counts == 0
    shape = len(counts), len(counts)
    dependents = sparse.csr_array((np.ones(len(indices), bool), indices, indptr), shape).tocsc()
    waiting = counts.copy()
    place = np.empty_like(waiting)
    level = np.flatnonzero(done)
    n_done = 0
    for number in range(MAX_LEVELS):
        if number >= DECIDING_LEVELS and n_done < number * NARROW:
            break
        edges = _ranges(dependents.indptr[level], dependents.indptr[level + 1])
        released = dependents.indices[edges]
        if not len(released):
            break
        # A number of another type than `waiting` takes 30 times as long (NumPy 2.4).
        np.subtract.at(waiting, released, waiting.dtype.type(1))
        ready = released[waiting[released] == 0]
        numbers = np.arange(len(ready))
        place[ready] = numbers
        level = ready[place[ready] == numbers]  # each task once; sorting takes longer
        if len(level):
            latest = finish[indices[_ranges(indptr[level], indptr[level + 1])]]
            begins = np.concatenate([[0], np.cumsum(counts[level])[:-1]])
            finish[level] += np.maximum.reduceat(latest, begins)
            done[level] = True
            n_done += len(level)
    rest = np.flatnonzero(~done)
    if len(rest):
        _loop(finish, rest, indptr, indices)
    return finish


def _ranges(begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the numbers from each begin up to its end, concatenated."""
    counts = ends - begins
    offsets = np.concatenate([[0], np.cumsum(counts)[:-1]]) if len(counts) else counts
    return np.repeat(begins - offsets, counts) + np.arange(counts.sum())


def _loop(finish: np.ndarray, rest: np.ndarray, indptr: np.ndarray, indices: np.ndarray) -> None:
    values, row, edge = finish.tolist(), indptr.tolist(), indices.tolist()
    value_of = values.__getitem__
    for node in rest.tolist():
        begin, end = row[node], row[node + 1]
        if end - begin == 1:
            values[node] += values[edge[begin]]
        else:
            values[node] += max(map(value_of, edge[begin:end]))
    finish[:] = values


def largest_dependency(indptr: np.ndarray, indices: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the dependency of each task with the largest value.

    Parameters
    ----------
    indptr, indices : ndarray of int
        Dependencies of each task, as rows.
    values : ndarray of float
        A value per task; NaN counts as smaller than all others.

    Returns
    -------
    ndarray of int
        Number of the dependency; -1: none.
    """
    out = np.full(len(indptr) - 1, -1, np.int64)
    rows = np.flatnonzero(np.diff(indptr))
    if len(rows):
        edge = np.where(np.isnan(values), -np.inf, values)[indices]
        owner = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        best = np.maximum.reduceat(edge, indptr[rows])
        is_best = edge == np.repeat(best, np.diff(indptr)[rows])
        out[owner[is_best]] = indices[is_best]
    return out


def critical_path(
    indptr: np.ndarray, indices: np.ndarray, seconds: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return the chain of dependent tasks with the largest sum of durations.

    Parameters
    ----------
    indptr, indices : ndarray of int
        Dependencies of each task, as rows; a task comes after its dependencies.
    seconds : ndarray of float
        Duration of each task; NaN counts as 0.

    Returns
    -------
    path : ndarray of int
        Tasks, the first to run first; empty for an empty graph.
    length : float
        Sum of their durations in s.
    """
    if not len(seconds):
        return np.zeros(0, np.int64), 0.0
    finish = finish_times(indptr, indices, seconds)
    node = int(finish.argmax())
    length = float(finish[node])
    path = [node]
    while len(path) <= MAX_LEVELS and len(before := indices[indptr[node] : indptr[node + 1]]):
        node = int(before[finish[before].argmax()])
        path.append(node)
    if len(path) > MAX_LEVELS:  # for a long path it is faster to look at all tasks at once
        chosen = largest_dependency(indptr, indices, finish).tolist()
        while (node := chosen[node]) >= 0:
            path.append(node)
    return np.array(path[::-1]), length
