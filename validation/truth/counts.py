"""Counts and bytes that a run must report: tasks, transfers, spilling, lost workers."""

import os
import threading
import time
from typing import Any

from validation.truth.bodies import MB, fail, hold_gil, nap, noise
from validation.truth.outside import worker_pids
from validation.truth.scenario import PROCESSES, scenario

__all__: list[str] = []


@scenario("n_tasks")
def failures_that_are_released(client: Any, _: Any) -> dict[str, Any]:
    """Forty rounds of five failing tasks whose futures are released at once."""
    from distributed import wait

    for _ in range(40):
        wait(client.map(fail, [0.0] * 5, range(5), pure=False))
    return {"n_tasks": 200}


@scenario("n_tasks")
def scattered_data(client: Any, _: Any) -> dict[str, Any]:
    """Scattered data are no tasks."""
    kept = client.scatter(list(range(4)))
    client.submit(sum, kept, pure=False).result()
    return {"n_tasks": 1}


@scenario("transfer_bytes", "n_transfers")
def transfers(client: Any, _: Any) -> dict[str, Any]:
    """100 MB from one worker to the other; the last 50 MB end with the run."""
    first, second = list(client.scheduler_info()["workers"])
    for _ in range(2):
        data = client.submit(noise, 50 * MB, workers=first, pure=False)
        client.submit(len, data, workers=second, pure=False).result()
    return {"transfer_bytes": 100 * MB, "n_transfers": 2}


@scenario("transfer_bytes", "n_transfers", "scatter_bytes", "gather_bytes")
def scatter_to_all(client: Any, _: Any) -> dict[str, Any]:
    """20 MB that the client puts on one worker, which sends a copy to the other, and fetches."""
    kept = client.scatter(noise(20 * MB), broadcast=True)
    kept.result()
    moved = {"scatter_bytes": 20 * MB, "gather_bytes": 20 * MB}
    return {**moved, "transfer_bytes": 20 * MB, "n_transfers": 1}


@scenario("gather_bytes", "transfer_bytes")
def gather_at_the_end(client: Any, _: Any) -> dict[str, Any]:
    """The client fetches 60 MB, the last 20 MB as the run ends."""
    for _ in range(3):
        client.submit(noise, 20 * MB, pure=False).result()
    return {"gather_bytes": 60 * MB, "transfer_bytes": 0}


@scenario("p2p_bytes", "network_bytes", cluster={**PROCESSES, "memory_limit": "2 GiB"})
def p2p_shuffle(client: Any, _: Any) -> dict[str, Any]:
    """Rechunk 128 MB across all chunks by P2P: half of the bytes change the worker."""
    import dask
    import dask.array as da

    with dask.config.set({"array.rechunk.method": "p2p", "optimization.fuse.active": False}):
        array = da.random.random((4000, 4000), chunks=(500, 4000)).rechunk((4000, 500))
        array.sum().compute()
    return {"p2p_bytes": 4000 * 4000 * 8 / 2}


@scenario("gil_contention_mean", before=lambda client: _fight(client, 1.5))
def gil_before_the_clock(client: Any, _: Any) -> dict[str, Any]:
    """Threads fight for the GIL before the clock, not while it is on."""
    client.submit(nap, 2.0, pure=False).result()
    return {"gil_contention_mean": 0.0}


@scenario("gil_contention_mean", "worker_tick_max", cluster={**PROCESSES, "n_workers": 3})
def gil_is_held(client: Any, _: Any) -> dict[str, Any]:
    """A task of 3 s holds the GIL of one of three workers until the run ends."""
    begin = time.perf_counter()
    held_s = client.submit(hold_gil, 3.0, pure=False).result()
    share = held_s / (time.perf_counter() - begin) / 3
    return {"gil_contention_mean": share, "worker_tick_max": held_s}


@scenario("gil_contention_mean")
def gil_is_held_in_between(client: Any, _: Any) -> dict[str, Any]:
    """Two tasks, of 2 and 1.5 s, hold the GIL of one of two workers, with pauses."""
    begin, held_s = time.perf_counter(), 0.0
    for seconds in (2.0, 1.5):
        held_s += client.submit(hold_gil, seconds, pure=False).result()
        time.sleep(1.0)
    return {"gil_contention_mean": held_s / (time.perf_counter() - begin) / 2}


def _fight(client: Any, seconds: float) -> None:
    client.run(_fight_here, seconds)


def _fight_here(seconds: float) -> None:
    def spin() -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass

    threads = [threading.Thread(target=spin) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@scenario("n_workers_lost", cluster={**PROCESSES, "n_workers": 3})
def idle_worker_is_killed(client: Any, _: Any) -> dict[str, Any]:
    """A worker that holds results but runs nothing is killed."""
    import signal

    kept = client.map(noise, [1000] * 9, pure=False)
    client.gather(client.map(len, kept))
    os.kill(worker_pids(client)[0], signal.SIGKILL)
    time.sleep(1.0)
    client.gather(client.map(len, kept, pure=False))
    return {"n_workers_lost": 1}


@scenario("n_workers_lost", "n_tasks_recomputed")
def cluster_restarts(client: Any, _: Any) -> dict[str, Any]:
    """The same keys are asked for again after a restart: nothing was lost."""
    client.gather(client.map(nap, [0.01] * 10, key="same"))
    client.restart()
    client.gather(client.map(nap, [0.01] * 10, key="same"))
    return {"n_workers_lost": 0, "n_tasks_recomputed": 0}


@scenario("spilled_bytes", "disk_bytes", cluster={**PROCESSES, "memory_limit": "256 MiB"})
def spill(client: Any, _: Any) -> dict[str, Any]:
    """Results of four times the memory: what does not fit is on disk."""
    from distributed import wait

    wait(client.map(noise, [20 * MB] * 40, pure=False))
    time.sleep(1.5)  # the memory monitor writes until the memory is below its target
    return {}
