"""Tasks and graphs of the faults of `_diagnosis_faults`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import dask
import numpy as np
from dask.base import tokenize
from distributed import Client, wait

__all__ = [
    "array_sum",
    "big_graph",
    "blas",
    "block_scheduler",
    "both",
    "busy_plugin",
    "by_batches",
    "chain",
    "exchange",
    "failing",
    "fill_memory",
    "flat",
    "frame_groupby",
    "graph",
    "hold_all",
    "hold_gil",
    "import_dataframes",
    "increase",
    "kill_one",
    "late_start",
    "layer",
    "leak",
    "long_last",
    "lose_results",
    "make",
    "nap",
    "objects",
    "pause",
    "python_loop",
    "send_data",
    "slow_sending",
    "slow_where",
    "spin",
    "tree",
    "uneven",
    "with_neighbours",
]


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


def leak(megabytes: int) -> int:
    """Keep memory that is no result."""
    import distributed

    kept = distributed.__dict__.setdefault("_planted_leak", [])
    kept.append(np.ones(megabytes * 1_000_000, np.uint8))
    time.sleep(0.2)
    return len(kept)


def blas(seconds: float, n_threads: int) -> int:
    """Multiply matrices on several threads."""
    from concurrent.futures import ThreadPoolExecutor

    def work(_: int) -> None:
        spin(seconds)

    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(work, range(n_threads)))
    return n_threads


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
        token, tasks, before = tokenize(time.time()), {}, []
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


def both(seconds: float, function: Callable, *targets: str) -> Callable[[Client], Any]:
    """Return a function that runs tasks, and calls something in the cluster meanwhile."""

    def run(client: Client) -> None:
        futures = [client.submit(spin, 0.1, pure=False) for _ in range(int(20 * seconds))]
        time.sleep(0.5)
        function(client)
        wait(futures)

    return run


def block_scheduler(seconds: float, count: int = 1) -> Callable[[Client], Any]:
    """Return a function that blocks the scheduler's event loop."""

    def block(seconds: float) -> None:
        end = time.time() + seconds
        while time.time() < end:
            sum(range(1000))

    def run(client: Client) -> None:
        for _ in range(count):
            client.run_on_scheduler(block, seconds)
            time.sleep(0.3)

    return run


def kill_one(client: Client) -> None:
    """Kill the process of a worker."""
    pid = next(iter(client.run(os.getpid).values()))
    os.kill(pid, signal.SIGKILL)


def lose_results(client: Client) -> None:
    """Compute results, kill a worker that holds half of them, and use them."""
    first = [client.submit(spin, 0.1, pure=False) for _ in range(30)]
    wait(first)
    kill_one(client)
    wait(client.map(lambda *parts: len(parts), first, pure=False))


def fill_memory(client: Client) -> None:
    """Fill a worker beyond its limit, so that its nanny ends it; then compute."""
    futures = [client.submit(spin, 0.1, pure=False) for _ in range(40)]

    def eat() -> int:
        parts = []
        for _ in range(100):
            parts.append(np.ones(40_000_000, np.uint8))
            time.sleep(0.02)
        return len(parts)

    eater = client.submit(eat, pure=False, priority=10)
    wait([*futures, eater])


def pause(seconds: float) -> Callable[[Client], Any]:
    """Return a function that fills the memory of all workers for a while."""

    def occupy(seconds: float, dask_worker: Any) -> None:
        import threading

        def hold() -> None:
            ballast = np.ones(int(0.75 * dask_worker.memory_manager.memory_limit), np.uint8)
            time.sleep(seconds)
            del ballast

        threading.Thread(target=hold).start()

    def run(client: Client) -> None:
        futures = [client.submit(spin, 0.1, pure=False) for _ in range(40)]
        client.run(occupy, seconds)
        wait(futures)

    return run


def slow_sending(latency: float, rate: float) -> Callable[[Client], Any]:
    """Return a function that makes workers send results slowly."""

    def patch(dask_worker: Any) -> None:
        import asyncio

        send = dask_worker.handlers["get_data"]

        async def get_data(comm: Any, keys: Any, **more: Any) -> Any:
            nbytes = sum(dask_worker.state.tasks[key].get_nbytes() for key in keys)
            await asyncio.sleep(latency + nbytes / rate)
            return await send(comm, keys=keys, **more)

        dask_worker.handlers["get_data"] = get_data

    return lambda client: client.run(patch)


def exchange(size: int, rounds: int = 4, width: int = 8) -> Callable[[Client], Any]:
    """Return a function in which each task needs results of all workers."""
    rows = [(make, (size,), []) for _ in range(width)]
    mixed = [(mix, (size,), [(n * 3 + m) % width for m in (0, 1, 5)]) for n in range(width)]
    return graph(("make", rows), *[(f"mix{n}", mixed) for n in range(rounds)])


def make(size: int) -> np.ndarray:
    """Return bytes."""
    return np.random.default_rng(0).integers(0, 255, size, np.uint8)


def mix(size: int, *inputs: np.ndarray) -> np.ndarray:
    """Return bytes made of those of other tasks."""
    return inputs[0] ^ 1


def hold_all(count: int, size: int, seconds: float = 0.05) -> Callable[[Client], Any]:
    """Return a function that keeps results until all are made, then reads them."""

    def run(client: Client) -> None:
        made = [client.submit(make, size + n, pure=False) for n in range(count)]
        wait(made)
        wait(client.map(lambda array: float(array[:10].sum()), made, pure=False))

    return run


def by_batches(count: int, size: int, batch: int) -> Callable[[Client], Any]:
    """Return a function that does the work of `hold_all` with few results at once."""

    def run(client: Client) -> None:
        for first in range(0, count, batch):
            made = [client.submit(make, size + first + n, pure=False) for n in range(batch)]
            wait(client.map(lambda array: float(array[:10].sum()), made, pure=False))

    return run


def send_data(megabytes: int, count: int) -> Callable[[Client], Any]:
    """Return a function that sends a graph with data in it."""

    def run(client: Client) -> None:
        blocks = [os.urandom(megabytes * 1_000_000) for _ in range(count)]
        tasks = {f"len-{n}-{time.time()}": (len, block) for n, block in enumerate(blocks)}
        client.get(tasks, list(tasks))

    return run


def big_graph(count: int) -> Callable[[Client], Any]:
    """Return a function that sends a graph of many tasks of which few are large."""

    def run(client: Client) -> None:
        token = tokenize(time.time())
        tasks: dict = {(f"part-{token}", n): (increase, n) for n in range(count)}
        tasks[f"all-{token}"] = (len, [(f"part-{token}", n) for n in range(count)])
        client.get(tasks, f"all-{token}")

    return run


def late_start(seconds: float, work: Callable[[Client], Any]) -> Callable[[Client], Any]:
    """Return a function that prepares in the client for some time before it submits."""

    def run(client: Client) -> None:
        end = time.time() + seconds
        while time.time() < end:
            sum(range(1000))
        work(client)

    return run


def with_neighbours(count: int, work: Callable[[Client], Any]) -> Callable[[Client], Any]:
    """Return a function that runs while other processes compute."""

    def run(client: Client) -> None:
        command = [sys.executable, "-c", "while True: pass"]
        others = [subprocess.Popen(command) for _ in range(count)]
        try:
            work(client)
        finally:
            for process in others:
                process.kill()
                process.wait()

    return run


def failing(count: int, seconds: float) -> Callable[[Client], Any]:
    """Return a function whose tasks fail at their first attempt."""

    def run(client: Client) -> None:
        import tempfile

        folder = tempfile.mkdtemp()
        futures = [
            client.submit(fail_first, seconds, f"{folder}/{n}", retries=2, pure=False)
            for n in range(count)
        ]
        wait(futures)

    return run


def slow_where(slow: float, fast: float, work: Callable, count: int) -> Callable[[Client], Any]:
    """Return a function whose tasks are slower on worker 0."""

    def run(client: Client) -> None:
        names = (0,) if slow != fast else ()
        columns = [[slow] * count, [fast] * count, [names] * count, [work] * count]
        wait(client.map(nap_where, *columns, pure=False))

    return run


def busy_plugin(seconds: float, count: int) -> Callable[[Client], Any]:
    """Return a function whose scheduler computes for each transition, in a plugin."""
    from distributed import SchedulerPlugin

    class Busy(SchedulerPlugin):
        def transition(self, key: Any, start: str, finish: str, *args: Any, **more: Any) -> None:
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                pass

    def run(client: Client) -> None:
        client.register_plugin(Busy(), name="busy")
        wait(client.map(increase, range(count), pure=False))

    return run


def array_sum(shape: tuple[int, int], chunks: tuple[int, int]) -> Callable[[Client], Any]:
    """Return a function that computes column sums of a random array."""

    def run(client: Client) -> None:
        import dask.array as da

        array = da.random.default_rng(0).random(shape, chunks=chunks)
        client.compute((array + array.T.rechunk(chunks)).sum(axis=0)).result()

    return run


def import_dataframes() -> None:
    """Import what tables need, which takes a second in each process."""
    import dask.dataframe  # noqa: F401


def frame_groupby(rows: int, parts: int) -> Callable[[Client], Any]:
    """Return a function that groups a table."""

    def run(client: Client) -> None:
        import dask.dataframe as dd
        import pandas as pd

        def part(number: int) -> pd.DataFrame:
            return pd.DataFrame(
                {"key": np.arange(rows) % 50, "value": np.arange(rows) % 97 * number}
            )

        table = dd.from_map(part, range(1, parts + 1))
        client.compute(table.groupby("key")["value"].std()).result()

    return run
