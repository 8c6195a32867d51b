"""Measure the capture: ``python benchmarks/capture.py [PART ...] [--rounds N] [--quick]``.

Prints results, asserts nothing. Arms run interleaved, in a new random order each round, and the
bare arm runs twice: the difference between the two is the noise of all other numbers.

``state``: the scheduler's state machine alone, no network: CPU time of its thread per task.
``submission``: what recording the graph adds per task when a client submits it.
``jobs``: whole jobs on a LocalCluster with two processes, compared with captures of other projects.
``alternating``: the trivial job on two clusters, captured alternately, for high precision.
``storage``: the cost of the end of a capture, from a thousand to a million tasks.
``workers``: one sample of all workers, by number of workers.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import sys
import time
import warnings
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

from _capture_end_to_end import ARMS, JOBS, end_to_end  # noqa: E402
from _capture_storage import storage  # noqa: E402
from _capture_state import fake_worker, no_workers, state_machine  # noqa: E402
from _capture_submission import submission  # noqa: E402
from _capture_alternating import alternating  # noqa: E402
from distributed import Scheduler  # noqa: E402

from benchkit.measure.capture import CapturePlugin  # noqa: E402

ALTERNATING_ARMS = ("full", "bare", "light")


async def sample_once() -> None:
    """Print the time of one sample of all workers and the scheduler."""
    print("\nOne sample of all workers")
    for count in (1, 10, 50, 300):
        async with Scheduler(port=0, dashboard=False, validate=False) as scheduler:
            states = [fake_worker(scheduler, f"tcp://10.0.0.1:{i}") for i in range(count)]
            scheduler.register_worker_plugin = no_workers
            scheduler.unregister_worker_plugin = no_workers
            plugin = CapturePlugin("bench")
            await plugin.start(scheduler)
            times = []
            for number in range(50):
                for state in states:
                    state.last_seen = number + 1.0
                begin = time.thread_time()
                plugin.samples.sample_workers()
                plugin.samples.sample_scheduler()
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
    """Print all parts, or those that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = ("state", "submission", "jobs", "alternating", "storage", "workers")
    parser.add_argument("part", nargs="*", choices=[*parts, []], help="by default all")
    parser.add_argument("--rounds", type=int, default=21, help="of the state machine; jobs a third")
    parser.add_argument("--tasks", type=int, default=8000, help="a round of the state machine")
    parser.add_argument("--job", nargs="+", choices=[*JOBS], default=[*JOBS], help="of jobs")
    parser.add_argument("--arm", nargs="+", choices=ARMS, default=ARMS, help="arms of jobs")
    parser.add_argument("--minutes", type=float, default=20, help="duration of alternating")
    parser.add_argument("--quick", action="store_true", help="a few rounds, to test that it runs")
    given = parser.parse_args()
    parts = given.part or parts
    if given.arm[0] != "bare" and "jobs" in parts:
        parser.error("--arm must begin with bare: all other arms are compared with it")
    rounds, count = (3, 500) if given.quick else (given.rounds, given.tasks)
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", message=r"(?s)\s*Port \d+ is already in use")
    if "state" in parts:
        asyncio.run(state_machine(rounds, count))
    if "submission" in parts:
        asyncio.run(submission(rounds, count))
    if "jobs" in parts:
        size = 0.02 if given.quick else 1.0
        end_to_end(max(3, rounds // 3), size, given.job, given.arm)
    if "alternating" in parts:
        # The bare arm compares the two clusters without a capture: the noise of the other arms.
        alternating(
            0.2 if given.quick else given.minutes,
            [arm for arm in ALTERNATING_ARMS if arm in given.arm],
        )
    if "storage" in parts:
        counts = (1000, 5000) if given.quick else (1000, 100_000, 1_000_000)
        asyncio.run(storage(counts))
    if "workers" in parts:
        asyncio.run(sample_once())


if __name__ == "__main__":
    main()
