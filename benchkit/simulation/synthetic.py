"""Synthetic task graphs of known shapes, for the design of schedulers.

`n` is the number of parts, `seconds` and `nbytes` are those of the main tasks, `fan` is how many
results are combined or split at a time. Seconds vary at random with a fixed seed: the same
arguments give the same graph.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from typing import Any

from benchkit.simulation.graph import VirtualGraph

#: Largest number of tasks and dependencies of a graph; a million tasks take 6 GB and ten minutes.
MAX_TASKS = 1_000_000
MAX_DEPENDENCIES = 10_000_000


class _Builder:
    """Collect the tasks of a graph."""

    def __init__(self, jitter: float = 0.2, seed: int = 0) -> None:
        self.n_dependencies = 0
        self.graph = VirtualGraph([], [], [], [])
        self.random, self.jitter = random.Random(seed), jitter

    def add(
        self, name: str, number: int, dependencies: list[int], seconds: float, nbytes: float
    ) -> int:
        """Add a task; return its index."""
        graph = self.graph
        self.n_dependencies += len(dependencies)
        if len(graph.keys) >= MAX_TASKS or self.n_dependencies > MAX_DEPENDENCIES:
            raise ValueError(f"more than {MAX_TASKS} tasks or {MAX_DEPENDENCIES} dependencies")
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

    def finished(self) -> VirtualGraph:
        return VirtualGraph(**{**vars(self.graph), "submissions": []})


def independent(n: int = 1000, seconds: float = 0.1, nbytes: float = 1000.0) -> VirtualGraph:
    """Tasks without dependencies: nothing but overhead."""
    build = _Builder(jitter=0)
    build.roots("independent", n, seconds, nbytes)
    return build.finished()


def chain(n: int = 200, seconds: float = 0.01, nbytes: float = 1000.0) -> VirtualGraph:
    """One task after the other: each round trip between scheduler and worker counts."""
    build = _Builder(jitter=0)
    task = build.add("link", 0, [], seconds, nbytes)
    for number in range(1, n):
        task = build.add("link", number, [task], seconds, nbytes)
    return build.finished()


def map_reduce(
    n: int = 400, seconds: float = 0.1, nbytes: float = 1e6, fan: int = 8
) -> VirtualGraph:
    """Load, map, reduce each part, and combine the parts in a tree."""
    build = _Builder()
    loaded = build.roots("load", n, seconds, nbytes)
    mapped = build.level("map", loaded, seconds, nbytes)
    parts = build.level("reduce", mapped, seconds / 4, nbytes / 100)
    build.reduced("combine", parts, fan, seconds / 4, nbytes / 100)
    return build.finished()


def tree(n: int = 256, seconds: float = 0.05, nbytes: float = 1e6) -> VirtualGraph:
    """Combine pairs until one is left."""
    build = _Builder()
    build.reduced("pair", build.roots("leaf", n, seconds, nbytes), 2, seconds, nbytes)
    return build.finished()


def pairs(n: int = 100, seconds: float = 0.02, nbytes: float = 8e6) -> VirtualGraph:
    """Each task joins the results of two distant roots: transfers take most of the time."""
    build = _Builder(jitter=0)
    roots = build.roots("make", n, seconds, nbytes)
    joined = [
        build.add("join", i, [roots[i], roots[(i + n // 2) % n]], seconds, 100) for i in range(n)
    ]
    build.reduced("count", joined, 16, seconds / 20, 100)
    return build.finished()


def all_to_all(n: int = 24, seconds: float = 0.1, nbytes: float = 2e6) -> VirtualGraph:
    """Each of `n` tasks needs the whole result of each of `n` roots."""
    build = _Builder()
    roots = build.roots("make", n, seconds, nbytes)
    merged = [build.add("merge", i, roots, seconds, 100) for i in range(n)]
    build.reduced("count", merged, 16, seconds / 10, 100)
    return build.finished()


def rechunk(n: int = 24, seconds: float = 0.1, nbytes: float = 2e6) -> VirtualGraph:
    """Rechunk an array by tasks: split each chunk, merge the pieces, reduce."""
    build = _Builder()
    loaded = build.roots("load", n, seconds, nbytes)
    pieces = [
        [build.add("split", i * n + j, [task], seconds / 50, nbytes / n) for j in range(n)]
        for i, task in enumerate(loaded)
    ]
    merged = [build.add("merge", j, [row[j] for row in pieces], seconds, nbytes) for j in range(n)]
    build.reduced("total", build.level("sum", merged, seconds / 2, 100), 8, seconds / 10, 100)
    return build.finished()


def shuffle(n: int = 27, fan: int = 3, seconds: float = 0.05, nbytes: float = 1e6) -> VirtualGraph:
    """Shuffle a data frame by tasks: stages of group, split and join."""
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
) -> VirtualGraph:
    """Anomalies: means over times by month, subtracted from each chunk, and their mean."""
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


def quadratic_means(
    times: int = 60, fan: int = 4, seconds: float = 0.05, nbytes: float = 1e6
) -> VirtualGraph:
    """Means over times of the squares and of the product of two fields.

    The order of the tasks decides how many chunks are in memory: the product needs both fields.
    """
    build = _Builder()
    u, v = (build.roots(name, times, seconds, nbytes) for name in ("open-u", "open-v"))
    for name, fields in (("square-u", [u]), ("square-v", [v]), ("product", [u, v])):
        terms = [
            build.add(name, t, [field[t] for field in fields], seconds / 2, nbytes)
            for t in range(times)
        ]
        parts = build.level(f"mean-{name}", terms, seconds / 4, nbytes / 100)
        build.reduced(f"combine-{name}", parts, fan, seconds / 10, nbytes / 100)
    return build.finished()


def uneven(n: int = 400, seconds: float = 0.05, nbytes: float = 1e5) -> VirtualGraph:
    """Tasks of very different durations (Pareto) with one common root: work for stealing."""
    build, durations = _Builder(jitter=0), random.Random(1)
    root = build.add("spread", 0, [], 0.01, nbytes)
    tasks = [
        build.add("work", i, [root], seconds * durations.paretovariate(1.2), nbytes)
        for i in range(n)
    ]
    build.reduced("count", tasks, 16, seconds / 10, 100)
    return build.finished()


def stencil(
    n: int = 40, steps: int = 8, seconds: float = 0.05, nbytes: float = 1e6
) -> VirtualGraph:
    """Each task of a step needs itself and its two neighbours in the step before."""
    build = _Builder()
    tasks = build.roots("begin", n, seconds, nbytes)
    for step in range(steps):
        tasks = [
            build.add(
                f"step-{step}", i, sorted({tasks[i - 1], tasks[i], tasks[(i + 1) % n]}),
                seconds, nbytes,
            )
            for i in range(n)
        ]  # fmt: skip
    build.reduced("count", build.level("sum", tasks, seconds / 10, 100), 16, seconds / 10, 100)
    return build.finished()


def pipelines(
    n: int = 200, steps: int = 5, seconds: float = 0.05, nbytes: float = 1e6
) -> VirtualGraph:
    """Independent chains, each from a root: a partition that is transformed step by step."""
    build = _Builder()
    tasks = build.roots("read", n, seconds, nbytes)
    for step in range(steps):
        tasks = build.level(f"step-{step}", tasks, seconds / 2, nbytes)
    build.reduced("count", build.level("sum", tasks, seconds / 10, 100), 16, seconds / 10, 100)
    return build.finished()


#: Name -> function that makes the graph.
SHAPES: dict[str, Callable[..., VirtualGraph]] = {
    function.__name__: function
    for function in (
        all_to_all, chain, independent, map_reduce, pairs, pipelines, quadratic_means,
        rechunk, reduction_over_time, shuffle, stencil, tree, uneven,
    )
}  # fmt: skip


def make_graph(name: str, arguments: dict[str, Any] | None = None) -> VirtualGraph:
    """Return a synthetic graph by the name of its function."""
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
    try:
        graph = SHAPES[name](**arguments)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    bracket = ",".join(f"{key}={value}" for key, value in sorted(arguments.items()))
    graph.name = f"graph.{name}" + (f"[{bracket}]" if bracket else "")
    return graph


def run_graph(client: Any, name: str, **arguments: Any) -> list[Any]:
    """Submit a synthetic graph to a real cluster: its tasks sleep and return bytes."""
    graph = make_graph(name, arguments)

    # Pickled by value: workers need not have benchkit.
    def sleep_and_return(seconds: float, nbytes: int, dependencies: list[Any]) -> bytes:
        import time

        time.sleep(seconds)
        return bytes(nbytes)

    tasks = {
        key: (sleep_and_return, seconds, nbytes, [graph.keys[index] for index in dependencies])
        for key, dependencies, seconds, nbytes in zip(
            graph.keys, graph.dependencies, graph.seconds, graph.nbytes, strict=True
        )
    }
    wanted = [graph.keys[index] for index in graph.submissions[-1].wanted]
    return list(client.get(tasks, wanted, sync=False))
