"""Find numbers of a workload that were the same on several nights and are others on the last one.

Numbers of tasks and sizes of graphs are known exactly, so that a change needs no statistics. Takes
totals of runs by night; returns rows of changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from benchkit.analysis.compare.composition import SAME, UNITS, WHOLE_RUN, exact_change
from benchkit.analysis.compare.group_totals import SAME_COUNT, GroupTotals
from benchkit.formatting import PARTS_NAMED

#: Nights with the same number before one with another number is a change. A number that has one of
#: two values at random, as by the order of events, is the same on five nights in 6 % of cases.
EXACT_NIGHTS = 5
#: Numbers of the whole run; transfers depend on the order of events.
RUN_COUNTS = ("graph_tasks", "graph_bytes")
#: Fields of a run that describe its build, with their names in a sentence.
_BUILD = {"dask": "dask", "distributed": "distributed", "git_commit": "commit"}

#: Totals of a run's task groups by name, and its `run_amounts`.
Amounts: TypeAlias = tuple[Mapping[str, GroupTotals], Mapping[str, float]]
Counts: TypeAlias = dict[tuple[str, str], float]


def find_count_changes(nights: Sequence[Sequence[Amounts]]) -> list[dict[str, Any]]:
    """Return the numbers that were the same on the last nights, and are others now."""
    measured = [[_counts(*run) for run in runs] for runs in nights if runs][-EXACT_NIGHTS - 1 :]
    if len(measured) <= EXACT_NIGHTS:
        return []
    last, now = ([run for runs in part for run in runs] for part in (measured[:-1], measured[-1:]))
    rows: list[dict[str, Any]] = []
    for group, metric in sorted({key for run in (*last, *now) for key in run}):
        missing = 0.0 if metric == "group_tasks" else math.nan
        before, after = (
            np.array([run.get((group, metric), missing) for run in runs]) for runs in (last, now)
        )
        if not np.isfinite([*before, *after]).all():
            continue
        least = SAME_COUNT if SAME[metric] else 0.0
        exact = exact_change(metric, before, after, min_runs=1, min_change=least)
        if exact is not None and exact.ratio != 1:
            about = {"group": group, "metric": metric, "unit": UNITS[metric], "exact": True}
            ratio = exact.ratio if exact.before else None
            values = {"baseline": exact.before, "contender_value": exact.after, "ratio": ratio}
            rows.append({**about, **values, "low": None, "high": None, "n_more": 0})
    rows.sort(key=lambda row: (row["group"] != WHOLE_RUN, -_size(row["ratio"])))
    # A release of Dask that joins tasks changes all groups.
    if len(rows) > PARTS_NAMED:
        rows[PARTS_NAMED - 1]["n_more"] = len(rows) - PARTS_NAMED
    return rows[:PARTS_NAMED]


def new_build(runs: pd.DataFrame, night: int) -> str:
    """Return what is new in the build of a workload since a night."""
    sides = runs[runs["night"] < night].tail(1), runs[runs["night"] >= night].head(1)
    if not all(map(len, sides)):
        return ""
    before, after = (side.iloc[0] for side in sides)
    changes = []
    for field, name in _BUILD.items():
        ends = [str(side.get(field) or "")[:12] for side in (before, after)]
        if all(ends) and ends[0] != ends[1]:
            changes.append(f"{name} {ends[0]} -> {ends[1]}")
    hashes = [side.get("packages_hash") for side in (before, after)]
    if not changes and all(isinstance(text, str) for text in hashes) and hashes[0] != hashes[1]:
        return "other packages"
    return ", ".join(changes)


def _counts(totals: Mapping[str, GroupTotals], amounts: Mapping[str, float]) -> Counts:
    """Return the numbers of a run by group and measure."""
    counts: Counts = {}
    for name, total in totals.items():
        counts[name, "group_tasks"] = float(total.n_tasks)
        if total.n_tasks and math.isfinite(total.nbytes):
            counts[name, "group_task_bytes"] = total.nbytes / total.n_tasks
    return counts | {(WHOLE_RUN, name): amounts[name] for name in RUN_COUNTS if name in amounts}


def _size(ratio: float | None) -> float:
    return abs(math.log(ratio)) if ratio else math.inf
