"""Print effects of policies, measured and simulated: ``python benchmarks/virtual_policies.py``.

Measures synthetic graphs of sleeping tasks on a LocalCluster in one process with two or more
settings or releases of Dask, and simulates them with the constants of `Model` as they are. With
``--docs`` the table is written into docs/virtual-cluster.md. Run it alone: load falsifies the
measured side.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import benchkit
from benchkit.experiment.environment.build import build
from benchkit.experiment.virtual.api import Simulator
from benchkit.experiment.virtual.process import VirtualSpec
from benchkit.simulation.model import ClusterShape
from benchkit.simulation.synthetic import make_graph

from virtual import (
    DRAWS,
    NO_QUEUING,
    NO_STEALING,
    environment_of,
    measure,
    span,
    write_page,
)

SATURATION = "distributed.scheduler.worker-saturation"
#: Title of a metric -> its value of a run, and digits to show.
METRICS: dict[str, tuple[Callable[[benchkit.Run], float], int]] = {
    "duration in s": (lambda run: run.duration, 1),
    "MB moved": (lambda run: run.transfer_bytes / 1e6, 0),
    "MB of results, peak": (lambda run: peak_of_results(run) / 1e6, 0),
    "steals": (lambda run: run.n_steals, 0),
}


@dataclass(frozen=True)
class Arm:
    """A setting or a release that is compared.

    Parameters
    ----------
    config : dict
        Dask configuration by full name.
    release : str
        Release of Dask; empty for the installed one.
    shape : tuple of int
        Workers, and threads of each.
    """

    config: dict[str, Any] = field(default_factory=dict)
    release: str = ""
    shape: tuple[int, int] = (10, 1)


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
    simulator = Simulator(make_graph(name, arguments), build(environment), environment, None)
    spec = VirtualSpec(ClusterShape(*arm.shape, shared_loop=True), config=arm.config)
    return simulator.run([(spec, draw) for draw in range(DRAWS)])


def compare(
    change: str, name: str, arguments: dict[str, Any], metrics: list[str], arms: list[Arm], n: int
) -> list[dict[str, str]]:
    """Return a row of the table per metric."""
    measured = [
        measure(name, arguments, arm.config, (*arm.shape, True), n, arm.release) for arm in arms
    ]
    simulated = [simulate(name, arguments, arm) for arm in arms]
    rows = []
    for metric in metrics:
        value, digits = METRICS[metric]
        cells = [
            " -> ".join(span([value(run) for run in runs], digits) for runs in side)
            for side in (measured, simulated)
        ]
        cluster = " -> ".join(dict.fromkeys("{}x{}".format(*arm.shape) for arm in arms))
        row = {"change": change, "graph": name, "cluster": cluster, "metric": metric}
        rows.append({**row, "measured": cells[0], "simulated": cells[1]})
    return rows


def main() -> None:
    logging.disable(logging.WARNING)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=3, help="measured runs of each case")
    parser.add_argument("-k", default="", help="only changes whose name contains this text")
    parser.add_argument("--docs", action="store_true", help="write the table into the page")
    parser.add_argument("--json", type=Path, help="keep the rows in this file, skip those in it")
    arguments = parser.parse_args()
    kept = arguments.json
    lines = kept.read_text().splitlines() if kept and kept.exists() else []
    rows: list[dict[str, str]] = [json.loads(line) for line in lines]
    for policy in POLICIES:
        if arguments.k not in policy[0] or policy[0] in {row["change"] for row in rows}:
            continue
        for row in compare(*policy, n=arguments.n):
            rows.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
            if kept:
                with kept.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    order = [change for change, *_ in POLICIES]
    rows.sort(key=lambda row: order.index(row["change"]))
    titles = list(rows[0])
    table = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    text = "\n".join([*table, *(f"| {' | '.join(row.values())} |" for row in rows)])
    print(text)
    if arguments.docs:
        write_page(text, "policies")


if __name__ == "__main__":
    main()
