"""Measure the capture: ``python benchmarks/capture.py [PART ...] [--rounds N] [--quick]``.

Prints results, asserts nothing. Arms run interleaved, in a new random order each round, and the
bare arm runs twice: the difference between the two is the noise of all other numbers. Whole jobs:
`benchkit compare` of runs with capture levels full and off (docs/explanation/capture.md).

``state``: the scheduler's state machine alone, no network: CPU time of its thread per task.
``submission``: what recording the graph adds per task when a client submits it.
``storage``: the cost of the end of a capture, from a thousand to a million tasks.
``workers``: one sample of all workers, by number of workers.
"""

import argparse
import asyncio
import gc
import logging
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from itertools import count as counting
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

import dask  # noqa: E402
import numpy as np  # noqa: E402
from dask._task_spec import Task  # noqa: E402
from distributed import Scheduler  # noqa: E402
from distributed.diagnostics.plugin import SchedulerPlugin  # noqa: E402
from distributed.diagnostics.task_stream import TaskStreamPlugin  # noqa: E402
from scipy import stats  # noqa: E402

from benchkit import Store  # noqa: E402
from benchkit.measure.capture import CapturePlugin  # noqa: E402
from benchkit.measure.capture.task_graph import TaskGraph  # noqa: E402
from benchkit.measure.capture.task_groups import TaskGroups  # noqa: E402
from benchkit.measure.recording import RecordingWriter  # noqa: E402
from benchkit.measure.run_ids import new_id  # noqa: E402
from benchkit.store.build.run_from_recording import run_from_recording  # noqa: E402
from benchkit.store.runfile import read_record  # noqa: E402
from validation.scheduler_rig import (  # noqa: E402
    ADDRESSES,
    WARM_UP,
    capturing,
    fake_worker,
    no_workers,
    run_tasks,
)

#: Tasks between two samples: 0.25 s at 2000 tasks a second.
SAMPLE_EVERY = 500
#: Samples per piece: a full capture converts 2000 tasks to columns at once.
N_SAMPLES = 4
#: Fixed pieces of work run around and within each piece. If one of them takes this many times the
#: shortest time measured so far, another process used the machine: omit the piece in every arm.
DISTURBED = 1.15
#: Undisturbed pieces that each arm needs per round; turns after which a round ends without them.
MIN_PIECES, MAX_TURNS = 3, 12
#: Dependencies of each task: those of a tree reduction, a rechunk and a map.
WIDTHS = (0, 1, 2, 8)
#: Tasks of one group in a row.
LAYER = 100
#: Pieces of a round in which the arms take turns.
PIECES = 16
_numbers = counting()
#: Tasks between two drains: one second of a scheduler that does little else.
DRAIN_EVERY = 5000


class DurationSums(SchedulerPlugin):
    """Capture that adds up durations by action and keeps nothing else, for comparison."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Add the durations of a finished task to the sums."""
        for entry in kwargs.get("startstops") or ():
            seconds = max(0, entry["stop"] - entry["start"])
            self.sums[entry["action"]] = self.sums.get(entry["action"], 0.0) + seconds


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


async def submission(rounds: int, count: int) -> None:
    """Print CPU per task of creating the tasks of a graph, bare and recorded."""
    with dask.config.set({"distributed.scheduler.worker-ttl": None}):
        scheduler = Scheduler(port=0, dashboard=False, validate=False)
    async with scheduler:
        for width in WIDTHS:
            seconds: dict[str, list[float]] = {"bare": [], "bare again": [], "full": []}
            gc.collect()
            gc.freeze()
            for number in range(rounds + 1):
                pieces: dict[str, list[float]] = {name: [] for name in seconds}
                for _ in range(PIECES):
                    for name in random.sample(list(seconds), len(seconds)):
                        taken = _submit(scheduler, count // PIECES, width, name == "full")
                        pieces[name].append(taken)
                if number:  # the first round warms up
                    for name, taken_s in pieces.items():
                        seconds[name].append(statistics.median(taken_s))
            table(f"CPU per task of a submission, {width} dependencies a task", seconds)


def _submit(scheduler: Scheduler, count: int, width: int, recorded: bool) -> float:
    """Return thread CPU s per task of creating `count` tasks, and of recording them."""
    start = next(_numbers)
    keys = [(f"layer-{start}-{n // LAYER}", n % LAYER) for n in range(count)]
    graph = TaskGraph(scheduler, "bench", TaskGroups(), lambda: None, _fail)
    if recorded:
        graph.start()
    specs = [Task(key, abs, -1) for key in keys]
    begin = time.thread_time()
    tasks: list[Any] = []
    for number, (key, spec) in enumerate(zip(keys, specs, strict=True)):
        task = scheduler.new_task(key, spec, "released")
        task.priority = (0, 1, number)
        for other in tasks[max(0, number - width) :]:
            task.add_dependency(other)
        tasks.append(task)
    if recorded:
        vars(scheduler)["benchkit_task_graphs"].add_submission(time.time(), keys[-1:], None)
    taken = (time.thread_time() - begin) / count
    if recorded:
        graph.drain()
        graph.stop()
        assert graph.n_nodes == count
    scheduler.transitions(dict.fromkeys(keys, "forgotten"), stimulus_id="bench")
    return taken


def _fail(where: str, error: Any) -> None:
    raise AssertionError(f"{where}: {error}")


async def storage(counts: tuple[int, ...]) -> None:
    """Print times and sizes for each number of tasks; check that the file holds all of them."""
    print("\nTransfer and storage")
    print(
        f"{'tasks':>9} {'median drain':>16} {'last drain':>10} {'add to store':>13} "
        f"{'run file':>10} {'per task':>9} {'read record':>12} {'read tasks':>11}"
    )
    for count in counts:
        async with Scheduler(port=0, dashboard=False, validate=False) as scheduler:
            for address in ADDRESSES:
                fake_worker(scheduler, address)
            capture = CapturePlugin("bench")
            async with capturing(scheduler, capture):
                await _store_run(scheduler, capture, count)
            scheduler.workers.clear()


async def _store_run(scheduler: Scheduler, capture: CapturePlugin, count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        writer = RecordingWriter(Path(folder), new_id())
        writer.head(id=new_id(), started=time.time(), workload="bench.storage")
        drains, done = [], 0
        while done < count:
            step = min(DRAIN_EVERY, count - done)
            run_tasks(scheduler, step, capture._sample)
            done += step
            begin = time.perf_counter()
            reply = await capture.handle_drain(ack=capture.sequence)
            writer.segment(reply["tables"])
            drains.append(time.perf_counter() - begin)
        t_off = (await capture.handle_off())["t_off"]
        begin = time.perf_counter()
        for segment in (await capture.handle_end(ack=capture.sequence))["segments"]:
            writer.segment(segment["tables"])
        last = time.perf_counter() - begin
        writer.tail(outcome="ok", t_on=capture.t_on, t_off=t_off)
        _print(count, drains, last, writer.path, Path(folder) / "store")


def _print(count: int, drains: list[float], last: float, recording: Path, folder: Path) -> None:
    store = Store(folder)
    begin = time.perf_counter()
    run_id = store.add(run_from_recording(recording))
    added = time.perf_counter() - begin
    run: Any = store.open(run_id).tree
    assert run["tasks"].sizes["task"] == count, run["tasks"].sizes
    assert run["tasks"].attrs["n_dropped"] == 0
    path = max(folder.rglob(f"*{run_id}*"), key=lambda file: file.stat().st_size)
    size = path.stat().st_size
    times = {}
    for name, read in {
        "summary": lambda: read_record(path),
        "stream": lambda: store.open(run_id).tree["tasks"].to_dataset().load(),
    }.items():
        each = []
        for _ in range(7):
            begin = time.perf_counter()
            read()
            each.append(time.perf_counter() - begin)
        times[name] = sorted(each)[3]
    print(
        f"{count:>9} {1e3 * sorted(drains)[len(drains) // 2]:>13.1f} ms {1e3 * last:>7.0f} ms "
        f"{1e3 * added:>10.0f} ms {size / 2**20:>6.2f} MiB {size / count:>7.1f} B "
        f"{1e3 * times['summary']:>9.1f} ms {1e3 * times['stream']:>8.0f} ms",
        flush=True,
    )


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


def table(title: str, seconds: dict[str, list[float]]) -> None:
    """Print medians per task and differences to the bare arm of the same round, 95 % intervals.

    The interval is that of the Hodges-Lehmann estimate. The last column is the
    difference between the minima over all rounds: other processes on the machine can only add time.
    """
    bare = seconds["bare"]
    print(f"\n{title} ({len(bare)} rounds)")
    print(
        f"{'arm':<20} {'median':>10} {'minus bare':>16} {'estimate, 95 % interval':>28} "
        f"{'ratio':>7} {'of minima':>13}"
    )
    for name, values in seconds.items():
        more = [(a - b) * 1e6 for a, b in zip(values, bare, strict=True)]
        estimate, low, high = hodges_lehmann(np.asarray(more))
        text = f"{estimate:.2f} ({low:.2f} .. {high:.2f}) µs"
        ratio = statistics.median(a / b for a, b in zip(values, bare, strict=True))
        print(
            f"{name:<20} {statistics.median(values) * 1e6:>7.1f} µs "
            f"{statistics.median(more):>13.2f} µs {text:>28} {ratio:>7.3f} "
            f"{(min(values) - min(bare)) * 1e6:>10.2f} µs",
            flush=True,
        )


def hodges_lehmann(values: np.ndarray, level: float = 0.95) -> tuple[float, float, float]:
    """Return the median of all Walsh averages, and the interval of the signed-rank test.

    Hollander, Wolfe, Chicken: Nonparametric Statistical Methods, 3.2 and 3.3, large samples.
    """
    first, second = np.triu_indices(len(values))
    walsh = np.sort((values[first] + values[second]) / 2)
    n = len(values)
    reach = stats.norm.ppf((1 + level) / 2) * np.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    place = max(0, int(n * (n + 1) / 4 - reach))
    return float(np.median(walsh)), float(walsh[place]), float(walsh[-1 - place])


def main() -> None:
    """Print all parts, or those that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = ("state", "submission", "storage", "workers")
    parser.add_argument("part", nargs="*", choices=[*parts, []], help="by default all")
    parser.add_argument("--rounds", type=int, default=21, help="of the state machine")
    parser.add_argument("--tasks", type=int, default=8000, help="a round of the state machine")
    parser.add_argument("--quick", action="store_true", help="a few rounds, to test that it runs")
    given = parser.parse_args()
    rounds, count = (3, 500) if given.quick else (given.rounds, given.tasks)
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    works: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
        "state": lambda: state_machine(rounds, count),
        "submission": lambda: submission(rounds, count),
        "storage": lambda: storage((1000, 5000) if given.quick else (1000, 100_000, 1_000_000)),
        "workers": sample_once,
    }
    for part in given.part or parts:
        asyncio.run(works[part]())


if __name__ == "__main__":
    main()
