"""What a capture adds to a task on the scheduler's state machine: no network, no workers."""

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

from benchkit.measure.capture import CapturePlugin

__all__ = ["ADDRESSES", "capturing", "fake_worker", "no_workers", "run_tasks", "state_machine"]

ADDRESSES = ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")
#: Tasks from look to look: what 2000 tasks a second are in 0.25 s.
LOOK_EVERY = 500
#: Looks of a piece: a full capture makes columns of 2000 tasks at once.
LOOKS = 4
#: Tasks after a change of arms that nobody times: they find the caches cold.
WARM_UP = 150
#: Around and within a piece stand fixed pieces of work. Where one takes so many times the least
#: any took, a neighbour had the machine: that piece is left out, whatever its arm.
DISTURBED = 1.15
#: Pieces of an arm that a round needs, and turns of all arms after which it is told as it is.
ENOUGH, TURNS_AT_MOST = 3, 12

_numbers = counting()


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
    """Take tasks through their life, with a look at the end; return CPU s of this thread a task.

    All that was computed is forgotten then, untimed, as tasks are when a job is done: else what is
    timed is how this machine finds memory for ever more of them.
    """
    keys = [f"inc-{next(_numbers)}" for _ in range(count)]
    begin = time.thread_time()
    for number, key in enumerate(keys):
        now = time.time()
        # Other numbers each time, or a file would hold the same one a million times.
        fetched = now + random.random() / 100
        done = fetched + random.random() / 100
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
    look()
    taken = (time.thread_time() - begin) / count
    scheduler.transitions(dict.fromkeys(keys, "forgotten"), stimulus_id="bench")
    return taken


async def state_machine(rounds: int, count: int) -> None:
    """Print what each arm adds to a task on the scheduler.

    Arms change places at each turn of a round, and what a round says of an arm is the median of
    its undisturbed pieces: a machine that others share takes once or twice its time, by turns.
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
        turns = max(ENOUGH, count // (LOOKS * LOOK_EVERY))
        # A full collection of a process with all these imports takes 0.2 s: a lottery among arms.
        gc.collect()
        gc.freeze()
        speed, n_pieces, n_quiet, n_noisy = _Speed(), 0, 0, 0
        for number in range(rounds + 1):
            pieces: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
            for turn in range(max(TURNS_AT_MOST, turns)):
                for name in random.sample(list(arms), len(arms)):
                    pieces[name].append(await _piece(scheduler, arms[name](scheduler), speed))
                quiet = {name: speed.undisturbed(taken) for name, taken in pieces.items()}
                if turn >= turns - 1 and min(map(len, quiet.values())) >= ENOUGH:
                    break
            n_pieces += sum(map(len, pieces.values()))
            n_quiet += sum(map(len, quiet.values()))
            for name, taken in quiet.items():
                if number:  # the first round warms up
                    # A machine that is never quiet: all pieces, and the table shows the noise.
                    n_noisy += len(taken) < ENOUGH
                    enough = taken if len(taken) >= ENOUGH else [each for each, _ in pieces[name]]
                    seconds[name].append(statistics.median(enough))
        scheduler.workers.clear()
    print(
        f"\n{n_quiet} of {n_pieces} pieces had the machine for themselves and alone count, but in "
        f"{n_noisy} of {sum(map(len, seconds.values()))} medians, where they were too few"
    )
    table("CPU of the scheduler's thread a task", seconds)


class _Speed:
    """How fast the machine is, by fixed pieces of work of about a millisecond."""

    def __init__(self) -> None:
        self.least = float("inf")

    def now(self) -> float:
        """Return seconds of this thread for the piece of work."""
        begin = time.thread_time()
        counts: dict[int, int] = {}
        for number in range(8000):
            counts[number & 255] = counts.get(number & 127, 0) + number
        taken = time.thread_time() - begin
        self.least = min(self.least, taken)
        return taken

    def undisturbed(self, pieces: list[tuple[float, float]]) -> list[float]:
        """Return seconds a task of the pieces beside which the work took no longer than usual."""
        return [each for each, slowest in pieces if slowest < DISTURBED * self.least]


async def _piece(scheduler: Scheduler, plugin: Any, speed: _Speed) -> tuple[float, float]:
    """Return CPU seconds a task with this plugin at work, and the slowest fixed work beside it."""
    if isinstance(plugin, CapturePlugin):
        async with capturing(scheduler, plugin):
            taken = _looks(scheduler, plugin._sample, speed)
            assert not plugin.stream.rows, "what was noted is part of what is timed"
            await plugin.handle_off()
            rows = plugin._take(groups=True)["groups"]
            assert sum(row["n_tasks"] for row in rows) == WARM_UP + LOOKS * LOOK_EVERY, rows
            return taken
    if plugin is not None:
        scheduler.add_plugin(plugin, name="bench")
    taken = _looks(scheduler, lambda: None, speed)
    scheduler.plugins.pop("bench", None)
    return taken


def _looks(scheduler: Scheduler, look: Callable[[], None], speed: _Speed) -> tuple[float, float]:
    run_tasks(scheduler, WARM_UP, look)
    taken, slowest = [], speed.now()
    for _ in range(LOOKS):
        taken.append(run_tasks(scheduler, LOOK_EVERY, look))
        slowest = max(slowest, speed.now())
    return statistics.mean(taken), slowest


@asynccontextmanager
async def capturing(scheduler: Scheduler, capture: CapturePlugin) -> AsyncIterator[None]:
    """Have a capture at work on a scheduler whose workers never answer or send a heartbeat."""
    scheduler.register_worker_plugin = no_workers
    scheduler.unregister_worker_plugin = no_workers
    scheduler.broadcast = no_workers  # type: ignore[method-assign]
    await capture.start(scheduler)
    scheduler.add_plugin(capture, name="bench")
    capture._await_heartbeats = no_workers  # type: ignore[method-assign]
    await capture.handle_on()
    try:
        yield
    finally:
        await capture.uninstall()
        scheduler.plugins.pop("bench", None)


async def no_workers(*args: Any, **kwargs: Any) -> dict:
    """Answer for workers that are not there."""
    return {}
