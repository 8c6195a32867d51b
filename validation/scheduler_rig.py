"""A scheduler without a network: workers that never answer, and tasks that end at once."""

import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count as counting
from types import SimpleNamespace
from typing import Any

from dask._task_spec import Task
from distributed import Scheduler, Status
from distributed.scheduler import WorkerState

from benchkit.measure.capture import CapturePlugin, scheduler_plugin
from benchkit.measure.capture.samples import MAXIMA

ADDRESSES = ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")
#: Tasks after a change of arms that are not timed, because the caches are cold.
WARM_UP = 150

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
        name: dict.fromkeys(("cpu_time", "io_read", "io_write", *MAXIMA), 1.0),
    }
    scheduler.workers[address] = state
    scheduler.running.add(state)
    silent: Any = SimpleNamespace(send=lambda *messages: None, closed=lambda: True)
    scheduler.stream_comms[address] = silent
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
        # Recording new tasks is part of a submission, see `benchmarks/capture.py`.
        Scheduler.new_task(scheduler, key, Task(key, abs, -1), "released").priority = (0, 1, number)
        scheduler.transitions({key: "waiting"}, stimulus_id="bench")
        scheduler.transitions(
            scheduler.transition(
                key,
                "memory",
                stimulus_id="task-finished-bench",
                worker=scheduler.tasks[key].processing_on.address,  # type: ignore[union-attr]
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


@asynccontextmanager
async def capturing(scheduler: Scheduler, capture: CapturePlugin) -> AsyncIterator[None]:
    """Run a capture on a scheduler whose workers never answer and never send a heartbeat."""
    never: Any = no_workers
    scheduler.register_worker_plugin = never  # type: ignore[method-assign]
    scheduler.unregister_worker_plugin = never  # type: ignore[method-assign]
    scheduler.broadcast = never  # type: ignore[method-assign]
    await capture.start(scheduler)
    scheduler.add_plugin(capture, name="bench")
    scheduler_plugin.await_heartbeats = never
    await capture.handle_on()
    try:
        yield
    finally:
        await capture.uninstall()
        scheduler.plugins.pop("bench", None)


async def no_workers(*args: Any, **kwargs: Any) -> dict:
    """Return an empty answer in place of workers that do not exist."""
    return {}
