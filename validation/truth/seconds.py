"""Seconds that a run must report: computing, failing, waiting, and the clock itself."""

import os
import time
from typing import Any

from validation.truth.bodies import fail, nap, now, read_failures, spin
from validation.truth.scenario import ADAPTIVE, THREADED, scenario

__all__: list[str] = []


@scenario("duration", "compute_time", "idle_time", "cpu_time")
def naps_and_work(client: Any, _: Any) -> dict[str, Any]:
    """Eight naps and two seconds of CPU, then a second in which both workers are idle."""
    naps = client.gather(client.map(nap, [0.25] * 8, pure=False))
    work = client.gather(client.map(spin, [1.0] * 2, pure=False))
    time.sleep(1.0)
    return {"spans": naps + work}


@scenario("duration", "compute_time", "idle_time", "cpu_time", cluster=THREADED)
def threads_of_one_worker(client: Any, _: Any) -> dict[str, Any]:
    """Eight naps on four threads, then a second of CPU, while three threads are idle."""
    naps = client.gather(client.map(nap, [0.25] * 8, pure=False))
    return {"spans": [*naps, client.submit(spin, 1.0, pure=False).result()]}


@scenario("n_tasks", "compute_time", "worker_seconds", "idle_time", cluster=ADAPTIVE, on=("local",))
def adaptive_workers(client: Any, _: Any) -> dict[str, Any]:
    """Six naps on workers that start for them and leave when the results are released."""
    spans: list[Any] = []
    futures = client.map(nap, [0.5] * 6, pure=False)
    held, slack, last, n_workers = 0.0, 0.0, time.perf_counter(), 0
    while n_workers or not spans:
        time.sleep(0.005)
        before, n_workers = n_workers, len(client.scheduler_info()["workers"])
        now = time.perf_counter()
        held += (before + n_workers) / 2 * (now - last)
        slack += abs(n_workers - before) / 2 * (now - last)
        last = now
        if futures and all(future.done() for future in futures):
            spans, futures = client.gather(futures), []
    return {"spans": spans, "worker_seconds": held, "n_tasks": 6, "slack": slack}


@scenario("failed_time", "compute_time")
def tasks_that_fail(client: Any, _: Any) -> dict[str, Any]:
    """Two tasks that raise after 1.8 s."""
    from distributed import wait

    path = os.path.abspath(f"failures-{time.time_ns()}")
    wait(client.map(fail, [1.8] * 2, range(2), path=path, pure=False))
    return {"failed_time": read_failures(path), "spans": []}


@scenario("failed_time", "compute_time", "n_tasks")
def tasks_that_are_retried(client: Any, _: Any) -> dict[str, Any]:
    """A failed attempt of 1.8 s, then a good one."""
    path = os.path.abspath(f"failures-{time.time_ns()}")
    good = client.submit(fail, 1.8, 0, path, 1, retries=3, pure=False).result()
    return {"failed_time": read_failures(path), "spans": [good], "n_tasks": 1}


@scenario("failed_time", "compute_time")
def failures_under_load(client: Any, _: Any) -> dict[str, Any]:
    """Six tasks that raise after 0.3 s, while both workers' loops are blocked half the time."""
    from distributed import wait

    path = os.path.abspath(f"failures-{time.time_ns()}")
    futures = client.map(fail, [0.3] * 6, range(6), path=path, pure=False)
    client.run(_stall, 2.0)
    wait(futures)
    return {"failed_time": read_failures(path), "spans": []}


def _stall(seconds: float) -> None:
    """Block the event loop half of the time."""
    import asyncio

    def block(end: float) -> None:
        time.sleep(0.1)
        if time.monotonic() < end:
            asyncio.get_event_loop().call_later(0.1, block, end)

    asyncio.get_event_loop().call_later(0.0, block, time.monotonic() + seconds)


def _wait_outside() -> list:
    from distributed import get_client, secede

    begin = now()
    client = get_client()
    futures = client.map(nap, [0.25] * 4, pure=False)
    secede()
    return [(begin, now()), *client.gather(futures)]


@scenario("compute_time", "idle_time")
def tasks_that_secede(client: Any, _: Any) -> dict[str, Any]:
    """Two tasks leave their threads and wait for eight naps: their wait is no computing."""
    waits = client.gather([client.submit(_wait_outside, pure=False) for _ in range(2)])
    time.sleep(1.0)
    return {"spans": [span for spans in waits for span in spans]}


@scenario("compute_time", "idle_time", before=lambda client: _started(client, 2.0, 0.5))
def work_from_before(client: Any, futures: list) -> dict[str, Any]:
    """The clock starts 0.5 s after two naps of two seconds, and stops a second after them."""
    spans = client.gather(futures)
    time.sleep(1.0)
    return {"spans": spans}


@scenario(
    "compute_time",
    "idle_time",
    before=lambda client: [],
    after=lambda client, kept: {"spans": client.gather(kept)},
)
def work_that_goes_on(client: Any, kept: list) -> None:
    """The clock stops 0.5 s after two naps of a second and a half started, after idle 0.5 s."""
    time.sleep(0.5)
    kept += _started(client, 1.5, 0.5)


def _started(client: Any, seconds: float, ahead_s: float) -> list:
    futures = client.map(nap, [seconds] * 2, pure=False)
    time.sleep(ahead_s)
    return futures


class _Counter:
    def nap(self, seconds: float) -> float:
        time.sleep(seconds)
        return seconds


@scenario("actor_time", before=lambda client: client.submit(_Counter, actor=True).result())
def actors(client: Any, counter: Any) -> dict[str, Any]:
    """Three calls of 0.3 s of an actor's method."""
    for _ in range(3):
        counter.nap(0.3).result()
    return {"actor_time": 0.9}


def _step_clock(dask_scheduler: Any, by_s: float) -> None:
    """Set the scheduler's wall clock, which `wrap_clock` has replaced."""
    time.time.ahead += by_s  # type: ignore[attr-defined]


@scenario("duration", "worker_seconds")
def clock_set_back(client: Any, _: Any) -> dict[str, Any]:
    """The wall clock of the scheduler's machine is set back 5 s in the middle of the run."""
    begin = time.perf_counter()
    client.gather(client.map(nap, [0.8] * 2, pure=False))
    client.run_on_scheduler(_step_clock, by_s=-5.0)
    client.gather(client.map(nap, [0.8] * 2, pure=False))
    return {"worker_seconds": 2 * (time.perf_counter() - begin)}


@scenario("duration", "worker_seconds")
def worker_clock_set_forward(client: Any, _: Any) -> dict[str, Any]:
    """The wall clock of a worker's machine is set forward 5 s in the middle of the run."""
    begin = time.perf_counter()
    client.gather(client.map(nap, [0.8] * 2, pure=False))
    client.run(_step_worker_clock, 5.0, workers=[next(iter(client.scheduler_info()["workers"]))])
    client.gather(client.map(nap, [0.8] * 2, pure=False))
    return {"worker_seconds": 2 * (time.perf_counter() - begin)}


def _step_worker_clock(by_s: float) -> None:
    """Set the wall clock of this worker's process, which `wrap_clock` has replaced."""
    time.time.ahead += by_s  # type: ignore[attr-defined]


def _block_scheduler(dask_scheduler: Any, seconds: float) -> None:
    dask_scheduler.loop.asyncio_loop.call_later(0.02, time.sleep, seconds)


@scenario("duration")
def scheduler_blocked_at_the_end(client: Any, _: Any) -> None:
    """The scheduler's loop blocks for a second just as the run ends."""
    client.submit(nap, 0.5, pure=False).result()
    client.run_on_scheduler(_block_scheduler, seconds=1.0)
    time.sleep(0.05)
