"""Explain the change of one workload between two arms: task groups and runs of both arms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from panel.viewable import Viewable

from benchkit.analysis.compare.comparison import Comparison
from benchkit.analysis.compare.explain import IDLE, UNEXPLAINED, CauseChanges
from benchkit.analysis.insight.blame import CAUSES
from benchkit.analysis.insight.limits import CAUSES_SHORT
from benchkit.formatting import MISSING, format_change, format_quantity, format_seconds, short_group
from benchkit.show.dashboard.components import tables, ui
from benchkit.show.dashboard.components.markup import link, metric_term
from benchkit.show.dashboard.components.tables import memory_by_group
from benchkit.show.dashboard.state.cache import cached, open_run
from benchkit.show.dashboard.state.url import address
from benchkit.show.plots.waterfall import waterfall
from benchkit.show.reports import experiment_summary
from benchkit.store.store import Store

__all__ = ["cause_of_change"]

#: Largest number of parts in the table; there may be hundreds, and small parts are no cause.
MAX_PARTS = 40
_PART_TITLES = ("part", "difference", "interval", "baseline", "contender", "runs")
_RUN_TITLES = ("arm", "run", "block", "started (UTC)", "wall time", "peak memory", "compare")
_TERMS = {
    "part": "an activity of the threads in the task groups of one name; idle: threads without "
    "work; old → new: a group with another name in the contender and the same number of tasks",
    "difference": "additional seconds of wall time in the arm, means of all runs; thread-seconds "
    "of the part over the number of threads",
    "baseline, contender": "the same seconds of each arm",
    "runs": "the group in the first run of the baseline (A), of the arm (B), and in both",
}


def cause_of_change(
    store: Store, comparison: Comparison, runs: pd.DataFrame, state: Mapping[str, str], back: str
) -> Viewable:
    """Return the page that explains the change of the workload and arm in the address."""
    workload, arm = state["workload"], state.get("arm") or comparison.contenders[0]
    frame, baseline = comparison.frame, comparison.baseline
    rows = frame[(frame["workload"] == workload) & (frame["contender"] == arm)]
    if rows.empty or arm == baseline:
        text = f"The comparison has no {workload!r} in {arm!r} and {baseline!r}."
        return ui.message("This cannot be explained", text)
    return ui.column(
        ui.page_head(
            f"{workload}: {arm} against {baseline}",
            lines=[_verdict(row) for row in rows.to_dict("records")],
        ),
        tables.glossary(
            {name: metric_term(name) for name in rows["metric"]}, "What the metrics mean"
        ),
        ui.link_line("See also", {back: "the whole comparison"}),
        ui.deferred(
            lambda: _content(store, comparison, runs, workload, arm), "The causes cannot be shown"
        ),
    )


def _verdict(row: Mapping[str, Any]) -> str:
    values = [format_quantity(row[name], row["unit"]) for name in ("baseline", "contender_value")]
    change = format_change(row["ratio"])
    return f"{row['metric']}: {row['verdict']}, {' → '.join(values)} ({change})"


def _content(
    store: Store, comparison: Comparison, runs: pd.DataFrame, workload: str, arm: str
) -> list[Viewable]:
    explanation = cached(
        lambda: (
            experiment_summary.explain_change(store, runs, comparison, workload, arm).explanation
        ),
        *("cause", *comparison.contenders, comparison.sentence, workload, arm, *sorted(runs["id"])),
    )
    ok = experiment_summary.ok_runs(runs, workload)
    sides = {name: ok[ok["arm"] == name] for name in (comparison.baseline, arm)}
    first = {name: str(side["id"].iloc[0]) for name, side in sides.items()}
    parts = _part_rows(explanation.parts, list(first.values()))
    return [
        ui.heading("Where the time went", explanation.sentence),
        ui.figure(waterfall(explanation)),
        tables.html_table(_PART_TITLES, parts, tight=True),
        tables.glossary(_TERMS),
        *_causes(explanation.causes),
        *_memory(explanation.memory),
        *memory_by_group(explanation.memory_groups),
        ui.heading("Runs of both", "The links to groups above open the first run of each arm."),
        tables.html_table(_RUN_TITLES, _run_rows(sides, first), tight=True),
    ]


def _part_rows(table: pd.DataFrame, ids: list[str]) -> list[list[str]]:
    """Return one row per part, with links to its task group in a run of each arm."""
    groups_of_runs = [_full_names(run_id) for run_id in ids]
    rows = []
    for row in table.head(MAX_PARTS).to_dict("records"):
        group, is_group = str(row["group"]), row["group"] not in (IDLE, UNEXPLAINED)
        old, _, new = group.partition(" → ")
        targets = {
            name: address("run", id=run_id, group=groups[short])
            for name, run_id, groups, short in zip(
                "AB", ids, groups_of_runs, (old, new or old), strict=True
            )
            if is_group and short in groups
        }
        if len(targets) == 2 and not new:
            targets["both"] = address("pair", a=ids[0], b=ids[1], group=group)
        links = [link(name, target, label=f"{group} in {name}") for name, target in targets.items()]
        rows.append(
            [
                f"{row['activity']} in {group}" if is_group else group,
                *_difference(row, "seconds", "s", "_s"),
                Markup(" · ".join(links)),
            ]
        )
    return rows


def _causes(changes: CauseChanges | None) -> list[Viewable]:
    """Return the seconds of both arms by cause; nothing for runs without a task graph."""
    if changes is None:
        return []
    rows = [
        [CAUSES_SHORT[row["cause"]], row["group"], *_difference(row, "seconds", "s", "_s")]
        for row in changes.causes.to_dict("records")
    ]
    below = (
        "What the next step of the run waited for; seconds of wall time, which sum to all of it."
    )
    titles = ("cause", "mostly in", *_PART_TITLES[1:-1])
    return [
        ui.heading("What the runs waited for", below),
        tables.html_table(titles, rows, tight=True),
        tables.glossary({CAUSES_SHORT[name]: text for name, text in CAUSES.items()}),
    ]


def _memory(table: pd.DataFrame) -> list[Viewable]:
    """Return the cluster memory of both arms by kind, at the time of the peak."""
    if table.empty:
        return []
    rows = [
        [str(row["kind"]).replace("_", ", "), *_difference(row, "bytes", "B")]
        for row in table.to_dict("records")
    ]
    below = "By kind, at the time of the highest cluster memory; means of all runs."
    titles = ("kind", *_PART_TITLES[1:-1])
    return [
        ui.heading("Where the memory went", below),
        tables.html_table(titles, rows, tight=True),
    ]


def _signed(number: float, units: str) -> str:
    return ("+" if number >= 0 else "−") + format_quantity(abs(number), units)


def _difference(row: Mapping[str, Any], name: str, units: str, suffix: str = "") -> list[str]:
    """Return a difference, its interval, and the values of both arms."""
    interval = MISSING
    if np.isfinite(row["low"]):
        interval = f"{_signed(row['low'], units)} to {_signed(row['high'], units)}"
    sides = [format_quantity(row[f"{arm}{suffix}"], units) for arm in ("baseline", "contender")]
    return [_signed(row[name], units), interval, *sides]


def _full_names(run_id: str) -> dict[str, str]:
    """Return a mapping from short name (without Dask's hash) to the first such task group."""
    tree = open_run(run_id).tree
    if "task_groups" not in tree.children:
        return {}
    names = tree["task_groups"].to_dataset()["task_group"].values.astype(str)
    return {short_group(name): str(name) for name in reversed(names)}


def _run_rows(sides: Mapping[str, pd.DataFrame], first: Mapping[str, str]) -> list[list[str]]:
    rows = []
    for arm, side in sides.items():
        for run in side.to_dict("records"):
            run_id, block = str(run["id"]), run.get("block")
            rows.append(
                [
                    arm,
                    link(run_id[:13], address("run", id=run_id)),
                    MISSING if block is None or pd.isna(block) else str(int(block)),
                    f"{run['started']:%Y-%m-%d %H:%M}",
                    format_seconds(run.get("duration")),
                    format_quantity(run.get("memory_peak"), "B"),
                    _pair_link(first, arm, run_id),
                ]
            )
    return rows


def _pair_link(first: Mapping[str, str], arm: str, run_id: str) -> Markup:
    """Return a link that compares a run with the first run of the other arm; A is the baseline."""
    a, b = (run_id if name == arm else other for name, other in first.items())
    label = f"compare {run_id[:13]} of {arm} with the first run of the other arm"
    return link("⇄", address("pair", a=a, b=b), label=label)
