"""Compare predictions with reality: ``python benchmarks/whatif.py --store S``.

Both engines predict from the same runs: the replay of `benchkit whatif`, and with ``--simulate``
Dask's own scheduler, as `benchkit simulate` (one draw).

Prints results, asserts nothing. ``--kind sleeping`` runs graphs of sleeping tasks on clusters of
several shapes; 1 x 1 and 2 x 1 predict the others, and planted speed-ups (a group sleeps half as
long) are predicted from the runs without. ``--kind collections`` computes with arrays and tables,
``--kind catalogue`` runs workloads of the catalogue, on three shapes, each of which predicts the
others. The predicted duration is the median of the predictions from each repeat, the measured one
the median of its repeats; next to the error stands the error that a perfect model would have
because repeats differ. The model was found with the "known" workloads, not with the "new" ones. The
store keeps the runs: ``--minutes`` stops in time, and the same command continues.
Runs that other processes disturbed are not counted, and measured again. ``--write-docs`` writes the
tables into docs/explanation/predictions.md. ``--kind chunks`` computes the same data in chunks of
two sizes; the larger ones are predicted (`--chunks 2x`).
"""

import argparse
import logging
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import dask
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster

import benchkit
from benchkit.experiment.virtual.api import simulation_job
from benchkit.predict.answer import Base, Prediction
from benchkit.predict.change import Change
from benchkit.predict.whatif import Replayed, WhatIf
from benchkit.simulation.cluster import simulate_graph
from benchkit.simulation.model import ClusterShape
from benchkit.errors import BenchkitError
from benchkit.store.build.run_from_recording import run_from_recording

from validation.kept_runs import (
    CATALOGUE,
    MEMORY,
    Shape,
    measure_workload,
    runs_by_shape,
    same_graph,
)
from validation.collections_to_predict import CHUNKED, COLLECTIONS, N_CHUNKS, NEW
from validation.recorded_work import record_work
from validation.sleeping_graphs import GRAPHS
from validation.docs_tables import show_table

#: Name -> columns of a table.
TABLES = {
    "goal": (
        "engine", "", "workloads", "predictions", "median", "90 % within", "a perfect model",
        "inside of the interval",
    ),
    "pairs": ("engine", "from, to", "predictions", "median", "90 % within", "mean"),
}  # fmt: skip

#: Repeats of shorter runs that compute differ by more than predictions err: a second summary leaves
#: their workloads out.
SHORTEST_S = 1.0
#: Workers and threads of each, for tasks that sleep: 16 of them fit on two cores.
SLEEPING_SHAPES = ((1, 1), (2, 1), (4, 1), (8, 1), (4, 2), (8, 2))
COMPUTING_SHAPES = ((1, 1), (2, 1), (1, 2))
#: The goal (median 5 %, 90 % within 15 %) is for these, and all of sleeping tasks.
GOAL_PAIRS = ("1x1 -> 2x1", "2x1 -> 1x1")
#: Shapes of sleeping tasks whose runs predict the others.
KNOWN = ((1, 1), (2, 1))
#: End of the name of a graph whose group ``work`` sleeps half as long.
HALF = "-half"
#: Beginning of the names of workloads that are no workloads of the catalogue, and of those in
#: chunks of several sizes, on a cluster of one shape.
PREFIX = "whatif."
CHUNKS_PREFIX = f"{PREFIX}chunks-"
CHUNKS_SHAPE = (2, 1)
N_DRAWS = 4000


def missing(store: Path, names: list[str], shapes: tuple[Shape, ...], repeats: int) -> Iterator[
    tuple[str, Shape]
]:  # fmt: skip
    """Yield workload and shape of each run that the store does not have, shapes in turn."""
    counts = {
        (name, shape): len(runs)
        for name, by_shape in runs_by_shape(store).items()
        for shape, runs in by_shape.items()
    }
    for name in names:
        for number in range(repeats):
            for shape in random.sample(shapes, len(shapes)):
                if counts.get((name, shape), 0) <= number:
                    yield name, shape


def measure_sleeping(store: Path, repeats: int, unit: float, end: float) -> None:
    """Measure the graphs of sleeping tasks that the store does not have, shape by shape."""

    def work(client: Client, name: str) -> Any:
        factor = 0.5 if name.endswith(HALF) else 1.0
        graph = GRAPHS[name.removeprefix(PREFIX).removesuffix(HALF)]
        return client.get(*graph(unit, factor))

    for shape in SLEEPING_SHAPES:  # one after the other: idle workers use the processor
        names = [f"{PREFIX}{name}{ending}" for name in GRAPHS
                 for ending in (("", HALF) if shape in KNOWN else ("",))]  # fmt: skip
        todo = list(missing(store, names, (shape,), repeats))
        _measure_here(store, todo, end, work, processes=False)


def measure_collections(store: Path, repeats: int, end: float) -> None:
    """Measure the computations of `COLLECTIONS` that the store does not have, shapes in turn."""

    def work(client: Client, name: str) -> Any:
        return client.compute(COLLECTIONS[name.removeprefix(PREFIX)]()).result()

    names = [PREFIX + name for name in COLLECTIONS]
    with dask.config.set({"dataframe.shuffle.method": "tasks"}):
        todo = list(missing(store, names, COMPUTING_SHAPES, repeats))
        _measure_here(store, todo, end, work, memory_limit=3 * MEMORY)


def measure_chunks(store: Path, repeats: int, end: float) -> None:
    """Measure the computations of `CHUNKED` that the store does not have."""

    def work(client: Client, name: str) -> Any:
        kind, _, number = name.removeprefix(CHUNKS_PREFIX).rpartition("-")
        return client.compute(CHUNKED[kind](int(number))).result()

    names = [f"{CHUNKS_PREFIX}{name}-{number}" for name in CHUNKED for number in N_CHUNKS]
    todo = list(missing(store, names, (CHUNKS_SHAPE,), repeats))
    _measure_here(store, todo, end, work, memory_limit=3 * MEMORY)


def predict_chunks(stores: list[Path]) -> None:
    """Print the error of each prediction of larger chunks."""
    kept = {name: runs for store in stores for name, runs in runs_by_shape(store).items()}
    errors = []
    for name in CHUNKED:
        runs, larger = (
            kept.get(f"{CHUNKS_PREFIX}{name}-{number}", {}).get(CHUNKS_SHAPE, [])
            for number in N_CHUNKS
        )
        if runs and larger:
            found = np.median([WhatIf(run).predict(chunks="2x").seconds for run in runs])
            before, after = (np.median([run.duration for run in each]) for each in (runs, larger))
            errors.append(found / after - 1)
            print(f"{name}: {before:.2f} s, in chunks twice as large {found:.2f} s predicted, "
                  f"{after:.2f} s measured, {errors[-1]:+.1%}")  # fmt: skip
    if errors:
        print(f"chunks twice as large: median error {np.median(np.abs(errors)):.1%}")


def _measure_here(
    store: Path,
    todo: list[tuple[str, Shape]],
    end: float,
    work: Callable[[Client, str], Any],
    **options: Any,
) -> None:
    opened = benchkit.Store(store)
    with ExitStack() as stack:
        clients = {}
        for shape in dict.fromkeys(shape for _, shape in todo):
            cluster = LocalCluster(
                n_workers=shape[0], threads_per_worker=shape[1], dashboard_address=None, **options
            )
            clients[shape] = stack.enter_context(Client(stack.enter_context(cluster)))
        used = set()
        for name, shape in todo:
            if time.monotonic() > end:
                return
            if (name, shape) not in used:
                work(clients[shape], name)  # imports
                used.add((name, shape))
            recording, error = record_work(
                clients[shape], name, partial(work, clients[shape], name)
            )
            if error:
                raise RuntimeError(f"{name} {shape}: {error}")
            opened.add(run_from_recording(recording))


def measure_catalogue(store: Path, repeats: int, end: float) -> None:
    """Measure the workloads that the store does not have."""
    failed = set()
    for name, shape in missing(store, list(CATALOGUE), COMPUTING_SHAPES, repeats):
        if time.monotonic() > end:
            return
        if name not in failed:
            try:
                measure_workload(store, name, shape)
            except BenchkitError as error:
                print(f"{name} {shape}: {error}")
                failed.add(name)


class Simulated(Replayed):
    """Predictions of one run by Dask's own scheduler, in this process."""

    def __init__(self, run: benchkit.Run) -> None:
        super().__init__(run)
        self.known = Base.of(run, self.given, self._simulate(Change())[0], self.computing)

    def predict(self, **options: Any) -> Prediction:
        """Return what a change brings."""
        change = Change(**options)
        seconds, shape = self._simulate(change)
        return self.known.predict(str(change), shape, [seconds] * 3)

    def _simulate(self, change: Change) -> tuple[float, ClusterShape]:
        graph, spec = simulation_job(None, self, None, change, {})
        return simulate_graph(graph, spec.shape, spec.model).duration, spec.shape


ENGINES = {"replay": WhatIf, "simulation": Simulated}


def predict(stores: list[Path], gilknocker: bool, engine: str) -> pd.DataFrame:
    """Return the error of each prediction with that of a perfect model, and print it."""
    kept = {name: runs for store in stores for name, runs in runs_by_shape(store).items()}
    for run in (run for by_shape in kept.values() for runs in by_shape.values() for run in runs):
        if not gilknocker and "gil_contention_mean" in run.tree.data_vars:
            del run.tree["gil_contention_mean"]
    seconds = {
        name: {shape: [run.duration for run in runs] for shape, runs in by_shape.items()}
        for name, by_shape in kept.items()
    }
    spreads = {name: _spread(list(values.values())) for name, values in seconds.items()}
    usual = np.nanmedian(list(spreads.values()))  # of workloads without repeats
    rows, savings = [], []
    for workload, by_shape in kept.items():
        sleeps = workload.removeprefix(PREFIX) in GRAPHS
        shortest = min(float(np.median(values)) for values in seconds[workload].values())
        known = [shape for shape in by_shape if not sleeps or shape in KNOWN]
        for base in known if not workload.endswith(HALF) else []:
            try:
                models = [ENGINES[engine](run) for run in by_shape[base]]
            except BenchkitError as error:
                print(f"{workload} {base}: {error}")
                continue
            for shape, runs in by_shape.items():
                if shape == base or not same_graph(by_shape[base][0], runs[0]):
                    continue
                try:
                    found = [model.predict(workers=shape[0], threads=shape[1]) for model in models]
                except BenchkitError as error:
                    print(f"{workload} {base} -> {shape}: {error}")
                    continue
                predicted, low, high = (
                    float(np.median([vars(each)[name] for each in found]))
                    for name in ("seconds", "low", "high")
                )
                measured = float(np.median(seconds[workload][shape]))
                rows.append({
                    "engine": engine,
                    "workload": workload,
                    "kind": "sleeping" if sleeps else "computing",
                    "pair": f"{base[0]}x{base[1]} -> {shape[0]}x{shape[1]}",
                    "set": "new" if workload.removeprefix(PREFIX) in NEW else "known",
                    "error": np.log(predicted / measured),
                    "n_runs": min(len(models), len(runs)),
                    "inside": low <= measured <= high,
                    "is_short": not sleeps and shortest < SHORTEST_S,
                    # Base and truth are medians of few repeats: the error of a perfect model.
                    "noise": np.nan_to_num(spreads[workload], nan=usual)
                    * sum(_median_errors(len(each)) for each in (models, runs)),
                })  # fmt: skip
                print(f"{workload:<42} {rows[-1]['pair']}: predicted {predicted:.2f} s ({low:.2f} "
                      f"to {high:.2f}), measured {measured:.2f} s, "
                      f"{np.expm1(rows[-1]['error']):+.1%}")  # fmt: skip
            if slower := seconds.get(workload + HALF, {}).get(base):
                faster = [model.predict(groups={"work": 0.5}).seconds for model in models]
                saved = float(np.median(seconds[workload][base]) - np.median(faster))
                came = float(np.median(seconds[workload][base]) - np.median(slower))
                savings.append(saved / came)
                print(f"{workload:<42} work=0.5: saves {saved:.2f} s, measured {came:.2f} s")
    if savings:
        size = np.array(savings)
        print(f"{len(size)} planted speed-ups: sign right in {(size > 0).sum()}, "
              f"size within {np.abs(size - 1).max():.0%}")  # fmt: skip
    return pd.DataFrame(rows)


def show_errors(frame: pd.DataFrame, *, write: bool) -> None:
    """Print the errors of the pairs of shapes with a goal, and of those with other threads."""
    has_goal = (frame["kind"] == "sleeping") | frame["pair"].isin(GOAL_PAIRS)
    goal = frame[has_goal]
    parts = {(engine, "all"): part for engine, part in goal.groupby("engine", sort=False)} | {
        (engine, "sleeping" if kind == "sleeping" else f"{kind}, {known}"): part
        for (engine, kind, known), part in goal.groupby(["engine", "kind", "set"])
    }
    rows = []
    for (engine, name), part in sorted(parts.items()):
        cells = _errors(part)
        least = f"{cells['perfect']}, {cells['perfect within']}"
        rows.append([engine, name, part["workload"].nunique(), len(part), cells["median"],
                     cells["within"], least, f"{100 * part['inside'].mean():.0f} %"])  # fmt: skip
    show_table(__file__, "goal", TABLES["goal"], rows, write=write)
    others = frame[~has_goal]
    if not len(others):
        return
    least = _errors(others)
    print(f"other threads, a perfect model: {least['perfect']}, {least['perfect within']}")
    pairs = [
        [engine, pair.replace("x", " x "), len(part), *map(cells.get, ("median", "within", "mean"))]
        for (engine, pair), part in others.groupby(["engine", "pair"])
        for cells in [_errors(part)]
    ]
    show_table(__file__, "pairs", TABLES["pairs"], pairs, write=write)


def _spread(repeats: list[list[float]]) -> float:
    """Return the standard deviation of the logarithm of durations between repeats."""
    variances = [np.var(np.log(values), ddof=1) for values in repeats if len(values) > 1]
    return float(np.sqrt(np.mean(variances))) if variances else np.nan


def _median_errors(n_repeats: int) -> np.ndarray:
    """Return errors of medians of repeats, as multiples of the standard deviation of a repeat."""
    draws = np.random.default_rng(n_repeats).standard_normal((N_DRAWS, n_repeats))
    return np.random.default_rng().permutation(np.median(draws, axis=1))


def _errors(part: pd.DataFrame) -> dict[str, str]:
    """Return errors of predictions, and those of a perfect model, in per cent."""
    errors, noise = part["error"].to_numpy(), np.concatenate(part["noise"].to_list())
    size, least = 100 * np.abs(np.expm1(errors)), 100 * np.abs(np.expm1(noise))
    return {
        "median": f"{np.median(size):.1f} %",
        "within": f"{np.quantile(size, 0.9):.1f} %",
        "mean": f"{100 * errors.mean():+.0f} %",
        "perfect": f"{np.median(least):.1f} %",
        "perfect within": f"{np.quantile(least, 0.9):.1f} %",
    }


def main() -> None:
    """Measure what is missing, and print the error of each prediction."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--store", type=Path, nargs="+", required=True, help="stores; the first one gets new runs"
    )
    parser.add_argument(
        "--kind",
        choices=["sleeping", "collections", "catalogue", "chunks"],
        help="default: measure none",
    )
    parser.add_argument("--repeats", type=int, default=3, help="runs of each shape")
    parser.add_argument("--minutes", type=float, default=60.0, help="start no run after these")
    parser.add_argument("--unit", type=float, default=0.1, help="seconds of a sleeping task")
    parser.add_argument(
        "--without-gilknocker", action="store_true", help="as if it had not been installed"
    )
    parser.add_argument("--simulate", action="store_true", help="predict by simulation, too")
    parser.add_argument("--write-docs", action="store_true", help="write the tables into the page")
    given = parser.parse_args()
    logging.disable(logging.WARNING)  # of the simulated schedulers
    warnings.filterwarnings("ignore", message=r"(?s)\s*Port \d+ is already in use")
    end = time.monotonic() + 60 * given.minutes
    if given.kind == "sleeping":
        measure_sleeping(given.store[0], given.repeats, given.unit, end)
    elif given.kind == "collections":
        measure_collections(given.store[0], given.repeats, end)
    elif given.kind == "catalogue":
        measure_catalogue(given.store[0], given.repeats, end)
    elif given.kind == "chunks":
        measure_chunks(given.store[0], given.repeats, end)
    predict_chunks(given.store)
    engines = list(ENGINES)[: 1 + given.simulate]
    frames = [predict(given.store, not given.without_gilknocker, each) for each in engines]
    frame = pd.concat(frames, ignore_index=True)
    if len(frame):
        show_errors(frame, write=given.write_docs)


if __name__ == "__main__":
    main()
