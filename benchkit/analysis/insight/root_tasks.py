"""Which tasks the scheduler keeps for any worker until one has few tasks: its rules."""

from __future__ import annotations

import sys
from math import ceil

import numpy as np

from benchkit.store.task_graph import TaskGraph

__all__ = ["most_tasks", "root_tasks"]


def most_tasks(saturation: float, nthreads: int) -> int:
    """Return up to how many tasks a worker is sent root tasks."""
    return max(1, ceil(min(saturation * nthreads, sys.maxsize)))


def root_tasks(graph: TaskGraph, n_threads: int) -> np.ndarray:
    """Return which tasks the scheduler queues for any worker: its rule, by task group."""
    n_groups = len(graph.group_names)
    sizes = np.bincount(graph.group[graph.group >= 0], minlength=n_groups)
    counts = np.diff(graph.indptr)
    own, other = np.repeat(graph.group, counts), graph.group[graph.indices]
    known = (own >= 0) & (other >= 0)
    pairs = np.unique(own[known].astype(np.int64) * n_groups + other[known])
    own, other = pairs // max(n_groups, 1), pairs % max(n_groups, 1)
    # A chain inside of a group makes the group its own input.
    n_inputs = np.bincount(own, minlength=n_groups)
    n_input_tasks = np.bincount(own, sizes[other], minlength=n_groups)
    is_root = (sizes > 2 * n_threads) & (n_inputs < 5) & (n_input_tasks < 5)
    found: np.ndarray = (counts == 0) | np.append(is_root, False)[graph.group]
    return found
