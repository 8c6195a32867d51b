"""Known truths about a run: scenarios that know from outside what a capture must report.

Each scenario runs a body on a real cluster while the clock is on, and returns what happened: known
sleeps, bytes and kills, clocks around the body, and memory, CPU and disk counters that the kernel
keeps for the processes, read by a thread of this process. `benchmarks/truth.py` prints the table,
`tests/store/test_truth.py` asserts part of it.

Needs Dask, NumPy and `benchkit.measure` only, so that it also runs in an environment with an old
release: ``python -m helpers.truth FOLDER LEVEL SCENARIO...`` prints one JSON line per scenario.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

__all__ = ["SCENARIOS", "Outside", "Scenario", "measure"]

#: Seconds between two looks at the processes: a tenth of the shortest spike.
OUTSIDE_TICK_S = 0.005
MB = 10**6


#: Prints rows of time and RSS of each process until its input ends. A process of its own: a thread
#: would wait for the GIL when the workers are in this process.
_WATCH = """
import json, os, select, sys, time
page, pids, rows = os.sysconf("SC_PAGE_SIZE"), sys.argv[2:], []
while True:
    row = [time.perf_counter()]
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:
                row.append(int(file.read().split()[1]) * page)
        except OSError:  # the process has ended
            row.append(0)
    rows.append(row)
    if select.select([sys.stdin], [], [], float(sys.argv[1]))[0]:
        break
    if len(rows) == 1:
        print("ready", flush=True)
print(json.dumps(rows))
"""


class Outside:
    """Memory over time, CPU and disk of processes as the kernel counts them.

    Parameters
    ----------
    pids : list of int
        Processes of the workers, each once.
    """

    def __init__(self, pids: list[int]) -> None:
        self.pids = pids

    def __enter__(self) -> Outside:
        command = [sys.executable, "-c", _WATCH, str(OUTSIDE_TICK_S), *map(str, self.pids)]
        self._watch = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._watch.stdout is not None
        self._watch.stdout.readline()
        return self

    def start(self) -> None:
        """Begin the measured time."""
        self.before = self._counters()
        self.begin = time.perf_counter()

    def stop(self) -> None:
        """End the measured time."""
        self.seconds = time.perf_counter() - self.begin
        self.after = self._counters()

    def __exit__(self, *_: object) -> None:
        rows = json.loads(self._watch.communicate()[0])
        inside = [row for row in rows if 0 <= row[0] - self.begin <= self.seconds]
        self.times = [row[0] for row in inside]
        self.rows = [row[1:] for row in inside]

    def _counters(self) -> dict[str, float]:
        ticks = os.sysconf("SC_CLK_TCK")
        cpu = disk = 0.0
        for pid in self.pids:
            try:
                with open(f"/proc/{pid}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
                cpu += (int(fields[11]) + int(fields[12])) / ticks
                with open(f"/proc/{pid}/io") as file:
                    counts = dict(line.split(": ") for line in file.read().splitlines())
                disk += int(counts["read_bytes"]) + int(counts["write_bytes"])
            except OSError:
                pass
        return {"cpu_time": cpu, "disk_bytes": disk}

    def overlap(self, spans: list[tuple[float, float]]) -> float:
        """Return the seconds of spans, from begin to end, that lie within the block."""
        end = self.begin + self.seconds
        return sum(max(0.0, min(b, end) - max(a, self.begin)) for a, b in spans)

    def truths(self, no_workers_after: float = float("inf")) -> dict[str, float]:
        """Return what the metrics of the same names must be."""
        times = self.times
        rows = zip(times, self.rows, strict=True)
        sums = [sum(row) if time <= no_workers_after else 0 for time, row in rows]
        held = [end - begin for begin, end in pairwise(times)]
        means = [(before + after) / 2 for before, after in pairwise(sums)]
        area = sum(mean * seconds for mean, seconds in zip(means, held, strict=True))
        grown = {name: self.after[name] - self.before[name] for name in self.before}
        return {
            "duration": self.seconds,
            "memory_mean": area / sum(held),
            "memory_peak": max(sums),
            "memory_peak_worker": max(map(max, self.rows)),
            **grown,
        }


@dataclass(frozen=True)
class Scenario:
    """One body with its cluster, and the metrics that it says the truth of."""

    name: str
    body: Callable[[Any, Any], dict[str, Any] | None]
    cluster: dict[str, Any]
    metrics: tuple[str, ...]
    before: Callable[[Any], Any] | None
    after: Callable[[Any, Any], dict[str, Any]] | None


SCENARIOS: dict[str, Scenario] = {}
PROCESSES = {"n_workers": 2, "threads_per_worker": 1, "processes": True}
IN_PROCESS = {"n_workers": 4, "threads_per_worker": 1, "processes": False}
MEMORY = ("memory_mean", "memory_peak", "memory_peak_worker")


def scenario(
    *metrics: str,
    cluster: dict[str, Any] = PROCESSES,
    before: Callable[[Any], Any] | None = None,
    after: Callable[[Any, Any], dict[str, Any]] | None = None,
) -> Callable[[Any], Any]:
    """Register a body; `before` runs ahead of the clock and its result is the second argument."""

    def register(body: Any) -> Any:
        SCENARIOS[body.__name__] = Scenario(body.__name__, body, cluster, metrics, before, after)
        return body

    return register


# -- memory ---------------------------------------------------------------------------------------


def _hold(n_bytes: int, seconds: float, rest_s: float = 0.0) -> None:
    """Allocate, touch every page, hold, free; a block of this size goes back to the system."""
    data = bytearray(n_bytes)
    data[::4096] = b"x" * len(data[::4096])
    time.sleep(seconds)
    del data
    time.sleep(rest_s)


def _keep(n_bytes: int) -> bytearray:
    data = bytearray(n_bytes)
    data[::4096] = b"x" * len(data[::4096])
    return data


def _nap(seconds: float, *_: Any) -> tuple[float, float]:
    """Sleep; return begin and end on the monotonic clock, which all processes share."""
    begin = time.perf_counter()
    time.sleep(seconds)
    return begin, time.perf_counter()


@scenario(*MEMORY)
def memory_spike(client: Any, _: Any) -> None:
    """200 MB for 50 ms in the middle of a run of a second."""
    client.submit(_nap, 0.5, pure=False).result()
    client.submit(_hold, 200 * MB, 0.05, 0.45, pure=False).result()


@scenario(*MEMORY)
def memory_short_run(client: Any, _: Any) -> None:
    """300 MB on both workers at the same time, in a run of 0.64 s."""
    workers = list(client.scheduler_info()["workers"])
    hold = [client.submit(_hold, 300 * MB, 0.3, 0.2, workers=w, pure=False) for w in workers]
    client.gather(hold)


@scenario(*MEMORY, before=lambda client: [])
def memory_at_the_end(client: Any, kept: list) -> None:
    """400 MB that a task makes as the run ends, and that stay."""
    client.submit(_nap, 1.0, pure=False).result()
    kept.append(client.submit(_keep, 400 * MB, pure=False))
    client.submit(len, kept[0]).result()
    time.sleep(0.1)


@scenario(*MEMORY)
def memory_moves(client: Any, _: Any) -> None:
    """100 MB on one worker, then on the other: never on both."""
    for worker in client.scheduler_info()["workers"]:
        client.submit(_hold, 100 * MB, 0.4, 0.1, workers=worker, pure=False).result()


@scenario(*MEMORY, "cpu_time", "disk_bytes", cluster=IN_PROCESS)
def workers_in_one_process(client: Any, _: Any) -> None:
    """Four workers share a process, which allocates, computes and writes."""
    futures = client.map(_spin, [0.3] * 4, pure=False)
    futures.append(client.submit(_hold, 200 * MB, 0.5, pure=False))
    futures.append(client.submit(_write, 20 * MB, pure=False))
    client.gather(futures)


@scenario("memory_mean", "memory_peak", "worker_seconds")
def workers_leave(client: Any, _: Any) -> dict[str, float]:
    """Two workers for about a second and a half in a run of 4 s."""
    begin = time.perf_counter()
    client.gather(client.map(_nap, [1.0, 1.0], pure=False))
    client.cluster.scale(0)
    while client.scheduler_info()["workers"]:
        time.sleep(0.005)
    left = time.perf_counter()
    time.sleep(2.5)
    return {"worker_seconds": 2 * (left - begin), "no_workers_after": left}


# -- time -----------------------------------------------------------------------------------------


def _spin(seconds: float) -> tuple[float, float]:
    """Use a core for `seconds` of this thread's CPU clock; return begin and end."""
    begin, end = time.perf_counter(), time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    return begin, time.perf_counter()


def _write(n_bytes: int) -> int:
    import tempfile

    with tempfile.NamedTemporaryFile(dir=".") as file:
        file.write(os.urandom(n_bytes))
        file.flush()
        os.fsync(file.fileno())
    return n_bytes


def _fail(seconds: float, number: int, path: str = "", n_failures: int = 9) -> tuple[float, float]:
    """Fail after a nap, `n_failures` times; write begin and end of each failure to a file."""
    begin, end = _nap(seconds)
    lines = 0
    if path:
        with open(path, "a+") as file:
            file.seek(0)
            lines = len(file.readlines())
            if lines < n_failures:
                file.write(f"{begin} {end}\n")
    if lines < n_failures:
        raise ValueError(f"planned {number}")
    return begin, end


def _failures(path: str) -> float:
    """Return the seconds of the failures in a file, and remove it."""
    with open(path) as file:
        rows = [line.split() for line in file]
    os.remove(path)
    return sum(float(end) - float(begin) for begin, end in rows)


@scenario("duration", "compute_time", "idle_time", "cpu_time")
def naps_and_work(client: Any, _: Any) -> dict[str, float]:
    """Eight naps and two seconds of CPU."""
    naps = client.gather(client.map(_nap, [0.25] * 8, pure=False))
    return {"spans": naps + client.gather(client.map(_spin, [1.0] * 2, pure=False))}


@scenario("failed_time", "compute_time")
def tasks_that_fail(client: Any, _: Any) -> dict[str, float]:
    """Four tasks that raise after 0.3 s; their futures are released."""
    from distributed import wait

    path = os.path.abspath(f"failures-{time.time_ns()}")
    wait(client.map(_fail, [0.3] * 4, range(4), path=path, pure=False))
    return {"failed_time": _failures(path), "spans": []}


@scenario("failed_time", "compute_time", "n_tasks")
def tasks_that_are_retried(client: Any, _: Any) -> dict[str, float]:
    """Two failed attempts of 0.3 s, then a good one."""
    path = os.path.abspath(f"failures-{time.time_ns()}")
    good = client.submit(_fail, 0.3, 0, path, 2, retries=3, pure=False).result()
    return {"failed_time": _failures(path), "spans": [good], "n_tasks": 1}


def _wait_outside() -> list:
    from distributed import get_client, secede

    begin = time.perf_counter()
    client = get_client()
    futures = client.map(_nap, [0.25] * 4, pure=False)
    secede()
    return [(begin, time.perf_counter()), *client.gather(futures)]


@scenario("compute_time", "idle_time")
def tasks_that_secede(client: Any, _: Any) -> dict[str, float]:
    """Two tasks leave their threads and wait for eight naps: their wait is no computing."""
    waits = client.gather([client.submit(_wait_outside, pure=False) for _ in range(2)])
    return {"spans": [span for spans in waits for span in spans]}


@scenario("compute_time", "idle_time", before=lambda client: _started(client, 2.0, 0.5))
def work_from_before(client: Any, futures: list) -> dict[str, float]:
    """The clock goes on 0.5 s after two naps of two seconds started."""
    return {"spans": client.gather(futures)}


@scenario(
    "compute_time",
    "idle_time",
    before=lambda client: [],
    after=lambda client, kept: {"spans": client.gather(kept)},
)
def work_that_goes_on(client: Any, kept: list) -> None:
    """The clock goes off 0.5 s after two naps of a second and a half started."""
    kept += _started(client, 1.5, 0.5)


def _started(client: Any, seconds: float, ahead_s: float) -> list:
    futures = client.map(_nap, [seconds] * 2, pure=False)
    time.sleep(ahead_s)
    return futures


class _Counter:
    def nap(self, seconds: float) -> float:
        time.sleep(seconds)
        return seconds


@scenario("actor_time", before=lambda client: client.submit(_Counter, actor=True).result())
def actors(client: Any, counter: Any) -> dict[str, float]:
    """Three calls of 0.3 s of an actor's method."""
    for _ in range(3):
        counter.nap(0.3).result()
    return {"actor_time": 0.9}


def _step_clock(dask_scheduler: Any, by_s: float) -> None:
    """Set the scheduler's wall clock, which `_wrap_clock` has replaced."""
    time.time.ahead += by_s


@scenario("duration", "worker_seconds")
def clock_set_back(client: Any, _: Any) -> dict[str, float]:
    """The wall clock of the scheduler's machine is set back 5 s in the middle of the run."""
    begin = time.perf_counter()
    client.gather(client.map(_nap, [0.8] * 2, pure=False))
    client.run_on_scheduler(_step_clock, by_s=-5.0)
    client.gather(client.map(_nap, [0.8] * 2, pure=False))
    return {"worker_seconds": 2 * (time.perf_counter() - begin)}


def _block_scheduler(dask_scheduler: Any, seconds: float) -> None:
    dask_scheduler.loop.asyncio_loop.call_later(0.02, time.sleep, seconds)


@scenario("duration")
def scheduler_blocked_at_the_end(client: Any, _: Any) -> None:
    """The scheduler's loop blocks for a second just as the run ends."""
    client.submit(_nap, 0.5, pure=False).result()
    client.run_on_scheduler(_block_scheduler, seconds=1.0)
    time.sleep(0.05)


# -- counts and bytes -----------------------------------------------------------------------------


@scenario("n_tasks")
def failures_that_are_released(client: Any, _: Any) -> dict[str, float]:
    """Forty rounds of five failing tasks whose futures are released at once."""
    from distributed import wait

    for _ in range(40):
        wait(client.map(_fail, [0.0] * 5, range(5), pure=False))
    return {"n_tasks": 200}


@scenario("n_tasks")
def scattered_data(client: Any, _: Any) -> dict[str, float]:
    """Scattered data are no tasks."""
    kept = client.scatter(list(range(4)))
    client.submit(sum, kept, pure=False).result()
    return {"n_tasks": 1}


def _noise(n_bytes: int) -> Any:
    import numpy

    return numpy.frombuffer(os.urandom(n_bytes), "u1")


@scenario("transfer_bytes", "n_transfers")
def transfers(client: Any, _: Any) -> dict[str, float]:
    """100 MB from one worker to the other; the last 50 MB end with the run."""
    first, second = list(client.scheduler_info()["workers"])
    for _ in range(2):
        data = client.submit(_noise, 50 * MB, workers=first, pure=False)
        client.submit(len, data, workers=second, pure=False).result()
    return {"transfer_bytes": 100 * MB, "n_transfers": 2}


@scenario("p2p_bytes", cluster={**PROCESSES, "memory_limit": "2 GiB"})
def p2p_shuffle(client: Any, _: Any) -> dict[str, float]:
    """Rechunk 128 MB across all chunks by P2P: half of the bytes change the worker."""
    import dask
    import dask.array as da

    with dask.config.set({"array.rechunk.method": "p2p", "optimization.fuse.active": False}):
        array = da.random.random((4000, 4000), chunks=(500, 4000)).rechunk((4000, 500))
        array.sum().compute()
    return {"p2p_bytes": 4000 * 4000 * 8}


@scenario("gil_contention_mean", before=lambda client: _fight(client, 1.5))
def gil_before_the_clock(client: Any, _: Any) -> dict[str, float]:
    """Threads fight for the GIL before the clock, not while it is on."""
    client.submit(_nap, 2.0, pure=False).result()
    return {"gil_contention_mean": 0.0}


def _fight(client: Any, seconds: float) -> None:
    client.run(_fight_here, seconds)


def _fight_here(seconds: float) -> None:
    def spin() -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass

    threads = [threading.Thread(target=spin) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@scenario("n_workers_lost", cluster={**PROCESSES, "n_workers": 3})
def idle_worker_is_killed(client: Any, _: Any) -> dict[str, float]:
    """A worker that holds results but runs nothing is killed."""
    import signal

    kept = client.map(_noise, [1000] * 9, pure=False)
    client.gather(client.map(len, kept))
    pids = client.run(os.getpid)
    os.kill(next(iter(pids.values())), signal.SIGKILL)
    time.sleep(1.0)
    client.gather(client.map(len, kept, pure=False))
    return {"n_workers_lost": 1}


@scenario("n_workers_lost", "n_tasks_recomputed")
def cluster_restarts(client: Any, _: Any) -> dict[str, float]:
    """The same keys are asked for again after a restart: nothing was lost."""
    client.gather(client.map(_nap, [0.01] * 10, key="same"))
    client.restart()
    client.gather(client.map(_nap, [0.01] * 10, key="same"))
    return {"n_workers_lost": 0, "n_tasks_recomputed": 0}


@scenario("spilled_bytes", "disk_bytes", cluster={**PROCESSES, "memory_limit": "256 MiB"})
def spill(client: Any, _: Any) -> dict[str, float]:
    """Results of four times the memory: what does not fit is on disk."""
    from distributed import wait

    wait(client.map(_noise, [20 * MB] * 40, pure=False))
    time.sleep(1.5)  # the memory monitor writes until the memory is below its target
    return {}


# -- running one ----------------------------------------------------------------------------------


def _wrap_clock() -> None:
    """Replace `time.time` before distributed imports it, so that a scenario can set the clock."""
    real = time.time

    def wrapped() -> float:
        return real() + wrapped.ahead

    wrapped.ahead = 0.0

    # Pickled by reference, so that another process takes its own clock.
    wrapped.__module__, wrapped.__name__, wrapped.__qualname__ = "time", "time", "time"
    time.time = wrapped


@contextmanager
def _cluster(options: dict[str, Any]) -> Iterator[Any]:
    from distributed import Client, LocalCluster

    defaults = {"dashboard_address": None, "memory_limit": "2 GiB"}
    with LocalCluster(**{**defaults, **options}) as cluster, Client(cluster) as client:
        if options["n_workers"]:
            client.wait_for_workers(options["n_workers"])
        yield client


def measure(chosen: Scenario, folder: str | Path, level: str = "full") -> dict[str, Any]:
    """Run one scenario on a cluster of its own; return its recording's path and its truths."""
    from benchkit.measure.capture_client import Observer
    from benchkit.measure.recording import RecordingWriter
    from benchkit.measure.run_ids import new_id

    with _cluster(chosen.cluster) as client:
        prepared = chosen.before(client) if chosen.before else None
        pids = sorted(set(client.run(os.getpid).values()))
        writer = RecordingWriter(Path(folder), new_id())
        name = f"truth.{chosen.name}"
        writer.head(id=new_id(), started=time.time(), workload=name, capture=level)
        observer = Observer(client, writer, f"truth-{writer.path.name}", level=level)
        observer.install()
        with Outside(pids) as outside:
            observer.clock_on()
            outside.start()
            known = chosen.body(client, prepared) or {}
            outside.stop()
            observer.clock_off()
        observer.uninstall()
        if chosen.after:
            known |= chosen.after(client, prepared)
        writer.tail(
            outcome="ok",
            error="",
            t_on=observer.t_on,
            t_off=observer.t_off,
            clock_step_s=observer.clock_step_s,
            capture_errors=observer.errors,
            client_seconds=outside.seconds,
        )
    truths = outside.truths(known.pop("no_workers_after", float("inf"))) | known
    if "spans" in known:
        busy = outside.overlap(known["spans"])
        n_threads = chosen.cluster["n_workers"] * chosen.cluster["threads_per_worker"]
        truths["compute_time"] = busy
        busy += known.get("failed_time", 0.0)
        truths["idle_time"] = n_threads * outside.seconds - busy
    return {
        "scenario": chosen.name,
        "level": level,
        "path": str(writer.path),
        "truths": {name: truths[name] for name in chosen.metrics if name in truths},
    }


if __name__ == "__main__":
    _wrap_clock()
    out, capture_level, *names = sys.argv[1:]
    for scenario_name in names or SCENARIOS:
        print(json.dumps(measure(SCENARIOS[scenario_name], out, capture_level)), flush=True)
