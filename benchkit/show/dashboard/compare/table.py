"""Table and figures of a comparison, with filters.

The page shows how many rows of each verdict the filters hide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import panel as pn

from benchkit.analysis.compare.comparison import Comparison
from benchkit.formatting import MISSING, format_change, format_quantity
from benchkit.show.dashboard.components import components as parts
from benchkit.show.dashboard.components.clicks import CLICKS, leading, linked
from benchkit.show.dashboard.components.components import metric_term
from benchkit.show.dashboard.state.url import address, remember
from benchkit.show.escape import escape
from benchkit.show.plots.comparison import forest_plot, heat_map, raw_points
from benchkit.store.schema import METRICS

__all__ = ["FILTERS", "SIDES", "comparison_table", "filtered_comparison"]

#: Keys of the address that select the runs (SIDES) and that filter the rows (FILTERS).
SIDES = ("experiment", "baseline", "contender")
FILTERS = ("metric", "verdict", "category", "find", "order")
#: Value of ``verdict`` in the address -> label, for groups of verdicts.
_CHANGED = {"changed": "changed", "worse": "worse", "better": "better"}
#: Label of an order of rows -> value in the address.
_ORDERS = {"what changed most": "", "change in units of its noise": "noise", "name": "name"}
#: Smallest width in pixels of the forest plot with names, the heat map and the raw points.
_LEAST = (420, 260, 260)
#: Largest number of rows in the table, and largest number of rows shown without scrolling.
MOST_ROWS, TALL = 300, 20


def filtered_comparison(
    make: Callable[[str], Comparison], state: Mapping[str, str], metrics: list[str]
) -> Any:
    """Return filter widgets, and below them the filtered rows and figures.

    Shows the rows of the metric in the address; without it, of all metrics that `make` compares
    by default.

    Parameters
    ----------
    make : callable
        ``make(metric)`` returns the comparison in this metric and the usual metrics.
    state : mapping
        Keys of the address: `SIDES` and `FILTERS`.
    metrics : list of str
        Metrics that can be selected.
    """
    metric = _among(state.get("metric"), metrics)
    report = make(metric or metrics[0])
    categories = sorted({_category(name) for name in report.frame["workload"]})
    verdicts = _verdicts(report, metric)
    widgets: dict[str, Any] = {
        "metric": pn.widgets.Select(
            name="Metric", width=270, value=metric,
            options={
                "time and memory": "",
                **{METRICS[name].long_name: name for name in metrics},
            },
        ),
        "verdict": pn.widgets.Select(
            name="Verdict", width=150, options={"all": "", **verdicts},
            value=_among(state.get("verdict"), verdicts.values()),
        ),
        "category": pn.widgets.Select(
            name="Category", width=150, options={"all": "", **{c: c for c in categories}},
            value=_among(state.get("category"), categories),
        ),
        "find": pn.widgets.TextInput(
            name="Find", width=190, placeholder="part of a name", value=state.get("find", "")
        ),
        "order": pn.widgets.Select(
            name="Order", width=220, options=_ORDERS,
            value=_among(state.get("order"), _ORDERS.values()),
        ),
    }  # fmt: skip
    body = pn.Column(sizing_mode="stretch_width")
    sides = {name: state[name] for name in SIDES if name in state}

    def draw(*events: Any) -> None:
        metric = str(widgets["metric"].value)
        report = make(metric or metrics[0])
        options = {"all": "", **_verdicts(report, metric)}
        if options != widgets["verdict"].options:
            chosen = _among(str(widgets["verdict"].value), options.values())
            widgets["verdict"].param.update(options=options, value=chosen)
        now = {name: str(widget.value or "") for name, widget in widgets.items()}
        body[:] = _body(report, now, sides)
        if events:
            remember("compare", {**sides, **now})

    draw()
    for widget in widgets.values():
        widget.param.watch(draw, "value")
    return pn.Column(pn.FlexBox(*widgets.values()), body, sizing_mode="stretch_width")


def _among(asked: str | None, known: Any) -> str:
    return asked if asked and asked in set(known) else ""


def _category(workload: str) -> str:
    return workload.partition(".")[0]


def _verdicts(report: Comparison, metric: str) -> dict[str, str]:
    """Return the options of the verdict filter: label with number of rows -> address value."""
    frame = report.frame
    if metric:
        frame = frame[frame["metric"] == metric]
    counts = {name: int(_has(frame, name).sum()) for name in (*_CHANGED, *frame["verdict"])}
    return {f"{name} ({count})": name for name, count in counts.items() if count}


def _has(frame: pd.DataFrame, verdict: str) -> pd.Series:
    if verdict == "changed":
        return frame["changed"]
    if verdict == "worse":
        return frame["worse"]
    if verdict == "better":
        return frame["changed"] & ~frame["worse"]
    return frame["verdict"] == verdict


def _body(report: Comparison, state: Mapping[str, str], sides: Mapping[str, str]) -> list[Any]:
    frame = report.frame
    said = [
        parts.words(report.sentence),
        *(parts.words(text, kind="bad") for text in report.warnings),
    ]
    keep = pd.Series(True, index=frame.index)
    if state["metric"]:
        keep &= frame["metric"] == state["metric"]
    if state["verdict"]:
        keep &= _has(frame, state["verdict"])
    names = frame["workload"].astype(str)
    if state["category"]:
        keep &= names.map(_category) == state["category"]
    for word in state["find"].lower().split():
        keep &= names.str.lower().str.contains(word, regex=False)
    left = replace(report, frame=_ordered(frame[keep], state["order"]))
    metric = state["metric"] or report.metrics[0]
    told = _hidden(frame[~keep])
    if len(left.frame) > MOST_ROWS:
        told += f" The first {MOST_ROWS} of {len(left.frame)} rows are shown."
    if left.frame.empty:
        nothing = parts.message("Nothing to show", "No row matches the filters.")
        return [*said, parts.words(told), nothing]
    return [
        *said,
        *([parts.words(told)] if told else []),
        parts.rows(*_markup(left, {**sides, **state}), tight=True, tall=TALL),
        parts.download("comparison.csv", lambda: left.frame, "These rows as CSV", 160),
        parts.glossary(
            {**_TERMS, **{name: metric_term(name) for name in report.metrics}},
            "What the columns and metrics mean",
        ),
        *_figures(left, metric, {**sides, **state}),
    ]


def _ordered(frame: pd.DataFrame, order: str) -> pd.DataFrame:
    """Return rows in the requested order; the input has the largest changes first."""
    if order == "name":
        return frame.sort_values(["workload", "contender", "metric"], kind="stable")
    if order == "noise":
        away = np.log(frame["ratio"].where(frame["ratio"] > 0)).abs() / frame["noise"]
        return frame.loc[away.sort_values(ascending=False, kind="stable").index]
    return frame


def _figures(report: Comparison, metric: str, whole: Mapping[str, str]) -> list[Any]:
    """Return the forest plot, heat map and raw points with aligned rows of workloads."""

    def way(workload: str, arm: str) -> str:
        return address("compare", **whole, workload=workload, arm=arm)

    changes = leading(forest_plot(report, metric), way)
    sure = leading(heat_map(report, metric, share_y=changes), way)
    runs = linked(raw_points(report, metric, share_y=changes))
    # Three figures in a row are too narrow for their titles.
    told = changes.title.text
    changes.title.text = "Which changed, and by how much?"
    panes = []
    for drawn, least in zip((changes, sure, runs), _LEAST, strict=True):
        pane = parts.figure(drawn)
        pane.min_width = least
        # The three figures share the width that remains after the names.
        names = drawn.min_border_left if drawn is changes else 0
        pane.styles = {**pane.styles, "flex": f"1 1 {names}px"}
        panes.append(pane)
    return [
        parts.words(told),
        pn.Row(*panes, sizing_mode="stretch_width", styles={"overflow-x": "auto"}),
        parts.words(f"{CLICKS} A click on a row's change leads to its cause."),
    ]


_TERMS = {
    "change": "median of the arm against that of the baseline",
    "interval": "95 % of such intervals hold the true change; wider where the row was picked "
    "because it changed",
    "null": "the baseline against itself, measured in turns with the others: what is nothing",
    "noise": "how much runs of one arm differ: coefficient of variation of one run",
    "runs": "of the baseline, the null arm's included, + of the arm",
}


def _hidden(frame: pd.DataFrame) -> str:
    """Return a sentence with the number of hidden rows of each verdict."""
    counts = frame["verdict"].value_counts()
    if not len(counts):
        return ""
    each = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    return f"Hidden by the filters: {each}."


def _markup(report: Comparison, whole: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    """Return titles and HTML cells of the first rows; each workload links to its causes."""
    shown = replace(report, frame=report.frame.head(MOST_ROWS))
    table = comparison_table(shown).reset_index()
    # Omit columns that are empty or equal in all rows: they take space from the names.
    needless = {
        "arm": len(report.contenders) == 1,
        "metric": bool(whole.get("metric")),
        "note": not table["note"].astype(bool).any(),
    }
    titles = [str(name) for name in table.columns if not needless.get(str(name))]
    cells = []
    for row in table.to_dict("records"):
        way = address("compare", **whole, workload=row["workload"], arm=row["arm"])
        first = f"<a href='{escape(way)}'>{escape(row['workload'])}</a>"
        cells.append([first, *(escape(str(row[name])) for name in titles[1:])])
    return titles, cells


def comparison_table(report: Comparison) -> pd.DataFrame:
    """Return the rows of a comparison as text, changed rows first, indexed by workload."""
    has_null = report.frame["null_ratio"].notna().any()
    rows = []
    for row in report.frame.to_dict("records"):
        changed = row["changed"]
        low, high = (
            (row["selected_low"], row["selected_high"]) if changed else (row["low"], row["high"])
        )
        symbol = "▲ " if row["worse"] else "▼ " if changed else ""
        more = f": {row['needed']} more would tell" if row["needed"] > 0 else ""
        null = {"null": format_change(row["null_ratio"])} if has_null else {}
        noise = row["noise"]
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
                **null,
                "noise": f"± {noise:.1%}".replace("%", " %") if np.isfinite(noise) else MISSING,
                "runs": f"{row['n_baseline']} + {row['n_contender']}",
                "note": row["note"],
            }
        )
    return pd.DataFrame(rows).set_index("workload")
