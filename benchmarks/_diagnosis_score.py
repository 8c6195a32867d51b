"""Recall and precision of `benchmarks/diagnosis.py`, from the rows of its results."""

from __future__ import annotations

import os
import resource
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil

from benchkit.analysis.insight.diagnose import all_rules

__all__ = ["KEPT", "NEIGHBOURS", "OtherProcesses", "other_processes", "problem_of", "summarise"]

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
    for rule in all_rules():
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
