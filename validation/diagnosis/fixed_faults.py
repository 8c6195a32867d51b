"""Fixed faults for `benchmarks/diagnosis.py`: those with a remedy, and workloads of the catalogue.

With `mended`, the promised saving is compared with the one that came. Rules were chosen with these
faults: how often findings are true on others is measured with `random_faults`. Work that stands
for computing is a loop, because the diagnosis reports tasks that sleep; where a fault is about
graphs or messages, tasks sleep and `waiting_inside` is allowed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from distributed import Client

from validation.diagnosis.plants import (
    add_host,
    array_sum,
    by_batches,
    exchange,
    failing,
    fill_memory,
    hold_all,
    keep_all,
    late_start,
    rechunk_back,
    rechunk_p2p,
    slow_sending,
    slow_shuffling,
    slow_where,
    wait_for_nobody,
    with_neighbours,
)
from validation.diagnosis.tasks import (
    chain,
    flat,
    graph,
    increase,
    layer,
    leak,
    long_last,
    nap,
    python_loop,
    spin,
    tree,
    uneven,
    wait_for_tasks,
)


@dataclass(frozen=True)
class Fault:
    """A planted fault; without rules, a healthy run."""

    name: str
    #: Rules of which one has to find it.
    rules: tuple[str, ...]
    #: Runs the fault until all is done; None: the workload of this name in the catalogue.
    run: Callable[[Client], Any] | None
    #: Options of `distributed.LocalCluster`; by default two workers with a thread each.
    cluster: Mapping[str, Any] = field(default_factory=dict)
    #: Configuration of Dask for the cluster.
    config: Mapping[str, Any] = field(default_factory=dict)
    #: Rules whose findings are true, too, as consequences of the fault.
    allowed: tuple[str, ...] = ()
    #: The same work with the advice carried out, and the cluster of it.
    mended: Callable[[Client], Any] | None = None
    mended_cluster: Mapping[str, Any] | None = None
    #: Takes the client, before the clock is on.
    prepare: Callable[[Client], Any] | None = None
    #: Whether the cluster cannot be used for another run, such as after the loss of a worker.
    leaves: bool = False


FOUR = {"n_workers": 4, "threads_per_worker": 1}
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
    Fault("a chain", ("too_few_tasks",), chain(spin, 16, 0.2),
          allowed=("too_few_tasks",),
          mended=chain(spin, 8, 0.2, width=2)),
    Fault("one reduction", ("too_few_tasks", "stragglers"),
          graph(("map", layer(spin, 16, 0.1)), ("sum", [(spin, (2.5,), None)])),
          allowed=("too_few_tasks", "stragglers"),
          mended=tree(spin, 16, 0.1, 0.5)),  # the same work: five sums of 0.5 s
    Fault("few tasks for the threads", ("too_few_tasks",),
          chain(nap, 6, 0.5, width=2), cluster=FOUR,
          allowed=(*NAPS, "too_few_tasks"),
          mended=chain(nap, 3, 0.5, width=4)),
    Fault("a long task at the end", ("stragglers", "skew"),
          long_last(spin, 24, 0.1, 2.0), allowed=("skew", "too_few_tasks", "stragglers"),
          mended=uneven(spin, *[0.1] * 44)),
    Fault("two long tasks of four at the end", ("stragglers", "skew"),
          uneven(nap, *[0.2] * 30, 2.5), cluster=FOUR,
          allowed=(*NAPS, "skew", "too_few_tasks", "stragglers"),
          mended=uneven(nap, *[0.2] * 42), mended_cluster=FOUR),
    Fault("one partition of twenty is large", ("skew",),
          graph(("part", [(spin, (2.5 if n == 3 else 0.1,), []) for n in range(20)]),
                ("sum", [(spin, (0.05,), None)])),
          allowed=("too_few_tasks", "stragglers"),
          mended=graph(("part", layer(spin, 44, 0.1)), ("sum", [(spin, (0.05,), None)]))),
    Fault("a task that no worker may run", ("hung",), wait_for_nobody(flat(spin, 20, 0.1), 4.0),
          allowed=("restricted",), leaves=True, mended=flat(spin, 20, 0.1)),
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
    Fault("a task that waits for its own tasks", ("seceded",), flat(wait_for_tasks, 1, 16, 0.2),
          allowed=("serial_graphs",), mended=flat(nap, 16, 0.2)),
    # The nanny ends a worker that does not spill fast enough: its results are computed again.
    Fault("results twice the memory", ("spilling",), hold_all(24, 30 * MB), cluster=SMALL,
          allowed=("blocked_worker", "paused_workers", "large_results", "lost_workers",
                   "recomputed", "kept_results"),
          mended=by_batches(24, 30 * MB, 2), mended_cluster=SMALL),
    Fault("few large results spilled", ("spilling",), hold_all(10, 60 * MB), cluster=SMALL,
          config=NOT_ENDED,
          allowed=("blocked_worker", "paused_workers", "large_results", "lost_workers",
                   "kept_results"),
          mended=hold_all(10, 60 * MB),
          mended_cluster={"n_workers": 2, "threads_per_worker": 1, "memory_limit": "1GB"}),
    Fault("futures of results that were used", ("kept_results",), keep_all(24, 30 * MB, kept=True),
          cluster=SMALL, config=NOT_ENDED,
          allowed=("spilling", "blocked_worker", "paused_workers", "large_results", "lost_workers"),
          mended=keep_all(24, 30 * MB, kept=False), mended_cluster=SMALL),
    Fault("tasks that leave 12 MB each", ("left_memory",), flat(leak, 50, 12), config=KEEP,
          allowed=NAPS),
    Fault("a worker with a third of the speed", ("slow_worker",),
          slow_where(0.3, 0.1, spin, 40), allowed=("stragglers",),
          mended=slow_where(0.1, 0.1, spin, 40)),
    Fault("a worker with half of the speed", ("slow_worker",),
          slow_where(0.4, 0.2, nap, 60), cluster=FOUR, allowed=NAPS,
          mended=slow_where(0.2, 0.2, nap, 60), mended_cluster=FOUR),
    Fault("a host with half of the speed", ("slow_host",),
          slow_where(0.4, 0.2, nap, 60, (2, 3)), prepare=add_host, allowed=NAPS,
          mended=slow_where(0.2, 0.2, nap, 60), mended_cluster=FOUR),
    Fault("a slow network", ("network",), exchange(2 * MB), prepare=slow_sending(0.05, 10e6),
          mended=exchange(2 * MB), allowed=("too_few_tasks",)),
    Fault("a rechunk and back", ("rechunked_back",), rechunk_back(4000, 125, needless=True),
          allowed=("tiny_tasks", "scheduler_busy", "network", "large_graph"),
          mended=rechunk_back(4000, 125, needless=False)),
    Fault("a P2P rechunk whose parts arrive late", ("p2p",), rechunk_p2p(4000, 250),
          prepare=slow_shuffling(2.0), mended=rechunk_p2p(4000, 250)),
    Fault("Python on four threads", ("gil",), flat(python_loop, 24, 3_000_000), cluster=THREADS,
          allowed=("blocked_worker", *NAPS),
          mended=flat(python_loop, 24, 3_000_000),
          mended_cluster={"n_workers": 2, "threads_per_worker": 1}),
    Fault("a client that prepares", ("slow_start",), late_start(2.0, flat(spin, 20, 0.1)),
          mended=flat(spin, 20, 0.1)),
    Fault("a client that prepares for long", ("slow_start",), late_start(4.0, flat(spin, 30, 0.1)),
          mended=flat(spin, 30, 0.1)),
    Fault("two neighbours", ("neighbours",), with_neighbours(2, flat(spin, 30, 0.1)),
          allowed=("slow_worker", *NAPS), mended=flat(spin, 30, 0.1)),
    Fault("four neighbours", ("neighbours",), with_neighbours(4, flat(spin, 20, 0.1)),
          allowed=("slow_worker", *NAPS), mended=flat(spin, 20, 0.1)),
    Fault("a nanny ends a worker", ("lost_workers",), fill_memory,
          cluster={**SMALL, "memory_limit": "700MB"},
          config={"distributed.worker.memory.terminate": 0.9,
                  "distributed.scheduler.allowed-failures": 1},
          allowed=("recomputed", "paused_workers", "unmanaged", "too_few_tasks", "stragglers",
                   "failed_attempts", "skew", "slow_worker", "blocked_worker", "large_results")),
    # Small objects that fill more than the part of the limit at which workers pause.
    Fault("memory.fragmentation", ("paused_workers",), None,
          config={**NO_SPILL, "distributed.worker.memory.pause": 0.25},
          allowed=("unmanaged", "paused_workers", "too_few_tasks", "garbage", "blocked_worker")),
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
          allowed=("too_few_tasks", "network", "slow_worker")),
    Fault("fault.worker_kill", ("lost_workers", "recomputed"),
          None, allowed=(*NAPS, "slow_worker", "stragglers")),
    # First it fills a worker by `Client.run`, which runs in the worker's event loop.
    Fault("fault.pause", ("paused_workers",),
          None, allowed=(*NAPS, "unmanaged", "large_results", "too_few_tasks", "slow_start",
                         "blocked_worker")),
    Fault("fault.nanny_restart", ("lost_workers",),
          None, allowed=(*NAPS, "recomputed", "unmanaged", "paused_workers", "large_results",
                         "too_few_tasks")),
    Fault("fault.slow_disk", ("slow_worker", "waiting_inside"),
          None, allowed=("slow_worker", "stragglers", *NAPS)),
    Fault("fault.slow_net", ("network",),
          None, allowed=(*NAPS, "too_few_tasks", "slow_worker")),
    # At this size 721 tasks take 2.5 ms on average, and the largest partition 0.12 s of 2.3 s: the
    # number of tasks costs more than the skew.
    Fault("shuffle.skew[method=tasks]", ("skew", "stragglers", "too_few_tasks", "tiny_tasks"),
          None, allowed=("skew", "stragglers", "too_few_tasks", "tiny_tasks", "large_results")),
    Fault("spill.spilling[data=uncompressible,end=keep]", ("spilling",),
          None, allowed=("blocked_worker", "paused_workers", *NAPS)),
    Fault("spill.dot_product[data=uncompressible]", ("spilling",),
          None, allowed=("blocked_worker", "paused_workers", *NAPS)),
    Fault("gil.holding", ("gil", "blocked_worker"),
          None, allowed=("gil", "blocked_worker", "tiny_tasks"),
          cluster={"n_workers": 1, "threads_per_worker": 2, "memory_limit": "2 GiB"}),
]  # fmt: skip
