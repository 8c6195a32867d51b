"""What the capture costs: ``python benchmarks/capture.py [--rounds N] [--tasks N] [--quick]``.

Prints, asserts nothing. Arms run interleaved, in a new random order each round, and the bare arm
twice: what the second differs from the first is the noise in which all other numbers stand. CPU
time, not wall time: the machine may be busy with other things.

1. The scheduler's state machine alone, no network: CPU of its thread a task.
2. A LocalCluster with two processes and tasks that do nothing: CPU of scheduler and client a task.
3. What the end costs: asking the workers, the recording, and the run file.
4. One look at all workers, by their number.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import random
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

from dask._task_spec import Task  # noqa: E402
from distributed import Client, LocalCluster, Scheduler, Status, wait  # noqa: E402
from distributed.diagnostics.plugin import SchedulerPlugin  # noqa: E402
from distributed.diagnostics.task_stream import TaskStreamPlugin  # noqa: E402
from distributed.scheduler import WorkerState  # noqa: E402

from benchkit.measure.capture import Capture  # noqa: E402
from benchkit.measure.identity import new_id  # noqa: E402
from benchkit.measure.observe import Observer  # noqa: E402
from benchkit.measure.recording import RecordingWriter  # noqa: E402
from benchkit.store.netcdf import encode_tree  # noqa: E402
from benchkit.store.run import run_from_recording  # noqa: E402

ADDRESSES = ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")
LOOK_EVERY = 500  # tasks between two looks of the capture: 0.25 s at 2000 tasks a second


class FourSums(SchedulerPlugin):
    """The kind of capture that adds durations up by action, and keeps nothing else."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Add up."""
        for entry in kwargs.get("startstops") or ():
            seconds = max(0, entry["stop"] - entry["start"])
            self.sums[entry["action"]] = self.sums.get(entry["action"], 0.0) + seconds


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
    now = time.time()
    for number in range(count):
        key = f"inc-{new_number()}"
        scheduler.new_task(key, Task(key, abs, -1), "released").priority = (0, 1, number)
        scheduler.transitions({key: "waiting"}, stimulus_id="bench")
        scheduler.transitions(
            scheduler.transition(
                key,
                "memory",
                stimulus_id="task-finished-bench",
                worker=scheduler.tasks[key].processing_on.address,
                nbytes=28,
                type=b"",
                typename="int",
                thread=1,
                startstops=[
                    {"action": "transfer", "start": now, "stop": now + 1, "source": ADDRESSES[0]},
                    {"action": "compute", "start": now, "stop": now + 1},
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
        "four sums": FourSums,
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
                    plugin.on, plugin.t_on = True, time.time()
                    look = plugin._sample
                if plugin is not None:
                    scheduler.add_plugin(plugin, name="bench-plugin")
                taken = run_tasks(scheduler, count, look)
                if number:  # the first round warms up
                    seconds[name].append(taken)
                if plugin is not None:
                    scheduler.plugins.pop("bench-plugin", None)
                if isinstance(plugin, Capture):
                    assert sum(counts[0] for counts in plugin.counts) == count
                    await plugin.uninstall()
        scheduler.workers.clear()
    table("CPU of the scheduler's thread a task", seconds)


async def no_workers(*args: Any, **kwargs: Any) -> dict:
    return {}


def table(title: str, seconds: dict[str, list[float]]) -> None:
    """Print medians, and differences to the bare arm of the same round with their quartiles."""
    bare = seconds["bare"]
    print(f"\n{title} ({len(bare)} rounds)")
    print(f"{'arm':<20} {'median':>10} {'more than bare':>16} {'quartiles':>20} {'ratio':>8}")
    for name, values in seconds.items():
        more = [(a - b) * 1e6 for a, b in zip(values, bare, strict=True)]
        low, middle, high = statistics.quantiles(more, n=4)
        ratio = statistics.median(a / b for a, b in zip(values, bare, strict=True))
        print(
            f"{name:<20} {statistics.median(values) * 1e6:>7.1f} µs {middle:>13.2f} µs "
            f"{low:>8.2f} .. {high:.2f} µs {ratio:>8.3f}"
        )


def end_to_end(rounds: int, count: int) -> None:
    """Print what each level adds to a task of a real cluster, and what its end costs."""
    arms = {"bare": "off", "bare again": "off", "light": "light", "full": "full"}
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    ends: dict[str, list[tuple[float, float, float, float]]] = {"light": [], "full": []}
    options = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "1 GiB"}
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(**options, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        for number in range(rounds + 1):
            for name in random.sample(list(arms), len(arms)):
                writer = RecordingWriter(Path(folder), new_id())
                writer.head(id=new_id(), started=time.time(), workload="bench.map")
                observer = Observer(client, writer, f"bench-{new_number()}", level=arms[name])
                observer.install()
                observer.clock_on()
                begin = time.process_time()
                wait(client.map(abs, range(count), pure=False))
                taken = (time.process_time() - begin) / count
                observer.clock_off()
                begin, clock = time.process_time(), time.perf_counter()
                observer.uninstall()
                ended = time.process_time() - begin, time.perf_counter() - clock
                writer.tail(outcome="ok", t_on=observer.t_on, t_off=observer.t_off)
                assert not observer.errors, observer.errors
                if number:
                    seconds[name].append(taken)
                    if name in ends:
                        begin = time.perf_counter()
                        data = encode_tree(run_from_recording(writer.path))
                        ends[name].append((*ended, time.perf_counter() - begin, len(data)))
    table(f"CPU of scheduler and client a task, {count} tasks on two workers", seconds)
    print(f"\nThe end of a run of {count} tasks, medians")
    for name, rows in ends.items():
        cpu, wall, write, size = (statistics.median(column) for column in zip(*rows, strict=True))
        print(
            f"{name:<20} {cpu * 1e3:.0f} ms CPU, {wall * 1e3:.0f} ms in all (a heartbeat is 500), "
            f"run file made in {write * 1e3:.0f} ms, {size / 1024:.0f} KiB"
        )


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
                plugin._sample()
                times.append(time.thread_time() - begin)
            each = statistics.median(times)
            heartbeat = 0.5 if count <= 10 else 1.0 if count < 50 else 2.0 if count < 200 else 2.5
            print(
                f"{count:>4} workers {each * 1e6:>8.0f} µs, "
                f"{each / heartbeat:.3%} of a core at a heartbeat of {heartbeat:g} s"
            )
            await plugin.uninstall()
            scheduler.workers.clear()


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--tasks", type=int, default=4000)
    parser.add_argument("--quick", action="store_true", help="a few rounds: does it run?")
    given = parser.parse_args()
    rounds, count = (3, 500) if given.quick else (given.rounds, given.tasks)
    logging.getLogger("distributed").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=r"(?s)\s*Port \d+ is already in use")
    asyncio.run(state_machine(rounds, count))
    end_to_end(max(3, rounds // 2), count // 2)
    asyncio.run(one_look())


if __name__ == "__main__":
    main()
