"""Collect what the page of an experiment shows besides verdicts: causes, arms, metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import yaml

from benchkit.analysis.compare.comparison import Comparison
from benchkit.analysis.compare.environment_diff import differences
from benchkit.analysis.compare.explain import GROUPS_READ, Explanation, explain
from benchkit.formatting import MISSING, format_seconds
from benchkit.measure.arguments import check_count
from benchkit.store.filters import pair_workloads
from benchkit.store.store import Store

#: Largest number of packages of only one side with a row each.
MAX_ONE_SIDED = 5


@dataclass(frozen=True)
class ExplainedChange:
    """A workload with a changed duration, and the explanation of the change."""

    workload: str  # workload, contender: The row of the comparison
    contender: str
    explanation: Explanation  # The task groups and activities that took the extra seconds


def explain_changes(
    store: Store, runs: pd.DataFrame, comparison: Comparison, *, most: int = 3
) -> Iterator[ExplainedChange]:
    """Open the runs of the workloads with a changed duration and explain each change."""
    rows = comparison.frame[
        comparison.frame["changed"] & (comparison.frame["metric"] == "duration")
    ]
    for row in rows.head(check_count(most, "explain", least=0)).itertuples():
        yield explain_change(store, runs, comparison, str(row.workload), str(row.contender))


def explain_change(
    store: Store, runs: pd.DataFrame, comparison: Comparison, workload: str, contender: str
) -> ExplainedChange:
    """Open the runs of a workload in the baseline and a contender, and explain the difference."""
    ok = ok_runs(runs, workload)
    sides = [
        store.load(ok.loc[ok["arm"] == arm, "id"], GROUPS_READ)
        for arm in (comparison.baseline, contender)
    ]
    blocked = comparison.blocked and len(sides[0]) == len(sides[1])
    rows = comparison.frame
    rows = rows[
        (rows["workload"] == workload)
        & (rows["contender"] == contender)
        & (rows["metric"] == "duration")
    ]
    levels = None
    for before, after in rows[["baseline", "contender_value"]].dropna().itertuples(index=False):
        levels = float(before), float(after)
    return ExplainedChange(
        workload, contender, explain(sides[0], sides[1], levels, blocked=blocked)
    )


def ok_runs(runs: pd.DataFrame, workload: str) -> pd.DataFrame:
    """Return the runs of a workload with outcome ok, sorted by block, then by start time."""
    runs = pair_workloads(runs)
    ok = runs[(runs["workload"] == workload) & (runs["outcome"] == "ok")]
    return ok.sort_values(["block", "started"])


def arm_differences(
    store: Store, runs: pd.DataFrame, comparison: Comparison
) -> dict[str, pd.DataFrame]:
    """Return the differences between the latest runs of the baseline and of each contender."""
    tables = {}
    for contender in comparison.contenders:
        sides = [store.load(_latest_ok(runs, arm), ()) for arm in (comparison.baseline, contender)]
        table = differences(*sides)
        # Drop counts: the latest runs may belong to different workloads, whose counts differ.
        tables[contender] = _join_one_sided(table[table["kind"] != "count"])
    return tables


def _join_one_sided(table: pd.DataFrame) -> pd.DataFrame:
    """Return differences in which the packages that only one side has are one row per side."""
    packages = table["kind"] == "package"
    rows = []
    for side, other in (("baseline", "contender"), ("contender", "baseline")):
        only = packages & (table[other] == MISSING)
        if only.sum() > MAX_ONE_SIDED:
            texts = (table["name"] + " " + table[side])[only]
            name = f"{only.sum()} packages of one side"
            row = {"kind": "package", "name": name, side: ", ".join(texts), other: MISSING}
            rows.append(row)
            table, packages = table[~only], packages[~only]
    joined = pd.DataFrame(rows, columns=table.columns)
    parts = [table[packages], joined, table[~packages]]
    return pd.concat([part for part in parts if len(part)] or [table], ignore_index=True)


def arms_table(plan: Mapping[str, Any]) -> pd.DataFrame:
    """Return the definitions of the arms of an experiment as text."""
    names = ("description", "python", "packages", "dask", "variables", "cluster", "clusters")
    rows = {}
    for arm in plan["arms"]:
        point = arm.get("point", {}).items()
        params = {key.partition(".")[2]: value for key, value in point if key.startswith("param.")}
        rows[arm["name"]] = {"parameters": _yaml_text(params)} | {
            name: _yaml_text(arm["environment"].get(name)) for name in names
        }
    table = pd.DataFrame.from_dict(rows, orient="index")
    return table.loc[:, (table != "").any()].rename_axis("arm")


def _yaml_text(value: Any) -> str:
    """Return a part of a definition as one line of YAML; an empty string for an empty value."""
    if not value:
        return ""
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False)
    return text.strip().removesuffix("...").strip()


def experiment_facts(plan: Mapping[str, Any], runs: pd.DataFrame) -> pd.Series:
    """Return what was measured in an experiment, and when, where and at what cost."""
    n_planned, n_done = len(plan["plan"]), len(runs)
    ended = (runs["started"] + pd.to_timedelta(runs["duration"].fillna(0), unit="s")).max()
    facts = {
        "experiment": plan["id"],
        "command": f"benchkit {plan['words'].get('command', '')}".strip(),
        "started": f"{runs['started'].min():%Y-%m-%d %H:%M} UTC",
        "duration": format_seconds((ended - runs["started"].min()).total_seconds()),
        "runs": f"{n_done} of {n_planned} planned",
        "order": plan["order"],
        "machine": ", ".join(sorted(runs["host"].dropna().unique())),
        "worker time": format_seconds(runs["worker_seconds"].sum())
        if "worker_seconds" in runs
        else "",
    }
    if plan["words"].get("adaptive") and n_done < n_planned:
        facts["runs"] += f"; skipped {n_planned - n_done}: verdict already decided"
    if "cost" in runs and runs["cost"].notna().any():
        facts["cost"] = f"{runs['cost'].sum():.2f} USD"
    return pd.Series({name: text for name, text in facts.items() if text}, name="value")


def _latest_ok(runs: pd.DataFrame, arm: str) -> pd.Series:
    """Return the id of the latest run of an arm with outcome ok, as a Series."""
    return runs.loc[(runs["arm"] == arm) & (runs["outcome"] == "ok"), "id"].tail(1)
