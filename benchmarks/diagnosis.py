"""Score `benchkit diagnose`: ``python benchmarks/diagnosis.py --set NAME [--only TEXT]``.

Prints results, asserts nothing: recall and precision of each rule.

``--set random --seed N``: faults and healthy runs drawn at random (`validation/diagnosis`); with a
new seed, no rule was chosen with them. ``--set tuned``: the fixed faults; where the advice can be
carried out, the promised saving next to the saving that came. ``--set
STORE`` counts findings in a store of runs in which nothing was planted.

Run it on a quiet machine: findings of the rule `neighbours` that were not planted are counted
separately where the counters of the machine confirm them. ``--json FILE --minutes 12`` writes the
results and stops in time; the same command continues, and with ``--again`` the rules of today
diagnose the same recordings. ``gil`` needs the package gilknocker.
"""

import argparse
import json
import logging
import os
import resource
import sys
import tempfile
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import psutil

import benchkit
from benchkit.analysis.insight.diagnose import Diagnosis, diagnose
from benchkit.analysis.insight.rules import RULES
from validation.diagnosis.fixed_faults import FAULTS, Fault
from validation.diagnosis.measure import Clusters, measure, measure_workload, read_run
from validation.diagnosis.random_faults import random_set

#: Healthy runs of a random set, for each fault of one kind.
N_HEALTHY = 30
NEIGHBOURS = "neighbours"
#: Other processes used this many processor cores or more, by the counters of the machine: a finding
#: of `NEIGHBOURS` is true; a run counts as disturbed.
CONFIRMED_CORES, DISTURBED_CORES = 0.2, 0.5
#: Findings whose promised saving is at least this part of what came.
KEPT = 0.5


class OtherProcesses:
    """Processor cores that processes other than this one and its children used."""

    cores = 0.0


@contextmanager
def other_processes() -> Iterator[OtherProcesses]:
    """Measure what other processes of the machine use, by ``/proc/stat``."""
    found = OtherProcesses()
    begin, busy, own = time.monotonic(), _busy_s(), _own_s()
    yield found
    used = _busy_s() - busy - (_own_s() - own)
    found.cores = max(0.0, used) / (time.monotonic() - begin)


def _busy_s() -> float:
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq = map(int, file.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    used = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has just ended
            used += sum(child.cpu_times()[:2])
    return used


def _judged(row: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return true and false findings of a run, without those that only the machine confirms."""
    reported = list(row["findings"])
    confirmed = row["other_cores"] >= CONFIRMED_CORES
    if NEIGHBOURS in reported and NEIGHBOURS not in row["rules"] and confirmed:
        reported.remove(NEIGHBOURS)
    true = {*row["rules"], *row["allowed"]}
    return [r for r in reported if r in true], [r for r in reported if r not in true]


def problem_of(row: dict[str, Any]) -> str:
    """Return what is wrong with the findings of a run, or an empty text."""
    true, false = _judged(row)
    problems = [f"false: {', '.join(false)}"] if false else []
    if row["rules"] and not set(row["rules"]) & set(true):
        problems.append("MISSED")
    return "; ".join(problems)


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Print recall and precision by rule and in total, and return the totals."""
    planted: Counter[str] = Counter()
    found: Counter[str] = Counter()
    true: Counter[str] = Counter()
    false: Counter[str] = Counter()
    for row in rows:
        is_true, is_false = _judged(row)
        true.update(is_true)
        false.update(is_false)
        if row["rules"]:
            planted[row["rules"][0]] += 1
            found[row["rules"][0]] += bool(set(row["rules"]) & set(is_true))
    print(f"\n{'rule':<18}{'planted':>8}{'found':>7}{'recall':>8}{'true':>6}{'false':>7}"
          f"{'precision':>11}")  # fmt: skip
    counts = planted, found, true, false
    for rule in RULES:
        _print_line(rule, *(count[rule] for count in counts))
    totals = [sum(count.values()) for count in counts]
    _print_line("total", *totals)
    healthy = [row for row in rows if not row["rules"]]
    flagged = [row for row in healthy if problem_of(row)]
    disturbed = [row for row in rows if row["other_cores"] >= DISTURBED_CORES]
    confirmed = [
        row
        for row in rows
        if NEIGHBOURS in row["findings"] and NEIGHBOURS not in row["rules"]
        and row["other_cores"] >= CONFIRMED_CORES
    ]  # fmt: skip
    savings = [row["saving"] for row in rows if row.get("saving")]
    kept = [saving for saving in savings if saving["came"] >= KEPT * saving["promised"]]
    summary = {
        "runs": len(rows),
        "planted": totals[0],
        "recall": totals[1] / max(1, totals[0]),
        "precision": totals[2] / max(1, totals[2] + totals[3]),
        "healthy": len(healthy),
        "healthy_flagged": len(flagged),
        "healthy_flagged_undisturbed": sum(row not in disturbed for row in flagged),
        "disturbed_runs": len(disturbed),
        "neighbours_confirmed": len(confirmed),
        "savings": len(savings),
        "savings_kept": len(kept),
    }
    print(f"healthy runs flagged: {len(flagged)} of {len(healthy)}")
    print(f"runs during which other processes used {DISTURBED_CORES} cores: {len(disturbed)}; "
          f"findings of them that the machine's counters confirm: {len(confirmed)}")  # fmt: skip
    if savings:
        print(f"at least {KEPT:.0%} of the promised saving came: {len(kept)} of {len(savings)}")
    return summary


def _print_line(name: str, planted: int, found: int, true: int, false: int) -> None:
    recall = f"{found / planted:.2f}" if planted else ""
    precision = f"{true / (true + false):.2f}" if true + false else ""
    print(f"{name:<18}{planted:>8}{found:>7}{recall:>8}{true:>6}{false:>7}{precision:>11}")


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
