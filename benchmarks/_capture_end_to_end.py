"""Measure the cost of a capture for whole jobs on a real cluster, compared with other captures."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import dask.array as da
from _capture_tables import bound
from distributed import Client, LocalCluster, performance_report, wait
from distributed.diagnostics import MemorySampler
from distributed.diagnostics.plugin import SchedulerPlugin

from benchkit.measure.run_ids import new_id
from benchkit.measure.capture_client import Observer
from benchkit.measure.recording import RecordingWriter

__all__ = ["ARMS", "JOBS", "DurationSums", "end_to_end"]

ARMS = ("bare", "bare again", "light", "full", "sampler and sums", "performance_report")


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


class DurationSums(SchedulerPlugin):
    """Capture that adds up durations by action and keeps nothing else, for comparison."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Add the durations of a finished task to the sums."""
        for entry in kwargs.get("startstops") or ():
            seconds = max(0, entry["stop"] - entry["start"])
            self.sums[entry["action"]] = self.sums.get(entry["action"], 0.0) + seconds


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
