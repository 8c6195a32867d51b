"""Put a whole comparison into a few sentences: rows, task groups, exact counts, the suite, work.

Takes a comparison; the command line, pages, comments and the exit code use these sentences and
counts, and compute none of their own.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from benchkit.analysis.compare.group_totals import COUNTS, GROUP_TIMES, short_name
from benchkit.formatting import PARTS_NAMED, counted, format_change, format_factor

if TYPE_CHECKING:
    from benchkit.analysis.compare.comparison import Comparison

#: Metrics of work: CPU seconds, which other programs on the machine change less than the duration.
WORK_METRICS = ("cpu_time", "scheduler_cpu_time", "client_cpu_time")
#: Metric of work -> process in a sentence.
_PROCESSES = dict(zip(WORK_METRICS, ("workers", "scheduler", "client"), strict=True))
#: The machine of a workload was busy if this share of its runs was disturbed.
BUSY_SHARE = 0.5


class SuiteChange(NamedTuple):
    """The change of all workloads of a comparison together."""

    contender: str
    metric: str
    n_workloads: int
    ratio: float  # Geometric mean of the ratios, with its interval `low` to `high`
    low: float
    high: float
    n_worse: int  # n_worse, n_better: Workloads with a verdict for the worse or the better
    n_better: int
    moved: str  # Workloads with the largest changes, and their sizes


def suite_changes(comparison: Comparison) -> list[SuiteChange]:
    """Return the change of the suite in the first metric, for each contender.

    Notes
    -----
    The interval is that of the mean of the changes of these workloads, from the noise of their
    runs (Satterthwaite's degrees of freedom); it does not say what other workloads would do.
    """
    metric = comparison.metrics[0]
    effects = comparison.effects
    found = []
    for contender in comparison.contenders:
        rows = comparison.frame
        rows = rows[(rows["contender"] == contender) & (rows["metric"] == metric)]
        places = rows["row"].to_numpy(int)
        usable = np.isfinite(effects.se[places]) & effects.points.logarithmic[places]
        rows, places = rows[usable], places[usable]
        if len(rows) < 2:
            continue
        estimate, variance = effects.estimate[places], effects.se[places] ** 2
        mean, se = float(estimate.mean()), math.sqrt(variance.sum()) / len(rows)
        squares = float((variance**2 / effects.df[places]).sum())
        df = float(variance.sum() ** 2 / squares) if squares else math.inf
        half = float(stdtrit(df, (1 + comparison.level) / 2)) * se if se else 0.0
        changed = rows[rows["changed"]]
        largest = changed.loc[changed["ratio"].map(math.log).abs().sort_values().index[::-1]]
        moved = [
            f"{row.workload} {_change(row.ratio)}" for row in largest.head(PARTS_NAMED).itertuples()
        ]
        found.append(
            SuiteChange(
                contender, metric, len(rows), math.exp(mean), math.exp(mean - half),
                math.exp(mean + half), int((changed["worse"]).sum()),
                int((~changed["worse"]).sum()), ", ".join(moved),
            )
        )  # fmt: skip
    return found


def sentences(comparison: Comparison) -> list[str]:
    """Return the headline of a comparison: the counts of all verdicts, the suite, and work."""
    groups = comparison.changed_groups
    parts = [_rows(comparison)]
    parts += _about(groups, "Task groups", GROUP_TIMES)
    parts += _about(groups, "Counts", COUNTS)
    if comparison.composition is None:
        parts.append("Task groups and counts were not read.")
    parts += [_suite(change, comparison) for change in suite_changes(comparison)]
    parts += _work(comparison)
    if not comparison.judges_wall_time:
        parts.append("Wall time is not judged, only CPU seconds and counts.")
    if not comparison.blocked:
        parts.append("Runs not interleaved: the machine can cause such changes.")
    return parts


def _rows(comparison: Comparison) -> str:
    frame = comparison.frame
    verdicts = frame["verdict"].value_counts()
    n_worse = int((comparison.worse["verdict"] != "failed").sum())
    parts = [f"{n_worse} worse", f"{len(comparison.better)} better"]
    parts += [
        f"{verdicts[verdict]} {verdict}"
        for verdict in ("same", "undecided", "noise", "failed")
        if verdict in verdicts
    ]
    runs = frame[["n_baseline", "n_contender"]].max()
    n_workloads, n_metrics = frame["workload"].nunique(), frame["metric"].nunique()
    return (
        f"Of {counted(len(frame), 'comparison')} ({counted(n_workloads, 'workload')}, "
        f"{counted(n_metrics, 'metric')}, "
        f"up to {runs['n_baseline']} + {runs['n_contender']} runs): {', '.join(parts)}."
    )


def _about(groups: Sequence[Mapping[str, Any]], title: str, metrics: Container[str]) -> list[str]:
    """Return how many task groups, or counts, are worse and better, and which moved most."""
    rows = [row for row in groups if row["metric"] in metrics and (row["worse"] or row["better"])]
    if not rows:
        return []
    # One group has several measures, but is one finding.
    rows = list({(r["contender"], r["workload"], r["group"] or r["metric"]): r
                 for r in reversed(rows)}.values())[::-1]  # fmt: skip
    n_worse = sum(row["worse"] for row in rows)
    largest = max(rows, key=lambda row: _size(row["ratio"]))
    name = f"{largest['workload']}, {short_name(largest)} {_change(largest['ratio'])}"
    return [f"{title}: {n_worse} worse, {len(rows) - n_worse} better ({name})."]


def _change(ratio: float) -> str:
    factor = format_factor(ratio) if ratio > 1 else ""
    return f"{factor} as high" if factor else format_change(ratio)


def _size(ratio: float) -> float:
    return abs(math.log(ratio)) if 0 < ratio < math.inf else math.inf


def _suite(change: SuiteChange, comparison: Comparison) -> str:
    arm = f" of {change.contender}" if len(comparison.contenders) > 1 else ""
    interval = f"{format_change(change.low)} to {format_change(change.high)}"
    text = (
        f"All workloads, {change.metric}{arm}: {format_change(change.ratio)} "
        f"({interval}, geometric mean), {change.n_worse} worse, {change.n_better} better"
    )
    return f"{text}; moved most: {change.moved}." if change.moved else f"{text}."


def _work(comparison: Comparison) -> list[str]:
    """Return what the CPU seconds say of workloads whose duration a busy machine leaves open."""
    texts = list(_work_of_workloads(comparison))
    shown, hidden = texts[:PARTS_NAMED], len(texts) - PARTS_NAMED
    return [*shown, f"And {counted(hidden, 'more workload')} like this."] if hidden > 0 else shown


def _work_of_workloads(comparison: Comparison) -> Iterator[str]:
    several = len(comparison.contenders) > 1
    tables = comparison.frame.groupby(["contender", "workload"], sort=False)
    for (contender, workload), rows in tables:
        duration = rows[rows["metric"] == "duration"]
        work = rows[rows["metric"].isin(WORK_METRICS)]
        if duration.empty or work.empty or not is_undecided_by_load(duration.iloc[0]):
            continue
        where = f"{workload}{f' in {contender}' if several else ''}"
        changed = work[work["changed"]]
        if changed.empty and not (work["verdict"] == "same").all():
            continue
        texts = [
            f"{100 * abs(row.ratio - 1):.0f} % {'more' if row.worse else 'less'} work "
            f"(CPU of the {_PROCESSES[row.metric]})"
            for row in changed.itertuples()
        ]
        text = " and ".join(texts) or f"the same work (CPU) within ±{comparison.same:.0%}"
        yield f"{where}: {text}; the wall time could not be judged on this busy machine."


def is_undecided_by_load(row: Mapping[str, Any] | pd.Series) -> bool:
    """Return whether a row has no verdict, and a busy machine disturbed most of its runs."""
    n_runs = row["n_baseline"] + row["n_contender"]
    is_busy = row["n_disturbed"] >= max(BUSY_SHARE * n_runs, 1)
    return bool(is_busy and row["verdict"] in ("undecided", "noise"))
