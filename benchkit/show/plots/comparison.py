"""Figures of a comparison: effects with intervals, probabilities of a change, and single runs.

Input: a `Comparison`; output: a Bokeh figure. The three figures can share one y axis of workloads.
Worse is red and up, better is blue and down: position and symbol show it in addition to colour.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from bokeh.models import (
    BasicTicker,
    ColumnDataSource,
    CustomJSTickFormatter,
    HBar,
    HoverTool,
    LinearColorMapper,
    Rect,
    Scatter,
    Segment,
)
from bokeh.models.annotations import ColorBar, Span
from bokeh.plotting import figure
from numpy.typing import NDArray

from benchkit.analysis.compare.comparison import Comparison
from benchkit.show.plots.base import (
    INK,
    add,
    empty_figure,
    legend_beside,
    make_figure,
    metric_words,
)
from benchkit.show.theme import OTHER

__all__ = ["forest_plot", "heat_map", "raw_points"]

_INTERVAL: dict[str, Any] = {"x0": "low", "y0": "label", "x1": "high", "y1": "label"}
WORSE, BETTER, EVEN = "#b2182b", "#2166ac", "#8a95a2"
#: Maximum number of rows; above it, rows with verdict "same" are only counted in the title.
MOST_ROWS = 60
#: Pixels of a row (room for the dots of three arms), and above and below the rows: equal in all
#: figures, so that the rows of adjacent figures are aligned.
ROW_HEIGHT, ABOVE, BELOW = 26, 56, 76
_NO_ROW = "No row is of this metric."
_NOT_KNOWN = "How sure it is cannot be told: that takes two runs a side."
#: The x axis shows intervals up to at least this distance beyond the effects (%).
LEAST_REACH = 5.0
#: Transparent towards the middle, so that the page background shows in light and dark themes.
_DIVERGING = (
    "#2166ac", "#4393c3cc", "#92c5de88", "#92c5de44", "#8a95a21c", "#f4a58244", "#f4a58288",
    "#d6604dcc", "#b2182b",
)  # fmt: skip


#: JavaScript for the labels of the colour bar: the direction is a word, not only a colour.
_SURE = """
const side = tick > 0 ? " more" : tick < 0 ? " less" : "";
return `${Math.round(100 * Math.abs(tick))} %${side}`;
"""


def _rows(report: Comparison, metric: str) -> tuple[pd.DataFrame, str]:
    """Return the rows of a metric that fit, and a text about the omitted rows."""
    frame = report.frame[report.frame["metric"] == metric]
    if len(frame) <= MOST_ROWS:
        return frame, ""
    kept = frame[frame["verdict"] != "same"]
    if kept.empty or len(kept) > MOST_ROWS:
        return frame.head(MOST_ROWS), f"{len(frame) - MOST_ROWS} more are not shown"
    return kept, f"{len(frame) - len(kept)} that are the same are not shown"


def _labels(frame: pd.DataFrame, report: Comparison) -> list[str]:
    several = len(report.contenders) > 1
    names = [
        f"{row.workload} · {row.contender}" if several else str(row.workload)
        for row in frame.itertuples()
    ]
    names = [name if len(name) <= 48 else f"{name[:23]}…{name[-24:]}" for name in names]
    # Factors must be distinct: zero-width spaces distinguish names that are equal after the cut.
    return [name + "\u200b" * names[:i].count(name) for i, name in enumerate(names)]


def _colours(frame: pd.DataFrame) -> list[str]:
    return [WORSE if row.worse else BETTER if row.changed else EVEN for row in frame.itertuples()]


def _columns(frame: pd.DataFrame, labels: list[str]) -> dict[str, Any]:
    """Return the columns that identify a row when it is clicked."""
    return {"label": labels, "workload": frame["workload"], "contender": frame["contender"]}


def _rows_figure(
    title: str, short: str, x: str, labels: list[str], beside: Any | None, **look: Any
) -> Any:
    """Return an empty figure with one row per workload; `beside` shares the rows of a figure.

    With `beside` the figure gets the title `short`, because it is narrow.
    """
    if beside is not None:
        look = {"y_range": beside.y_range, "min_border_left": 12, **look}
    drawn = make_figure(
        title,
        x,
        "workload",
        **{
            "y_range": labels[::-1],
            "height": ABOVE + BELOW + ROW_HEIGHT * len(labels),
            "min_border_top": ABOVE,
            "min_border_bottom": BELOW,
            **look,
        },
    )
    if beside is not None:
        drawn.title.text, drawn.yaxis.visible = short, False
    drawn.ygrid.grid_line_color = None
    return drawn


def _title(question: str, hidden: str, *parts: str) -> str:
    said = [part for part in (*parts, hidden) if part]
    return f"{question} ({', '.join(said)})" if said else question


def forest_plot(
    report: Comparison, metric: str = "duration", *, beside: figure | None = None
) -> figure:
    """Draw the change of each workload with its interval, and the null arm in the background.

    Parameters
    ----------
    report : Comparison
        A comparison.
    metric : str, default "duration"
        The metric to draw.
    beside : figure, optional
        Another figure of this module, of the same report, that shows the names of the rows.

    Returns
    -------
    figure
        Change in % of the baseline, one row per workload in the order of the report. The grey band
        is the null arm against the baseline; an interval that touches it is noise.
    """
    frame, hidden = _rows(report, metric)
    question = f"Which workloads changed in {metric_words(metric)}?"
    if frame.empty:
        return empty_figure(question, _NO_ROW)
    labels = _labels(frame, report)
    wide = frame["changed"]
    low = frame["low"].where(~wide, frame["selected_low"])
    high = frame["high"].where(~wide, frame["selected_high"])
    source = ColumnDataSource(
        {
            **_columns(frame, labels),
            "change": (frame["ratio"] - 1) * 100,
            "low": (low - 1) * 100,
            "high": (high - 1) * 100,
            "null_low": (frame["null_low"] - 1) * 100,
            "null_high": (frame["null_high"] - 1) * 100,
            "colour": _colours(frame),
            "marker": [
                "triangle" if row.worse else "inverted_triangle" if row.changed else "circle"
                for row in frame.itertuples()
            ],
            "verdict": frame["verdict"],
            "runs": [f"{row.n_baseline} + {row.n_contender}" for row in frame.itertuples()],
        },
        name="rows",
    )
    drawn = _rows_figure(
        _title(question, hidden, f"{report.level:.0%} intervals"),
        "Which changed?",
        f"change against {report.baseline} (%)",
        *(labels, beside),
        tools="xpan,xwheel_zoom,reset,save",
    )
    band = HBar(
        y="label", left="null_low", right="null_high", height=0.9, fill_color=OTHER,
        fill_alpha=0.28, line_color=None,
    )  # fmt: skip
    add(drawn, band, source, legend="baseline against itself")
    add(drawn, Segment(**_INTERVAL, line_color="colour", line_width=2.2), source)
    dot = Scatter(
        x="change", y="label", marker="marker", size=9, line_color="colour", fill_color="colour"
    )
    dots = add(drawn, dot, source)
    drawn.add_layout(Span(location=0, dimension="height", line_color=INK, line_width=1))
    drawn.add_tools(
        HoverTool(
            renderers=[dots],
            tooltips=[
                ("workload", "@label"),
                ("change", "@change{+0.0} %"),
                ("interval", "@low{+0.0} to @high{+0.0} %"),
                ("verdict", "@verdict"),
                ("runs", "@runs"),
            ],
        )
    )
    _fit(drawn, frame["ratio"], [low, high, frame["null_low"], frame["null_high"]])
    legend_beside(drawn, place="below")
    return drawn


def _fit(drawn: Any, effects: pd.Series, ends: list[pd.Series]) -> None:
    """Set the x range to all effects, and cut intervals that are so wide that they hide them."""
    shown = _percent(effects)
    if not len(shown):
        return
    low, high = min(shown.min(), 0.0), max(shown.max(), 0.0)
    reach = max(high - low, LEAST_REACH)
    beyond = np.concatenate([shown, *map(_percent, ends)])
    low, high = max(beyond.min(), low - reach), min(beyond.max(), high + reach)
    margin = max(0.08 * (high - low), 2.0)
    drawn.x_range.start, drawn.x_range.end = min(low, 0.0) - margin, max(high, 0.0) + margin


def _percent(ratios: pd.Series) -> NDArray[np.float64]:
    """Return the finite ratios as changes in %."""
    known = ratios.to_numpy(float)
    return (known[np.isfinite(known)] - 1) * 100


def heat_map(
    report: Comparison, metric: str = "duration", *, beside: figure | None = None
) -> figure:
    """Draw the probability that each workload changed by more than a number of per cent.

    Parameters
    ----------
    report : Comparison
        A comparison.
    metric : str, default "duration"
        The metric to draw.
    beside : figure, optional
        Another figure of this module, of the same report, that shows the names of the rows.

    Returns
    -------
    figure
        Columns are changes from -80 to +80 %, cells the probability of a change beyond that.
    """
    frame, hidden = _rows(report, metric)
    question = f"How sure is a change in {metric_words(metric)} beyond so many per cent?"
    if frame.empty:
        return empty_figure(question, _NO_ROW)
    if frame["p"].isna().all():
        return empty_figure(question, _NOT_KNOWN)
    table = report.effects.table()
    index = frame["row"].to_numpy()
    steps = np.round(np.asarray(table.thresholds) * 100, 6)
    less, more = table.less[index], table.more[index]
    columns = [f"−{step:g}" for step in steps[::-1]] + [f"+{step:g}" for step in steps]
    signed = np.hstack([-less[:, ::-1], more])
    labels = _labels(frame, report)
    n_rows, n_columns = signed.shape
    source = ColumnDataSource(
        {
            "x": np.tile(np.arange(n_columns), n_rows),
            **_columns(
                frame.loc[frame.index.repeat(n_columns)],
                [label for label in labels for _ in range(n_columns)],
            ),
            "beyond": np.tile(np.array(columns, dtype=object), n_rows),
            "value": signed.ravel(),
            "sure": np.abs(signed).ravel() * 100,
        },
        name="rows",
    )
    drawn = _rows_figure(
        _title(question, hidden, "red more, blue less"),
        "How sure? (darker: surer; red: more)",
        "change (%)",
        *(labels, beside),
        tools="save",
    )
    mapper = LinearColorMapper(palette=_DIVERGING, low=-1, high=1, nan_color="#00000000")
    cell = Rect(
        x="x", y="label", width=0.96, height=0.92, line_color=None,
        fill_color={"field": "value", "transform": mapper},
    )  # fmt: skip
    cells = add(drawn, cell, source)
    drawn.add_tools(
        HoverTool(
            renderers=[cells],
            tooltips=[("workload", "@label"), ("beyond", "@beyond %"), ("sure", "@sure{0.0} %")],
        )
    )
    drawn.xaxis.ticker = list(range(0, n_columns))
    from_middle = [*reversed(range(len(steps))), *range(len(steps))]
    every = 2 if beside is None else 4
    names = {i: columns[i] if step % every == 0 else "" for i, step in enumerate(from_middle)}
    if beside is not None:
        names[len(steps) - 1] = ""  # the adjacent column has the label 0
    drawn.xaxis.major_label_overrides = names
    drawn.xgrid.grid_line_color = None
    if beside is not None:  # no room: the title explains colours, tooltips show probabilities
        return drawn
    bar = ColorBar(
        color_mapper=mapper,
        ticker=BasicTicker(desired_num_ticks=5),
        width=10,
        major_label_text_color=INK,
        background_fill_alpha=0,
        title="how sure",
        title_text_color=INK,
        formatter=CustomJSTickFormatter(code=_SURE),
    )
    drawn.add_layout(bar, "right")
    return drawn


def raw_points(
    report: Comparison, metric: str = "duration", *, beside: figure | None = None
) -> figure:
    """Draw each run as a share of the median of the baseline, with arms one above the other.

    Parameters
    ----------
    report : Comparison
        A comparison.
    metric : str, default "duration"
        The metric to draw.
    beside : figure, optional
        Another figure of this module, of the same report, that shows the names of the rows.

    Returns
    -------
    figure
        One dot per run. Shows what intervals hide: two modes, an outlier.
    """
    frame, hidden = _rows(report, metric)
    question = f"What did each run give in {metric_words(metric)}?"
    if frame.empty:
        return empty_figure(question, _NO_ROW)
    labels = _labels(frame, report)
    heights = {"baseline": 0.24, "null": 0.0, "contender": -0.24}
    colours = {"baseline": EVEN, "null": OTHER, "contender": "#aa3377"}
    words = {"baseline": report.baseline, "null": "null arm", "contender": "contender"}
    drawn = _rows_figure(
        _title(question, hidden),
        "What did each run give?",
        f"share of the median of {report.baseline} (%)",
        *(labels, beside),
        tools="xpan,xwheel_zoom,reset,save",
    )
    for rank, (arm, height) in enumerate(heights.items()):
        columns: dict[str, list[Any]] = {"x": [], "y": [], "label": [], "id": [], "rank": []}
        for label, row in zip(labels, frame.to_dict("records"), strict=True):
            values = report.points(row).get(arm)
            if values is None or not row["baseline"]:
                continue
            known = np.isfinite(values)
            n_known = int(known.sum())
            columns["x"] += (values[known] / row["baseline"] * 100).tolist()
            columns["y"] += [(label, height)] * n_known
            columns["label"] += [label] * n_known
            columns["id"] += report.run_ids(row)[arm][known].tolist()
            columns["rank"] += [rank] * n_known
        if columns["x"]:
            dot = Scatter(
                x="x", y="y", size=7, fill_color=colours[arm], fill_alpha=0.75, line_color=None
            )
            source = ColumnDataSource(columns, name="runs")
            add(drawn, dot, source, legend=words[arm], name=words[arm])
    drawn.add_tools(
        HoverTool(
            tooltips=[("workload", "@label"), ("arm", "$name"), ("of the median", "@x{0.0} %")]
        )
    )
    drawn.add_layout(Span(location=100, dimension="height", line_color=INK, line_width=1))
    legend_beside(drawn, place="below")
    return drawn
