"""Graphs of sleeping tasks whose durations on other clusters are known."""

import time
from collections.abc import Callable
from functools import partial
from operator import getitem
from typing import Any

import numpy as np
from dask.base import tokenize


def nap(seconds: float, *inputs: Any, size: int = 1000) -> bytes:
    """Sleep and return some bytes."""
    time.sleep(seconds)
    return b"x" * size


def layer(name: str, count: int, seconds: Callable[[int], float], inputs: Callable[[int], Any]):
    """Return the tasks of a layer by key."""
    token = tokenize(name, count)
    return {(f"{name}-{token}", n): (nap, seconds(n), *inputs(n)) for n in range(count)}


def _constant(value: float, number: int) -> float:
    return value


def _keys(tasks: dict) -> list:
    return list(tasks)


def flat(unit: float, half: float = 1.0) -> tuple[dict, list]:
    """Return independent tasks."""
    tasks = layer("work", 64, lambda n: unit * half, lambda n: [])
    return tasks, _keys(tasks)


def uneven(unit: float, half: float = 1.0) -> tuple[dict, list]:
    """Return independent tasks of very different durations."""
    rng = np.random.default_rng(0)
    seconds = unit * rng.pareto(2.0, 64).clip(0.1, 8)
    tasks = layer("work", 64, lambda n: float(seconds[n]) * half, lambda n: [])
    return tasks, _keys(tasks)


def map_reduce(unit: float, half: float = 1.0) -> tuple[dict, list]:
    """Return a map and a tree reduction by four."""
    tasks = layer("work", 64, lambda n: unit * half, lambda n: [])
    level = _keys(tasks)
    depth = 0
    while len(level) > 1:
        parts = [level[n : n + 4] for n in range(0, len(level), 4)]
        new = layer(f"sum{depth}", len(parts), lambda n: unit / 2, partial(getitem, parts))
        tasks.update(new)
        level, depth = _keys(new), depth + 1
    return tasks, level


def chain(unit: float, half: float = 1.0) -> tuple[dict, list]:
    """Return four chains of sixteen tasks."""
    tasks: dict = {}
    level: list = [[] for _ in range(4)]
    for depth in range(16):
        name = "work" if depth % 2 else "other"
        factor = half if name == "work" else 1.0
        new = layer(f"{name}", 4, partial(_constant, unit * factor), partial(getitem, level))
        new = {(f"{name}-{tokenize(depth)}", n): value for n, value in enumerate(new.values())}
        tasks.update(new)
        level = [[key] for key in new]
    return tasks, [key for [key] in level]


def two_stages(unit: float, half: float = 1.0) -> tuple[dict, list]:
    """Return two stages, each task of the second needs two of the first."""
    first = layer("work", 48, lambda n: unit * half, lambda n: [])
    keys = _keys(first)
    second = layer("join", 48, lambda n: unit, lambda n: [keys[n], keys[(7 * n + 1) % 48]])
    return {**first, **second}, _keys(second)


GRAPHS = {graph.__name__: graph for graph in (flat, uneven, map_reduce, chain, two_stages)}
