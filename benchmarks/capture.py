"""What the capture costs: ``python benchmarks/capture.py [PART ...] [--rounds N] [--quick]``.

Prints, asserts nothing. Arms run interleaved, in a new random order each round, and the bare arm
twice: what the second differs from the first is the noise in which all other numbers stand.

``state``: the scheduler's state machine alone, no network: CPU of its thread a task.
``jobs``: whole jobs on a LocalCluster with two processes, beside the captures that others use.
``turns``: the trivial job, as exactly as a shared machine allows: two clusters take turns.
``keeping``: what the end costs, from a thousand to a million tasks.
``workers``: one look at all workers, by their number.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import random
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

from _capture_end_to_end import ARMS, JOBS, DurationSums, end_to_end  # noqa: E402
from _capture_keeping import keeping  # noqa: E402
from _capture_tables import table  # noqa: E402
from _capture_turns import turns  # noqa: E402
from dask._task_spec import Task  # noqa: E402
from distributed import Scheduler, Status  # noqa: E402
from distributed.diagnostics.plugin import SchedulerPlugin  # noqa: E402
from distributed.diagnostics.task_stream import TaskStreamPlugin  # noqa: E402
from distributed.scheduler import WorkerState  # noqa: E402

from benchkit.measure.capture import Capture  # noqa: E402

ADDRESSES = ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")
TURNS = ("full", "bare", "light")
LOOK_EVERY = 500  # tasks between two looks of the capture: 0.25 s at 2000 tasks a second


def fake_worker(scheduler: Scheduler, address: str, name: str = "bench") -> WorkerState:
    """Add a worker that takes messages and never answers."""
    state = WorkerState(
        address=address,
        status=Status.running,
        pid=0,
        name=address,
        nthreads=1,
        memory_limit=2**30,
        local_directory="",
        nanny="",
        server_id=address,
        scheduler=scheduler,
    )
    numbers = dict.fromkeys(("read_bps", "write_bps"), 1.0)
    state.metrics = {
        "memory": 2**27,
        "cpu": 50.0,
        "num_fds": 30,
        "spilled_bytes": {"memory": 0, "disk": 0},
        "managed_bytes": 0,
        "host_net_io": numbers,
        "host_disk_io": numbers,
        "task_counts": {"executing": 1},
        "transfer": dict.fromkeys(("incoming_bytes", "incoming_count", "outgoing_bytes"), 1),
        "bandwidth": {"total": 1e8},
        name: dict.fromkeys(("rss_peak", "cpu_time", "io_read", "io_write", "tick_max"), 1.0),
    }
    scheduler.workers[address] = state
    scheduler.running.add(state)
    scheduler.stream_comms[address] = SimpleNamespace(
        send=lambda *messages: None, closed=lambda: True
    )
    scheduler.total_nthreads += 1
    for plugin in scheduler.plugins.values():  # work stealing keeps a book of its own
        plugin.add_worker(scheduler=scheduler, worker=address)
    scheduler.check_idle_saturated(state)
    return state


def run_tasks(scheduler: Scheduler, count: int, look: Callable[[], None]) -> float:
    """Take tasks through their life; return CPU seconds of this thread a task."""
    begin = time.thread_time()
    for number in range(count):
        now = time.time()
        fetched = (
            now + random.random() / 100
        )  # or a file would hold the same number a million times
        done = fetched + random.random() / 100
        key = f"inc-{new_number()}"
        scheduler.new_task(key, Task(key, abs, -1), "released").priority = (0, 1, number)
        scheduler.transitions({key: "waiting"}, stimulus_id="bench")
        scheduler.transitions(
            scheduler.transition(
                key,
                "memory",
                stimulus_id="task-finished-bench",
                worker=scheduler.tasks[key].processing_on.address,
                nbytes=number % 1000,
                type=b"",
                typename="int",
                thread=1,
                startstops=[
                    {"action": "transfer", "start": now, "stop": fetched, "source": ADDRESSES[0]},
                    {"action": "compute", "start": fetched, "stop": done},
                ],
                metadata={},
            ),
            stimulus_id="bench",
        )
        if number % LOOK_EVERY == LOOK_EVERY - 1:
            look()
    return (time.thread_time() - begin) / count


_numbers = iter(range(10**12))


def new_number() -> int:
    return next(_numbers)


async def state_machine(rounds: int, count: int) -> None:
    """Print what each arm adds to a task on the scheduler."""
    arms: dict[str, Callable[[], Any]] = {
        "bare": lambda: None,
        "bare again": lambda: None,
        "light": lambda: Capture("bench", "light"),
        "full": lambda: Capture("bench", "full"),
        "hook that returns": SchedulerPlugin,
        "four sums": DurationSums,
        "Dask's task stream": lambda: None,
    }
    async with Scheduler(port=0, dashboard=False, validate=False) as scheduler:
        for address in ADDRESSES:
            fake_worker(scheduler, address)
        seconds: dict[str, list[float]] = {name: [] for name in arms}
        # A full collection of a process with all these imports takes 0.2 s: a lottery among arms.
        gc.collect()
        gc.freeze()
        for number in range(rounds + 1):
            for name in random.sample(list(arms), len(arms)):
                plugin = TaskStreamPlugin(scheduler) if "stream" in name else arms[name]()
                look: Callable[[], None] = lambda: None  # noqa: E731
                if isinstance(plugin, Capture):
                    scheduler.register_worker_plugin = no_workers
                    scheduler.unregister_worker_plugin = no_workers
                    await plugin.start(scheduler)
                    look = plugin._sample
                if plugin is not None:
                    scheduler.add_plugin(plugin, name="bench")
                if isinstance(plugin, Capture):
                    await clock_on(plugin)
                taken = run_tasks(scheduler, count, look)
                if number:  # the first round warms up
                    seconds[name].append(taken)
                if plugin is not None:
                    scheduler.plugins.pop("bench", None)
                if isinstance(plugin, Capture):
                    await plugin.handle_off()
                    rows = plugin._take(groups=True)["groups"]
                    assert sum(row["n_tasks"] for row in rows) == count, rows
                    await plugin.uninstall()
        scheduler.workers.clear()
    table("CPU of the scheduler's thread a task", seconds)


async def clock_on(plugin: Capture) -> None:
    """Start the clock of a capture whose workers never send a heartbeat."""
    plugin._await_heartbeats = no_workers  # type: ignore[method-assign]
    await plugin.handle_on()


async def no_workers(*args: Any, **kwargs: Any) -> dict:
    return {}


async def one_look() -> None:
    """Print what a sample of all workers and the scheduler takes."""
    print("\nOne look at all workers")
    for count in (1, 10, 50, 300):
        async with Scheduler(port=0, dashboard=False, validate=False) as scheduler:
            states = [fake_worker(scheduler, f"tcp://10.0.0.1:{i}") for i in range(count)]
            scheduler.register_worker_plugin = no_workers
            scheduler.unregister_worker_plugin = no_workers
            plugin = Capture("bench")
            await plugin.start(scheduler)
            times = []
            for number in range(50):
                for state in states:
                    state.last_seen = number + 1.0
                begin = time.thread_time()
                plugin.samples.look_at_workers()
                plugin.samples.look_at_scheduler()
                times.append(time.thread_time() - begin)
            each = statistics.median(times)
            heartbeat = 0.5 if count <= 10 else 1.0 if count < 50 else 2.0 if count < 200 else 2.5
            print(
                f"{count:>4} workers {each * 1e6:>8.0f} µs, "
                f"{each / heartbeat:.3%} of a core at a heartbeat of {heartbeat:g} s"
            )
            await plugin.uninstall()
            scheduler.workers.clear()


async def started(scheduler: Scheduler) -> Capture:
    """Return a full capture on a scheduler with fake workers, its clock on."""
    for address in ADDRESSES:
        fake_worker(scheduler, address)
    scheduler.register_worker_plugin = no_workers
    scheduler.unregister_worker_plugin = no_workers
    scheduler.broadcast = no_workers  # type: ignore[method-assign]
    capture = Capture("bench")
    await capture.start(scheduler)
    scheduler.add_plugin(capture, name="bench")
    await clock_on(capture)
    return capture


def main() -> None:
    """Print everything, or the parts named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = ("state", "jobs", "turns", "keeping", "workers")
    parser.add_argument("part", nargs="*", choices=[*parts, []], help="by default all")
    parser.add_argument("--rounds", type=int, default=21, help="of the state machine; jobs a third")
    parser.add_argument("--tasks", type=int, default=4000, help="a round of the state machine")
    parser.add_argument("--job", nargs="+", choices=[*JOBS], default=[*JOBS], help="of jobs")
    parser.add_argument("--arm", nargs="+", choices=ARMS, default=ARMS, help="of jobs and turns")
    parser.add_argument("--minutes", type=float, default=20, help="of turns")
    parser.add_argument("--quick", action="store_true", help="a few rounds: does it run?")
    given = parser.parse_args()
    if given.arm[0] != "bare" and "jobs" in (given.part or parts):
        parser.error("--arm must begin with bare: all others are told beside it")
    rounds, count = (3, 500) if given.quick else (given.rounds, given.tasks)
    chosen = given.part or parts
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", message=r"(?s)\s*Port \d+ is already in use")
    if "state" in chosen:
        asyncio.run(state_machine(rounds, count))
    if "jobs" in chosen:
        size = 0.02 if given.quick else 1.0
        end_to_end(max(3, rounds // 3), size, given.job, given.arm)
    if "turns" in chosen:
        # The bare arm is one cluster against the other: the noise in which the others stand.
        turns(0.2 if given.quick else given.minutes, [arm for arm in TURNS if arm in given.arm])
    if "keeping" in chosen:
        counts = (1000, 5000) if given.quick else (1000, 100_000, 1_000_000)
        asyncio.run(keeping(counts, started, run_tasks))
    if "workers" in chosen:
        asyncio.run(one_look())


if __name__ == "__main__":
    main()
