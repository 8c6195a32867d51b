"""Print how many planted changes of task groups `benchkit ab` finds, on this machine.

Each workload has three task groups, which run one after the other, or in half of the workloads as
chains; in some workloads a group of 2 to 10 % of the run does 10 % more in one arm. Half-way
another process takes the processor. Run it as::

    python benchmarks/planted_groups.py [--workloads 20] [--planted 6] [--blocks 5]

or in pieces, which continue where the last one ended and add up the reports that are complete::

    python benchmarks/planted_groups.py --folder DIR --seconds 280
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchkit.analysis.compare.compare_runs import compare_experiment
from benchkit.analysis.compare.run_groups import with_composition
from benchkit.experiment.run.experiment import Experiment

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
    parts = {{load: 0.6 * (1 - share), merge: share * more, store: 0.4 * (1 - share)}}
    inputs = range(24)
    futures = []
    for work, part in parts.items():
        futures += client.map(work, inputs, rounds=int(total * part / 24), pure=False)
        if n % 2:
            inputs = futures[-24:]
    return futures
"""


def main() -> None:
    """Measure a piece of both arms, and print the score of all complete reports."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", type=int, default=20)
    parser.add_argument("--planted", type=int, default=6)
    parser.add_argument("--more", type=float, default=0.10, help="size of the planted changes")
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--quiet-machine", action="store_true", help="no busy neighbour")
    parser.add_argument("--folder", type=Path, help="keep the runs here; call again to continue")
    parser.add_argument("--seconds", type=float, help="time of a piece; default no limit")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        results = folder / "reports.jsonl"
        reports = results.read_text().splitlines() if results.exists() else []
        began = time.monotonic()
        experiment, is_complete = measure_planted(
            folder / f"report-{len(reports) + 1}",
            WORKLOAD.format(workloads=options.workloads, planted=options.planted),
            f"{{MORE: '{options.more}'}}",
            blocks=options.blocks,
            quiet=options.quiet_machine,
            budget_s=options.seconds,
        )
        n_runs = len(experiment.store.runs())
        n_all = len(experiment.arms) * len(experiment.variants) * options.blocks
        print(f"{n_runs} of {n_all} runs of report {len(reports) + 1} are measured; "
              f"this piece took {time.monotonic() - began:.0f} s")  # fmt: skip
        if is_complete:
            reports.append(json.dumps(score(experiment, options.planted)))
            results.write_text("".join(f"{line}\n" for line in reports))
    print_scores([json.loads(line) for line in reports])


def score(experiment: Experiment, n_planted: int) -> dict[str, int]:
    """Print the comparison of a report, and return its numbers of right and false groups."""
    comparison = compare_experiment(experiment.store.runs(), experiment.id)
    comparison = with_composition(comparison, experiment.store.load)
    print(comparison.to_table())
    table = comparison.composition
    shares = table[table["metric"].isin(["group_share", "group_cpu_share"])]
    called = shares[shares["verdict"].isin(["more", "less"])]
    called = called.drop_duplicates(["workload", "group"])
    planted = [f"own.grouped[n={n}]" for n in range(n_planted)]
    first = called[called["workload"].isin(planted)].drop_duplicates("workload")
    right = called["workload"].isin(planted) & (called["group"] == "merge")
    return {
        "planted": n_planted,
        "found": int(right.sum()),
        "false": int((~right).sum()),
        "named": len(first),
        "right_first": int((first["group"] == "merge").sum()),
    }


def print_scores(reports: Sequence[dict[str, int]]) -> None:
    """Print the shares of found and of false groups over all complete reports."""
    if not reports:
        print("no report is complete yet: call again")
        return
    total = {name: sum(report[name] for report in reports) for name in reports[0]}
    rates = [r["false"] / max(r["found"] + r["false"], 1) for r in reports]
    print(
        f"{len(reports)} reports: found {total['found']} of {total['planted']} planted groups; "
        f"{total['false']} of {total['found'] + total['false']} changed groups are false (mean "
        f"share in a report {sum(rates) / len(rates):.3f}); the right group is first in "
        f"{total['right_first']} of {total['named']} workloads"
    )


if __name__ == "__main__":
    main()
