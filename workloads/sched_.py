"""Scheduler workloads: many tasks that do nothing."""

from __future__ import annotations

import time

from benchkit.measure import expect, workload


@workload(
    variants={"n": [1000, 5000]},
    tags=["overhead", "futures", "first-twelve[n=5000]", "quick[n=5000]"],
    metrics={"us_per_task": "us"},
)
def task_throughput(client, scale, *, n):
    """Run many tasks that return their argument, submitted at once.

    Nothing but overhead: building and sending the graph, the scheduler's transitions, messages to
    and from workers. Time per task should not grow with their number (distributed#5715, #2611).

    Scale: `n` x the fraction, on any cluster: the scheduler is one process. Up to a million
    makes sense with --set. About 1 s per 1000 tasks on 2 x 1 x 1 GiB.
    Check: each task's result is its argument.
    """
    from distributed import wait

    count = _count(scale, n)
    begin = time.perf_counter()
    futures = client.map(_same, range(count), pure=False)
    wait(futures)
    return {"futures": futures, "seconds": time.perf_counter() - begin}


@task_throughput.check
def _(client, result, scale, *, n):
    count = _count(scale, n)
    expect(client.gather(result["futures"]), equals=list(range(count)), what="results")
    return {"us_per_task": result["seconds"] / count * 1e6}


def _count(scale, n):
    return max(10, round(n * scale.fraction))


def _same(number):
    return number
