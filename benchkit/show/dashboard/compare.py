"""Compare: the arms of an experiment, or any two sets of runs, with verdicts and causes."""

from __future__ import annotations

import asyncio
from typing import Any

import pandas as pd
import panel as pn

from benchkit.analysis.comparison import check_metrics, compare, compare_experiment
from benchkit.analysis.report import Report
from benchkit.errors import BenchkitError
from benchkit.show import explained as why
from benchkit.show.dashboard import parts
from benchkit.show.dashboard.address import address
from benchkit.show.dashboard.data import kept, open_store
from benchkit.show.dashboard.terms import metric_terms
from benchkit.show.plots.compare import forest, heat_map, raw_points, waterfall
from benchkit.store.selection import select_runs
from benchkit.store.store import Store
from benchkit.store.text import format_change, format_quantity

__all__ = ["TITLE", "view"]

TITLE = "Compare"
#: So many of the workloads that changed most are explained on the page.
EXPLAINED = 3
#: So many ways to two runs side by side.
MOST_PAIRS = 20


def view(state: dict[str, str]) -> Any:
    """Return the comparison that the address names, or the experiments there are.

    ``experiment=<id>``, or ``baseline=<selection>&contender=<selection>``; ``metric=<name>``.
    """
    store = open_store()
    if "experiment" not in state and not {"baseline", "contender"} <= set(state):
        return _experiments(store)
    try:
        metric = state.get("metric", "duration")
        metrics = tuple(dict.fromkeys([*check_metrics([metric]), "memory_mean", "memory_peak"]))
        if "experiment" in state:
            experiment = state["experiment"]
            runs = store.runs(experiment=f"{experiment}*")
            report = kept(
                lambda: compare_experiment(runs, experiment, metrics=metrics),
                *("experiment", experiment, metric),
            )
        else:
            one, other = state["baseline"], state["contender"]
            report = kept(
                lambda: compare(
                    select_runs(store, one),
                    {other: select_runs(store, other)},
                    metrics=metrics,
                    names=(one, "contender"),
                ),
                # An age such as 7d means another moment later.
                *("selections", one, other, metric, f"{pd.Timestamp.now():%Y-%m-%d %H}"),
            )
            runs = None
    except BenchkitError as error:
        return parts.message("This cannot be compared", str(error), back=True)
    # What opens runs takes seconds the first time: the page is painted before it.
    causes = pn.Column(sizing_mode="stretch_width")
    if runs is not None:
        causes.param.update(
            objects=[parts.words("Runs are opened to see where the time went …")], tags=["coming"]
        )

        async def explain() -> None:
            causes.param.update(objects=await _causes(store, runs, report), tags=[])

        pn.state.onload(explain)
    return pn.Column(
        parts.head(
            f"{' and '.join(report.contenders)} against {report.baseline}",
            lines=[report.sentence],
        ),
        *(parts.words(text, kind="bad") for text in report.warnings),
        parts.table(_table(report), "workload", sortable=False, page_size=20),
        parts.glossary(metric_terms(metrics), "What the metrics mean"),
        parts.figure(forest(report, metric)),
        parts.figure(heat_map(report, metric)),
        parts.figure(raw_points(report, metric)),
        causes,
        sizing_mode="stretch_width",
    )


def _experiments(store: Store) -> Any:
    runs = store.runs(columns=["experiment", "arm", "workload", "block", "started", "outcome"])
    runs = runs[runs["experiment"].notna() & runs["arm"].notna()]
    several = runs.groupby("experiment")["arm"].nunique()
    runs = runs[runs["experiment"].isin(several[several > 1].index)]
    if runs.empty:
        return parts.message(
            "No experiments yet",
            "An experiment holds environments against a baseline:",
            "benchkit ab baseline no-stealing -k tag:quick",
        )
    rows = [
        {
            "id": experiment,
            "started": f"{found['started'].min():%Y-%m-%d %H:%M}",
            "arms": ", ".join(dict.fromkeys(found["arm"])),
            "workloads": found["workload"].nunique(),
            "runs": len(found),
            "not ok": int((found["outcome"] != "ok").sum()),
        }
        for experiment, found in runs.groupby("experiment", sort=False)
    ]
    return pn.Column(
        parts.head("Experiments", lines=["Environments that were measured side by side."]),
        parts.links(
            {
                f"?view=compare&experiment={row['id']}": (
                    f"{row['started']}  {row['arms']}: {row['workloads']} workloads, "
                    f"{row['runs']} runs" + (f", {row['not ok']} not ok" if row["not ok"] else "")
                )
                for row in reversed(rows)
            }
        ),
        sizing_mode="stretch_width",
    )


def _table(report: Report) -> pd.DataFrame:
    rows = []
    for row in report.frame.to_dict("records"):
        changed = row["changed"]
        low, high = (
            (row["selected_low"], row["selected_high"]) if changed else (row["low"], row["high"])
        )
        symbol = "▲ " if row["worse"] else "▼ " if changed else ""
        more = f": {row['needed']} more would tell" if row["needed"] > 0 else ""
        rows.append(
            {
                "workload": row["workload"],
                "arm": row["contender"],
                "metric": row["metric"],
                "baseline": format_quantity(row["baseline"], row["unit"]),
                "now": format_quantity(row["contender_value"], row["unit"]),
                "change": format_change(row["ratio"]),
                "interval": f"{format_change(low)} to {format_change(high)}",
                "verdict": f"{symbol}{row['verdict']}{more}",
                "runs": f"{row['n_baseline']} + {row['n_contender']}",
                "note": row["note"],
            }
        )
    return pd.DataFrame(rows).set_index("workload")


def _side_by_side(runs: pd.DataFrame, report: Report) -> list[Any]:
    """Return the ways to the first run of each arm, one beside the other, per workload."""
    ok = runs[runs["outcome"] == "ok"].sort_values("block")
    first = ok.drop_duplicates(["workload", "arm"]).set_index(["workload", "arm"])["id"]
    ways: dict[str, str] = {}
    for row in report.frame.drop_duplicates(["workload", "contender"]).itertuples():
        ends = [(row.workload, report.baseline), (row.workload, row.contender)]
        if len(ways) < MOST_PAIRS and all(end in first.index for end in ends):
            link = address("pair", a=first[ends[0]], b=first[ends[1]])
            ways[link] = f"{row.workload}: {report.baseline} and {row.contender}"
    if not ways:
        return []
    told = "The first run of each arm on one axis of time; what changed most comes first."
    return [parts.heading("Two runs side by side", told), parts.links(ways)]


async def _causes(store: Store, runs: pd.DataFrame, report: Report) -> list[Any]:
    """Return what explains the largest changes; other visitors are served meanwhile."""
    name = "\n".join([*report.contenders, report.sentence, *sorted(runs["id"])])

    def found() -> tuple[list[Any], dict[str, pd.DataFrame]]:
        return (
            kept(lambda: list(why.explained(store, runs, report, most=EXPLAINED)), "why", name),
            kept(lambda: why.arm_differences(store, runs, report), "arms", name),
        )

    try:
        causes, differing = await asyncio.to_thread(found)
    except BenchkitError as error:  # the rest of the page stands
        return [parts.message("The causes cannot be told", str(error))]
    content: list[Any] = []
    for row in causes:
        content.append(
            parts.heading(f"{row.workload} in {row.contender}", row.explanation.sentence)
        )
        content.append(parts.figure(waterfall(row.explanation)))
    content += _side_by_side(runs, report)
    for contender, table in differing.items():
        content.append(parts.heading(f"What differs between {report.baseline} and {contender}"))
        content.append(
            parts.table(table.set_index("kind"), "kind")
            if len(table)
            else parts.words("Nothing that was recorded.")
        )
    return content
