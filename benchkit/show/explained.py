"""The rows of a report that changed, each with its runs opened and its difference explained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from benchkit.analysis.comparison import Report
from benchkit.analysis.differences import differences
from benchkit.analysis.explain import Explanation, explain
from benchkit.store.store import Store

__all__ = ["Explained", "arm_differences", "explained"]


@dataclass(frozen=True)
class Explained:
    """One workload that changed in duration, and why."""

    workload: str
    contender: str
    explanation: Explanation


def explained(
    store: Store, runs: pd.DataFrame, report: Report, *, most: int = 3
) -> Iterator[Explained]:
    """Open the runs of the workloads whose duration changed and explain each.

    Parameters
    ----------
    store : Store
        Where the runs are.
    runs : DataFrame
        The runs that were compared, with their arms.
    report : Report
        What was found.
    most : int, default 3
        So many workloads, the largest changes first.
    """
    rows = report.frame[report.frame["changed"] & (report.frame["metric"] == "duration")]
    for row in rows.head(most).itertuples():
        sides = [
            _trees(store, runs, arm, str(row.workload)) for arm in (report.baseline, row.contender)
        ]
        blocked = report.blocked and len(sides[0]) == len(sides[1])
        found = explain(*sides, blocked=blocked)
        yield Explained(str(row.workload), str(row.contender), found)


def arm_differences(store: Store, runs: pd.DataFrame, report: Report) -> dict[str, pd.DataFrame]:
    """Return what differs between the baseline and each contender, by the latest run of each."""
    found = {}
    for contender in report.contenders:
        sides = [
            [store.open(i) for i in _ok(runs, arm)["id"].tail(1)]
            for arm in (report.baseline, contender)
        ]
        table = differences(*sides)
        # The latest runs may be of different workloads, whose counts differ by nature.
        found[contender] = table[table["kind"] != "count"].reset_index(drop=True)
    return found


def _ok(runs: pd.DataFrame, arm: str) -> pd.DataFrame:
    return runs[(runs["arm"] == arm) & (runs["outcome"] == "ok")]


def _trees(store: Store, runs: pd.DataFrame, arm: str, workload: str) -> list[Any]:
    mine = _ok(runs, arm)
    mine = mine[mine["workload"] == workload].sort_values("block")
    return [store.open(run_id) for run_id in mine["id"]]
