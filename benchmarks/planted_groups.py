"""Print how many planted changes of task groups `benchkit ab` finds, on this machine.

Each workload has three task groups; in some workloads a group of 2 to 10 % of the run does 10 %
more in one arm. Half-way another process takes the processor. Run it as::

    python benchmarks/planted_groups.py [--workloads 20] [--planted 6] [--blocks 5]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from benchkit.analysis.compare.compare_runs import compare_experiment
from benchkit.analysis.compare.run_groups import with_composition

from _planted_arms import measure_planted

WORKLOAD = """import os
from benchkit.measure import workload

def spin(rounds):
    for _ in range(rounds):
        sum(i * i for i in range(1000))
    return rounds

def load(i, rounds):
    return spin(rounds)

def merge(i, rounds):
    return spin(rounds)

def store(i, rounds):
    return spin(rounds)

@workload(variants={{"n": list(range({workloads}))}})
def grouped(client, scale, *, n):
    "Compute in three task groups; `merge` takes 2 to 10 % of the run."
    share = 0.02 * (1 + n % 5)
    total = 40_000 + 2_000 * (n % 7)
    more = 1 + (float(os.environ.get("MORE", "0")) if n < {planted} else 0)
    parts = {{load: 0.6 * (1 - share), store: 0.4 * (1 - share), merge: share * more}}
    return [
        future
        for work, part in parts.items()
        for future in client.map(work, range(8), rounds=int(total * part / 8), pure=False)
    ]
"""


def main() -> None:
    """Measure both arms and print the task groups that changed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", type=int, default=20)
    parser.add_argument("--planted", type=int, default=6)
    parser.add_argument("--more", type=float, default=0.10, help="size of the planted changes")
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--quiet-machine", action="store_true", help="no busy neighbour")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        began = time.monotonic()
        experiment = measure_planted(
            Path(scratch),
            WORKLOAD.format(workloads=options.workloads, planted=options.planted),
            f"{{MORE: '{options.more}'}}",
            blocks=options.blocks,
            quiet=options.quiet_machine,
        )
        runs = experiment.store.runs()
        comparison = compare_experiment(runs, experiment.id)
        comparison = with_composition(comparison, experiment.store.load)
        print(comparison.to_table())
        table = comparison.composition
        shares = table[table["metric"].isin(["group_share", "group_cpu_share"])]
        called = shares[shares["verdict"].isin(["more", "less"])]
        called = called.drop_duplicates(["workload", "group"])
        planted = [f"own.grouped[n={n}]" for n in range(options.planted)]
        first = called[called["workload"].isin(planted)].drop_duplicates("workload")
        right = called["workload"].isin(planted) & (called["group"] == "merge")
        print(
            f"found {right.sum()} of {options.planted} planted groups; "
            f"{(~right).sum()} of {len(called)} changed shares are false; the right group in "
            f"{(first['group'] == 'merge').sum()} of {len(first)} workloads; "
            f"{len(runs)} runs in {time.monotonic() - began:.0f} s"
        )


if __name__ == "__main__":
    main()
