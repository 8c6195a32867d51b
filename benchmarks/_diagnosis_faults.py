"""Faults for `benchmarks/diagnosis.py`: what is planted, and what has to be found.

A fault takes 2 to 10 s. Work that stands for computing is a loop, because the diagnosis reports
tasks that sleep; where a fault is about graphs or messages, tasks sleep and `waiting_inside` is
allowed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from _diagnosis_tasks import (
    array_sum,
    big_graph,
    blas,
    block_scheduler,
    both,
    busy_plugin,
    by_batches,
    chain,
    exchange,
    failing,
    fill_memory,
    flat,
    frame_groupby,
    graph,
    hold_all,
    hold_gil,
    import_dataframes,
    increase,
    kill_one,
    late_start,
    layer,
    leak,
    long_last,
    lose_results,
    make,
    nap,
    objects,
    pause,
    python_loop,
    send_data,
    slow_sending,
    slow_where,
    spin,
    tree,
    uneven,
    with_neighbours,
)
from distributed import Client

__all__ = ["FAULTS", "HEALTHY", "NAPS", "NOT_ENDED", "NO_SPILL", "SMALL", "Fault"]


@dataclass(frozen=True)
class Fault:
    """A planted fault.

    Parameters
    ----------
    name : str
        Name of the fault.
    rules : tuple of str
        Rules of which one has to find it; none: a healthy run.
    run : callable or None
        Takes a client, and runs the fault until all is done; None: the workload of this name in
        the catalogue.
    cluster : mapping
        Options of `distributed.LocalCluster`; by default two workers with a thread each.
    config : mapping
        Configuration of Dask for the cluster.
    allowed : tuple of str
        Rules whose findings are true, too, as consequences of the fault.
    mended : callable, optional
        The same work with the advice carried out.
    mended_cluster : mapping, optional
        Cluster with the advice carried out.
    prepare : callable, optional
        Takes the client, before the clock is on.
    leaves : bool
        Whether the cluster cannot be used for another run, such as after the loss of a worker.
    """

    name: str
    rules: tuple[str, ...]
    run: Callable[[Client], Any] | None
    cluster: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    allowed: tuple[str, ...] = ()
    mended: Callable[[Client], Any] | None = None
    mended_cluster: Mapping[str, Any] | None = None
    prepare: Callable[[Client], Any] | None = None
    leaves: bool = False


ONE = {"n_workers": 1, "threads_per_worker": 1}
FOUR = {"n_workers": 4, "threads_per_worker": 1}
WIDE = {"n_workers": 8, "threads_per_worker": 1}
THREADS = {"n_workers": 1, "threads_per_worker": 4}
SMALL = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "256MiB"}
NAPS = ("waiting_inside",)
MB = 1_000_000
#: Memory becomes old after a second instead of 30 s.
OLD_SOON = {"distributed.worker.memory.recent-to-old-time": "1s"}
NO_SPILL = {
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.memory.pause": 0.7,
}
#: A worker that spills too slowly is not ended by its nanny: then nothing of it is recorded.
NOT_ENDED = {"distributed.worker.memory.terminate": False}
KEEP = {**NO_SPILL, "distributed.worker.memory.pause": False}

FAULTS = [
    Fault("1500 empty tasks", ("tiny_tasks",), flat(increase, 1500, 1),
          allowed=("scheduler_busy", "large_graph"), mended=flat(python_loop, 30, 1000)),
    Fault("an array in 2000 chunks", ("tiny_tasks",), array_sum((2000, 2000), (100, 100)),
          allowed=("scheduler_busy", "large_graph", "slow_start", "garbage"),
          mended=array_sum((2000, 2000), (1000, 1000))),
    Fault("tasks of a millisecond", ("tiny_tasks",), flat(python_loop, 1000, 20_000),
          allowed=("scheduler_busy", "large_graph"), mended=flat(python_loop, 10, 2_000_000)),
    Fault("a chain", ("too_few_tasks", "too_many_threads"), chain(spin, 16, 0.2),
          allowed=("too_few_tasks", "too_many_threads"),
          mended=chain(spin, 8, 0.2, width=2)),
    Fault("one reduction", ("too_few_tasks", "stragglers"),
          graph(("map", layer(spin, 16, 0.1)), ("sum", [(spin, (2.5,), None)])),
          allowed=("too_few_tasks", "stragglers", "too_many_threads"),
          mended=tree(spin, 16, 0.1, 0.5)),  # the same work: five sums of 0.5 s
    Fault("few tasks for the threads", ("too_few_tasks", "too_many_threads"),
          chain(nap, 6, 0.5, width=2), cluster=FOUR,
          allowed=(*NAPS, "too_few_tasks", "too_many_threads"),
          mended=chain(nap, 3, 0.5, width=4)),
    Fault("eight workers for a chain", ("too_many_threads",), chain(nap, 16, 0.2), cluster=WIDE,
          allowed=(*NAPS, "too_few_tasks")),
    Fault("six workers for two chains", ("too_many_threads",), chain(nap, 12, 0.3, width=2),
          cluster={"n_workers": 6, "threads_per_worker": 1}, allowed=(*NAPS, "too_few_tasks")),
    Fault("a long task at the end", ("stragglers", "skew"),
          long_last(spin, 24, 0.1, 2.0), allowed=("skew", "too_few_tasks", "stragglers"),
          mended=uneven(spin, *[0.1] * 44)),
    Fault("two long tasks of four at the end", ("stragglers", "skew"),
          uneven(nap, *[0.2] * 30, 2.5), cluster=FOUR,
          allowed=(*NAPS, "skew", "too_few_tasks", "stragglers"),
          mended=uneven(nap, *[0.2] * 42), mended_cluster=FOUR),
    Fault("a stage with a straggler", ("stragglers", "skew"),
          graph(("load", layer(spin, 12, 0.1)),
                ("join", [(spin, (0.1 if n else 2.0,), [n]) for n in range(12)])),
          allowed=("skew", "too_few_tasks", "stragglers")),
    Fault("one partition of twenty is large", ("skew",),
          graph(("part", [(spin, (2.5 if n == 3 else 0.1,), []) for n in range(20)]),
                ("sum", [(spin, (0.05,), None)])),
          allowed=("too_few_tasks", "stragglers"),
          mended=graph(("part", layer(spin, 44, 0.1)), ("sum", [(spin, (0.05,), None)]))),
    Fault("a skewed stage in the middle", ("skew",),
          graph(("load", layer(spin, 12, 0.1)),
                ("join", [(spin, (2.0 if n == 5 else 0.06,), [n]) for n in range(12)]),
                ("sum", layer(spin, 12, 0.05, lambda n: None))),
          allowed=("too_few_tasks", "stragglers")),
    Fault("a worker dies with results", ("recomputed", "lost_workers"), lose_results, leaves=True,
          allowed=("recomputed", "lost_workers", "too_few_tasks", "slow_start", "stragglers",
                   "slow_worker")),
    Fault("a worker dies while it computes", ("lost_workers",), both(3, kill_one), leaves=True,
          allowed=("recomputed", "too_few_tasks", "stragglers", "slow_worker")),
    Fault("a nanny ends a worker", ("lost_workers",), fill_memory,
          cluster={**SMALL, "memory_limit": "700MB"},
          config={"distributed.worker.memory.terminate": 0.9,
                  "distributed.scheduler.allowed-failures": 1},
          allowed=("recomputed", "paused_workers", "unmanaged", "too_few_tasks", "stragglers",
                   "failed_attempts", "skew", "slow_worker", "blocked_worker", "large_results")),
    Fault("attempts that fail", ("failed_attempts",), failing(20, 0.2), allowed=NAPS,
          mended=flat(nap, 20, 0.2)),
    Fault("few attempts that fail late", ("failed_attempts",), failing(6, 0.8), allowed=NAPS,
          mended=flat(nap, 6, 0.8)),
    Fault("tasks that sleep", ("waiting_inside",), flat(nap, 24, 0.25),
          mended=flat(nap, 24, 0.25), mended_cluster={"n_workers": 2, "threads_per_worker": 2}),
    Fault("tasks that wait for storage", ("waiting_inside",),
          graph(("read", layer(nap, 20, 0.3)), ("sum", layer(spin, 20, 0.02, lambda n: [n]))),
          mended=graph(("read", layer(nap, 20, 0.3)),
                       ("sum", layer(spin, 20, 0.02, lambda n: [n]))),
          mended_cluster={"n_workers": 2, "threads_per_worker": 2}),
    # The nanny ends a worker that does not spill fast enough: its results are computed again.
    Fault("results twice the memory", ("spilling",), hold_all(24, 30 * MB), cluster=SMALL,
          allowed=("blocked_worker", "paused_workers", "large_results", "lost_workers",
                   "recomputed"),
          mended=by_batches(24, 30 * MB, 2), mended_cluster=SMALL),
    Fault("few large results spilled", ("spilling",), hold_all(10, 60 * MB), cluster=SMALL,
          config=NOT_ENDED,
          allowed=("blocked_worker", "paused_workers", "large_results", "lost_workers"),
          mended=hold_all(10, 60 * MB),
          mended_cluster={"n_workers": 2, "threads_per_worker": 1, "memory_limit": "1GB"}),
    Fault("results of half of the memory", ("large_results",), flat(make, 6, 150 * MB),
          cluster=SMALL, config=NOT_ENDED,
          allowed=("spilling", "paused_workers", "blocked_worker", "lost_workers", "recomputed",
                   "unmanaged", "too_few_tasks")),
    Fault("one result of half of the memory", ("large_results",),
          graph(("load", layer(spin, 20, 0.1)), ("all", [(make, (320 * MB,), [])])),
          cluster={**SMALL, "memory_limit": "700MB"}, config=KEEP,
          allowed=("spilling", "paused_workers", "blocked_worker", "too_few_tasks",
                   "too_many_threads")),
    Fault("tasks that leak", ("unmanaged",), flat(leak, 20, 40), config={**OLD_SOON, **KEEP},
          cluster={**SMALL, "memory_limit": "700MB"}, allowed=NAPS),
    Fault("a cache in each worker", ("unmanaged",), flat(spin, 40, 0.1),
          prepare=lambda client: (client.run(leak, 400), time.sleep(2)),
          config={**OLD_SOON, **KEEP}, cluster={**SMALL, "memory_limit": "700MB"}),
    Fault("workers paused", ("paused_workers",), pause(1.5),
          config=NO_SPILL, cluster={**SMALL, "memory_limit": "700MB"},
          allowed=("unmanaged", "too_few_tasks")),
    Fault("workers paused for long", ("paused_workers",), pause(3.0),
          config=NO_SPILL, cluster={**SMALL, "memory_limit": "700MB"},
          allowed=("unmanaged", "too_few_tasks")),
    Fault("a worker with a third of the speed", ("slow_worker",),
          slow_where(0.3, 0.1, spin, 40), allowed=("stragglers",),
          mended=slow_where(0.1, 0.1, spin, 40)),
    Fault("a worker with half of the speed", ("slow_worker",),
          slow_where(0.4, 0.2, nap, 60), cluster=FOUR, allowed=NAPS,
          mended=slow_where(0.2, 0.2, nap, 60), mended_cluster=FOUR),
    Fault("a scheduler with 4000 tasks", ("scheduler_busy", "tiny_tasks"),
          flat(increase, 4000, 1), allowed=("scheduler_busy", "tiny_tasks", "large_graph",
                                            "slow_start", "garbage", "blocked_loop")),
    Fault("a plugin that computes", ("scheduler_busy", "blocked_loop"), busy_plugin(0.002, 600),
          leaves=True,
          allowed=("scheduler_busy", "tiny_tasks", "blocked_loop", "slow_start", "large_graph")),
    Fault("a slow network", ("network",), exchange(2 * MB), prepare=slow_sending(0.05, 10e6),
          mended=exchange(2 * MB), allowed=("too_few_tasks", "too_many_threads")),
    Fault("a network with latency", ("network",), exchange(1000), prepare=slow_sending(0.3, 1e9),
          allowed=("too_few_tasks",)),
    Fault("Python on four threads", ("gil",), flat(python_loop, 24, 3_000_000), cluster=THREADS,
          allowed=("blocked_worker", *NAPS),
          mended=flat(python_loop, 24, 3_000_000),
          mended_cluster={"n_workers": 2, "threads_per_worker": 1}),
    Fault("Python on two threads", ("gil",), flat(python_loop, 20, 3_000_000),
          cluster={"n_workers": 1, "threads_per_worker": 2}, allowed=("blocked_worker", *NAPS)),
    Fault("a task that holds the GIL", ("blocked_worker",), flat(hold_gil, 4, 1.2),
          allowed=(*NAPS, "gil", "too_few_tasks")),
    Fault("tasks that hold the GIL", ("blocked_worker",), flat(hold_gil, 6, 1.1),
          allowed=(*NAPS, "gil", "too_few_tasks")),
    Fault("threads of BLAS", ("oversubscribed",), flat(blas, 10, 0.2, 3), cluster=ONE,
          allowed=("too_few_tasks",)),
    Fault("more threads of BLAS", ("oversubscribed",), flat(blas, 6, 0.2, 6), cluster=ONE,
          allowed=("too_few_tasks",)),
    Fault("a blocked scheduler", ("blocked_loop",), both(2, block_scheduler(1.0)),
          allowed=("scheduler_busy", "too_few_tasks")),
    Fault("a scheduler blocked twice", ("blocked_loop",), both(3, block_scheduler(0.6, 2)),
          allowed=("scheduler_busy", "too_few_tasks")),
    Fault("many objects", ("garbage",), flat(objects, 8, 150_000),
          allowed=("blocked_worker",)),
    Fault("very many objects", ("garbage",), flat(objects, 4, 400_000),
          allowed=("blocked_worker", "large_results")),
    Fault("a client that prepares", ("slow_start",), late_start(2.0, flat(spin, 20, 0.1)),
          mended=flat(spin, 20, 0.1)),
    Fault("a client that prepares for long", ("slow_start",), late_start(4.0, flat(spin, 30, 0.1)),
          mended=flat(spin, 30, 0.1)),
    # Unpacking it blocks the scheduler's loop, and the stack says so.
    Fault("data in a graph", ("large_graph",), send_data(40, 4),
          allowed=("slow_start", "blocked_loop")),
    Fault("a megabyte in each of 120 tasks", ("large_graph",), send_data(1, 120),
          allowed=("slow_start", "blocked_loop")),
    # Its tasks take longer than its graph.
    Fault("a graph of 6000 tasks", ("tiny_tasks", "large_graph", "slow_start"), big_graph(6_000),
          allowed=("large_graph", "slow_start", "tiny_tasks", "scheduler_busy", "garbage",
                   "blocked_loop")),
    Fault("two neighbours", ("neighbours",), with_neighbours(2, flat(spin, 30, 0.1)),
          allowed=("slow_worker", *NAPS), mended=flat(spin, 30, 0.1)),
    Fault("four neighbours", ("neighbours",), with_neighbours(4, flat(spin, 20, 0.1)),
          allowed=("slow_worker", *NAPS), mended=flat(spin, 20, 0.1)),
    # Small objects that fill more than the part of the limit at which workers pause.
    Fault("memory.fragmentation", ("paused_workers",), None,
          config={**NO_SPILL, "distributed.worker.memory.pause": 0.25},
          allowed=("unmanaged", "paused_workers", "too_few_tasks", "garbage", "blocked_worker",
                   "too_many_threads")),
    # All root tasks are assigned at once: their results do not fit the memory for results.
    Fault("memory.root_overproduction[saturation=inf]", ("spilling", "paused_workers"), None,
          config={**NOT_ENDED, "distributed.worker.memory.target": 0.03,
                  "distributed.worker.memory.spill": False},
          allowed=("unmanaged", "paused_workers", "spilling", *NAPS)),
    # Fifty graphs, each submitted when the result of the one before has arrived. After every tenth
    # the workload collects garbage in the client, whose process is that of the scheduler.
    Fault("memory.leak_slope", ("tiny_tasks", "too_few_tasks", "slow_start"), None,
          allowed=("tiny_tasks", "too_few_tasks", "slow_start", "scheduler_busy", "large_graph",
                   "garbage")),
    # The only worker that computes is retired: its results move to the other one.
    Fault("memory.amm_retire", ("too_few_tasks", "network"), None,
          allowed=("too_few_tasks", "network", "too_many_threads", "slow_worker")),
]  # fmt: skip

HEALTHY = [
    Fault(name, (), run)
    for name, run in (
        ("equal tasks", flat(spin, 40, 0.1)),
        ("longer equal tasks", flat(spin, 20, 0.25)),
        ("many equal tasks", flat(spin, 100, 0.04)),
        ("a tree", tree(spin, 48, 0.08)),
        ("two stages", graph(("load", layer(spin, 24, 0.08)),
                             ("join", layer(spin, 24, 0.08, lambda n: [n, (n + 1) % 24])))),
        ("three stages", graph(("load", layer(spin, 24, 0.05)),
                               ("join", layer(spin, 24, 0.05, lambda n: [n])),
                               ("store", layer(spin, 24, 0.05, lambda n: [n])))),
        ("uneven tasks", uneven(spin, *(0.04 + 0.02 * (n % 5) for n in range(50)))),
        ("four chains", chain(spin, 6, 0.15, width=4)),
        ("an array", array_sum((6000, 6000), (1500, 1500))),
        ("a larger array", array_sum((9000, 9000), (1500, 1500))),
        ("results of 5 MB", graph(("load", [(spin, (0.08,), [], ) for _ in range(40)]),
                                  ("use", layer(spin, 40, 0.03, lambda n: [n])))),
    )
]  # fmt: skip
HEALTHY.append(
    Fault("a table", (), frame_groupby(2_000_000, 10),
          prepare=lambda client: (import_dataframes(), client.run(import_dataframes)))
)  # fmt: skip
