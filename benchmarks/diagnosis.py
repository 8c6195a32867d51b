"""Score `benchkit diagnose`: ``python benchmarks/diagnosis.py --set NAME [--only TEXT]``.

Prints results, asserts nothing: recall and precision of each rule.

``--set random --seed N``: faults and healthy runs drawn at random, see `_diagnosis_random`; with a
new seed, no rule was chosen with them. ``--set tuned``: the fixed faults of `_diagnosis_faults`;
where the advice can be carried out, the promised saving next to the saving that came. ``--set
STORE`` counts findings in a store of runs in which nothing was planted.

Run it on a quiet machine: findings of the rule `neighbours` that were not planted are counted
separately where the counters of the machine confirm them. ``--json FILE --minutes 12`` writes the
results and stops in time; the same command continues, and with ``--again`` the rules of today
diagnose the same recordings. ``gil`` needs the package gilknocker.
"""

from __future__ import annotations

import argparse
import gc
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

import _diagnosis_plants as plants
import _diagnosis_tasks as tasks
import cloudpickle
import dask
from _diagnosis_clusters import CLUSTER, Clusters
from _diagnosis_faults import FAULTS, Fault
from _diagnosis_random import random_set
from _diagnosis_score import NEIGHBOURS, other_processes, problem_of, summarise
from distributed import Client

import benchkit
from benchkit.analysis.insight.diagnose import Diagnosis, diagnose
from benchkit.measure.capture_client import Observer
from benchkit.measure.provenance import host_info
from benchkit.measure.recording import RecordingWriter
from benchkit.measure.run_ids import new_id
from benchkit.store.build.run_from_recording import run_from_recording
from benchkit.store.run import Run

#: Healthy runs of a random set, for each fault of one kind.
N_HEALTHY = 30
#: Seconds after which a fault is no longer waited for, such as one whose workers stay paused.
DEADLINE_S = 40.0


def measure(
    clusters: Clusters,
    fault: Fault,
    work: Callable[[Client], Any],
    cluster: Mapping[str, Any] | None = None,
) -> Path:
    """Run a function on a cluster and return its recording."""
    options = fault.cluster if cluster is None else cluster
    leaves = fault.leaves or fault.prepare is not None
    with clusters.client(options, fault.config, leaves=leaves) as client:
        if fault.prepare:
            fault.prepare(client)
        recording, error = _record(client, work)
        if error and not leaves:
            clusters.close()
        if error and not fault.rules:
            raise RuntimeError(error)
        return recording


def measure_workload(fault: Fault) -> Path:
    """Run a workload of the catalogue on a new cluster and return its store."""
    folder = Path(tempfile.mkdtemp())
    file = folder / "faulty.yaml"
    cluster = {**CLUSTER, "memory_limit": "1 GiB", **fault.cluster}
    settings: dict[str, Any] = {}
    dask.config.set(dict(fault.config), config=settings)  # nested mappings instead of dots
    file.write_text(json.dumps({"cluster": cluster, "dask": settings}))
    benchkit.run(fault.name, environment=str(file), store=folder / "store")
    return folder / "store"


def read_run(path: Path) -> Run:
    """Return the run of a recording, or the only run of a store."""
    if path.suffix == ".recording":
        return Run(run_from_recording(path))
    store = benchkit.Store(path, create=False)
    return store.open(store.runs()["id"].iloc[0])


def _record(client: Client, work: Callable[[Client], Any]) -> tuple[Path, str]:
    writer = RecordingWriter(Path(tempfile.mkdtemp()), new_id())
    run_id = writer.path.name.partition(".")[0]
    facts = {"workload": "diagnosis.fault", "capture": "full", "host": host_info()}
    writer.head(id=run_id, started=time.time(), **facts)
    observer = Observer(client, writer, f"benchkit-{run_id}")
    observer.install()
    gc.collect()  # as before the clock of each run: not what earlier diagnoses left behind
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
    return writer.path, error


def examine(clusters: Clusters, fault: Fault, *, savings: bool) -> tuple[dict[str, Any], Diagnosis]:
    """Run a fault and return its row of the results, and the diagnosis."""
    with other_processes() as others:
        path = measure(clusters, fault, fault.run) if fault.run else measure_workload(fault)
    diagnosis = diagnose(read_run(path))
    row = {
        "fault": fault.name,
        "rules": fault.rules,
        "allowed": fault.allowed,
        "duration": diagnosis.duration,
        "findings": {finding.rule: finding.seconds for finding in diagnosis.findings},
        "other_cores": others.cores,
        "recorded": str(path),
    }
    finding = next((found for found in diagnosis.findings if found.rule in fault.rules), None)
    if savings and fault.mended and finding:
        mended_fault = replace(fault, prepare=None, leaves=False)
        mended = read_run(measure(clusters, mended_fault, fault.mended, fault.mended_cluster))
        came = diagnosis.duration - mended.metrics["duration"]
        row["saving"] = {"rule": finding.rule, "promised": finding.seconds, "came": came}
    return row, diagnosis


def print_row(row: dict[str, Any]) -> None:
    """Print what was found in a run, and what is wrong with it."""
    texts = ", ".join(f"{rule} {seconds:.2f} s" for rule, seconds in row["findings"].items())
    print(f"{row['fault']:<36}{row['duration']:>6.2f} s  {texts}  {problem_of(row)}", flush=True)
    if saving := row.get("saving"):
        print(f"{'':<36}advice carried out: {saving['rule']} promised {saving['promised']:.2f} s, "
              f"{saving['came']:.2f} s came", flush=True)  # fmt: skip


def diagnose_again(rows: list[dict[str, Any]], faults: list[Fault]) -> None:
    """Replace the findings of the rows by those of today's rules, and what is true of them."""
    true = {fault.name: (fault.rules, fault.allowed) for fault in faults}
    for row in rows:
        diagnosis = diagnose(read_run(Path(row["recorded"])))
        row["rules"], row["allowed"] = true[row["fault"]]
        row["findings"] = {finding.rule: finding.seconds for finding in diagnosis.findings}
        print_row(row)


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
    parser.add_argument("--seed", type=int, default=0, help="number of the random set")
    parser.add_argument("--repeats", type=int, default=2, help="random faults of each kind")
    parser.add_argument("--no-savings", action="store_true", help="do not carry out any advice")
    parser.add_argument("--details", action="store_true", help="print all findings of each run")
    parser.add_argument("--json", help="file of the results; runs that it has are not repeated")
    parser.add_argument("--minutes", type=float, default=60.0, help="start no run after these")
    parser.add_argument("--set", default="random", help="random, tuned, or a store of runs")
    parser.add_argument("--again", action="store_true", help="diagnose the runs of --json again")
    given = parser.parse_args()
    for module in (tasks, plants):
        cloudpickle.register_pickle_by_value(module)
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    if given.set not in ("random", "tuned"):
        count_findings(Path(given.set))
        return
    name, faults = given.set, FAULTS
    if given.set == "random":
        name = f"random {given.seed}"
        faults = random_set(given.seed, given.repeats, N_HEALTHY * given.repeats)
    file = Path(given.json or tempfile.mkdtemp(), *([] if given.json else ["results.json"]))
    results = json.loads(file.read_text()) if file.exists() else {"set": name, "rows": []}
    if results["set"] != name:
        parser.error(f"--json {file}: it has results of the set {results['set']}")
    rows, began = results["rows"], time.monotonic()
    if given.again:
        diagnose_again(rows, faults)
        faults = []
    done = Counter(row["fault"] for row in rows)
    clusters = Clusters()
    for fault in faults:
        if not any(given.only in name for name in (fault.name, *fault.rules)):
            continue
        if done[fault.name]:
            done[fault.name] -= 1
            continue
        if time.monotonic() - began > 60 * given.minutes:
            print(f"stopped after {given.minutes:g} minutes: the same command continues")
            break
        try:
            row, diagnosis = examine(clusters, fault, savings=not given.no_savings)
        except (OSError, RuntimeError) as error:  # a cluster that did not start in time
            print(f"{fault.name:<36}not measured: {error}", flush=True)
            continue
        rows.append(row)
        print_row(row)
        if given.details:
            print(*diagnosis.conclusion, *(f"  {x.evidence}" for x in diagnosis.findings), sep="\n")
        file.write_text(json.dumps(results))
    clusters.close()
    results["summary"] = summarise(rows)
    file.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
