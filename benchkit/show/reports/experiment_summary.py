"""Collect the context of the verdicts on the page of an experiment: causes, arms, facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import yaml

from benchkit.analysis.compare.comparison import Comparison
from benchkit.analysis.compare.environment_diff import differences
from benchkit.analysis.compare.explain import GROUPS_READ, Explanation, explain
from benchkit.formatting import format_seconds
from benchkit.store.store import Store

__all__ = [
    "Explained",
    "arm_differences",
    "arms_table",
    "experiment_facts",
    "explained",
    "explained_row",
    "ok_runs",
]


@dataclass(frozen=True)
class Explained:
    """A workload with a changed duration, and the explanation of the change."""

    workload: str
    contender: str
    explanation: Explanation


def explained(
    store: Store, runs: pd.DataFrame, report: Comparison, *, most: int = 3
) -> Iterator[Explained]:
    """Open the runs of the workloads with a changed duration and explain each change.

    Parameters
    ----------
    store : Store
        The store with the runs.
    runs : DataFrame
        The runs that were compared, with their arms.
    report : Comparison
        The comparison of the runs.
    most : int, default 3
        Maximum number of workloads, largest changes first.
    """
    rows = report.frame[report.frame["changed"] & (report.frame["metric"] == "duration")]
    for row in rows.head(most).itertuples():
        yield explained_row(store, runs, report, str(row.workload), str(row.contender))


def explained_row(
    store: Store, runs: pd.DataFrame, report: Comparison, workload: str, contender: str
) -> Explained:
    """Open the runs of a workload in the baseline and in a contender, and explain the difference.

    Raises
    ------
    NotEnoughRuns
        The baseline or the contender has no run with outcome ok.
    """
    mine = ok_runs(runs, workload)
    sides = [
        store.load(mine.loc[mine["arm"] == arm, "id"], GROUPS_READ)
        for arm in (report.baseline, contender)
    ]
    blocked = report.blocked and len(sides[0]) == len(sides[1])
    return Explained(workload, contender, explain(*sides, blocked=blocked))


def ok_runs(runs: pd.DataFrame, workload: str) -> pd.DataFrame:
    """Return the runs of a workload with outcome ok, sorted by block, then by start time."""
    mine = runs[(runs["workload"] == workload) & (runs["outcome"] == "ok")]
    return mine.sort_values(["block", "started"])


def arm_differences(
    store: Store, runs: pd.DataFrame, report: Comparison
) -> dict[str, pd.DataFrame]:
    """Return the differences of each contender from the baseline, between their latest runs."""
    found = {}
    for contender in report.contenders:
        sides = [
            store.load(_ok(runs, arm)["id"].tail(1), ()) for arm in (report.baseline, contender)
        ]
        table = differences(*sides)
        # Drop counts: the latest runs may belong to different workloads, whose counts differ.
        found[contender] = table[table["kind"] != "count"].reset_index(drop=True)
    return found


def arms_table(plan: Mapping[str, Any]) -> pd.DataFrame:
    """Return the arms of an experiment with their full definitions, as text."""
    names = ("description", "python", "packages", "dask", "variables", "cluster", "clusters")
    rows = {}
    for arm in plan["arms"]:
        found = arm["environment"]
        rows[arm["name"]] = {name: yaml_text(found.get(name)) for name in names}
    table = pd.DataFrame.from_dict(rows, orient="index")
    return table.loc[:, (table != "").any()].rename_axis("arm")


def yaml_text(value: Any) -> str:
    """Return a part of a definition as one line of YAML; an empty string for an empty value."""
    if not value:
        return ""
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False)
    return text.strip().removesuffix("...").strip()


def experiment_facts(plan: Mapping[str, Any], runs: pd.DataFrame) -> pd.Series:
    """Return facts of an experiment as text: command, start, runs, machine time, cost."""
    n_planned, n_done = len(plan["plan"]), len(runs)
    ended = (runs["started"] + pd.to_timedelta(runs["duration"].fillna(0), unit="s")).max()
    facts = {
        "experiment": plan["id"],
        "command": f"benchkit {plan['words'].get('command', '')}".strip(),
        "started": f"{runs['started'].min():%Y-%m-%d %H:%M} UTC",
        "took": format_seconds((ended - runs["started"].min()).total_seconds()),
        "runs": f"{n_done} of {n_planned} planned",
        "order": f"{plan['order']}, seed {plan['seed']}",
        "machine": ", ".join(sorted(runs["host"].dropna().unique())),
        "workers held": format_seconds(runs["worker_seconds"].sum())
        if "worker_seconds" in runs
        else "",
    }
    if plan["words"].get("adaptive") and n_done < n_planned:
        facts["runs"] += f": {n_planned - n_done} were saved, their verdict was settled"
    if "cost" in runs and runs["cost"].notna().any():
        facts["cost"] = f"{runs['cost'].sum():.2f} USD"
    return pd.Series({name: text for name, text in facts.items() if text}, name="value")


def _ok(runs: pd.DataFrame, arm: str) -> pd.DataFrame:
    return runs[(runs["arm"] == arm) & (runs["outcome"] == "ok")]
