"""Measure what a capture adds per task to the scheduler's state machine, without network."""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count as counting
from types import SimpleNamespace
from typing import Any

import dask
from _capture_end_to_end import DurationSums
from _capture_tables import table
from dask._task_spec import Task
from distributed import Scheduler, Status
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.diagnostics.task_stream import TaskStreamPlugin
from distributed.scheduler import WorkerState

from benchkit.measure.capture import CapturePlugin, scheduler_plugin

__all__ = ["ADDRESSES", "capturing", "fake_worker", "no_workers", "run_tasks", "state_machine"]

ADDRESSES = ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")
#: Tasks between two samples: 0.25 s at 2000 tasks a second.
SAMPLE_EVERY = 500
#: Samples per piece: a full capture converts 2000 tasks to columns at once.
N_SAMPLES = 4
#: Tasks after a change of arms that are not timed, because the caches are cold.
WARM_UP = 150
#: Fixed pieces of work run around and within each piece. If one of them takes this many times the
#: shortest time measured so far, another process used the machine: omit the piece in every arm.
DISTURBED = 1.15
#: Undisturbed pieces that each arm needs per round; turns after which a round ends without them.
MIN_PIECES, MAX_TURNS = 3, 12

_numbers = counting()


def fake_worker(scheduler: Scheduler, address: str, name: str = "bench") -> WorkerState:
    """Add a worker that accepts messages and never answers."""
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
    for plugin in scheduler.plugins.values():  # work stealing has its own list of workers
        plugin.add_worker(scheduler=scheduler, worker=address)
    scheduler.check_idle_saturated(state)
    return state


def run_tasks(scheduler: Scheduler, count: int, sample: Callable[[], None]) -> float:
    """Run tasks from release to completion, then take a sample; return thread CPU s per task.

    All tasks are forgotten afterwards, outside the timing, as after a real job. Otherwise the
    benchmark would measure how this machine allocates memory for a growing number of tasks.
    """
    keys = [f"inc-{next(_numbers)}" for _ in range(count)]
    begin = time.thread_time()
    for number, key in enumerate(keys):
        now = time.time()
        # Vary the times: otherwise a file would hold the same number a million times.
        fetched = now + random.random() / 100
        done = fetched + random.random() / 100
        # Recording new tasks is part of a submission, see `_capture_submission`.
        Scheduler.new_task(scheduler, key, Task(key, abs, -1), "released").priority = (0, 1, number)
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
    sample()
    taken = (time.thread_time() - begin) / count
    scheduler.transitions(dict.fromkeys(keys, "forgotten"), stimulus_id="bench")
    return taken


async def state_machine(rounds: int, count: int) -> None:
    """Print what each arm adds per task on the scheduler.

    The order of the arms changes in each turn of a round. The result of a round for an arm is the
    median of its undisturbed pieces: on a shared machine the same work takes up to twice as long.
    """
    arms: dict[str, Callable[[Scheduler], Any]] = {
        "bare": lambda _: None,
        "bare again": lambda _: None,
        "light": lambda _: CapturePlugin("bench", "light"),
        "full": lambda _: CapturePlugin("bench", "full"),
        "hook that returns": lambda _: SchedulerPlugin(),
        "four sums": lambda _: DurationSums(),
        "Dask's task stream": TaskStreamPlugin,
    }
    with dask.config.set({"distributed.scheduler.worker-ttl": None}):
        scheduler = Scheduler(port=0, dashboard=False, validate=False)
    async with scheduler:
        for address in ADDRESSES:
            fake_worker(scheduler, address)
        seconds: dict[str, list[float]] = {name: [] for name in arms}
        turns = max(MIN_PIECES, count // (N_SAMPLES * SAMPLE_EVERY))
        # A full collection with all these imports takes 0.2 s and would hit a random arm.
        gc.collect()
        gc.freeze()
        speed, n_pieces, n_quiet, n_noisy = _Speed(), 0, 0, 0
        for number in range(rounds + 1):
            pieces: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
            for turn in range(max(MAX_TURNS, turns)):
                for name in random.sample(list(arms), len(arms)):
                    pieces[name].append(await _piece(scheduler, arms[name](scheduler), speed))
                quiet = {name: speed.undisturbed(taken) for name, taken in pieces.items()}
                if turn >= turns - 1 and min(map(len, quiet.values())) >= MIN_PIECES:
                    break
            n_pieces += sum(map(len, pieces.values()))
            n_quiet += sum(map(len, quiet.values()))
            for name, taken in quiet.items():
                if number:  # the first round warms up
                    # On a machine that is never quiet, use all pieces; the table shows the noise.
                    n_noisy += len(taken) < MIN_PIECES
                    enough = (
                        taken if len(taken) >= MIN_PIECES else [each for each, _ in pieces[name]]
                    )
                    seconds[name].append(statistics.median(enough))
        scheduler.workers.clear()
    print(
        f"\nused only the {n_quiet} of {n_pieces} undisturbed pieces, except in "
        f"{n_noisy} of {sum(map(len, seconds.values()))} medians with too few of these"
    )
    table("CPU of the scheduler's thread per task", seconds)


class _Speed:
    """Measure the speed of the machine by fixed pieces of work of about one millisecond."""

    def __init__(self) -> None:
        self.least = float("inf")

    def now(self) -> float:
        """Return thread CPU seconds of one fixed piece of work."""
        begin = time.thread_time()
        counts: dict[int, int] = {}
        for number in range(8000):
            counts[number & 255] = counts.get(number & 127, 0) + number
        taken = time.thread_time() - begin
        self.least = min(self.least, taken)
        return taken

    def undisturbed(self, pieces: list[tuple[float, float]]) -> list[float]:
        """Return seconds per task of the pieces whose fixed work took no longer than usual."""
        return [each for each, slowest in pieces if slowest < DISTURBED * self.least]


async def _piece(scheduler: Scheduler, plugin: Any, speed: _Speed) -> tuple[float, float]:
    """Return CPU seconds per task with this plugin, and seconds of the slowest fixed work."""
    if isinstance(plugin, CapturePlugin):
        async with capturing(scheduler, plugin):
            taken = _samples(scheduler, plugin._sample, speed)
            assert not plugin.stream.rows, "converting rows must be part of the timing"
            await plugin.handle_off()
            rows = plugin._drain(groups=True)["groups"]
            assert sum(row["n_tasks"] for row in rows) == WARM_UP + N_SAMPLES * SAMPLE_EVERY, rows
            return taken
    if plugin is not None:
        scheduler.add_plugin(plugin, name="bench")
    taken = _samples(scheduler, lambda: None, speed)
    scheduler.plugins.pop("bench", None)
    return taken


def _samples(
    scheduler: Scheduler, sample: Callable[[], None], speed: _Speed
) -> tuple[float, float]:
    run_tasks(scheduler, WARM_UP, sample)
    taken, slowest = [], speed.now()
    for _ in range(N_SAMPLES):
        taken.append(run_tasks(scheduler, SAMPLE_EVERY, sample))
        slowest = max(slowest, speed.now())
    return statistics.mean(taken), slowest


@asynccontextmanager
async def capturing(scheduler: Scheduler, capture: CapturePlugin) -> AsyncIterator[None]:
    """Run a capture on a scheduler whose workers never answer and never send a heartbeat."""
    scheduler.register_worker_plugin = no_workers
    scheduler.unregister_worker_plugin = no_workers
    scheduler.broadcast = no_workers  # type: ignore[method-assign]
    await capture.start(scheduler)
    scheduler.add_plugin(capture, name="bench")
    scheduler_plugin.await_heartbeats = no_workers
    await capture.handle_on()
    try:
        yield
    finally:
        await capture.uninstall()
        scheduler.plugins.pop("bench", None)


async def no_workers(*args: Any, **kwargs: Any) -> dict:
    """Return an empty answer in place of workers that do not exist."""
    return {}
