"""Figures of a comparison: effects, probabilities of a change, single runs, and parts of a change.

Input: a `Comparison`, or an `Explanation`; output: a Bokeh figure. The first three figures can
share one y axis of workloads.
Worse is red and up, better is blue and down: position and symbol show it in addition to colour.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from bokeh.models import (
    BasicTicker,
    ColumnDataSource,
    CustomJSTickFormatter,
    DataRange1d,
    HBar,
    HoverTool,
    LinearColorMapper,
    NoOverlap,
    Range1d,
    Rect,
    Scatter,
    Segment,
)
from bokeh.models.annotations import Span
from bokeh.plotting import figure
from numpy.typing import NDArray

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

_INTERVAL: dict[str, Any] = {"x0": "low", "y0": "label", "x1": "high", "y1": "label"}
#: Maximum number of rows; above it, rows with verdict "same" are only counted in the title.
MAX_ROWS = 60
#: Pixels of a row, with room for the dots of three arms.
ROW_HEIGHT = 26
#: Pixels above and below the rows: equal in all figures, so that rows of adjacent figures align.
ABOVE, BELOW = 56, 76
_NO_ROWS = "The comparison has no rows for this metric."
_TOO_FEW_RUNS = "A probability requires at least two runs per side."
#: The x axis shows intervals up to at least this distance beyond the effects (%).
MIN_REACH = 5.0
#: Opacity of the heat map's cells in rows without a change: their verdict must not look like one.
UNCHANGED_ALPHA = 0.3
#: Smallest number of rows with room for the scale of the probabilities.
ROWS_OF_COLOUR_BAR = 5
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


def _colours(frame: pd.DataFrame) -> list[str]:
    return [
        WORSE if row.worse else BETTER if row.changed else UNCHANGED for row in frame.itertuples()
    ]


def _columns(frame: pd.DataFrame, labels: list[str]) -> dict[str, Any]:
    """Return the columns that identify a row when it is clicked."""
    return {"label": labels, "workload": frame["workload"], "contender": frame["contender"]}


def _rows_figure(
    title: str, short_title: str, x: str, labels: list[str], share_y: figure | None, **look: Any
) -> figure:
    """Return an empty figure with one row per workload.

    With `share_y` it has the rows of that figure, and `short_title`, because it is narrow.
    """
    if share_y is not None:
        look = {"y_range": share_y.y_range, "min_border_left": 12, **look}
    fig = make_figure(
        title if share_y is None else short_title,
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
    if share_y is not None:
        fig.yaxis.visible = False
        fig.html_attributes = {**fig.html_attributes, "aria-label": title}
    fig.ygrid.grid_line_color = None
    return fig


def _title(question: str, hidden: str, *parts: str) -> str:
    details = [part for part in (*parts, hidden) if part]
    return f"{question} ({', '.join(details)})" if details else question


def forest_plot(comparison: Comparison, metric: str | None = "duration") -> figure:
    """Draw the change of each workload with its interval, and the noise in the background.

    Parameters
    ----------
    comparison : Comparison
        The comparison.
    metric : str or None, default "duration"
        The metric to draw; None: a row for each metric, for comparisons of few workloads.

    Returns
    -------
    figure
        Change in % of the baseline, one row per workload in the order of the comparison. The
        grey band has the changes that the test of the verdict cannot tell from none: a mark in it
        is no change. An arrow: the interval continues.
    """
    frame, hidden = _rows(comparison, metric)
    question = f"How did {_what(metric)} change?"
    if frame.empty:
        return empty_figure(question, _NO_ROWS)
    labels = _labels(frame, comparison)
    changed = frame["changed"]
    low = frame["low"].where(~changed, frame["selected_low"])
    high = frame["high"].where(~changed, frame["selected_high"])
    # The width of the interval that the test uses, around no change: that of the null arm alone has
    # other runs, and contradicts the verdict.
    noise_low, noise_high = (frame[end] / frame["ratio"] for end in ("low", "high"))
    x_range = _x_range(frame["ratio"], [low, high, noise_low, noise_high])
    source = ColumnDataSource(
        {
            **_columns(frame, labels),
            "change": (frame["ratio"] - 1) * 100,
            "low": (low - 1) * 100,
            "high": (high - 1) * 100,
            "noise_low": (noise_low - 1) * 100,
            "noise_high": (noise_high - 1) * 100,
            "colour": _colours(frame),
            "marker": np.select(
                [frame["verdict"] == "failed", frame["worse"], changed],
                ["x", "triangle", "inverted_triangle"],
                "circle",
            ),
            "verdict": frame["verdict"],
            "runs": [f"{row.n_baseline} + {row.n_contender}" for row in frame.itertuples()],
        },
        name="rows",
    )
    fig = _rows_figure(
        _title(question, hidden, f"{comparison.level:.0%} intervals"),
        "Which changed?",
        f"change against {comparison.baseline} (%)",
        *(labels, None),
        x_range=x_range,
        tools="xpan,xwheel_zoom,reset,save",
    )
    band = HBar(
        y="label", left="noise_low", right="noise_high", height=0.9, fill_color=OTHER,
        fill_alpha=0.28, line_color=None,
    )  # fmt: skip
    if noise_low.notna().any():
        add_glyph(fig, band, source, legend="changes that noise alone causes")
    add_glyph(fig, Segment(**_INTERVAL, line_color="colour", line_width=2.2), source)
    dot = Scatter(
        x="change", y="label", marker="marker", size=9, line_color="colour", fill_color="colour"
    )
    _add_cut_arrows(fig, source, x_range)
    fig.add_layout(Span(location=0, dimension="height", line_color=INK, line_width=1))
    tips = [
        ("workload", "@label"),
        ("change", "@change{+0.0} %"),
        ("interval", "@low{+0.0} to @high{+0.0} %"),
        ("verdict", "@verdict"),
        ("runs", "@runs"),
    ]
    add_glyph(fig, dot, source, tips=tips)
    place_legend(fig, "below")
    return fig


def _add_cut_arrows(fig: figure, source: ColumnDataSource, x_range: DataRange1d | Range1d) -> None:
    """Draw an arrow at the end of the x axis for each interval that continues beyond it."""
    if not isinstance(x_range, Range1d):
        return
    first, last = float(x_range.start), float(x_range.end)  # type: ignore[arg-type]
    inset = 0.008 * (last - first)
    ends = (("low", -1, first, first + inset), ("high", 1, last, last - inset))
    rows = source.to_df()
    cut = pd.concat(
        rows[side * rows[end] > side * limit].assign(x=x, angle=-side * math.pi / 2)
        for end, side, limit, x in ends
    )
    columns = cut[["x", "label", "angle", "colour"]].to_dict("list")
    look: dict[str, Any] = {"line_color": "colour", "fill_color": "colour", "size": 9}
    arrow = Scatter(x="x", y="label", marker="triangle", angle="angle", **look)
    add_glyph(fig, arrow, ColumnDataSource(columns, name="cut"))


def _x_range(effects: pd.Series, ends: list[pd.Series]) -> DataRange1d | Range1d:
    """Return an x range with all effects that cuts intervals so wide that they hide them."""
    values = _percent(effects)
    if not len(values):
        return DataRange1d()
    low, high = min(values.min(), 0.0), max(values.max(), 0.0)
    reach = max(high - low, MIN_REACH)
    beyond = np.concatenate([values, *map(_percent, ends)])
    low, high = max(beyond.min(), low - reach), min(beyond.max(), high + reach)
    margin = max(0.08 * (high - low), 2.0)
    return Range1d(start=min(low, 0.0) - margin, end=max(high, 0.0) + margin)


def _percent(ratios: pd.Series) -> NDArray[np.float64]:
    """Return the finite ratios as changes in %."""
    values = ratios.to_numpy(float)
    return (values[np.isfinite(values)] - 1) * 100


def heat_map(
    comparison: Comparison, metric: str | None = "duration", *, share_y: figure | None = None
) -> figure:
    """Draw the probability that each workload changed by more than a number of per cent.

    Parameters
    ----------
    comparison : Comparison
        The comparison.
    metric : str or None, default "duration"
        The metric to draw; None: a row for each metric, for comparisons of few workloads.
    share_y : figure, optional
        Another figure of this module, of the same comparison, that shows the names of the rows.

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
            **_columns(
                frame.loc[frame.index.repeat(n_columns)],
                [label for label in labels for _ in range(n_columns)],
            ),
            "beyond": np.tile(np.array(columns, dtype=object), n_rows),
            "value": signed.ravel(),
            "probability": np.abs(signed).ravel() * 100,
            "alpha": np.where(frame["changed"], 1.0, UNCHANGED_ALPHA).repeat(n_columns),
            "verdict": frame["verdict"].repeat(n_columns),
        },
        name="rows",
    )
    fig = _rows_figure(
        _title(question, hidden, "red more, blue less, pale: no change"),
        "How probable? (pale: no change)",
        "change (%)",
        *(labels, share_y),
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
    every = 2 if share_y is None else 4
    names: dict[float | str, Any] = {
        i: columns[i] if step % every == 0 else "" for i, step in enumerate(from_middle)
    }
    names |= {len(steps) - 1: "", len(steps): "0"} if not steps[0] else {}
    fig.xaxis.ticker = [float(place) for place, name in names.items() if name]
    fig.xaxis.major_label_policy = NoOverlap()
    fig.xaxis.major_label_overrides = names
    fig.xgrid.grid_line_color = None
    if share_y is not None or n_rows < ROWS_OF_COLOUR_BAR:
        return fig  # no room: the title explains colours, tooltips show probabilities
    ticks = CustomJSTickFormatter(code=read_script("probability_tick"))
    ticker = BasicTicker(desired_num_ticks=5)
    add_colour_bar(fig, mapper, "probability", ticker=ticker, formatter=ticks)
    return fig


def raw_points(
    comparison: Comparison, metric: str | None = "duration", *, share_y: figure | None = None
) -> figure:
    """Draw each run as a share of the value of the baseline, with arms one above the other.

    Parameters
    ----------
    comparison : Comparison
        The comparison.
    metric : str or None, default "duration"
        The metric to draw; None: a row for each metric, for comparisons of few workloads.
    share_y : figure, optional
        Another figure of this module, of the same comparison, that shows the names of the rows.

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
        "What did each run measure?",
        f"share of the value of {comparison.baseline} (%)",
        *(labels, share_y),
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
