"""Measure `benchkit report trace`: ``python benchmarks/trace.py [--tasks N]``.

Makes a run of a reduction with dependencies, fetches and keys like those of Dask, and writes it as
a compressed trace by the command. Prints wall time, CPU time and size, and compares the sums of the
slices with those of the run. Exit code 1: a sum differs. Needs a checkout, for the tests' synthetic
runs; not for Windows.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

import numpy as np  # noqa: E402
from validation.graph_runs import MadeTask, graph_run  # noqa: E402

from benchkit.store.run import Run  # noqa: E402
from benchkit.store.store import Store  # noqa: E402

#: Workers and threads of each worker.
SHAPE = (8, 2)
#: Steps of `time.time()`, from which real runs have their times.
CLOCK_STEP_S = 2**-22


def reduction(n_tasks: int, folder: Path) -> Run:
    """Return a run in which each task of the second half needs two results of the first half."""
    random = np.random.default_rng(0)
    n_threads = SHAPE[0] * SHAPE[1]
    rounds = -(-n_tasks // n_threads)
    seconds = np.ceil(random.gamma(2.0, 0.01, (rounds, n_threads)) / CLOCK_STEP_S) * CLOCK_STEP_S
    stops = np.cumsum(seconds + CLOCK_STEP_S * 512, axis=0).ravel()[:n_tasks]
    starts = stops - seconds.ravel()[:n_tasks]
    half = n_tasks // 2
    inputs = random.integers(0, half, (n_tasks, 2))
    fetched = random.random(n_tasks) < 0.2
    tasks = []
    for number, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        name = "random_sample" if number < half else "sum"
        worker, thread = divmod(number % n_threads, SHAPE[1])
        key = f"('{name}-5f3a7c1e9b2d4f608a7c1e9b2d4f608a', {number % half}, 0)"
        needs = () if number < half else [tasks[place].key for place in set(inputs[number])]
        moved = [("transfer", start - 0.002, start)] if number >= half and fetched[number] else ()
        nbytes = 8_000_000 if number < half else 8
        tasks.append(MadeTask(key, start, stop, needs, worker, thread, moved, nbytes))
    return graph_run(
        folder, tasks, duration=float(stops.max()), n_workers=SHAPE[0], nthreads=SHAPE[1]
    )


def sums_of_trace(path: Path) -> Counter[str]:
    """Return the seconds of the slices of a trace by category."""
    sums: Counter[str] = Counter()
    with gzip.open(path, "rt") as file:
        for event in json.load(file)["traceEvents"]:
            if event["ph"] == "X":
                sums[event["cat"]] += event["dur"] / 1e6
    return sums


def sums_of_run(run: Run) -> dict[str, float]:
    """Return the seconds of computing and of fetches of a run."""
    events = run.tree["task_events"].to_dataset()
    is_transfer = events["action"].values == json.loads(events.attrs["actions"]).index("transfer")
    transfers = (events["stop"] - events["start"]).values[is_transfer]
    return {"compute": run.task_stream()["duration"].sum(), "transfer": transfers.sum()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=1_000_000)
    n_tasks = parser.parse_args().tasks
    with tempfile.TemporaryDirectory() as name:
        store, times = Path(name) / "store", []
        run = reduction(n_tasks, Path(name))
        command = [sys.executable, "-m", "benchkit", "report", "trace", Store(store).add(run.tree)]
        for number in range(3):
            path = Path(name) / f"{number}.json.gz"
            begin = time.perf_counter()
            process = subprocess.Popen(
                [*command, "-o", str(path), "--store", str(store)], stdout=subprocess.DEVNULL
            )
            _, status, usage = os.wait4(process.pid, 0)
            assert status == 0, status
            times.append((time.perf_counter() - begin, usage.ru_utime + usage.ru_stime))
        found, expected = sums_of_trace(path), sums_of_run(run)
        size = path.stat().st_size
    wall, cpu = (statistics.median(column) for column in zip(*times, strict=True))
    result = {"tasks": n_tasks, "wall_s": round(wall, 2), "cpu_s": round(cpu, 2)}
    result |= {"MB": round(size / 1e6, 1), "goal": {"wall_s": 10, "MB": 40}}
    differences = {name: found[name] - expected[name] for name in expected}
    print(json.dumps(result | {"difference of sums (s)": differences}, indent=1))
    # Each slice is rounded to the nanosecond.
    if any(abs(difference) > 1e-9 * n_tasks for difference in differences.values()):
        sys.exit("the sums of the trace differ from those of the run")


if __name__ == "__main__":
    main()
