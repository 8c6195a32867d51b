"""Print simulated and measured runs: ``python benchmarks/virtual.py PART [-n N] [-k TEXT]``.

``graphs``: synthetic graphs of sleeping tasks on a LocalCluster, in one process (`shared`) or in
one process per worker, simulated with the constants of `Model` as they are.
``policies``: the same with two or more settings or releases of Dask, in one process, and a workload
with two releases that build another graph of it: `own.alias`, costs from the measured runs.
``scale``: seconds of CPU and memory of 100,000 tasks on 1,000 workers.
``--write-docs`` writes the table of a part into docs/virtual-cluster.md. Run it alone: load
falsifies the measured side.
"""

import argparse
import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np

import benchkit
from benchkit.analysis.run.baseline import is_simulated
from benchkit.experiment.environment.build import build
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.virtual.api import Simulator
from benchkit.experiment.virtual.inputs import GRAPHS
from benchkit.experiment.virtual.process import VirtualSpec, parse_shape
from benchkit.simulation.cluster import simulate_graph
from benchkit.simulation.model import ClusterShape
from benchkit.simulation.synthetic import make_graph

from validation.docs_tables import show_table

#: Part -> columns of its table.
TABLES = {
    "graphs": (
        "graph", "cluster", "config", "measured", "simulated", "error", "MB measured",
        "MB simulated", "steals measured", "steals simulated",
    ),
    "policies": ("change", "graph", "cluster", "metric", "measured", "simulated"),
}  # fmt: skip
DRAWS = 3
SATURATION = "distributed.scheduler.worker-saturation"
NO_STEALING = {"distributed.scheduler.work-stealing": False}
NO_QUEUING = {SATURATION: float("inf")}
#: Graph, its arguments, and configurations to measure on each shape.
GRAPHS_MEASURED = [
    ("map_reduce", {"n": 200, "seconds": 0.5}, [{}]),
    ("tree", {"n": 128, "seconds": 0.3}, [{}]),
    ("rechunk", {"n": 24, "seconds": 0.5}, [{}, NO_STEALING]),
    ("shuffle", {"n": 27, "seconds": 0.5}, [{}]),
    ("reduction_over_time", {"times": 24, "seconds": 0.3}, [{}, NO_QUEUING]),
    ("uneven", {"n": 200, "seconds": 0.2}, [{}, NO_QUEUING, {**NO_QUEUING, **NO_STEALING}]),
    ("pipelines", {"n": 60, "seconds": 0.3}, [{}]),
    ("stencil", {"n": 24, "seconds": 0.3}, [{}]),
    ("all_to_all", {"n": 24, "seconds": 0.4}, [{}]),
    ("independent", {"n": 200, "seconds": 0.3}, [{}]),
    ("quadratic_means", {"times": 60, "seconds": 0.3}, [{}]),
    ("pairs", {"n": 60, "seconds": 0.3}, [{}]),
]
#: Workers, threads, one process for all.
SHAPES = [(4, 1, False), (10, 1, True), (5, 4, True)]
#: Graphs that also run on 40 workers in one process, which others would load too much.
ON_40 = ("map_reduce", "tree", "uneven", "independent")
#: Smallest amount of moved data whose error is counted.
MIN_MB = 2
#: Version of Python for other releases of Dask.
PYTHON = "3.11"
#: Rechunk within blocks, then one sum: a release that resolves aliases does not queue the roots
#: behind them (dask/distributed 928d770e9); the next one does (#8933), and has other tasks.
ALIAS_WORKLOAD = """
import time

import dask.array as da
from benchkit import workload

N = 60


def slow(block):
    time.sleep(0.05)
    return block


@workload(category="own")
def alias(client, scale):
    'Rechunk within blocks, then one sum.'
    x = da.random.default_rng(0).random((30 * N, 20_000), chunks=(10, 10_000))
    y = x.rechunk(((10, 7, 7, 6) * N, (10_000, 10_000))).map_blocks(slow, dtype=float)
    return float(y.sum(split_every=1000).compute())
"""
ALIAS_RELEASES = ("2024.11.1", "2024.11.2")
ALIAS_CHANGE = " -> ".join(f"Dask {release}" for release in ALIAS_RELEASES) + " (aliases)"
ALIAS_METRICS = ["duration in s", "MB of results, peak", "MB moved"]
ALIAS_PACKAGES = ("numpy==1.26.4",)
#: Imports what an environment under test imports, without pandas, xarray and Bokeh.
SCALE_PROGRAM = """
import logging, resource
from benchkit.simulation.cluster import simulate_graph
from benchkit.simulation.model import ClusterShape
from benchkit.simulation.synthetic import make_graph

logging.disable(logging.WARNING)
cluster = simulate_graph(make_graph("map_reduce", {"n": 31_200}), ClusterShape(1000, 1))
usage = resource.getrusage(resource.RUSAGE_SELF)
seconds, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
print(f"{len(cluster.finished)} tasks, 1000 workers: {seconds:.0f} s CPU, {peak:.0f} MiB")
"""


def cases() -> Iterator[tuple[str, dict[str, Any], dict[str, Any], tuple[int, int, bool]]]:
    """Yield name, arguments, configuration and shape of each case."""
    for name, arguments, configs in GRAPHS_MEASURED:
        for shape in SHAPES:
            for config in configs if shape == SHAPES[1] else configs[:1]:
                yield name, arguments, config, shape
        if name in ON_40:
            yield name, arguments, {}, (40, 1, True)


def describe(config: dict[str, Any]) -> str:
    texts = {"work-stealing": "no stealing", "worker-saturation": "no queuing"}
    return ", ".join(texts[key.rpartition(".")[2]] for key in config)


def measure(
    name: str,
    arguments: dict[str, Any],
    config: dict[str, Any],
    shape: tuple[int, int, bool],
    n: int,
    release: str = "",
) -> list[benchkit.Run]:
    """Return n measured runs with a release of Dask, or with the installed one."""
    workers, threads, shared = shape
    cluster = {"n_workers": workers, "threads_per_worker": threads, "memory_limit": "2 GiB"}
    cluster |= {
        "class": "dask.distributed.LocalCluster",
        "protocol": "tcp",
        "processes": not shared,
    }
    nested: dict[str, Any] = {}
    for key, value in config.items():
        level = nested
        *path, last = key.split(".")
        for part in path:
            level = level.setdefault(part, {})
        level[last] = value
    with tempfile.TemporaryDirectory() as folder:
        runs = benchkit.run(
            f"graph.{name}[workers=0]",
            params=arguments,
            folders=[GRAPHS],
            environment=environment_of(release, dask=nested, cluster=cluster),
            repeats=n,
            store=Path(folder, "store"),
        )
        for run in runs:
            run.tree.load()
    return [run for run in runs if run.outcome == "ok"]


def environment_of(release: str, **content: Any) -> Environment:
    """Return an environment with a release of Dask, or with the installed packages."""
    if release:
        packages = (f"dask=={release}", f"distributed=={release}")
        content |= {"python": PYTHON, "packages": packages}
    return Environment("benchmark", **content)


def compare(
    name: str,
    arguments: dict[str, Any],
    config: dict[str, Any],
    shape: tuple[int, int, bool],
    n: int,
) -> dict[str, Any]:
    """Return a row of the table."""
    workers, threads, shared = shape
    runs = measure(name, arguments, config, shape, n)
    simulated = [
        simulate_graph(
            make_graph(name, arguments),
            ClusterShape(workers, threads, shared_loop=shared),
            draw=draw,
            config=config,
        )
        for draw in range(DRAWS)
    ]
    durations = [run.duration for run in runs]
    predicted = [cluster.duration for cluster in simulated]
    moved = [run.transfer_bytes for run in runs]
    moved_predicted = [sum(row[1] for row in c.transfers.values()) for c in simulated]
    return {
        "graph": name,
        "cluster": f"{workers}x{threads}{' shared' if shared else ''}",
        "config": describe(config),
        "measured": span(durations, 1),
        "simulated": span(predicted, 1),
        "error": float(np.median(predicted) / np.median(durations) - 1),
        "MB measured": span([value / 1e6 for value in moved], 0),
        "MB simulated": span([value / 1e6 for value in moved_predicted], 0),
        "steals measured": span([run.n_steals for run in runs], 0),
        "steals simulated": span([cluster.counts["steals"] for cluster in simulated], 0),
    }


def summary(errors: np.ndarray) -> str:
    """Return median, share within 15 % and largest of absolute errors, as text."""
    return (
        f"median error of the duration {np.median(errors):.1%}, "
        f"{np.mean(errors <= 0.15):.0%} within 15 %, largest {errors.max():.1%}"
    )


def span(values: list[float], digits: int) -> str:
    low, high = (f"{value:.{digits}f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def graphs_summary(rows: list[dict[str, Any]]) -> str:
    """Return the errors of durations and of moved bytes."""
    lines = [f"{len(rows)} cases: {summary(np.abs([row['error'] for row in rows]))}."]
    moved = [(middle(row["MB measured"]), middle(row["MB simulated"])) for row in rows]
    byte_errors = np.abs([after / before - 1 for before, after in moved if before >= MIN_MB])
    if len(byte_errors):
        lines += [
            f"Bytes moved (middles of the ranges, {len(byte_errors)} cases from {MIN_MB} MB): "
            f"median error {np.median(byte_errors):.1%}, "
            f"{np.mean(byte_errors <= 0.15):.0%} within 15 %."
        ]
    return "\n".join(lines)


def middle(span: str) -> float:
    return float(np.mean([float(value) for value in span.split(" to ")]))


def measure_scale() -> None:
    """Print the cost of 100,000 tasks on 1,000 workers, in a process that imports Dask only."""
    subprocess.run([sys.executable, "-c", SCALE_PROGRAM], check=True)


#: Title of a metric -> its value of a run, and digits to show.
METRICS: dict[str, tuple[Callable[[benchkit.Run], float], int]] = {
    "duration in s": (lambda run: run.duration, 1),
    "MB moved": (lambda run: run.transfer_bytes / 1e6, 0),
    "MB of results, peak": (lambda run: peak_of_results(run) / 1e6, 0),
    "steals": (lambda run: run.n_steals, 0),
}


@dataclass(frozen=True)
class Arm:
    """A setting or a release that is compared; without one, the installed one."""

    config: dict[str, Any] = field(default_factory=dict)
    release: str = ""
    shape: tuple[int, int] = (10, 1)  # workers, and threads of each


#: Change, graph, its arguments, metrics, and what is compared.
POLICIES: list[tuple[str, str, dict[str, Any], list[str], list[Arm]]] = [
    (
        "Dask 2023.9.3 -> 2023.11.0 (order of tasks)",
        "quadratic_means", {"times": 100, "seconds": 0.2},
        ["MB of results, peak", "duration in s"],
        [Arm(release="2023.9.3"), Arm(release="2023.11.0")],
    ),
    (
        "Dask 2025.1.0 -> 2025.2.0 (interval of stealing)",
        "rechunk", {"n": 24, "seconds": 0.5}, ["duration in s", "steals"],
        [Arm(release="2025.1.0"), Arm(release="2025.2.0")],
    ),
    (
        "saturation 1.0 -> 1.1 -> 2 -> inf",
        "reduction_over_time", {"times": 24, "seconds": 0.3},
        ["MB moved", "MB of results, peak"],
        [Arm({SATURATION: value}) for value in (1.0, 1.1, 2.0, float("inf"))],
    ),
    (
        "queuing off",
        "uneven", {"n": 200, "seconds": 0.2}, ["steals", "duration in s"],
        [Arm(), Arm(NO_QUEUING)],
    ),
    (
        "stealing off, without queuing",
        "uneven", {"n": 200, "seconds": 0.2}, ["steals", "MB moved"],
        [Arm(NO_QUEUING), Arm({**NO_QUEUING, **NO_STEALING})],
    ),
    (
        "stealing off", "rechunk", {"n": 24, "seconds": 0.5}, ["MB moved", "steals"],
        [Arm(), Arm(NO_STEALING)],
    ),
    (
        "10x1 -> 5x4 workers x threads",
        "stencil", {"n": 24, "seconds": 0.3}, ["duration in s"],
        [Arm(), Arm(shape=(5, 4))],
    ),
]  # fmt: skip


def peak_of_results(run: benchkit.Run) -> float:
    """Return the largest sum of the results in the memory of all workers in B."""
    return float(run.tree["scheduler"]["managed"].max())


def simulate(name: str, arguments: dict[str, Any], arm: Arm) -> list[benchkit.Run]:
    """Return a simulated run per draw, with the scheduler of the release."""
    environment = environment_of(arm.release)
    simulator = Simulator(build(environment), environment, None)
    spec = VirtualSpec(ClusterShape(*arm.shape, shared_loop=True), config=arm.config)
    graph = make_graph(name, arguments)
    return simulator.run([(graph, spec, draw) for draw in range(DRAWS)])


def compare_arms(
    change: str, name: str, arguments: dict[str, Any], metrics: list[str], arms: list[Arm], n: int
) -> list[dict[str, str]]:
    """Return a row of the table per metric."""
    measured = [
        measure(name, arguments, arm.config, (*arm.shape, True), n, arm.release) for arm in arms
    ]
    simulated = [simulate(name, arguments, arm) for arm in arms]
    cluster = " -> ".join(dict.fromkeys("{}x{}".format(*arm.shape) for arm in arms))
    return rows_of(change, name, cluster, metrics, measured, simulated)


def compare_aliases(n: int) -> list[dict[str, str]]:
    """Return a row per metric of the workload whose graph differs between two releases."""
    cluster = {"n_workers": 4, "threads_per_worker": 1, "memory_limit": "1 GiB"}
    environments = []
    for release in ALIAS_RELEASES:
        own = environment_of(release, cluster=cluster)
        packages = (*own.packages, *ALIAS_PACKAGES)
        environments.append(replace(own, name=f"dask-{release}", packages=packages))
    with tempfile.TemporaryDirectory() as folder:
        folders = [Path(folder, "workloads")]
        folders[0].mkdir()
        (folders[0] / "own.py").write_text(ALIAS_WORKLOAD)
        store = benchkit.Store(Path(folder, "store"))
        for environment in environments * n:
            benchkit.run("own.alias", folders=folders, environment=environment, store=store)
        benchkit.ab(
            environments, "own.alias", repeats=DRAWS, folders=folders, store=store,
            virtual=parse_shape("workers=4,memory=1GiB"),
        )  # fmt: skip
        runs = store.runs(workload="own.alias", outcome="ok")
        measured, simulated = (
            [
                store.load(own.loc[own["environment"] == environment.name, "id"])
                for environment in environments
            ]
            for own in (runs[~is_simulated(runs)], runs[is_simulated(runs)])
        )
        return rows_of(ALIAS_CHANGE, "own.alias", "4x1", ALIAS_METRICS, measured, simulated)


def rows_of(
    change: str,
    name: str,
    cluster: str,
    metrics: list[str],
    measured: list[list[benchkit.Run]],
    simulated: list[list[benchkit.Run]],
) -> list[dict[str, str]]:
    """Return a row of the table per metric, from the runs of each arm."""
    rows = []
    for metric in metrics:
        value, digits = METRICS[metric]
        cells = [
            " -> ".join(span([value(run) for run in runs], digits) for runs in side)
            for side in (measured, simulated)
        ]
        row = {"change": change, "graph": name, "cluster": cluster, "metric": metric}
        rows.append({**row, "measured": cells[0], "simulated": cells[1]})
    return rows


class KeptRows:
    """Rows in a file, a line of JSON each, so that what was measured is not measured again."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path and path.exists() else []
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row and print it."""
        self.rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
        if self.path:
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")


def measure_graphs(kept: KeptRows, text: str, n: int) -> None:
    """Measure and simulate the cases whose name contains a text."""
    known = {(row["graph"], row["cluster"], row["config"]) for row in kept.rows}
    for name, values, config, shape in cases():
        cluster = f"{shape[0]}x{shape[1]}{' shared' if shape[2] else ''}"
        if text in name and (name, cluster, describe(config)) not in known:
            kept.add(compare(name, values, config, shape, n))


def measure_policies(kept: KeptRows, text: str, n: int) -> None:
    """Measure and simulate the changes whose name contains a text."""
    known = {row["change"] for row in kept.rows}
    for policy in POLICIES:
        if text in policy[0] and policy[0] not in known:
            for row in compare_arms(*policy, n=n):
                kept.add(row)
    if text in ALIAS_CHANGE and ALIAS_CHANGE not in known:
        for row in compare_aliases(n):
            kept.add(row)
    order = [*(change for change, *_ in POLICIES), ALIAS_CHANGE]
    kept.rows.sort(key=lambda row: order.index(row["change"]))


def main() -> None:
    logging.disable(logging.WARNING)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=[*TABLES, "scale"])
    parser.add_argument("-n", type=int, default=3, help="measured runs of each case")
    parser.add_argument("-k", default="", help="only cases whose name contains this text")
    parser.add_argument("--write-docs", action="store_true", help="write the table into the page")
    parser.add_argument("--json", type=Path, help="keep rows in this file, skip those in it")
    given = parser.parse_args()
    if given.write_docs and given.k:
        parser.error("--write-docs needs a whole measurement: omit -k")
    if given.part == "scale":
        return measure_scale()
    kept, below = KeptRows(given.json), ""
    cells: list[list[str]]
    if given.part == "graphs":
        measure_graphs(kept, given.k, given.n)
        rows = [{**row, "error": f"{row['error']:+.1%}"} for row in kept.rows]
        cells, below = [list(row.values()) for row in rows], graphs_summary(kept.rows)
    else:
        measure_policies(kept, given.k, given.n)
        cells = [list(row.values()) for row in kept.rows]
    columns = TABLES[given.part]
    return show_table(__file__, given.part, columns, cells, write=given.write_docs, below=below)


if __name__ == "__main__":
    main()
