"""Print the verdicts of `benchkit ab` on planted changes, on this machine with its usual noise.

One workload sleeps 8 % longer in one arm, one holds twice the memory, the others do not change;
half-way another process takes the processor. Run it as::

    python benchmarks/planted.py [--unchanged 20] [--blocks 5] [--quiet-machine]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from benchkit.analysis.compare.compare_runs import compare_experiment
from benchkit.show.reports.experiment_summary import explain_changes

from _planted_arms import measure_planted

WORKLOADS = """import os, time
import numpy as np
from benchkit.measure import workload

@workload(variants={{"n": list(range({unchanged}))}})
def even(client, scale, *, n):
    "Compute the same in each arm: naps and a little work."
    def work(i):
        time.sleep(0.03)
        return float(np.sort(np.random.default_rng(i).random(400_000))[0])
    return client.map(work, range(8 + n % 4), pure=False)

@workload
def naps(client, scale):
    "Sleep 8 % longer in one arm."
    return client.submit(lambda s: time.sleep(s), 0.8 * (1 + float(os.environ.get("NAP", "0"))))

@workload
def holds(client, scale):
    "Hold twice the memory in one arm."
    def hold(mib):
        kept = np.ones(mib * 2**17)
        time.sleep(1.2)
        return float(kept[0])
    return client.submit(hold, 100 * int(os.environ.get("HOLD", "1")))
"""


def main() -> None:
    """Measure both arms and print the verdicts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--unchanged", type=int, default=20)
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--quiet-machine", action="store_true", help="no busy neighbour")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        began = time.monotonic()
        experiment, _ = measure_planted(
            Path(scratch),
            WORKLOADS.format(unchanged=options.unchanged),
            "{NAP: '0.08', HOLD: '2'}",
            blocks=options.blocks,
            quiet=options.quiet_machine,
        )
        runs = experiment.store.runs()
        report = compare_experiment(runs, experiment.id)
        print(report.to_table())
        print(report.sentence)
        for warning in report.warnings:
            print("warning:", warning)
        null_p = report.effects.null_p
        print(f"null arm: {(null_p < 0.05).sum()} of {len(null_p)} tests have p < 0.05")
        for row in explain_changes(experiment.store, runs, report):
            print(f"{row.workload}: {row.explanation.sentence}")
        print(f"{len(runs)} runs in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
