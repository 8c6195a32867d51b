"""What is planted by `fixed_faults` and `random_faults`: functions that take a client."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from distributed import Client, as_completed, wait

from validation.diagnosis.tasks import fail_first, graph, increase, make, mix, nap_where, spin


def both(work: Callable[[Client], Any], function: Callable) -> Callable[[Client], Any]:
    """Return a function that runs a workload, and calls something half a second later."""

    def run(client: Client) -> None:
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(work, client)
            time.sleep(0.5)
            function(client)
            done.result()

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


def sleep_on_scheduler(seconds: float) -> Callable[[Client], Any]:
    """Return a function that makes the scheduler sleep."""
    return lambda client: client.run_on_scheduler(time.sleep, seconds)


def kill_one(client: Client) -> None:
    """Kill the process of a worker."""
    pid = next(iter(client.run(os.getpid).values()))
    os.kill(pid, signal.SIGKILL)


def lose_results(count: int, seconds: float) -> Callable[[Client], Any]:
    """Return a function that computes results, kills a worker that holds half, and uses them."""

    def run(client: Client) -> None:
        first = client.map(spin, [seconds] * count, pure=False)
        wait(first)
        kill_one(client)
        wait(client.map(lambda *parts: len(parts), first, pure=False))

    return run


def wait_for_nobody(work: Callable[[Client], Any], seconds: float) -> Callable[[Client], Any]:
    """Return a function that runs a workload, and waits for a task that no worker may run."""

    def run(client: Any) -> None:
        work(client)
        # As an attribute, or the client would release it before the clock stops.
        client.planted = client.submit(increase, 1, pure=False, resources={"planted": 1})
        client.planted.result(timeout=seconds)

    return run


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


def fill_workers(seconds: float) -> Callable[[Client], Any]:
    """Return a function that fills three quarters of the memory of all workers for a while."""

    def occupy(seconds: float, dask_worker: Any) -> None:
        import threading

        def hold() -> None:
            ballast = np.ones(int(0.75 * dask_worker.memory_manager.memory_limit), np.uint8)
            time.sleep(seconds)
            del ballast

        threading.Thread(target=hold).start()

    return lambda client: client.run(occupy, seconds)


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


def slow_shuffling(seconds: float) -> Callable[[Client], Any]:
    """Return a function that makes workers receive parts of P2P shuffles slowly."""

    def patch(dask_worker: Any) -> None:
        import asyncio

        receive = dask_worker.handlers["shuffle_receive"]

        async def shuffle_receive(*arguments: Any, **more: Any) -> Any:
            await asyncio.sleep(seconds)
            return await receive(*arguments, **more)

        dask_worker.handlers["shuffle_receive"] = shuffle_receive

    return lambda client: client.run(patch)


def rechunk_p2p(side: int, width: int) -> Callable[[Client], Any]:
    """Return a function that rechunks rows of blocks to columns by P2P."""

    def run(client: Client) -> None:
        import dask.array as da

        array = da.ones((side, side), chunks=(width, side)) + 1
        wait(client.compute(array.rechunk((side, width), method="p2p").sum(axis=0)))

    return run


def rechunk_back(side: int, width: int, *, needless: bool) -> Callable[[Client], Any]:
    """Return a function that makes rows of blocks, and may rechunk them to columns and back."""

    def run(client: Client) -> None:
        import dask.array as da

        array = da.ones((side, side), chunks=(width, side)) + 1
        if needless:
            for chunks in ((side, width), (width, side)):
                array = array.rechunk(chunks, method="tasks")
        wait(client.persist(array))

    return run


def exchange(size: int, rounds: int = 4, width: int = 8) -> Callable[[Client], Any]:
    """Return a function in which each task needs results of all workers."""
    rows: list[Any] = [(make, (size,), []) for _ in range(width)]
    mixed = [(mix, (size,), [(n * 3 + m) % width for m in (0, 1, 5)]) for n in range(width)]
    return graph(("make", rows), *[(f"mix{n}", mixed) for n in range(rounds)])


def refill(work: Callable, count: int, seconds: float, n_running: int) -> Callable[[Client], Any]:
    """Return a function that submits another task when one has finished."""

    def run(client: Client) -> None:
        running = as_completed([client.submit(work, seconds, pure=False) for _ in range(n_running)])
        for number, _ in enumerate(running, n_running):
            if number < count:
                running.add(client.submit(work, seconds, pure=False))

    return run


def reuse(count: int, seconds: float) -> Callable[[Client], Any]:
    """Return a function that keeps the results of a stage, and uses them in two others."""

    def run(client: Client) -> None:
        first = client.map(spin, [seconds] * count, pure=False)
        wait(first)
        for _ in range(2):
            wait([client.submit(spin, 0.8 * seconds, part, pure=False) for part in first])

    return run


def hold_all(count: int, size: int, seconds: float = 0.05) -> Callable[[Client], Any]:
    """Return a function that keeps results until all are made, then reads them."""

    def run(client: Client) -> None:
        made = [client.submit(make, size + n, pure=False) for n in range(count)]
        wait(made)
        wait(client.map(lambda array: float(array[:10].sum()), made, pure=False))

    return run


def keep_all(count: int, size: int, *, kept: bool) -> Callable[[Client], Any]:
    """Return a function that uses each result at once, and keeps its future, or not."""

    def run(client: Client) -> None:
        sizes = [size + n for n in range(count)]
        made = client.map(make, sizes, pure=False)
        used = client.map(lambda array: float(array[:10].sum()), made, pure=False)
        if not kept:
            del made
        wait(used)

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


def send_arrays(count: int, megabytes: int) -> Callable[[Client], Any]:
    """Return a function that sends graphs whose tasks contain an array each."""

    def run(client: Client) -> None:
        arrays = [np.random.default_rng(n).random(megabytes * 125_000) for n in range(count)]
        wait(client.map(lambda array: float(array[:100].mean()), arrays, pure=False))

    return run


def late_start(
    seconds: float, work: Callable[[Client], Any], parses: bool = False
) -> Callable[[Client], Any]:
    """Return a function that prepares in the client for some time before it submits."""

    def run(client: Client) -> None:
        text, end = json.dumps([{"number": n} for n in range(20_000)]), time.time() + seconds
        while time.time() < end:
            json.loads(text) if parses else sum(range(1000))
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


def failing(count: int, seconds: float, share: float = 1.0) -> Callable[[Client], Any]:
    """Return a function of whose tasks a share fails at the first attempt."""

    def run(client: Client) -> None:
        import tempfile

        folder, n_failing = tempfile.mkdtemp(), round(share * count)
        paths = [f"{folder}/{n}" if n < n_failing else "" for n in range(count)]
        wait([client.submit(fail_first, seconds, p, retries=2, pure=False) for p in paths])

    return run


def slow_where(
    slow: float, fast: float, work: Callable, count: int, names: tuple[int, ...] = (0,)
) -> Callable[[Client], Any]:
    """Return a function whose tasks are slower on some workers."""

    def run(client: Client) -> None:
        places = names if slow != fast else ()
        columns: list[Any] = [[slow] * count, [fast] * count, [places] * count, [work] * count]
        wait(client.map(nap_where, *columns, pure=False))

    return run


def add_host(client: Client) -> None:
    """Start workers 2 and 3 at another address, which counts as another host."""
    cluster: Any = client.cluster
    options = {**cluster.new_spec["options"], "host": "127.0.0.2"}
    cluster.worker_spec |= {name: {**cluster.new_spec, "options": options} for name in (2, 3)}
    cluster.sync(cluster._correct_state)
    client.wait_for_workers(4)


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


def standardize(shape: tuple[int, int], chunks: tuple[int, int]) -> Callable[[Client], Any]:
    """Return a function that standardizes a random array."""

    def run(client: Client) -> None:
        import dask.array as da

        array = da.random.default_rng(1).random(shape, chunks=chunks)
        client.compute(((array - array.mean(axis=0)) / array.std(axis=0)).max()).result()

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
