"""Score `benchkit diagnose`: ``python benchmarks/diagnosis.py [--only TEXT] [--set NAME]``.

Prints results, asserts nothing. Plants the faults of `_diagnosis_faults`, each on a cluster of its
own, and runs healthy workloads; prints recall and precision of each rule, and for faults whose
advice can be carried out the promised saving next to the saving that came. The same table for the
faults of `_diagnosis_held_out`, with which no rule was chosen, comes from ``--set held-out``;
``--set STORE`` counts findings in a store of runs in which nothing was planted.

Run it on a quiet machine: findings of the rule `neighbours` that were not planted are counted
separately, because other processes of the machine are what the rule finds. ``gil`` needs the
package gilknocker.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import _diagnosis_tasks as tasks
import cloudpickle
import dask
from _diagnosis_faults import FAULTS, HEALTHY, Fault
from _diagnosis_held_out import HELD_OUT, HELD_OUT_HEALTHY
from distributed import Client, LocalCluster

import benchkit
from benchkit.analysis.insight.diagnose import Diagnosis, all_rules, diagnose
from benchkit.measure.capture_client import Observer
from benchkit.measure.recording import RecordingWriter
from benchkit.measure.run_ids import new_id
from benchkit.store.build.run_from_recording import run_from_recording
from benchkit.store.run import Run

CLUSTER = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "1GB"}
NEIGHBOURS = "neighbours"
#: Seconds after which a fault is no longer waited for, such as one whose workers stay paused.
DEADLINE_S = 60.0
#: Findings whose promised saving is at least this part of what came.
KEPT = 0.5


def measure(
    fault: Fault, work: Callable[[Client], Any], cluster: Mapping[str, Any] | None = None
) -> Run:
    """Run a function on a new cluster and return its run."""
    options = {**CLUSTER, **(fault.cluster if cluster is None else cluster)}
    with dask.config.set(dict(fault.config)):
        with (
            LocalCluster(
                **options, dashboard_address=None, silence_logs=logging.CRITICAL
            ) as scheduler,
            Client(scheduler) as client,
        ):
            client.wait_for_workers(options["n_workers"])
            client.run(tasks.spin, 0.05)  # imports
            if fault.prepare:
                fault.prepare(client)
            return _record(client, work)


def measure_workload(fault: Fault) -> Run:
    """Run a workload of the catalogue on a new cluster and return its run."""
    folder = Path(tempfile.mkdtemp())
    file = folder / "faulty.yaml"
    file.write_text(json.dumps({"cluster": {**CLUSTER, "memory_limit": "1 GiB", **fault.cluster}}))
    (run,) = benchkit.run(fault.name, environment=str(file), store=folder / "store")
    return run


def _record(client: Client, work: Callable[[Client], Any]) -> Run:
    writer = RecordingWriter(Path(tempfile.mkdtemp()), new_id())
    run_id = writer.path.name.partition(".")[0]
    writer.head(id=run_id, started=time.time(), workload="diagnosis.fault", capture="full")
    observer = Observer(client, writer, f"benchkit-{run_id}")
    observer.install()
    observer.clock_on()
    error = ""
    pool = ThreadPoolExecutor(1)
    try:
        pool.submit(work, client).result(DEADLINE_S)
    except Exception as problem:  # a fault may end the workload, or stop it
        error = f"{type(problem).__name__}: {problem}".splitlines()[0]
    pool.shutdown(wait=False)  # a workload that hangs ends when its client is closed
    observer.clock_off()
    time.sleep(0.6)  # a heartbeat: the last samples of the workers
    observer.uninstall()
    writer.tail(outcome="failed" if error else "ok", error=error, **observer.tail())
    return Run(run_from_recording(writer.path))


class Score:
    """Findings of all runs by rule."""

    def __init__(self) -> None:
        self.planted: Counter[str] = Counter()
        self.found: Counter[str] = Counter()
        self.true: Counter[str] = Counter()
        self.false: Counter[str] = Counter()
        self.n_neighbours = self.n_healthy = self.n_flagged = 0

    def add(self, fault: Fault, diagnosis: Diagnosis) -> str:
        """Count the findings of a run; return what is wrong with them, or an empty text."""
        reported = [finding.rule for finding in diagnosis.findings]
        true = {*fault.rules, *fault.allowed}
        if NEIGHBOURS not in fault.rules and NEIGHBOURS in reported:
            self.n_neighbours += 1
            reported.remove(NEIGHBOURS)
        false = [rule for rule in reported if rule not in true]
        self.true.update(rule for rule in reported if rule in true)
        self.false.update(false)
        problems = [f"false: {', '.join(false)}"] if false else []
        if not fault.rules:
            self.n_healthy += 1
            self.n_flagged += bool(reported)
        else:
            rule = fault.rules[0]
            self.planted[rule] += 1
            if set(fault.rules) & set(reported):
                self.found[rule] += 1
            else:
                problems.append("MISSED")
        return "; ".join(problems)

    def print(self) -> None:
        """Print recall and precision by rule and in total."""
        print(f"\n{'rule':<18}{'planted':>8}{'found':>7}{'recall':>8}{'true':>6}{'false':>7}"
              f"{'precision':>11}")  # fmt: skip
        for rule in all_rules():
            self._line(rule, *(counts[rule] for counts in self._counts))
        self._line("total", *(sum(counts.values()) for counts in self._counts))
        print(f"healthy runs flagged: {self.n_flagged} of {self.n_healthy}")
        print(f"runs with other processes on the machine (not counted): {self.n_neighbours}")

    @property
    def _counts(self) -> list[Counter[str]]:
        return [self.planted, self.found, self.true, self.false]

    def _line(self, name: str, planted: int, found: int, true: int, false: int) -> None:
        recall = f"{found / planted:.2f}" if planted else ""
        precision = f"{true / (true + false):.2f}" if true + false else ""
        print(f"{name:<18}{planted:>8}{found:>7}{recall:>8}{true:>6}{false:>7}{precision:>11}")


def savings(rows: list[tuple[Fault, Run, Diagnosis]]) -> None:
    """Carry out the advice of findings, and print what was promised and what came."""
    kept = 0
    print(f"\n{'advice carried out':<36}{'finding':<17}{'promised':>10}{'came':>10}")
    for fault, run, diagnosis in rows:
        finding = next(found for found in diagnosis.findings if found.rule in fault.rules)
        mended = measure(
            replace(fault, prepare=None), fault.mended or fault.run, fault.mended_cluster
        )
        came = run.metrics["duration"] - mended.metrics["duration"]
        kept += came >= KEPT * finding.seconds
        print(
            f"{fault.name:<36}{finding.rule:<17}{finding.seconds:>8.2f} s{came:>8.2f} s", flush=True
        )
    print(f"at least {KEPT:.0%} of the promised saving came: {kept} of {len(rows)}")


def count_findings(store: Path) -> None:
    """Print the findings in runs in which nothing was planted, by rule."""
    opened = benchkit.Store(store, create=False)
    found: Counter[str] = Counter()
    workloads: dict[str, set[str]] = defaultdict(set)
    n_flagged = n_runs = 0
    for run_id in opened.runs(outcome="ok")["id"]:
        run = opened.open(run_id)
        rules = {finding.rule for finding in diagnose(run).findings}
        found.update(rules)
        n_runs += 1
        n_flagged += bool(rules - {NEIGHBOURS})
        for rule in rules:
            workloads[rule].add(run.workload)
    print(f"{'rule':<18}{'runs':>6}{'workloads':>11}")
    for rule, count in found.most_common():
        print(f"{rule:<18}{count:>6}{len(workloads[rule]):>11}")
    print(f"runs with findings other than {NEIGHBOURS}: {n_flagged} of {n_runs}")


def main() -> None:
    """Print what was found, recall and precision, and savings."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="faults whose name or rule contains this")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each healthy workload")
    parser.add_argument("--no-savings", action="store_true", help="do not carry out any advice")
    parser.add_argument("--details", action="store_true", help="print all findings of each run")
    parser.add_argument("--set", default="tuned", help='"tuned", "held-out" or a store of runs')
    given = parser.parse_args()
    cloudpickle.register_pickle_by_value(tasks)
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    if given.set not in ("tuned", "held-out"):
        count_findings(Path(given.set))
        return
    faults = [*FAULTS, *HEALTHY * given.repeats]
    if given.set == "held-out":
        faults = [*HELD_OUT, *HELD_OUT_HEALTHY * given.repeats]
    score, can_be_mended = Score(), []
    for fault in faults:
        if not any(given.only in name for name in (fault.name, *fault.rules)):
            continue
        try:
            run = measure(fault, fault.run) if fault.run else measure_workload(fault)
        except (OSError, RuntimeError) as error:  # a cluster that did not start in time
            print(f"{fault.name:<36}not measured: {error}", flush=True)
            continue
        diagnosis = diagnose(run)
        problem = score.add(fault, diagnosis)
        found = {finding.rule for finding in diagnosis.findings}
        if fault.mended and set(fault.rules) & found:
            can_be_mended.append((fault, run, diagnosis))
        texts = ", ".join(f"{x.rule} {x.seconds:.2f} s" for x in diagnosis.findings)
        print(f"{fault.name:<36}{diagnosis.duration:>6.2f} s  {texts}  {problem}", flush=True)
        if given.details:
            print(*diagnosis.conclusion, *(f"  {x.evidence}" for x in diagnosis.findings), sep="\n")
    score.print()
    if can_be_mended and not given.no_savings:
        savings(can_be_mended)


if __name__ == "__main__":
    main()
