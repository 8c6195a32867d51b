"""Memory that a run must report."""

import time
from typing import Any

from validation.truth.bodies import MB, hold, keep, nap, spin, write
from validation.truth.scenario import IN_PROCESS, scenario

__all__: list[str] = []

MEMORY = ("memory_mean", "memory_peak", "memory_peak_worker")


@scenario("memory_peak", "memory_peak_worker")
def memory_spike(client: Any, _: Any) -> None:
    """200 MB for 50 ms in the middle of a run of a second: one or two samples."""
    client.submit(nap, 0.5, pure=False).result()
    client.submit(hold, 200 * MB, 0.05, 0.45, pure=False).result()


@scenario(*MEMORY)
def memory_short_run(client: Any, _: Any) -> None:
    """300 MB on both workers at the same time, in a run of 0.64 s."""
    workers = list(client.scheduler_info()["workers"])
    client.gather([client.submit(hold, 300 * MB, 0.3, 0.2, workers=w, pure=False) for w in workers])


@scenario(*MEMORY, before=lambda client: [])
def memory_at_the_end(client: Any, kept: list) -> None:
    """400 MB that a task makes as the run ends, and that stay."""
    client.submit(nap, 1.0, pure=False).result()
    kept.append(client.submit(keep, 400 * MB, pure=False))
    client.submit(len, kept[0]).result()
    time.sleep(0.1)


@scenario(*MEMORY)
def memory_moves(client: Any, _: Any) -> None:
    """100 MB on one worker, then on the other: never on both."""
    for worker in client.scheduler_info()["workers"]:
        client.submit(hold, 100 * MB, 0.4, 0.1, workers=worker, pure=False).result()


@scenario(*MEMORY, "cpu_time", "disk_bytes", cluster=IN_PROCESS, on=("local",))
def workers_in_one_process(client: Any, _: Any) -> None:
    """Four workers share a process, which allocates, computes and writes."""
    futures = client.map(spin, [0.3] * 4, pure=False)
    futures.append(client.submit(hold, 200 * MB, 0.5, pure=False))
    futures.append(client.submit(write, 20 * MB, pure=False))
    client.gather(futures)


@scenario("memory_mean", "memory_peak", "worker_seconds", on=("local",))
def workers_leave(client: Any, _: Any) -> dict[str, Any]:
    """Two workers for about a second and a half in a run of 4 s."""
    begin = time.perf_counter()
    client.gather(client.map(nap, [1.0, 1.0], pure=False))
    client.cluster.scale(0)
    while client.scheduler_info()["workers"]:
        time.sleep(0.005)
    left = time.perf_counter()
    time.sleep(2.5)
    return {"worker_seconds": 2 * (left - begin), "no_workers_after": left}
