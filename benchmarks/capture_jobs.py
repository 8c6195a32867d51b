"""Measure a capture of whole jobs on a cluster: ``python benchmarks/capture_jobs.py [PART ...]``.

``jobs``: on a LocalCluster with two processes, compared with captures of other projects.
``alternating``: tasks that do nothing on two clusters, captured alternately, for high precision.

The speed of a shared machine changes within seconds, by more than a capture costs. Therefore the
pieces are short, each is compared with its neighbour, and the captured cluster changes all the
time, so that constant differences between the two clusters cancel.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import os
import random
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import dask.array as da
import numpy as np
from capture import DurationSums, bound, interval
from distributed import Client, LocalCluster, performance_report, wait
from distributed.diagnostics import MemorySampler

from benchkit.measure.capture_client import Observer
from benchkit.measure.recording import RecordingWriter
from benchkit.measure.run_ids import new_id

ALTERNATING_ARMS = ("full", "bare", "light")
ARMS = ("bare", "bare again", "light", "full", "sampler and sums", "performance_report")
TASKS = 200
#: Pairs of pieces before the other cluster is captured.
PAIRS = 20


def trivial(client: Client, size: float) -> None:
    """Run 2000 tasks that do nothing."""
    wait(client.map(abs, range(int(2000 * size)), pure=False))


def rechunk(client: Client, size: float) -> None:
    """Rechunk a GiB from rows to columns."""
    side = int((2**27 * size) ** 0.5)
    array = da.random.random((side, side), chunks=(side // 32 or 1, side))
    wait(array.rechunk((side, side // 32 or 1)).sum(axis=0).persist())


def short(client: Client, size: float) -> None:
    """Run 2000 tasks of 5 ms."""
    wait(client.map(time.sleep, [0.005] * int(2000 * size), pure=False))


#: Each job with the least number of repetitions. Many small pieces, with the arms interleaved, are
#: more precise than a few large ones: neighbouring pieces run at the same machine speed.
JOBS: dict[str, tuple[Callable[[Client, float], None], int]] = {
    "trivial": (trivial, 50),  # 100 000 tasks in all
    "rechunk": (rechunk, 1),
    "short": (short, 1),
}


@contextlib.contextmanager
def capturing(name: str, client: Client, folder: Path) -> Iterator[None]:
    """Run the code inside the block with the capture of one arm."""
    if name in ("light", "full"):
        writer = RecordingWriter(folder, new_id())
        writer.head(id=new_id(), started=time.time(), workload="bench.job")
        observer = Observer(client, writer, f"bench-{new_id()}", level=name)
        observer.install()
        observer.clock_on()
        yield
        observer.clock_off()
        observer.uninstall()
        assert not observer.errors, observer.errors
    elif name == "sampler and sums":
        client.register_plugin(DurationSums(), name="sums")
        sampler = MemorySampler()
        with sampler.sample("bench", client=client, measure="process", interval=0.5):
            yield
        client.unregister_scheduler_plugin("sums")
    elif name == "performance_report":
        with client.as_current(), performance_report(filename=str(folder / "report.html")):
            yield
    else:
        yield


def cpu_seconds() -> float:
    """Return CPU seconds of this process (scheduler and client); workers run in others."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def end_to_end(
    rounds: int, size: float, names: Sequence[str] = tuple(JOBS), arms: Sequence[str] = ARMS
) -> None:
    """Print the wall time and the scheduler's CPU time of each job with each arm.

    The time to install and remove a capture, outside the clock of a run, is a separate column.
    """
    for title in names:
        job, least = JOBS[title]
        count = max(rounds, int(least * size)) + 1  # the first warms up
        done: list[dict[str, tuple[float, float, float]]] = []
        with contextlib.suppress(KeyboardInterrupt):  # then print the results so far
            for taken in _rounds(job, size, arms, count):
                done.append(taken)
                print(f"\r{title}: {len(done)} of {count}", end="", file=sys.stderr)
        print(file=sys.stderr)
        del done[:1]
        if len(done) < 2:
            return
        wall, cpu, around = (
            {name: [taken[name][place] for taken in done] for name in arms} for place in range(3)
        )
        bound(f"{job.__doc__} Wall time", wall)
        bound(f"{job.__doc__} CPU time of scheduler and client", cpu)
        apart = ", ".join(f"{name} {sorted(s)[len(s) // 2]:.2f} s" for name, s in around.items())
        print(f"before and after, medians: {apart}", flush=True)


def _stay_on(cores: list[int]) -> None:
    """Pin all threads of this process, present and future, to some cores."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), cores)


def _rounds(
    job: Callable[[Client, float], None], size: float, arms: Sequence[str], count: int
) -> Iterator[dict[str, tuple[float, float, float]]]:
    """Yield for each round, by arm: seconds of the job, its CPU seconds, seconds around the job."""
    options = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "1.5 GiB"}
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(**options, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        # Without pinning, the system moves processes between cores: the time of the same job then
        # varies by 15 % between repetitions, and by 4 % with the scheduler on its own core.
        if hasattr(os, "sched_getaffinity") and len(cores := sorted(os.sched_getaffinity(0))) > 1:
            client.run(_stay_on, cores[1:])
            _stay_on(cores[:1])
        gc.collect()
        gc.freeze()
        for _ in range(count):
            taken = {}
            for name in random.sample(arms, len(arms)):
                while cluster.scheduler.tasks:  # wait until tasks of the last arm are released
                    time.sleep(0.02)
                begin = time.perf_counter()
                with capturing(name, client, Path(folder)):
                    on, used = time.perf_counter(), cpu_seconds()
                    job(client, size)
                    off, used = time.perf_counter(), cpu_seconds() - used
                end = time.perf_counter()
                taken[name] = off - on, used, end - off + on - begin
            yield taken


def alternating(minutes: float, arms: Sequence[str]) -> None:
    """Print what each arm, bare included, adds to the wall time of tasks that do nothing."""
    options = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "1.5 GiB"}
    effects: dict[str, list[float]] = {arm: [] for arm in arms}
    n_tasks = 0
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        clusters = [
            stack.enter_context(LocalCluster(**options, dashboard_address=":0")) for _ in range(2)
        ]
        clients = [stack.enter_context(Client(cluster)) for cluster in clusters]
        for client in clients:
            _piece(client)
        gc.collect()
        gc.freeze()
        end = time.monotonic() + 60 * minutes
        with contextlib.suppress(KeyboardInterrupt):  # then print the results so far
            while time.monotonic() < end:
                for arm in arms:
                    halves = []
                    for captured in random.sample((0, 1), 2):
                        with capturing(arm, clients[captured], folder):
                            halves.append(_advantage(clients, captured))
                    effects[arm].append(float(np.mean(halves)))
                    n_tasks += 2 * PAIRS * TASKS
                status = f"{len(effects[arms[0]])} rounds, {n_tasks} tasks an arm and side"
                print(f"\r{status}", end="", file=sys.stderr)
    print(file=sys.stderr)
    print(f"\nTasks that do nothing, {TASKS} at a time, on two alternating clusters: wall time")
    print(f"{'arm':<20} {'tasks':>8} {'rounds':>7} {'difference to bare, 95 % intervals':>34}")
    for arm, values in effects.items():
        if len(values) > 1:
            count = len(values) * 2 * PAIRS * TASKS
            print(f"{arm:<20} {count:>8} {len(values):>7} {interval(np.asarray(values))}")


def _piece(client: Client) -> float:
    begin = time.perf_counter()
    wait(client.map(abs, range(TASKS), pure=False))
    return time.perf_counter() - begin


def _advantage(clients: list[Client], captured: int) -> float:
    """Return the log ratio of piece times, captured to other cluster: the median of the pairs."""
    logs = []
    for _ in range(PAIRS):
        taken = {place: _piece(clients[place]) for place in random.sample((0, 1), 2)}
        logs.append(np.log(taken[captured] / taken[1 - captured]))
    return float(np.median(logs))


def main() -> None:
    """Print all parts, or those that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = ("jobs", "alternating")
    parser.add_argument("part", nargs="*", choices=[*parts, []], help="by default all")
    parser.add_argument("--rounds", type=int, default=7, help="of jobs")
    parser.add_argument("--job", nargs="+", choices=[*JOBS], default=[*JOBS], help="of jobs")
    parser.add_argument("--arm", nargs="+", choices=ARMS, default=ARMS, help="arms of jobs")
    parser.add_argument("--minutes", type=float, default=20, help="duration of alternating")
    parser.add_argument("--quick", action="store_true", help="a few rounds, to test that it runs")
    given = parser.parse_args()
    parts = given.part or parts
    if given.arm[0] != "bare" and "jobs" in parts:
        parser.error("--arm must begin with bare: all other arms are compared with it")
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", message=r"(?s)\s*Port \d+ is already in use")
    if "jobs" in parts:
        rounds, size = (3, 0.02) if given.quick else (given.rounds, 1.0)
        end_to_end(rounds, size, given.job, given.arm)
    if "alternating" in parts:
        # The bare arm compares the two clusters without a capture: the noise of the other arms.
        arms = [arm for arm in ALTERNATING_ARMS if arm in given.arm]
        alternating(0.2 if given.quick else given.minutes, arms)


if __name__ == "__main__":
    main()
