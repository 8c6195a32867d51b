"""Synthetic task graphs of known shapes, for the design of schedulers.

Each function takes the seconds and bytes of its main tasks. Seconds vary at random by `jitter`,
with a fixed seed: the same arguments give the same graph.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from typing import Any

from benchkit.simulation.graph import TaskGraph

__all__ = [
    "SHAPES",
    "all_to_all",
    "chain",
    "independent",
    "make_graph",
    "map_reduce",
    "pairs",
    "rechunk",
    "reduction_over_time",
    "shuffle",
    "tree",
    "uneven",
]


class _Builder:
    """Collect the tasks of a graph."""

    def __init__(self, jitter: float = 0.2, seed: int = 0) -> None:
        self.graph = TaskGraph([], [], [], [])
        self.random, self.jitter = random.Random(seed), jitter

    def add(
        self, name: str, number: int, dependencies: list[int], seconds: float, nbytes: float
    ) -> int:
        """Add a task; return its index."""
        graph = self.graph
        graph.keys.append((f"{name}-0123abcd", number))
        graph.dependencies.append(list(dependencies))
        factor = self.random.uniform(1 - self.jitter, 1 + self.jitter) if self.jitter else 1.0
        graph.seconds.append(seconds * factor)
        graph.nbytes.append(int(nbytes))
        return len(graph.keys) - 1

    def level(self, name: str, tasks: list[int], seconds: float, nbytes: float) -> list[int]:
        """Add a task on top of each task."""
        return [self.add(name, i, [task], seconds, nbytes) for i, task in enumerate(tasks)]

    def roots(self, name: str, n: int, seconds: float, nbytes: float) -> list[int]:
        return [self.add(name, index, [], seconds, nbytes) for index in range(n)]

    def reduced(self, name: str, tasks: list[int], fan: int, seconds: float, nbytes: float) -> int:
        """Add a tree that combines `fan` tasks at a time."""
        height = 0
        while len(tasks) > 1:
            parts = [tasks[i : i + fan] for i in range(0, len(tasks), fan)]
            tasks = [
                self.add(f"{name}-{height}", i, part, seconds, nbytes)
                for i, part in enumerate(parts)
            ]
            height += 1
        return tasks[0]

    def finished(self) -> TaskGraph:
        return TaskGraph(**{**vars(self.graph), "submissions": []})


def independent(n: int = 1000, seconds: float = 0.1, nbytes: float = 1000.0) -> TaskGraph:
    """Tasks without dependencies: nothing but overhead.

    Parameters
    ----------
    n : int
        Number of tasks.
    seconds, nbytes : float
        Seconds and bytes of each task.

    Returns
    -------
    TaskGraph
        `n` tasks.
    """
    build = _Builder(jitter=0)
    build.roots("independent", n, seconds, nbytes)
    return build.finished()


def chain(n: int = 200, seconds: float = 0.01, nbytes: float = 1000.0) -> TaskGraph:
    """One task after the other: each round trip between scheduler and worker counts.

    Parameters
    ----------
    n : int
        Number of tasks.
    seconds, nbytes : float
        Seconds and bytes of each task.

    Returns
    -------
    TaskGraph
        `n` tasks.
    """
    build = _Builder(jitter=0)
    task = build.add("link", 0, [], seconds, nbytes)
    for number in range(1, n):
        task = build.add("link", number, [task], seconds, nbytes)
    return build.finished()


def map_reduce(n: int = 400, seconds: float = 0.1, nbytes: float = 1e6, fan: int = 8) -> TaskGraph:
    """Load, map, reduce each part, and combine the parts in a tree.

    Parameters
    ----------
    n : int
        Number of parts.
    seconds, nbytes : float
        Seconds and bytes of loading a part.
    fan : int
        Number of tasks combined at a time.

    Returns
    -------
    TaskGraph
        About 3.2 `n` tasks.
    """
    build = _Builder()
    loaded = build.roots("load", n, seconds, nbytes)
    mapped = build.level("map", loaded, seconds, nbytes)
    parts = build.level("reduce", mapped, seconds / 4, nbytes / 100)
    build.reduced("combine", parts, fan, seconds / 4, nbytes / 100)
    return build.finished()


def tree(n: int = 256, seconds: float = 0.05, nbytes: float = 1e6) -> TaskGraph:
    """Combine pairs until one is left.

    Parameters
    ----------
    n : int
        Number of leaves.
    seconds, nbytes : float
        Seconds and bytes of each task.

    Returns
    -------
    TaskGraph
        About 2 `n` tasks.
    """
    build = _Builder()
    build.reduced("pair", build.roots("leaf", n, seconds, nbytes), 2, seconds, nbytes)
    return build.finished()


def pairs(n: int = 100, seconds: float = 0.02, nbytes: float = 8e6) -> TaskGraph:
    """Each task joins the results of two distant roots: transfers take most of the time.

    Parameters
    ----------
    n : int
        Number of roots.
    seconds, nbytes : float
        Seconds and bytes of each root.

    Returns
    -------
    TaskGraph
        About 2 `n` tasks.
    """
    build = _Builder(jitter=0)
    roots = build.roots("make", n, seconds, nbytes)
    joined = [
        build.add("join", i, [roots[i], roots[(i + n // 2) % n]], seconds, 100) for i in range(n)
    ]
    build.reduced("count", joined, 16, seconds / 20, 100)
    return build.finished()


def all_to_all(n: int = 24, seconds: float = 0.1, nbytes: float = 2e6) -> TaskGraph:
    """Each of `n` tasks needs the whole result of each of `n` roots.

    Parameters
    ----------
    n : int
        Number of roots.
    seconds, nbytes : float
        Seconds and bytes of each root.

    Returns
    -------
    TaskGraph
        About 2 `n` tasks with `n` squared edges.
    """
    build = _Builder()
    roots = build.roots("make", n, seconds, nbytes)
    merged = [build.add("merge", i, roots, seconds, 100) for i in range(n)]
    build.reduced("count", merged, 16, seconds / 10, 100)
    return build.finished()


def rechunk(n: int = 24, seconds: float = 0.1, nbytes: float = 2e6) -> TaskGraph:
    """Rechunk an array by tasks: split each chunk, merge the pieces, reduce.

    Parameters
    ----------
    n : int
        Number of chunks before and after.
    seconds, nbytes : float
        Seconds and bytes of each chunk.

    Returns
    -------
    TaskGraph
        About `n` squared tasks.
    """
    build = _Builder()
    loaded = build.roots("load", n, seconds, nbytes)
    pieces = [
        [build.add("split", i * n + j, [task], seconds / 50, nbytes / n) for j in range(n)]
        for i, task in enumerate(loaded)
    ]
    merged = [build.add("merge", j, [row[j] for row in pieces], seconds, nbytes) for j in range(n)]
    build.reduced("total", build.level("sum", merged, seconds / 2, 100), 8, seconds / 10, 100)
    return build.finished()


def shuffle(n: int = 27, fan: int = 3, seconds: float = 0.05, nbytes: float = 1e6) -> TaskGraph:
    """Shuffle a data frame by tasks: stages of group, split and join.

    Parameters
    ----------
    n : int
        Number of partitions.
    fan : int
        Partitions that one partition is split into in each stage.
    seconds, nbytes : float
        Seconds and bytes of each partition.

    Returns
    -------
    TaskGraph
        log(n) / log(fan) stages.
    """
    build, size = _Builder(), nbytes / fan
    tasks = build.roots("read", n, seconds, nbytes)
    stage, width = 0, 1
    while width < n:
        groups = build.level(f"group-{stage}", tasks, seconds / 2, nbytes)
        tasks = []
        for index in range(n):
            first = index - index // width % fan * width
            members = [first + digit * width for digit in range(fan)]
            parts = [
                build.add(f"take-{stage}", index * fan + i, [groups[m]], seconds / 100, size)
                for i, m in enumerate(members)
                if m < n
            ]
            tasks.append(build.add(f"join-{stage}", index, parts, seconds / 2, nbytes))
        width, stage = width * fan, stage + 1
    build.reduced("count", build.level("write", tasks, seconds, 100), 16, seconds / 10, 100)
    return build.finished()


def reduction_over_time(
    times: int = 48, space: int = 8, months: int = 12, seconds: float = 0.05, nbytes: float = 1e6
) -> TaskGraph:
    """Anomalies: means over times by month, subtracted from each chunk, and their mean.

    Parameters
    ----------
    times, space : int
        Numbers of chunks in time and space.
    months : int
        Number of groups of times.
    seconds, nbytes : float
        Seconds and bytes of each chunk.

    Returns
    -------
    TaskGraph
        About 4.3 x `times` x `space` tasks.
    """
    build = _Builder()
    loaded = {
        (t, s): build.add("open", t * space + s, [], seconds, nbytes)
        for t in range(times)
        for s in range(space)
    }
    mean = {}
    for month in range(min(months, times)):
        for s in range(space):
            members = [loaded[t, s] for t in range(month, times, months)]
            parts = [build.add("part", task, [task], seconds / 2, nbytes) for task in members]
            mean[month, s] = build.add("mean", month * space + s, parts, seconds / 2, nbytes)
    anomalies = [
        build.add("anomaly", index, [task, mean[t % months, s]], seconds / 2, nbytes)
        for index, ((t, s), task) in enumerate(loaded.items())
    ]
    parts = build.level("total", anomalies, seconds / 4, 1000)
    build.reduced("combine", parts, 8, seconds / 10, 1000)
    return build.finished()


def uneven(n: int = 400, seconds: float = 0.05, nbytes: float = 1e5) -> TaskGraph:
    """Tasks of very different durations (Pareto) with one common root: work for stealing.

    Parameters
    ----------
    n : int
        Number of tasks.
    seconds, nbytes : float
        Shortest seconds, and bytes, of each task.

    Returns
    -------
    TaskGraph
        About `n` tasks.
    """
    build, durations = _Builder(jitter=0), random.Random(1)
    root = build.add("spread", 0, [], 0.01, nbytes)
    tasks = [
        build.add("work", i, [root], seconds * durations.paretovariate(1.2), nbytes)
        for i in range(n)
    ]
    build.reduced("count", tasks, 16, seconds / 10, 100)
    return build.finished()


#: Name -> function that makes the graph.
SHAPES: dict[str, Callable[..., TaskGraph]] = {
    function.__name__: function
    for function in (
        all_to_all, chain, independent, map_reduce, pairs, rechunk, reduction_over_time, shuffle,
        tree, uneven,
    )
}  # fmt: skip


def make_graph(name: str, arguments: dict[str, Any] | None = None) -> TaskGraph:
    """Return a synthetic graph by the name of its function.

    Parameters
    ----------
    name : str
        One of `SHAPES`.
    arguments : dict, optional
        Arguments of the function.

    Returns
    -------
    TaskGraph
        With the name and the arguments as its name.

    Raises
    ------
    ValueError
        The name or an argument is unknown, or a value is not a positive number.
    """
    if name not in SHAPES:
        raise ValueError(f"no graph named {name!r}: known are {', '.join(SHAPES)}")
    arguments = dict(arguments or {})
    known = inspect.signature(SHAPES[name]).parameters
    for key, value in arguments.items():
        if key not in known:
            raise ValueError(f"{name}: no argument {key!r}: known are {', '.join(known)}")
        whole = type(known[key].default) is int
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
            raise ValueError(f"{name}: {key}={value!r} must be a {'whole ' * whole}number")
        lowest = 2 if key == "fan" else 1 if whole else 0
        if not lowest <= value < float("inf"):
            raise ValueError(f"{name}: {key}={value!r} must be at least {lowest}")
    graph = SHAPES[name](**arguments)
    bracket = ",".join(f"{key}={value}" for key, value in sorted(arguments.items()))
    graph.name = f"graph.{name}" + (f"[{bracket}]" if bracket else "")
    return graph
