"""Compare predictions of `benchkit whatif` with reality: ``python benchmarks/whatif.py [--quick]``.

Prints results, asserts nothing. Graphs of sleeping tasks run on clusters of several shapes. Each
run on 1 x 1 and 2 x 1 predicts the others; planted speed-ups (a group sleeps half as long) are
predicted from the run without. ``--runs STORE`` does the same with workloads that `benchkit ab`
measured (see `_kept_runs`). Sleeping tasks need no processor, so 8 x 2 threads fit on two cores;
run it on a quiet machine all the same: the scheduler needs one.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from dask.base import tokenize
from distributed import Client, LocalCluster

from benchkit.analysis.insight.whatif import WhatIf
from benchkit.errors import BenchkitError
from benchkit.measure.capture_client import Observer
from benchkit.measure.recording import RecordingWriter
from benchkit.measure.run_ids import new_id
from benchkit.store.build.run_from_recording import run_from_recording
from benchkit.store.run import Run

from _kept_runs import median_run, runs_by_shape, same_graph

#: Workers, threads of each.
SHAPES = ((1, 1), (2, 1), (4, 1), (8, 1), (4, 2), (8, 2))
#: Shapes whose runs predict the others.
KNOWN = ((1, 1), (2, 1))


def nap(seconds: float, *inputs: Any, size: int = 1000) -> bytes:
    """Sleep and return some bytes."""
    time.sleep(seconds)
    return b"x" * size


def layer(name: str, count: int, seconds: Callable[[int], float], inputs: Callable[[int], list]):
    """Return the tasks of a layer by key."""
    token = tokenize(name, count)
    return {(f"{name}-{token}", n): (nap, seconds(n), *inputs(n)) for n in range(count)}


def _keys(tasks: dict) -> list:
    return list(tasks)


def flat(unit: float, half: float = 1.0) -> tuple[dict, list]:
    """Return independent tasks."""
    tasks = layer("work", 64, lambda n: unit * half, lambda n: [])
    return tasks, _keys(tasks)


def uneven(unit: float, half: float = 1.0) -> tuple[dict, list]:
    """Return independent tasks of very different durations."""
    rng = np.random.default_rng(0)
    seconds = unit * rng.pareto(2.0, 64).clip(0.1, 8)
    tasks = layer("work", 64, lambda n: float(seconds[n]) * half, lambda n: [])
    return tasks, _keys(tasks)


def map_reduce(unit: float, half: float = 1.0) -> tuple[dict, list]:
    """Return a map and a tree reduction by four."""
    tasks = layer("work", 64, lambda n: unit * half, lambda n: [])
    level = _keys(tasks)
    depth = 0
    while len(level) > 1:
        parts = [level[n : n + 4] for n in range(0, len(level), 4)]
        new = layer(f"sum{depth}", len(parts), lambda n: unit / 2, lambda n, p=parts: p[n])
        tasks.update(new)
        level, depth = _keys(new), depth + 1
    return tasks, level


def chain(unit: float, half: float = 1.0) -> tuple[dict, list]:
    """Return four chains of sixteen tasks."""
    tasks: dict = {}
    level: list = [[] for _ in range(4)]
    for depth in range(16):
        name = "work" if depth % 2 else "other"
        factor = half if name == "work" else 1.0
        new = layer(f"{name}", 4, lambda n, f=factor: unit * f, lambda n, p=level: p[n])
        new = {(f"{name}-{tokenize(depth)}", n): value for n, value in enumerate(new.values())}
        tasks.update(new)
        level = [[key] for key in new]
    return tasks, [key for [key] in level]


def two_stages(unit: float, half: float = 1.0) -> tuple[dict, list]:
    """Return two stages, each task of the second needs two of the first."""
    first = layer("work", 48, lambda n: unit * half, lambda n: [])
    keys = _keys(first)
    second = layer("join", 48, lambda n: unit, lambda n: [keys[n], keys[(7 * n + 1) % 48]])
    return {**first, **second}, _keys(second)


GRAPHS = {graph.__name__: graph for graph in (flat, uneven, map_reduce, chain, two_stages)}


def measure(client: Client, graph: tuple[dict, list]) -> Run:
    """Run a graph and return its run."""
    tasks, wanted = graph
    folder = Path(tempfile.mkdtemp())
    writer = RecordingWriter(folder, new_id())
    run_id = writer.path.name.partition(".")[0]
    writer.head(id=run_id, started=time.time(), workload="whatif.nap", capture="full")
    observer = Observer(client, writer, f"benchkit-{run_id}")
    observer.install()
    observer.clock_on()
    client.get(tasks, wanted)
    observer.clock_off()
    observer.uninstall()
    writer.tail(outcome="ok", error="", **observer.tail())
    return Run(run_from_recording(writer.path))


def predict_kept_runs(store: Path) -> None:
    """Print the predictions of each shape from the others, for workloads of a store."""
    errors, inside, repeats = [], [], []
    for workload, by_shape in runs_by_shape(store).items():
        for runs in by_shape.values():
            seconds = [run.duration for run in runs]
            for number, own in enumerate(seconds if len(seconds) > 2 else []):
                others = [*seconds[:number], *seconds[number + 1 :]]
                repeats.append(own / float(np.median(others)) - 1)
        for known, runs in by_shape.items():
            run = median_run(runs)
            for shape, measured in by_shape.items():
                if shape == known or not same_graph(run, measured[0]):
                    continue
                try:
                    found = WhatIf(run).predict(workers=shape[0], threads=shape[1])
                except BenchkitError as error:
                    print(f"{workload} {known}: {error}")
                    break
                seconds = float(np.median([other.duration for other in measured]))
                errors.append(found.seconds / seconds - 1)
                inside.append(found.low <= seconds <= found.high)
                print(
                    f"{workload:<45} {known} -> {shape}: predicted {found.low:.2f} to "
                    f"{found.high:.2f} s, measured {seconds:.2f} s, {errors[-1]:+.1%}"
                )
    print(f"{summary(errors)}, {np.mean(inside):.0%} inside the interval" if errors else "none")
    if repeats:
        size = np.abs(repeats)
        print(
            f"one run from the median of its repeats, the least error that can be seen here: "
            f"median {np.median(size):.1%}, 90 % within {np.quantile(size, 0.9):.1%}"
        )


def summary(errors: list[float]) -> str:
    """Return the number of predictions, the median error and its ninth decile, as text."""
    size = np.abs(errors)
    return (
        f"\n{len(errors)} predictions: median error {np.median(size):.1%}, "
        f"90 % within {np.quantile(size, 0.9):.1%}"
    )


def main() -> None:
    """Print the error of each prediction, and a summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--unit", type=float, default=0.2, help="seconds of a task")
    parser.add_argument("--quick", action="store_true", help="short tasks, three shapes")
    parser.add_argument("--runs", type=Path, help="store with measured workloads, instead")
    given = parser.parse_args()
    if given.runs:
        return predict_kept_runs(given.runs)
    unit, shapes = (0.05, SHAPES[:3]) if given.quick else (given.unit, SHAPES)
    warnings.filterwarnings("ignore", message=r"(?s)\s*Port \d+ is already in use")
    runs: dict[tuple[str, tuple[int, int], float], Run] = {}
    for shape in shapes:
        options = {"n_workers": shape[0], "threads_per_worker": shape[1], "processes": False}
        with LocalCluster(**options, dashboard_address=None) as cluster, Client(cluster) as client:
            for name, graph in GRAPHS.items():
                for half in (1.0, 0.5) if shape in KNOWN else (1.0,):
                    runs[name, shape, half] = measure(client, graph(unit, half))
    errors, sizes = [], []
    for (name, known, half), run in runs.items():
        if known not in KNOWN or half != 1.0:
            continue
        try:
            model = WhatIf(run)
        except BenchkitError as error:
            print(f"{name:<12} {known}: {error}")
            continue
        for shape in shapes:
            if shape == known:
                continue
            predicted = model.predict(workers=shape[0], threads=shape[1]).seconds
            measured = runs[name, shape, 1.0].metrics["duration"]
            errors.append(predicted / measured - 1)
            print(
                f"{name:<12} {known} -> {shape}: predicted {predicted:6.2f} s, "
                f"measured {measured:6.2f} s, {errors[-1]:+6.1%}"
            )
        predicted = run.metrics["duration"] - model.predict(groups={"work": 0.5}).seconds
        measured = run.metrics["duration"] - runs[name, known, 0.5].metrics["duration"]
        sizes.append(predicted / measured)
        print(f"{name:<12} {known} work=0.5: saves {predicted:.2f} s, measured {measured:.2f} s")
    print(summary(errors))
    print(
        f"{len(sizes)} planted speed-ups: sign right in {sum(np.array(sizes) > 0)}, "
        f"size within {np.max(np.abs(np.array(sizes) - 1)):.0%}"
    )


if __name__ == "__main__":
    main()
