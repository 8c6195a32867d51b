"""Tasks and graphs in which faults are planted."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask
import numpy as np
from dask.base import tokenize
from distributed import Client, wait

# Tasks


def spin(seconds: float, *inputs: Any, size: int = 1000) -> np.ndarray:
    """Compute for some processor seconds in NumPy, which releases the GIL; return an array."""
    data = np.random.default_rng(0).random(50_000)
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        np.sort(data)
    return np.zeros(size, np.uint8)


def nap(seconds: float, *inputs: Any, size: int = 1000) -> np.ndarray:
    """Sleep; return an array."""
    time.sleep(seconds)
    return np.ones(size, np.uint8)


def python_loop(count: int, *inputs: Any) -> int:
    """Compute in Python, which holds the GIL."""
    total = 0
    for number in range(count):
        total += number % 7
    return total


def increase(number: int) -> int:
    """Return a number plus one."""
    return number + 1


def fail_first(seconds: float, path: str) -> int:
    """Fail after some seconds at the first call for a path, succeed at the next one."""
    time.sleep(seconds)
    if not path:
        return 1
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return 1
    raise RuntimeError("planted")


def nap_where(slow: float, fast: float, names: tuple[Any, ...], work: Callable = nap) -> Any:
    """Take `slow` seconds on the named workers, else `fast` seconds."""
    from distributed import get_worker

    return work(slow if get_worker().name in names else fast)


def objects(count: int) -> list[dict[str, Any]]:
    """Return many small Python objects, and collect garbage while they exist."""
    import gc

    made = [{"number": number, "parts": [number, str(number)]} for number in range(count)]
    for _ in range(4):
        gc.collect()
    return made


def hold_gil(seconds: float) -> None:
    """Hold the GIL, so that the worker's event loop does nothing."""
    import ctypes

    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


def sum_in_c(count: int) -> int:
    """Add numbers in one call of a C function, which holds the GIL."""
    return sum(range(count))


def make_lists(count: int) -> int:
    """Make nested lists, so that Python collects garbage again and again."""
    return len([[number, [number]] for number in range(count)])


def wait_for_tasks(count: int, seconds: float) -> None:
    """Leave the thread, and submit tasks one after another, each after the result before."""
    from distributed import worker_client

    with worker_client() as client:
        for _ in range(count):
            client.submit(nap, seconds, pure=False).result()


def leak(megabytes: int) -> int:
    """Keep memory that is no result."""
    import distributed

    kept = distributed.__dict__.setdefault("_planted_leak", [])
    kept.append(np.ones(megabytes * 1_000_000, np.uint8))
    time.sleep(0.2)
    return len(kept)


def blas(seconds: float, n_threads: int) -> int:
    """Multiply matrices on several threads."""

    def work(_: int) -> None:
        spin(seconds)

    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(work, range(n_threads)))
    return n_threads


def make(size: int) -> np.ndarray:
    """Return bytes."""
    return np.random.default_rng(0).integers(0, 255, size, np.uint8)


def mix(size: int, *inputs: np.ndarray) -> np.ndarray:
    """Return bytes made of those of other tasks."""
    return inputs[0] ^ 1


# Graphs


def flat(work: Callable, count: int, *arguments: Any, **more: Any) -> Callable[[Client], Any]:
    """Return a function that runs equal, independent tasks."""

    def run(client: Client) -> None:
        columns = [[value] * count for value in arguments]
        wait(client.map(work, *columns, pure=False, **more))

    return run


def graph(*layers: tuple[str, list[tuple[Any, ...]]]) -> Callable[[Client], Any]:
    """Return a function that submits a graph: layers of tasks (function, arguments, inputs).

    Inputs are numbers of tasks of the layer before, or None: all.
    """

    def run(client: Client) -> None:
        token, tasks, before = tokenize(time.time()), {}, list[Any]()
        for name, rows in layers:
            keys = [(f"{name}-{token}", number) for number in range(len(rows))]
            for key, (function, arguments, inputs) in zip(keys, rows, strict=True):
                chosen = before if inputs is None else [before[number] for number in inputs]
                tasks[key] = (function, *arguments, *chosen)
            before = keys
        client.get(tasks, before)

    return run


def layer(work: Callable, count: int, seconds: float, inputs: Callable[[int], Any] | None = None):
    """Return the rows of a layer of equal tasks."""
    return [(work, (seconds,), [] if inputs is None else inputs(n)) for n in range(count)]


def chain(work: Callable, count: int, seconds: float, width: int = 1) -> Callable[[Client], Any]:
    """Return a function that runs chains of dependent tasks."""
    first = ("step0", layer(work, width, seconds))
    rest = [(f"step{n}", layer(work, width, seconds, lambda m: [m])) for n in range(1, count)]
    return graph(first, *rest)


def tree(
    work: Callable, count: int, seconds: float, sum_s: float | None = None
) -> Callable[[Client], Any]:
    """Return a function that runs a map and a tree reduction by four.

    A sum takes `sum_s`, by default half as long as a task of the map.
    """
    sum_s = seconds / 2 if sum_s is None else sum_s
    layers, width, depth = [("map", layer(work, count, seconds))], count, 0
    while width > 1:
        groups = [list(range(n, min(n + 4, width))) for n in range(0, width, 4)]
        rows = [(work, (sum_s,), group) for group in groups]
        layers.append((f"sum{depth}", rows))
        width, depth = len(groups), depth + 1
    return graph(*layers)


def uneven(work: Callable, *seconds: float) -> Callable[[Client], Any]:
    """Return a function that runs independent tasks of these durations, in an unknown order."""
    return graph(("work", [(work, (value,), []) for value in seconds]))


def long_last(work: Callable, count: int, seconds: float, last_s: float) -> Callable:
    """Return a function that runs equal, independent tasks, and starts a longer one at the end."""

    def run(client: Client) -> None:
        token = tokenize(time.time())
        names = [f"work-{token}-{number}" for number in range(count + 1)]
        tasks = [dask.delayed(work)(seconds, dask_key_name=name) for name in names[1:]]
        with dask.annotate(priority=-1):  # the order of independent tasks is else unknown
            tasks.append(dask.delayed(work)(last_s, dask_key_name=names[0]))
        wait(client.compute(tasks))

    return run
