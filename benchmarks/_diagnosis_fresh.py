"""Fresh faults for `benchmarks/diagnosis.py`: no rule or threshold was chosen with them.

What has to be found was written down before the first measurement, with true consequences that
follow from what the fault does. Change a rule because of one of these faults only together with
new faults in another file.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
from _diagnosis_faults import NAPS, NO_SPILL, NOT_ENDED, SMALL, Fault
from _diagnosis_tasks import (
    array_sum,
    both,
    chain,
    exchange,
    failing,
    flat,
    frame_groupby,
    graph,
    hold_all,
    import_dataframes,
    kill_one,
    layer,
    long_last,
    pause,
    python_loop,
    slow_sending,
    slow_where,
    spin,
    uneven,
)
from distributed import Client, as_completed, wait

__all__ = ["FRESH", "FRESH_HEALTHY"]

THREE = {"n_workers": 3, "threads_per_worker": 1}


def parse_first(client: Client) -> None:
    """Parse a text in the client for 2.5 s, then compute."""
    text = json.dumps([{"number": n, "name": str(n)} for n in range(20_000)])
    end = time.time() + 2.5
    while time.time() < end:
        json.loads(text)
    flat(spin, 24, 0.1)(client)


def mean_of(array: np.ndarray, number: int) -> float:
    """Return the mean of a few values of an array."""
    return float(array[number : number + 100].mean())


def send_arrays(client: Client) -> None:
    """Send graphs whose 24 tasks contain an array of 5 MB each."""
    arrays = [np.random.default_rng(n).random(625_000) for n in range(24)]
    wait(client.map(mean_of, arrays, range(24), pure=False))


def make_lists(count: int) -> int:
    """Make nested lists, so that Python collects garbage again and again."""
    return len([[number, [number]] for number in range(count)])


def sum_in_c(count: int) -> int:
    """Add numbers in one call of a C function, which holds the GIL."""
    return sum(range(count))


def split_stages(client: Client) -> None:
    """Compute three stages of which the second has a single task."""
    first = ("load", layer(spin, 12, 0.08))
    graph(first, ("fit", [(spin, (1.8,), None)]), ("use", layer(spin, 12, 0.08, lambda n: [0])))(
        client
    )


def sleep_on_scheduler(client: Client) -> None:
    """Make the scheduler sleep for 1.2 s."""
    client.run_on_scheduler(time.sleep, 1.2)


FRESH = [
    Fault("a client that parses first", ("slow_start",), parse_first),
    Fault("an array in each of 24 tasks", ("large_graph",), send_arrays, allowed=("slow_start",)),
    Fault("2000 short Python tasks", ("tiny_tasks", "scheduler_busy"),
          flat(python_loop, 2000, 2000), allowed=("tiny_tasks", "scheduler_busy", "large_graph")),
    Fault("a single task between stages", ("too_few_tasks",), split_stages,
          allowed=("too_many_threads",)),
    Fault("four workers for a chain", ("too_many_threads", "too_few_tasks"), chain(spin, 20, 0.15),
          cluster={**THREE, "n_workers": 4}, allowed=("too_few_tasks", "too_many_threads")),
    Fault("a long task after 40 on three workers", ("stragglers", "skew"),
          long_last(spin, 40, 0.06, 2.0), cluster=THREE,
          allowed=("skew", "stragglers", "too_few_tasks")),
    Fault("one of 24 partitions takes 2 s", ("skew",),
          graph(("part", [(spin, (2.0 if n == 11 else 0.05,), []) for n in range(24)]),
                ("sum", [(spin, (0.05,), None)])), allowed=("too_few_tasks", "stragglers")),
    Fault("nested lists", ("garbage",), flat(make_lists, 6, 1_000_000),
          allowed=("blocked_worker",)),
    Fault("sums in C", ("blocked_worker",), flat(sum_in_c, 6, 100_000_000), allowed=("gil",)),
    Fault("a network of 15 MB/s", ("network",), exchange(3_000_000, rounds=4, width=6),
          prepare=slow_sending(0.05, 15e6), allowed=("too_few_tasks", "too_many_threads")),
    Fault("results that do not fit", ("spilling",), hold_all(14, 50_000_000), cluster=SMALL,
          config=NOT_ENDED, allowed=("blocked_worker", "paused_workers", "large_results")),
    Fault("workers paused for 2.5 s", ("paused_workers",), pause(2.5), config=NO_SPILL,
          cluster={**SMALL, "memory_limit": "650MB"}, allowed=("unmanaged", "too_few_tasks")),
    Fault("one of four workers dies", ("lost_workers",), both(4, kill_one),
          cluster={**THREE, "n_workers": 4}, leaves=True,
          allowed=("recomputed", "too_few_tasks", "stragglers", "slow_worker")),
    Fault("ten attempts fail", ("failed_attempts",), failing(10, 0.4), allowed=NAPS),
    Fault("a worker that takes 2.5 times as long", ("slow_worker",),
          slow_where(0.25, 0.1, spin, 44), allowed=("stragglers",)),
    Fault("a scheduler that sleeps", ("blocked_loop",), both(3, sleep_on_scheduler),
          allowed=("scheduler_busy", "too_few_tasks")),
]  # fmt: skip


def refill(client: Client) -> None:
    """Keep four tasks in flight, and submit another one when one has finished."""
    running = as_completed([client.submit(spin, 0.1, pure=False) for _ in range(4)])
    n_left = 26
    for _ in running:
        if n_left:
            running.add(client.submit(spin, 0.1, pure=False))
            n_left -= 1


def scatter_first(client: Client) -> None:
    """Scatter an array of 10 MB to all workers, and use it in 24 tasks."""
    data = client.scatter(np.ones(1_250_000), broadcast=True)
    wait([client.submit(spin, 0.1, data, pure=False) for _ in range(24)])


def reuse(client: Client) -> None:
    """Compute a stage, keep its results, and use them in two other stages."""
    first = client.map(spin, [0.06] * 20, pure=False)
    wait(first)
    for _ in range(2):
        wait([client.submit(spin, 0.05, part, pure=False) for part in first])


def binary_tree(client: Client) -> None:
    """Reduce 32 parts two by two."""
    layers, width = [("part", layer(spin, 32, 0.1))], 16
    while width:
        pairs = layer(spin, width, 0.04, lambda n: [2 * n, 2 * n + 1])
        layers.append((f"pair{width}", pairs))
        width //= 2
    graph(*layers)(client)


def column_means(client: Client) -> Any:
    """Standardize a random array."""
    import dask.array as da

    array = da.random.default_rng(1).random((8000, 4000), chunks=(1000, 2000))
    return client.compute(((array - array.mean(axis=0)) / array.std(axis=0)).max()).result()


def product(client: Client) -> Any:
    """Multiply matrices."""
    import dask.array as da

    array = da.random.default_rng(1).random((3000, 3000), chunks=(1000, 1000))
    return client.compute((array @ array.T).sum()).result()


FRESH_HEALTHY = [
    Fault(name, (), run, cluster=cluster)
    for name, run, cluster in (
        ("80 equal tasks", flat(spin, 80, 0.05), {}),
        ("16 tasks of 0.3 s", flat(spin, 16, 0.3), {}),
        ("durations of 0.03 to 0.15 s", uneven(spin, *(0.03 * (1 + n % 5) for n in range(50))), {}),
        ("a binary tree", binary_tree, {}),
        ("two chains per worker", chain(spin, 7, 0.12, width=4), {}),
        ("four stages", graph(*[(f"stage{m}", layer(spin, 16, 0.06, (lambda n: [n]) if m else None))
                                for m in range(4)]), {}),
        ("pairs of a ring", graph(("load", layer(spin, 26, 0.07)),
                                  ("pair", layer(spin, 26, 0.07, lambda n: [n, (n + 1) % 26]))),
         {}),
        ("tasks that replace finished ones", refill, {}),
        ("scattered data", scatter_first, {}),
        ("results that are used twice", reuse, {}),
        ("means of columns", column_means, {}),
        ("a matrix product", product, {}),
        ("a wide array", array_sum((4000, 12000), (1000, 3000)), {}),
        ("two threads of one worker", flat(spin, 30, 0.1),
         {"n_workers": 1, "threads_per_worker": 2}),
    )
]  # fmt: skip
FRESH_HEALTHY.append(
    Fault("a smaller table", (), frame_groupby(1_000_000, 12),
          prepare=lambda client: (import_dataframes(), client.run(import_dataframes)))
)  # fmt: skip
