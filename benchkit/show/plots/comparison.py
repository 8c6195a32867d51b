"""Figures of a comparison: intervals, probabilities of a change, single runs, parts of a change.

Input: a `Comparison`, or an `Explanation`; output: a Bokeh figure.
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
    NoOverlap,
    Rect,
    Scatter,
    Segment,
)
from bokeh.models.annotations import Span
from bokeh.plotting import figure

from benchkit.analysis.compare.comparison import Comparison
from benchkit.analysis.compare.explain import IDLE, UNEXPLAINED, Explanation
from benchkit.formatting import counted
from benchkit.show.plots.base import (
    INK,
    add_colour_bar,
    add_glyph,
    empty_figure,
    make_figure,
    metric_label,
    place_legend,
    read_script,
    row_labels,
)
from benchkit.show.theme import ACTIVITY_COLOURS, BETTER, OTHER, UNCHANGED, WORSE
from benchkit.text import escape

#: Maximum number of rows; above it, rows with verdict "same" are only counted in the title.
MAX_ROWS = 60
#: Pixels of a row, with room for the dots of three arms.
ROW_HEIGHT = 26
#: Pixels above and below the rows.
ABOVE, BELOW = 56, 76
_NO_ROWS = "The comparison has no rows for this metric."
_TOO_FEW_RUNS = "A probability requires at least two runs per side."
#: Opacity of the heat map's cells in rows without a change: their verdict must not look like one.
UNCHANGED_ALPHA = 0.3
#: Smallest number of rows with room for the scale of the probabilities.
ROWS_OF_COLOUR_BAR = 5
#: Importance of a row -> colour of its small figure, which dark pages show as well.
_TONES = {"bad": "#ee6677", "good": "#4477aa"}
#: Transparent towards the middle, so that the page background shows in light and dark themes.
_DIVERGING = (
    BETTER, "#4393c3cc", "#92c5de88", "#92c5de44", "#8a95a21c", "#f4a58244", "#f4a58288",
    "#d6604dcc", WORSE,
)  # fmt: skip


def _rows(comparison: Comparison, metric: str | None) -> tuple[pd.DataFrame, str]:
    """Return the rows of a metric that fit, and a text about the omitted rows."""
    frame = comparison.frame
    if metric is not None:
        frame = frame[frame["metric"] == metric]
    if len(frame) <= MAX_ROWS:
        return frame, ""
    different = frame[frame["verdict"] != "same"]
    if different.empty or len(different) > MAX_ROWS:
        return frame.head(MAX_ROWS), f"{len(frame) - MAX_ROWS} more not shown"
    return different, f"{len(frame) - len(different)} with verdict same not shown"


def _what(metric: str | None) -> str:
    return "each metric" if metric is None else metric_label(metric)


def _labels(frame: pd.DataFrame, comparison: Comparison) -> list[str]:
    several = len(comparison.contenders) > 1
    parts = {
        "workload": frame["workload"].nunique() > 1 or frame["metric"].nunique() < 2,
        "metric": frame["metric"].nunique() > 1,
        "contender": several,
    }
    names = [
        " · ".join(str(row[name]).replace("_", " " if name == "metric" else "_")
                   for name, is_shown in parts.items() if is_shown)
        for row in frame.to_dict("records")
    ]  # fmt: skip
    return row_labels(names, 48)


def _rows_figure(title: str, x: str, labels: list[str], **look: Any) -> figure:
    """Return an empty figure with one row per workload."""
    height = ABOVE + BELOW + ROW_HEIGHT * len(labels)
    fig = make_figure(title, x, "workload", y_range=labels[::-1], height=height, **look)
    fig.ygrid.grid_line_color = None
    return fig


def _title(question: str, hidden: str, *parts: str) -> str:
    details = [part for part in (*parts, hidden) if part]
    return f"{question} ({', '.join(details)})" if details else question


def interval_bar(
    value: float,
    low: float,
    high: float,
    *,
    noise: tuple[float, float],
    zero: float,
    tone: str = "",
    label: str = "",
    width: int = 120,
    height: int = 18,
) -> str:
    """Return a change with its interval and the band of the noise as a small SVG.

    Positions are on an axis from 0 to 1; an interval that continues has an arrow at its end, one of
    NaN is not drawn. `label` is the text for screen readers.
    """
    left, right, at, none, first, last = (
        4 + (width - 8) * min(max(x, 0.0), 1.0) for x in (low, high, value, zero, *noise)
    )
    middle, colour = height / 2, _TONES.get(tone, "currentColor")
    marks = f'<path d="M{none:.1f} 0v{height}" stroke="currentColor" opacity=".6"/>'
    if first < last:
        size = f'width="{last - first:.1f}" height="{height}"'
        marks += f'<rect x="{first:.1f}" {size} fill="{OTHER}" opacity=".4"/>'
    if left <= right:
        line = f"M{left:.1f} {middle}H{right:.1f}"
        marks += f'<path d="{line}" stroke="{colour}" stroke-width="2"/>'
    for is_cut, end, step in ((low < 0, left, 5), (high > 1, right, -5)):
        if is_cut:
            marks += f'<path d="M{end:.1f} {middle}l{step} -4v8z" fill="{colour}"/>'
    # As in the verdict: up for worse, down for better.
    shape = {"bad": f"{middle - 4}l4 8h-8z", "good": f"{middle + 4}l4 -8h-8z"}.get(tone)
    if shape:
        marks += f'<path d="M{at:.1f} {shape}" fill="{colour}"/>'
    else:
        marks += f'<circle cx="{at:.1f}" cy="{middle}" r="3" fill="{colour}"/>'
    return (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(label)}">{marks}</svg>'
    )


def heat_map(comparison: Comparison, metric: str | None = "duration") -> figure:
    """Draw the probability that each workload changed by more than a number of per cent.

    Parameters
    ----------
    comparison : Comparison
        The comparison.
    metric : str or None, default "duration"
        The metric to draw; None: a row for each metric, for comparisons of few workloads.

    Returns
    -------
    figure
        Columns are changes from -80 to +80 %, cells the probability of a change beyond that. Rows
        that did not change are pale.
    """
    frame, hidden = _rows(comparison, metric)
    question = f"How probable is a change of {_what(metric)}?"
    if frame.empty:
        return empty_figure(question, _NO_ROWS)
    if frame["p"].isna().all():
        return empty_figure(question, _TOO_FEW_RUNS)
    table = comparison.effects.table()
    index = frame["row"].to_numpy()
    steps = np.round(np.asarray(table.thresholds) * 100, 6)
    less, more = table.less[index], table.more[index]
    columns = [f"−{step:g}" if step else "any less" for step in steps[::-1]]
    columns += [f"+{step:g}" if step else "any more" for step in steps]
    signed = np.hstack([-less[:, ::-1], more])
    labels = _labels(frame, comparison)
    n_rows, n_columns = signed.shape
    source = ColumnDataSource(
        {
            "x": np.tile(np.arange(n_columns), n_rows),
            "label": np.repeat(np.array(labels, dtype=object), n_columns),
            "beyond": np.tile(np.array(columns, dtype=object), n_rows),
            "value": signed.ravel(),
            "probability": np.abs(signed).ravel() * 100,
            "alpha": np.where(frame["changed"], 1.0, UNCHANGED_ALPHA).repeat(n_columns),
            "verdict": frame["verdict"].repeat(n_columns),
        },
    )
    fig = _rows_figure(
        _title(question, hidden, "red more, blue less, pale: no change"),
        "change (%)",
        labels,
        tools="save",
    )
    mapper = LinearColorMapper(palette=_DIVERGING, low=-1, high=1, nan_color="#00000000")
    cell = Rect(
        x="x", y="label", width=0.96, height=0.92, line_color=None,
        fill_color={"field": "value", "transform": mapper}, fill_alpha="alpha",
    )  # fmt: skip
    tips = [
        ("workload", "@label"),
        ("change beyond (%)", "@beyond"),
        ("probability", "@probability{0.0} %"),
        ("verdict", "@verdict"),
    ]
    add_glyph(fig, cell, source, tips=tips)
    from_middle = [*reversed(range(len(steps))), *range(len(steps))]
    names: dict[float | str, Any] = {
        i: columns[i] if step % 2 == 0 else "" for i, step in enumerate(from_middle)
    }
    names |= {len(steps) - 1: "", len(steps): "0"} if not steps[0] else {}
    fig.xaxis.ticker = [float(place) for place, name in names.items() if name]
    fig.xaxis.major_label_policy = NoOverlap()
    fig.xaxis.major_label_overrides = names
    fig.xgrid.grid_line_color = None
    if n_rows < ROWS_OF_COLOUR_BAR:
        return fig  # no room: the title explains colours, tooltips show probabilities
    ticks = CustomJSTickFormatter(code=read_script("probability_tick"))
    ticker = BasicTicker(desired_num_ticks=5)
    add_colour_bar(fig, mapper, "probability", ticker=ticker, formatter=ticks)
    return fig


def raw_points(comparison: Comparison, metric: str | None = "duration") -> figure:
    """Draw each run as a share of the value of the baseline, with arms one above the other.

    Parameters
    ----------
    comparison : Comparison
        The comparison.
    metric : str or None, default "duration"
        The metric to draw; None: a row for each metric, for comparisons of few workloads.

    Returns
    -------
    figure
        One dot per run. Shows what intervals hide: two modes, an outlier.
    """
    frame, hidden = _rows(comparison, metric)
    question = f"What was {_what(metric)} in each run?"
    if frame.empty:
        return empty_figure(question, _NO_ROWS)
    labels = _labels(frame, comparison)
    heights = {"baseline": 0.24, "null": 0.0, "contender": -0.24}
    colours = {"baseline": UNCHANGED, "null": None, "contender": "#aa3377"}
    legend = {
        "baseline": comparison.baseline,
        "null": f"{comparison.baseline} again (null arm)",
        "contender": " or ".join(comparison.contenders),
    }
    fig = _rows_figure(
        _title(question, hidden),
        f"share of the value of {comparison.baseline} (%)",
        labels,
        tools="xpan,xwheel_zoom,reset,save",
    )
    for rank, (arm, height) in enumerate(heights.items()):
        columns: dict[str, list[Any]] = {"x": [], "y": [], "label": [], "id": [], "rank": []}
        for label, row in zip(labels, frame.to_dict("records"), strict=True):
            values = comparison.points(row).get(arm)
            if values is None or not row["baseline"]:
                continue
            finite = np.isfinite(values)
            count = int(finite.sum())
            columns["x"] += (values[finite] / row["baseline"] * 100).tolist()
            columns["y"] += [(label, height)] * count
            columns["label"] += [label] * count
            columns["id"] += comparison.run_ids(row)[arm][finite].tolist()
            columns["rank"] += [rank] * count
        if columns["x"]:
            dot = Scatter(
                x="x", y="y", size=7, fill_color=colours[arm], fill_alpha=0.75,
                line_color=colours[arm] or UNCHANGED,
            )  # fmt: skip
            source = ColumnDataSource(columns, name="runs")
            add_glyph(fig, dot, source, legend=legend[arm], name=legend[arm])
    fig.add_tools(
        HoverTool(
            tooltips=[("workload", "@label"), ("arm", "$name"), ("of the baseline", "@x{0.0} %")]
        )
    )
    fig.add_layout(Span(location=100, dimension="height", line_color=INK, line_width=1))
    place_legend(fig, "below")
    return fig


#: Height of a row in pixels.
PART_HEIGHT = 22
#: Maximum number of parts with a row each; the other parts share one row.
MAX_PARTS = 7
#: Parts smaller than this share of the largest part share one row, except idle time.
MIN_PART_SHARE = 0.005


def waterfall(explanation: Explanation) -> figure:
    """Draw the parts of a difference, largest on top, and their sum.

    Parameters
    ----------
    explanation : Explanation
        Return value of `benchkit.analysis.compare.explain.explain`.

    Returns
    -------
    figure
        Additional seconds of wall time of each task group and activity (negative: fewer seconds);
        lines are intervals.
    """
    slower = explanation.total_s >= 0
    question = "Where did the extra seconds go?" if slower else "Where were seconds saved?"
    parts = explanation.parts
    if parts.empty:
        return empty_figure(question)
    small = parts["seconds"].abs() < MIN_PART_SHARE * parts["seconds"].abs().max()
    last = parts["group"].isin([IDLE, UNEXPLAINED])
    largest = parts[~last & ~small].head(MAX_PARTS)
    rest = parts[~last].drop(largest.index)
    rows = [
        (f"{r.activity} in {r.group}", r.seconds, r.low, r.high, str(r.activity))
        for r in largest.itertuples()
    ]
    if len(rest):
        total = float(rest["seconds"].sum())
        rows.append((counted(len(rest), "other part"), total, np.nan, np.nan, "other"))
    rows += [
        (str(r.activity), r.seconds, r.low, r.high, "other")
        for r in parts[last].itertuples()
        if r.group == IDLE or r.seconds
    ]
    rows.append(("total", explanation.total_s, np.nan, np.nan, "sum"))
    labels = row_labels([row[0] for row in rows], 52)
    colours = {**ACTIVITY_COLOURS, "other": OTHER, "sum": INK}
    source = ColumnDataSource(
        {
            "label": labels,
            "seconds": [row[1] for row in rows],
            "low": [row[2] for row in rows],
            "high": [row[3] for row in rows],
            "colour": [colours.get(row[4], OTHER) for row in rows],
        }
    )
    counts = f"{explanation.n_baseline} + {explanation.n_contender} runs"
    fig = make_figure(
        f"{question} ({counts})",
        "additional (+) or saved (−) wall time (s)",
        "part" if len(labels) < 5 else "task group and activity",
        y_range=labels[::-1],
        height=100 + PART_HEIGHT * len(labels),
        tools="save",
    )
    bar = HBar(y="label", right="seconds", height=0.7, line_color="colour", fill_color="colour")
    add_glyph(fig, bar, source)
    interval = Segment(x0="low", y0="label", x1="high", y1="label", line_color=INK, line_width=1.2)
    add_glyph(fig, interval, source)
    fig.add_layout(Span(location=0, dimension="height", line_color=INK, line_width=1))
    tips = [
        ("part", "@label"),
        ("change", "@seconds{+0.000} s"),
        ("interval", "@low{+0.000} to @high{+0.000} s"),
    ]
    fig.add_tools(HoverTool(tooltips=tips))
    fig.ygrid.grid_line_color = None
    return fig
