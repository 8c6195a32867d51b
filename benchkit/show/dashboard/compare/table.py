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
from panel.viewable import Viewable

from benchkit.analysis.compare.comparison import Comparison, text_row
from benchkit.formatting import MISSING, format_change
from benchkit.show.dashboard.components import tables, ui
from benchkit.show.dashboard.components.clicks import (
    CLICK_HELP,
    open_on_row_click,
    open_on_run_click,
)
from benchkit.show.dashboard.components.markup import link, metric_term
from benchkit.show.dashboard.components.widgets import filtered, find_field, has_words, select
from benchkit.show.dashboard.state.url import address
from benchkit.show.plots.comparison import forest_plot, heat_map, raw_points
from benchkit.store.schema import METRICS

__all__ = ["FILTERS", "SIDES", "comparison_table", "filtered_comparison"]

#: Keys of the address that select the runs (SIDES) and that filter the rows (FILTERS).
SIDES = ("experiment", "baseline", "contender")
FILTERS = ("metric", "verdict", "category", "find", "order")
#: Values of ``verdict`` in the address that stand for several verdicts.
_VERDICT_GROUPS = ("changed", "worse", "better")
#: Label of an order of rows -> value in the address.
_ORDERS = {"what changed most": "", "change in units of its noise": "noise", "name": "name"}
#: Smallest width in pixels of the forest plot with names, the heat map and the raw points.
_MIN_WIDTHS = (420, 260, 260)
#: Largest number of rows in the table.
MAX_ROWS = 300
#: Largest number of rows shown without scrolling.
VISIBLE_ROWS = 20
_TERMS = {
    "change": "of the contender against the baseline and its null arm: the quotient of the two "
    "values, which are geometric means",
    "95% interval": "95 % of such intervals contain the true change; wider for rows selected "
    "because they changed",
    "null": "the baseline against itself, measured in turns with the other arms: noise",
    "noise": "spread of the runs of one arm: coefficient of variation of one run",
    "runs": "of the baseline (with the null arm) + of the arm",
}


def filtered_comparison(
    make: Callable[[str], Comparison], state: Mapping[str, str], metrics: list[str]
) -> pn.Column:
    """Return filter widgets, and below them the filtered rows and figures.

    Shows the rows of the metric in the address; without it, of all metrics that `make` compares
    by default.
    """
    titles = {"time and memory": "", **{METRICS[name].long_name: name for name in metrics}}
    metric = select("Metric", titles, state.get("metric"), width=270)
    comparison = make(str(metric.value) or metrics[0])
    categories = sorted({_category(name) for name in comparison.frame["workload"]})
    category_options = {"all": "", **{name: name for name in categories}}
    verdict = select(
        "Verdict", _verdicts(comparison, str(metric.value)), state.get("verdict"), width=150
    )
    widgets = {
        "metric": metric,
        "verdict": verdict,
        "category": select("Category", category_options, state.get("category"), width=150),
        "find": find_field(state),
        "order": select("Order", _ORDERS, state.get("order"), width=220),
    }
    sides = {name: state[name] for name in SIDES if name in state}

    def content(values: dict[str, str]) -> list[Viewable]:
        comparison = make(values["metric"] or metrics[0])
        options = _verdicts(comparison, values["metric"])
        if options != verdict.options:
            if values["verdict"] not in options.values():
                values["verdict"] = ""
            verdict.param.update(options=options, value=values["verdict"])
        return _body(comparison, values, sides)

    return filtered("compare", widgets, content, **sides)


def _category(workload: str) -> str:
    return workload.partition(".")[0]


def _verdicts(comparison: Comparison, metric: str) -> dict[str, str]:
    """Return the options of the verdict filter: label with number of rows -> address value."""
    frame = comparison.frame
    if metric:
        frame = frame[frame["metric"] == metric]
    names = dict.fromkeys([*_VERDICT_GROUPS, *frame["verdict"]])
    counts = {name: int(_has_verdict(frame, name).sum()) for name in names}
    return {"all": "", **{f"{name} ({count})": name for name, count in counts.items() if count}}


def _has_verdict(frame: pd.DataFrame, verdict: str) -> pd.Series:
    if verdict == "better":
        return frame["changed"] & ~frame["worse"]
    return frame[verdict] if verdict in _VERDICT_GROUPS else frame["verdict"] == verdict


def _body(
    comparison: Comparison, values: Mapping[str, str], sides: Mapping[str, str]
) -> list[Viewable]:
    frame = comparison.frame
    summary = [
        ui.paragraph(comparison.sentence),
        *(ui.paragraph(f"Note: {text}", kind="") for text in comparison.warnings),
    ]
    keep = pd.Series(True, index=frame.index)
    if values["metric"]:
        keep &= frame["metric"] == values["metric"]
    if values["verdict"]:
        keep &= _has_verdict(frame, values["verdict"])
    names = frame["workload"].astype(str)
    if values["category"]:
        keep &= names.map(_category) == values["category"]
    keep &= names.map(lambda name: has_words(name, values["find"]))
    shown = replace(comparison, frame=_ordered(frame[keep], values["order"]))
    note = _hidden(frame[~keep])
    if len(shown.frame) > MAX_ROWS:
        note += f" The first {MAX_ROWS} of {len(shown.frame)} rows are shown."
    if note:
        summary.append(ui.paragraph(note))
    if shown.frame.empty:
        return [*summary, ui.message("Nothing to show", "No row matches the filters.")]
    keys = {**sides, **values}
    return [
        *summary,
        tables.html_table(*_rows(shown, keys), tight=True, visible_rows=VISIBLE_ROWS),
        *([ui.paragraph(_notes_text(shown.frame))] if shown.frame["note"].any() else []),
        tables.download_button("comparison.csv", lambda: shown.frame, "These rows as CSV", 160),
        tables.glossary(
            {**_TERMS, **{name: metric_term(name) for name in comparison.metrics}},
            "What the columns and metrics mean",
        ),
        *_figures(shown, values["metric"] or comparison.metrics[0], keys),
    ]


def _ordered(frame: pd.DataFrame, order: str) -> pd.DataFrame:
    """Return rows in the requested order; the input has the largest changes first."""
    if order == "name":
        return frame.sort_values(["workload", "contender", "metric"], kind="stable")
    if order == "noise":
        change = np.log(frame["ratio"].where(frame["ratio"] > 0)).abs() / frame["noise"]
        return frame.loc[change.sort_values(ascending=False, kind="stable").index]
    return frame


def _figures(comparison: Comparison, metric: str, keys: Mapping[str, str]) -> list[Viewable]:
    """Return the forest plot, heat map and raw points with aligned rows of workloads."""

    def cause(workload: str, arm: str) -> str:
        return address("compare", **keys, workload=workload, arm=arm)

    changes = open_on_row_click(forest_plot(comparison, metric), cause)
    probabilities = open_on_row_click(heat_map(comparison, metric, share_y=changes), cause)
    points = open_on_run_click(raw_points(comparison, metric, share_y=changes))
    # Three figures in a row are too narrow for their titles.
    title: Any = changes.title
    text = str(title.text)
    title.text = "Which changed, and by how much?"
    panes = []
    for plot, width in zip((changes, probabilities, points), _MIN_WIDTHS, strict=True):
        pane = ui.figure(plot)
        # The three figures share the width that remains after the names.
        names_width = plot.min_border_left if plot is changes else 0
        # As a style: Panel would make the whole page as wide as the sum of `min_width`.
        pane.styles = {
            **pane.styles, "flex": f"1 1 {names_width}px", "min-width": f"{width}px",
        }  # fmt: skip
        panes.append(pane)
    return [
        ui.paragraph(text),
        pn.Row(*panes, sizing_mode="stretch_width", styles={"overflow-x": "auto"}),
        ui.paragraph(f"{CLICK_HELP} A click on the change of a row opens its causes."),
    ]


def _hidden(frame: pd.DataFrame) -> str:
    """Return a sentence with the number of hidden rows of each verdict."""
    counts = frame["verdict"].value_counts()
    texts = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    return f"Hidden by the filters: {texts}." if texts else ""


def _notes(frame: pd.DataFrame) -> dict[int, str]:
    """Return the distinct notes of the rows by their number in the table."""
    return dict(enumerate(dict.fromkeys(note for note in frame["note"] if note), start=1))


def _notes_text(frame: pd.DataFrame) -> str:
    texts = [f"{number}: {note}" for number, note in _notes(frame.head(MAX_ROWS)).items()]
    return f"Notes. {'. '.join(texts)}."


def _rows(comparison: Comparison, keys: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    """Return titles and cells of the first rows; each workload links to its causes."""
    first = replace(comparison, frame=comparison.frame.head(MAX_ROWS))
    table = comparison_table(first).reset_index()
    # Omit columns that are empty or equal in all rows: they take space from the names.
    is_omitted = {
        "metric": bool(keys.get("metric")),
        "note": not table["note"].astype(bool).any(),
    }
    titles = [str(name) for name in table.columns if not is_omitted.get(str(name))]
    rows = []
    arms = first.frame["contender"]
    table["note"] = table["note"].map({text: str(i) for i, text in _notes(first.frame).items()})
    for arm, row in zip(arms, table.to_dict("records"), strict=True):
        target = address("compare", **keys, workload=row["workload"], arm=arm)
        rows.append([link(row["workload"], target), *(str(row[name]) for name in titles[1:])])
    return titles, rows


def comparison_table(comparison: Comparison) -> pd.DataFrame:
    """Return the rows of a comparison as text, changed rows first."""
    has_null = comparison.frame["null_ratio"].notna().any()
    rows = []
    for row in comparison.frame.to_dict("records"):
        noise = row["noise"]
        rows.append(
            {
                **text_row(row, comparison),
                **({"null": format_change(row["null_ratio"])} if has_null else {}),
                "noise": f"± {noise:.1%}".replace("%", " %") if np.isfinite(noise) else MISSING,
                "note": row["note"],
            }
        )
    return pd.DataFrame(rows).set_index("workload")
