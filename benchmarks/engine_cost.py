"""Measure the cost of recording a run in Frisky: ``benchmarks/engine_cost.py [--write-docs]``.

Each job runs in Frisky with the capture off, off once more, and full, in turn, on a local cluster
of 2 workers of 1 thread. Prints the time of the job and the CPU seconds of all processes relative
to those with the capture off, with 95 % intervals; "off again" shows the noise. On a busy machine
only the CPU seconds say something. About 5 minutes on a quiet one.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

import dask.array as da  # noqa: E402
import dask.dataframe as dd  # noqa: E402
import frisky  # noqa: E402
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import psutil  # noqa: E402
from distributed import Client, LocalCluster  # noqa: E402

import benchkit  # noqa: E402
from benchkit.analysis.effects import compare  # noqa: E402
from benchkit.formatting import format_quantity  # noqa: E402
from validation.docs_tables import show_table  # noqa: E402

TABLES = {"cost": ("job", "tasks", "takes", "time", "CPU", "time, off again", "CPU, off again")}
ARMS = ("off", "off again", "full")
N_SHORT = 10_000


def increment(number: int) -> int:
    """Return the next number."""
    return number + 1


def short_tasks(client: Any, turn: int) -> None:
    """Submit tasks that take no time: the most records for the least work."""
    first = turn * N_SHORT  # else results of the turn before would be used
    client.gather(client.map(increment, range(first, first + N_SHORT)))


def array(client: Any, turn: int) -> None:
    """Compute the mean of a rechunked array: transfers, and tasks of some ms."""
    x = da.random.default_rng(turn).random((6000, 6000), chunks=(300, 6000))
    (x.rechunk((6000, 300)) + 1).std(axis=0).sum().compute()


def frame(client: Any, turn: int) -> None:
    """Join two frames by tasks."""
    numbers = np.arange(400_000)
    left = dd.from_pandas(pd.DataFrame({"key": numbers % 1000, "value": numbers + turn}), 24)
    right = dd.from_pandas(pd.DataFrame({"key": np.arange(1000), "other": 1.0}), 8)
    left.merge(right, on="key", how="inner", shuffle_method="tasks").value.sum().compute()


JOBS: dict[str, Callable[[Any, int], None]] = {
    "short tasks": short_tasks,
    "array": array,
    "frame": frame,
}


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of those that it started."""
    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def measure(
    client: Any, store: benchkit.Store, jobs: list[str], repeats: int
) -> tuple[dict[tuple[str, str], list[tuple[float, float]]], dict[str, int]]:
    """Return time and CPU seconds of each job and arm, and the number of its tasks."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    n_tasks: dict[str, int] = {}
    for number, turn in enumerate(benchkit.interleave(ARMS, repeats)):
        capture = "off" if turn.arm.startswith("off") else "full"
        for name in jobs:
            with turn.record(client, workload=name, store=store, capture=capture) as recorded:
                begin, cpu = time.perf_counter(), cpu_seconds()
                JOBS[name](client, number)
                taken = time.perf_counter() - begin, cpu_seconds() - cpu
            if turn.block is not None:
                found.setdefault((name, turn.arm), []).append(taken)
                if capture == "full":
                    n_tasks[name] = int(recorded.run.metrics["n_tasks"])
    return found, n_tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=10, help="runs of each job and arm")
    parser.add_argument("--jobs", nargs="*", choices=list(JOBS), default=list(JOBS))
    parser.add_argument("--write-docs", action="store_true", help="write the table into the page")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as dask_client,
        frisky.hijack(dask_client) as client,
    ):
        found, n_tasks = measure(client, benchkit.Store(folder), options.jobs, options.repeats)
    values = {key: np.array(rows).T for key, rows in found.items()}
    cells: dict[str, list[str]] = {}
    for arm in ("full", "off again"):
        arms = [
            np.concatenate([values[name, each] for name in options.jobs]) for each in ("off", arm)
        ]
        effects = compare(*arms, blocked=True, family=np.tile(["time", "cpu"], len(options.jobs)))
        texts = [
            f"{ratio:.3f} ({low:.3f} to {high:.3f})"
            for ratio, low, high in zip(effects.ratio, effects.low, effects.high, strict=True)
        ]
        for place, name in enumerate(options.jobs):
            cells.setdefault(name, []).extend(texts[2 * place : 2 * place + 2])
    rows = [
        [name, n_tasks[name], format_quantity(float(np.median(values[name, "off"][0])), "s"), *row]
        for name, row in cells.items()
    ]
    load, n_processors = psutil.getloadavg()[1], psutil.cpu_count()
    below = (
        "Time of the job and CPU seconds of all processes with the capture, relative to those "
        f"without it, with 95 % intervals; {options.repeats} runs of each, at load {load:.0f} on "
        f'{n_processors} processors. "Off again" is a second arm without the capture.'
    )
    show_table(__file__, "cost", TABLES["cost"], rows, write=options.write_docs, below=below)


if __name__ == "__main__":
    main()
