"""Explain the change of one workload between two arms: task groups and runs of both arms."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import panel as pn

from benchkit.analysis.compare.comparison import Comparison
from benchkit.analysis.compare.explain import IDLE, UNEXPLAINED
from benchkit.formatting import MISSING, format_change, format_quantity, format_seconds, short_group
from benchkit.show.dashboard.components import components as parts
from benchkit.show.dashboard.components.components import metric_term
from benchkit.show.dashboard.state.cache import kept, open_run
from benchkit.show.dashboard.state.url import address
from benchkit.show.escape import escape
from benchkit.show.plots.waterfall import waterfall
from benchkit.show.reports import experiment_summary as why
from benchkit.store.store import Store

__all__ = ["cause_of_change"]

#: Largest number of parts in the table; there may be hundreds, and small parts are no cause.
MOST_PARTS = 40
_PARTS = ("what", "more", "interval", "baseline", "contender", "look")
_RUNS = ("arm", "run", "block", "started (UTC)", "wall time", "peak memory", "beside the other")


def cause_of_change(
    store: Store, report: Comparison, runs: pd.DataFrame, state: Mapping[str, str], back: str
) -> Any:
    """Return the page that explains the change of the workload and arm in the address.

    Parameters
    ----------
    store : Store
        Store of the runs.
    report : Comparison
        The comparison.
    runs : DataFrame
        The compared runs, with their arms.
    state : mapping
        Keys of the address: ``workload``; ``arm`` if there are several contenders.
    back : str
        Address of the complete comparison.
    """
    workload, arm = state["workload"], state.get("arm") or report.contenders[0]
    frame = report.frame
    rows = frame[(frame["workload"] == workload) & (frame["contender"] == arm)]
    if rows.empty or arm == report.baseline:
        why_not = f"The comparison has no {workload!r} in {arm!r} beside {report.baseline!r}."
        return parts.message("This cannot be explained", why_not)
    place = pn.Column(
        parts.words("Runs are opened to see where the time went …"),
        sizing_mode="stretch_width",
        tags=["coming"],
    )

    async def fill() -> None:
        try:
            content = await asyncio.to_thread(_content, store, report, runs, workload, arm)
        except Exception as error:  # damaged run: show the rest of the page
            content = [parts.trouble("The causes cannot be told", error)]
        place.param.update(objects=content, tags=[])

    pn.state.onload(fill)
    return pn.Column(
        parts.head(
            f"{workload}: {arm} against {report.baseline}",
            lines=[_said(row) for row in rows.to_dict("records")],
        ),
        parts.glossary(
            {name: metric_term(name) for name in rows["metric"]}, "What the metrics mean"
        ),
        parts.way("See also", {back: "the whole comparison"}),
        place,
        sizing_mode="stretch_width",
    )


def _said(row: Mapping[str, Any]) -> str:
    values = [format_quantity(row[name], row["unit"]) for name in ("baseline", "contender_value")]
    return (
        f"{row['metric']}: {row['verdict']}, {' → '.join(values)} ({format_change(row['ratio'])})"
    )


def _content(
    store: Store, report: Comparison, runs: pd.DataFrame, workload: str, arm: str
) -> list[Any]:
    found = kept(
        lambda: why.explain_change(store, runs, report, workload, arm).explanation,
        *("cause", *report.contenders, report.sentence, workload, arm, *sorted(runs["id"])),
    )
    mine = why.ok_runs(runs, workload)
    sides = {name: mine[mine["arm"] == name] for name in (report.baseline, arm)}
    first = {name: str(side["id"].iloc[0]) for name, side in sides.items()}
    return [
        parts.heading("Where the time went", found.sentence),
        parts.figure(waterfall(found)),
        parts.rows(_PARTS, _part_rows(found.parts, list(first.values())), tight=True),
        parts.glossary(_TERMS),
        *_memory(found.memory),
        parts.heading("Runs of both", "The first of each arm is the one whose groups are linked."),
        parts.rows(_RUNS, _run_rows(sides, first), tight=True),
    ]


_TERMS = {
    "what": "an activity of the threads in the task groups of one name; idle is threads with "
    "nothing to do",
    "more": "seconds of wall time that the arm takes more, means of all runs; a part's thread-"
    "seconds over the number of threads",
    "baseline, contender": "the same seconds of each arm",
    "look": "the group in the first run of the baseline (A), of the arm (B), and in both",
}


def _part_rows(table: pd.DataFrame, ids: list[str]) -> list[list[str]]:
    """Return one row of HTML per part, with links to its task group in a run of each arm."""
    full = [_full_names(run_id) for run_id in ids]
    rows = []
    for part in table.head(MOST_PARTS).to_dict("records"):
        group, is_group = str(part["group"]), part["group"] not in (IDLE, UNEXPLAINED)
        interval = f"{part['low']:+.2f} to {part['high']:+.2f} s"
        links = ""
        if is_group:
            ways = {
                name: address("run", id=run_id, group=names[group])
                for name, run_id, names in zip("AB", ids, full, strict=True)
                if group in names
            }
            if len(ways) == 2:
                ways["both"] = address("pair", a=ids[0], b=ids[1], group=group)
            links = " · ".join(
                f"<a href='{escape(way)}' aria-label='{escape(f'{group} in {name}')}'>{name}</a>"
                for name, way in ways.items()
            )
        rows.append(
            [
                escape(f"{part['activity']} in {group}" if is_group else group),
                f"{part['seconds']:+.2f} s",
                interval if np.isfinite(part["low"]) else MISSING,
                escape(format_seconds(part["baseline_s"])),
                escape(format_seconds(part["contender_s"])),
                links,
            ]
        )
    return rows


def _memory(table: pd.DataFrame) -> list[Any]:
    """Return the cluster memory of both arms by kind, at the time of the peak."""
    if table.empty:
        return []
    rows = [
        [
            escape(str(row["kind"]).replace("_", ", ")),
            _more_bytes(row["bytes"]),
            f"{_more_bytes(row['low'])} to {_more_bytes(row['high'])}"
            if np.isfinite(row["low"])
            else MISSING,
            escape(format_quantity(row["baseline"], "B")),
            escape(format_quantity(row["contender"], "B")),
        ]
        for row in table.to_dict("records")
    ]
    told = "By kind, at the moment when the cluster's memory was highest; means of all runs."
    return [
        parts.heading("Where the memory went", told),
        parts.rows(("kind", *_PARTS[1:-1]), rows, tight=True),
    ]


def _more_bytes(number: float) -> str:
    return ("+" if number >= 0 else "−") + format_quantity(abs(number), "B")


def _full_names(run_id: str) -> dict[str, str]:
    """Return a mapping from short name (without Dask's hash) to the first such task group."""
    tree = open_run(run_id).tree
    if "task_groups" not in tree.children:
        return {}
    node: Any = tree["task_groups"]
    names = [str(name) for name in node["task_group"].values]
    return {short_group(name): name for name in reversed(names)}


def _run_rows(sides: Mapping[str, pd.DataFrame], first: Mapping[str, str]) -> list[list[str]]:
    rows = []
    for arm, side in sides.items():
        for run in side.to_dict("records"):
            run_id = str(run["id"])
            block = run.get("block")
            rows.append(
                [
                    escape(arm),
                    f"<a href='{escape(address('run', id=run_id))}'>{escape(run_id[:13])}</a>",
                    MISSING if block is None or pd.isna(block) else str(int(block)),
                    f"{run['started']:%Y-%m-%d %H:%M}",
                    escape(format_seconds(run.get("duration"))),
                    escape(format_quantity(run.get("memory_peak"), "B")),
                    _beside(first, arm, run_id),
                ]
            )
    return rows


def _beside(first: Mapping[str, str], arm: str, run_id: str) -> str:
    """Return a link that compares a run with the first run of the other arm; A is the baseline."""
    a, b = (run_id if name == arm else other for name, other in first.items())
    told = f"{run_id[:13]} of {arm} beside the first run of the other"
    return f"<a href='{escape(address('pair', a=a, b=b))}' aria-label='{escape(told)}'>⇄</a>"
