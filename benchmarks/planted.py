"""Print what `benchkit ab` says of planted changes: ``python benchmarks/planted.py PART``.

``planted.py metrics [--workloads 20] [--blocks 5]``: the verdicts of a report.
``planted.py work [--workloads 4] [--planted 2] [--blocks 5] [--neighbours 16]``: whether +10 % of
the work of tasks or of the scheduler is found, by CPU seconds and by the duration.
``planted.py groups [--workloads 20] [--planted 6] [--blocks 5]``: how many groups are found; in
pieces, which continue where the last one ended and add up the complete reports, with ``--folder DIR
--seconds 280``. What is planted: `validation/planted_arms.py`.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchkit.analysis.compare.compare_runs import compare_experiment
from benchkit.analysis.compare.explain import explain_changes
from benchkit.analysis.compare.headline import WORK_METRICS
from benchkit.analysis.compare.run_groups import with_composition
from benchkit.experiment.run.experiment import Experiment
from validation.planted_arms import GROUPS, METRICS, WORK, measure_planted


def print_verdicts(folder: Path, given: argparse.Namespace) -> None:
    """Measure both arms and print the verdicts."""
    began = time.monotonic()
    experiment, _ = measure_planted(
        folder,
        METRICS.format(unchanged=given.workloads),
        "{NAP: '0.08', HOLD: '2'}",
        blocks=given.blocks,
        quiet=given.quiet_machine,
    )
    runs = experiment.store.runs()
    report = compare_experiment(runs, experiment.id)
    print(report.to_table())
    print(report.sentence)
    for warning in report.warnings:
        print("warning:", warning)
    null_p = report.effects.null_p
    print(f"null arm: {(null_p < 0.05).sum()} of {len(null_p)} tests have p < 0.05")
    for row in explain_changes(report, experiment.store.open):
        print(f"{row.workload}: {row.explanation.sentence}")
    print(f"{len(runs)} runs in {time.monotonic() - began:.0f} s")


def print_work(folder: Path, given: argparse.Namespace) -> None:
    """Measure both arms with busy neighbours, and print which planted work is found."""
    experiment, _ = measure_planted(
        folder,
        WORK.format(workloads=given.workloads, planted=given.planted),
        f"{{MORE: '{given.more}', BURN: '{given.burn}'}}",
        blocks=given.blocks,
        quiet=given.quiet_machine,
        budget_s=given.seconds,
        n_neighbours=given.neighbours,
    )
    report = compare_experiment(experiment.store.runs(), experiment.id)
    report = with_composition(report, experiment.store)
    print(report.to_table(all_rows=True))
    print(report.sentence)
    frame = report.frame
    number = frame["workload"].str.extract(r"n=(\d+)", expand=False).astype(int)
    planted = number < given.planted
    own = (
        frame["workload"]
        .str.startswith("own.tasks")
        .map({True: "cpu_time", False: "scheduler_cpu_time"})
    )
    is_work = frame["metric"].isin(WORK_METRICS)
    for title, rows in (
        ("work, in the process that has more", planted & (frame["metric"] == own)),
        ("duration", planted & (frame["metric"] == "duration")),
        ("false: work of unchanged workloads", ~planted & is_work),
        ("false: duration of unchanged workloads", ~planted & (frame["metric"] == "duration")),
    ):
        called = frame[rows]["changed"]
        noise = frame[rows]["noise"].median()
        print(f"{title}: {called.sum()} of {len(called)}; noise of a run {noise:.1%}")


def print_groups(folder: Path, given: argparse.Namespace) -> None:
    """Measure a piece of both arms, and print the score of all complete reports."""
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / "reports.jsonl"
    reports = results.read_text().splitlines() if results.exists() else []
    began = time.monotonic()
    experiment, is_complete = measure_planted(
        folder / f"report-{len(reports) + 1}",
        GROUPS.format(workloads=given.workloads, planted=given.planted),
        f"{{MORE: '{given.more}'}}",
        blocks=given.blocks,
        quiet=given.quiet_machine,
        budget_s=given.seconds,
    )
    n_all = len(experiment.arms) * len(experiment.variants) * given.blocks
    print(f"{len(experiment.store.runs())} of {n_all} runs of report {len(reports) + 1} are "
          f"measured; this piece took {time.monotonic() - began:.0f} s")  # fmt: skip
    if is_complete:
        reports.append(json.dumps(score(experiment, given.planted)))
        results.write_text("".join(f"{line}\n" for line in reports))
    print_scores([json.loads(line) for line in reports])


def score(experiment: Experiment, n_planted: int) -> dict[str, int]:
    """Print the comparison of a report, and return its numbers of right and false groups."""
    comparison = compare_experiment(experiment.store.runs(), experiment.id)
    comparison = with_composition(comparison, experiment.store)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["metrics", "work", "groups"])
    parser.add_argument("--workloads", type=int, default=20)
    parser.add_argument("--planted", type=int, default=6)
    parser.add_argument("--more", type=float, default=0.10, help="size of the planted changes")
    parser.add_argument("--burn", type=float, default=1e-4, help="s of the scheduler for a task")
    parser.add_argument("--neighbours", type=int, default=1, help="busy processes")
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--quiet-machine", action="store_true", help="no busy neighbour")
    parser.add_argument("--folder", type=Path, help="keep the runs here; call again to continue")
    parser.add_argument("--seconds", type=float, help="time of a piece; default no limit")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        parts = {"metrics": print_verdicts, "work": print_work, "groups": print_groups}
        parts[given.part](folder, given)


if __name__ == "__main__":
    main()
