"""Figures of one series over nights: runs, levels, changes and their possible causes.

Input: a `History` and the position of a series; output: a Bokeh figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from bokeh.models import (
    ColumnDataSource,
    CustomJSTickFormatter,
    DatetimeTicker,
    Line,
    NoOverlap,
    Range1d,
    Scatter,
    Segment,
    TapTool,
)
from bokeh.models.annotations import Label
from bokeh.models.renderers import DataRenderer, GlyphRenderer
from bokeh.plotting import figure
from numpy.typing import NDArray

from benchkit.analysis.changepoints import ChangePoint
from benchkit.analysis.regression.history import History, night_name
from benchkit.analysis.regression.level_events import worse_direction
from benchkit.analysis.regression.regression import Regression
from benchkit.analysis.regression.status import reported_change
from benchkit.errors import UsageError
from benchkit.formatting import counted, format_change, format_quantity, run_limits
from benchkit.show.plots.base import (
    INK,
    add_glyph,
    empty_figure,
    make_figure,
    place_legend,
    read_script,
)
from benchkit.show.theme import SERIES
from benchkit.store.filters import PAIR_KEYS, Selection, matching
from benchkit.store.marks import mark_columns
from benchkit.store.schema import METRICS
from benchkit.text import escape

#: Colours of changes, distinguishable with any colour vision; symbols repeat the meaning.
WORSE, BETTER = "#ee6677", "#4477aa"


def sparkline(
    values: NDArray[np.float64],
    changes: Sequence[tuple[int, int]] = (),
    *,
    worse: int = 1,
    failed: Sequence[int] = (),
    label: str = "",
    width: int = 130,
    height: int = 26,
) -> str:
    """Return a series as a small SVG in the colour of the surrounding text.

    Parameters
    ----------
    values : ndarray, shape (nights,)
        Values by night; NaN (not measured) interrupts the line.
    changes : sequence of (int, int)
        Night and direction (1 or -1) of each change of level.
    worse : {1, -1, 0}
        The direction that is worse.
    failed : sequence of int
        Nights without a result, drawn as crosses at the bottom.
    label : str
        Text for screen readers.
    width, height : int
        Size in pixels.

    Returns
    -------
    str
        An SVG element.

    Examples
    --------
    >>> sparkline(np.array([1.0, 2.0]), label="two nights")[:4]
    '<svg'
    """
    values = np.asarray(values, float)
    measured = np.isfinite(values)
    elements: list[str] = []
    if measured.any():
        low, high = float(values[measured].min()), float(values[measured].max())
        span = max(high - low, 0.1 * abs(high)) or 1.0  # 1 % noise must not look like a step
        low -= (span - (high - low)) / 2
        step = (width - 8) / max(values.size - 1, 1)
        x = 4 + step * np.arange(values.size)
        y = height - 5 - (values - low) / span * (height - 9)
        for night, direction in changes:
            colour = WORSE if direction == worse else BETTER
            elements.append(
                f'<path d="M{x[night]:.1f} 1V{height - 2}" stroke="{colour}" stroke-width="2"/>'
            )
        edges = np.flatnonzero(np.diff(np.concatenate([[0], measured.astype(int), [0]])))
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            line = "L".join(f"{x[i]:.1f} {y[i]:.1f}" for i in range(start, stop))
            if stop - start == 1:
                line += "h.1"
            elements.append(f'<path d="M{line}" fill="none" stroke="currentColor" opacity=".75"/>')
        last = int(np.flatnonzero(measured)[-1])
        elements.append(
            f'<circle cx="{x[last]:.1f}" cy="{y[last]:.1f}" r="2.2" fill="currentColor"/>'
        )
        elements += [
            f'<path d="M{x[i] - 2.5:.1f} {height - 6}l5 5m0-5l-5 5" stroke="{WORSE}"/>'
            for i in failed
        ]
    return (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'style="max-width: 100%" role="img" aria-label="{escape(label)}" '
        f'stroke-linecap="round" stroke-linejoin="round">{"".join(elements)}</svg>'
    )


#: Colour of runs.
_POINT = SERIES[0]
#: Runs farther from the others than this multiple of their range are drawn at the edge.
MAX_DISTANCE = 1.5
#: Size of a triangle at the edge, in pixels.
EDGE_SIZE = 9
#: Units of bytes, largest first.
_BYTES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
#: Columns of a run whose change between two nights can explain a step -> their label.
BUILD = {
    "dask": "dask",
    "distributed": "distributed",
    "python": "Python",
    "git_commit": "commit",
    "packages_hash": "packages",
}
_OVER_LINES = {"line_policy": "interp"}
_UPRIGHT: dict[str, Any] = {"x0": "x", "y0": "bottom", "x1": "x", "y1": "top"}
#: Width of the label of a change, as a share of the figure.
LABEL_WIDTH = 0.1


def night_range(history: History, key: int) -> Range1d:
    """Return the range of all nights of a series; its reset values stay when it is changed."""
    nights = history.runs.loc[history.runs["key"] == key, "night"]
    first, last = (pd.Timestamp(history.times[night]) for night in (nights.min(), nights.max()))
    margin = max((last - first) * 0.02, pd.Timedelta(hours=12))
    ends = (first - margin, last + margin)
    return Range1d(start=ends[0], end=ends[1], reset_start=ends[0], reset_end=ends[1], bounds=ends)


def history_plot(
    history: History,
    row: int,
    *,
    marks: Iterable[Mapping[str, Any]] = (),
    from_zero: bool = True,
    height: int = 360,
    small: bool = False,
    regressions: Iterable[Regression] = (),
) -> figure:
    """Draw one series: runs, medians of nights, levels, changes, builds, failures.

    Parameters
    ----------
    history : History
        Return value of `build_history`.
    row : int
        Position of the series in ``history.series``.
    marks : iterable of mapping
        Marks to draw at their times, from `Store.marks`.
    from_zero : bool, default True
        Whether the y axis starts at 0; otherwise it fits the data and its label says so.
    height : int, default 360
        Height in pixels.
    small : bool, default False
        Draw a small multiple next to a larger figure: no legend, no tool except tap, no builds,
        no tooltips. A page has several; the larger figure has the tooltips.
    regressions : iterable of Regression
        Regressions of the ledger: their changes have the size of the ledger.

    Returns
    -------
    figure
        The metric over nights. Its data sources ``runs`` and ``failures`` contain the id of each
        run; the page defines the action of a tap.
    """
    about = history.series.iloc[row]
    metric = METRICS[str(about["metric"])]
    title = f"{metric.long_name}: how has it changed?"
    values = history.values[row]
    measured = np.isfinite(values)
    if not measured.any():
        return empty_figure(title)
    divisor, unit = _unit(metric.units, float(np.nanmax(values)))
    runs = history.runs[history.runs["key"] == about["key"]]
    ok = runs[(runs["outcome"] == "ok") & runs[metric.name].notna()]
    low, high = _axis_ends(ok, metric.name, values / divisor, divisor, from_zero)
    note = "" if from_zero else ", not from 0"
    y_label = f"{metric.name.replace('_', ' ')} ({unit or '1'}{note})"
    fig = make_figure(
        metric.long_name if small else title,
        "" if small else "night (UTC)",
        f"{unit or 'number'}{note}" if small else y_label,
        height=height,
        x_axis_type="datetime",
        x_range=night_range(history, int(about["key"])),
        y_range=Range1d(start=low, end=high),
        tools="" if small else "xpan,xwheel_zoom,xbox_zoom,reset,save",
        **({"toolbar_location": None} if small else {}),
    )
    label = f"{about['workload']}: {metric.long_name} over {counted(int(measured.sum()), 'night')}"
    fig.html_attributes = {"role": "img", "aria-label": label}
    series = SeriesFigure(fig, history, row, divisor, low, high, small)
    _draw_levels(series)
    renderers: list[DataRenderer] = [*_draw_runs(series, ok), *_draw_failures(series, runs)]
    _draw_medians(series)
    draw_changes(series, regressions)
    if not small:
        draw_builds(series, runs)
    draw_restarts(series, runs, marks)
    fig.add_tools(TapTool(renderers=renderers))
    fig.xaxis[0].formatter = CustomJSTickFormatter(code=read_script("date_tick"))
    fig.xaxis[0].major_label_policy = NoOverlap()  # on a narrow screen dates would touch
    if small:  # two in a row on a phone: more dates would overlap
        fig.xaxis[0].ticker = DatetimeTicker(desired_num_ticks=3)
    else:
        place_legend(fig, "below")
    return fig


def _unit(units: str, most: float) -> tuple[float, str]:
    """Return the divisor of the values and the unit of the result."""
    if units == "B":
        return next(((float(size), name) for size, name in _BYTES if most >= size), (1.0, "B"))
    if units == "s" and most < 1e-1:
        return 1e-3, "ms"
    return 1.0, "" if units == "1" else units


def _axis_ends(
    ok: pd.DataFrame, name: str, medians: NDArray[np.float64], divisor: float, from_zero: bool
) -> tuple[float, float]:
    """Return the ends of the y axis, with room for labels above and for failures below.

    The axis contains all runs, also runs set aside, except a few far outliers that would compress
    the range of all others.
    """
    values = ok[name].to_numpy(float) / divisor
    comparable = values[ok["comparable"].to_numpy(bool)]
    usual = np.concatenate([medians[np.isfinite(medians)], np.quantile(comparable, [0.05, 0.95])])
    low, high = float(usual.min()), float(usual.max())
    reach = MAX_DISTANCE * (high if from_zero else _spread(low, high))
    near = values[(values >= low - reach) & (values <= high + reach)]
    low, high = min(low, near.min(initial=low)), max(high, near.max(initial=high))
    if from_zero or low == high == 0:
        return 0.0, high * 1.22 if high > 0 else 1.0
    return low - 0.15 * _spread(low, high), high + 0.3 * _spread(low, high)


def _spread(low: float, high: float) -> float:
    return (high - low) or abs(high) * 0.1 or 1.0


def _draw_runs(series: SeriesFigure, ok: pd.DataFrame) -> list[GlyphRenderer]:
    """Draw runs; disturbed runs are diamonds, runs set aside by a mark are hollow circles.

    Runs beyond the axis are triangles at its end.
    """
    fig, history, small = series.figure, series.history, series.small
    name, low, high = series.metric, series.low, series.high
    renderers = []
    n_outside = 0
    inset = 0.03 * (high - low)  # keeps triangles at the edge fully visible
    comparable, disturbed = ok["comparable"].astype(bool), _is_disturbed(ok)
    for chosen, legend, symbol in (
        (comparable & ~disturbed, "runs", "circle"),
        (comparable & disturbed, "disturbed runs", "diamond"),
        (~comparable, "runs set aside", "circle"),
    ):
        runs, is_set_aside = ok[chosen], legend == "runs set aside"
        if runs.empty:
            continue
        values = runs[name].to_numpy(float) / series.divisor
        above, below = values > high, values < low
        outside = above | below
        n_outside += int(outside.sum())
        marker = np.select([above, below], ["triangle", "inverted_triangle"], symbol)
        columns = {
            "x": history.times[runs["night"].to_numpy(int)],
            "y": np.select([above, below], [high - inset, low + inset], values),
            "marker": marker.tolist(),
            "size": np.where(outside, EDGE_SIZE, 4 if small else 6),
            "id": runs["id"].astype(str).tolist(),
        }
        if not small:
            columns |= _tooltip_columns(history, runs)
            columns["value"] = [format_quantity(v, METRICS[name].units) for v in runs[name]]
        source = ColumnDataSource(columns, name="runs")
        look: dict[str, Any] = {"x": "x", "y": "y", "marker": "marker", "size": "size",
                "line_color": _POINT, "fill_color": None if is_set_aside else _POINT,
                "fill_alpha": 0.7, "line_alpha": 0.9}  # fmt: skip
        selected = Scatter(**look | {"line_color": INK, "line_width": 2})
        tips = [("night", "@night"), ("value", "@value"), ("build", "@build"), ("run", "@short")]
        if is_set_aside:
            tips.append(("set aside", "@reason"))
        options: dict[str, Any] = {"selection_glyph": selected, "legend": legend, "tips": tips}
        options["hover"] = {"point_policy": "snap_to_data"}
        renderers.append(add_glyph(fig, Scatter(**look), source, **({} if small else options)))
    if n_outside:
        text = f"{counted(n_outside, 'run')} beyond this axis"
        label = Label(
            x=4, y=high, x_units="screen", y_offset=-2, text_baseline="top", text_font_size="11px",
            text_color=INK, text=text,
        )  # fmt: skip
        fig.add_layout(label)
        fig.html_attributes["aria-label"] += f", {text}"
    return renderers


def _is_disturbed(runs: pd.DataFrame) -> pd.Series:
    if "quality" not in runs:
        return pd.Series(False, index=runs.index)
    is_disturbed = {text: "disturbed" in run_limits({"quality": text})
                    for text in runs["quality"].dropna().unique()}  # fmt: skip
    return runs["quality"].map(is_disturbed).fillna(False).astype(bool)


def _tooltip_columns(history: History, runs: pd.DataFrame) -> dict[str, list[str]]:
    reasons = runs["reason"] if "reason" in runs else pd.Series("", index=runs.index)
    return {
        "id": runs["id"].astype(str).tolist(),
        "short": [str(name)[:13] for name in runs["id"]],
        "night": [str(history.times[night])[:10] for night in runs["night"]],
        "build": [_build_text(record) for record in runs.to_dict("records")],
        "reason": reasons.fillna("").astype(str).tolist(),
    }


def _build_text(record: Mapping[str, Any]) -> str:
    parts = [
        f"{label} {str(record[name])[:10]}"
        for name, label in BUILD.items()
        if record.get(name) and pd.notna(record[name])
    ]
    return ", ".join(parts)


def _draw_failures(series: SeriesFigure, runs: pd.DataFrame) -> list[GlyphRenderer]:
    """Draw failed runs as crosses on the axis: they have no value, which is different from 0."""
    failed = runs[~runs["outcome"].isin(["ok", "skipped"])]
    if failed.empty:
        return []
    errors = failed["error"].fillna("") if "error" in failed else [""] * len(failed)
    source = ColumnDataSource(
        {
            "x": series.history.times[failed["night"].to_numpy(int)],
            "y": np.full(len(failed), series.low),
            **_tooltip_columns(series.history, failed),
            "outcome": failed["outcome"].str.replace("_", " ").tolist(),
            "error": [str(text)[:200] for text in errors],
        },
        name="failures",
    )
    cross = Scatter(x="x", y="y", marker="x", size=11, line_width=2.5, line_color=WORSE)
    tips = [("night", "@night"), ("outcome", "@outcome"), ("error", "@error"), ("build", "@build")]
    options: dict[str, Any] = {} if series.small else {"legend": "no result", "tips": tips}
    return [add_glyph(series.figure, cross, source, level="overlay", **options)]


def _draw_medians(series: SeriesFigure) -> None:
    """Draw a line through the medians of the nights, with gaps at missing nights."""
    values = series.history.values[series.row] / series.divisor
    measured = np.flatnonzero(np.isfinite(values))
    nights = slice(measured[0], measured[-1] + 1)
    line = Line(x="x", y="y", line_color=_POINT, line_alpha=0.8, line_width=1.2)
    columns = {"x": series.history.times[nights], "y": values[nights]}
    legend = "" if series.small else "median of the night"
    add_glyph(series.figure, line, columns, legend=legend)


def _draw_levels(series: SeriesFigure) -> None:
    """Draw the median of each range of nights without a change or restart."""
    history = series.history
    cuts = {0, len(history.times), *series.restarts["night"].tolist()}
    cuts |= {change.index for change in history.changes[series.row]}
    columns: dict[str, list[Any]] = {"x0": [], "x1": [], "level": []}
    for start, stop in pairwise(sorted(cuts)):
        values = history.values[series.row, start:stop]
        measured = np.flatnonzero(np.isfinite(values))
        if measured.size:
            columns["x0"].append(history.times[start + measured[0]])
            columns["x1"].append(history.times[start + measured[-1]])
            columns["level"].append(float(np.nanmedian(values)) / series.divisor)
    line = Segment(
        x0="x0", y0="level", x1="x1", y1="level", line_color=INK, line_width=3, line_alpha=0.55
    )
    source = {name: np.array(column) for name, column in columns.items()}
    add_glyph(series.figure, line, source, legend="" if series.small else "level")


@dataclass(frozen=True)
class SeriesFigure:
    """A figure of one series, and what is needed to draw on it."""

    figure: figure  # The figure, with nights on the x axis
    history: History  # The history with the series
    row: int  # Position of the series in `history.series`.
    divisor: float  # Number by which values are divided to get the unit of the y axis
    low: float  # low, high: Ends of the y axis
    high: float
    small: bool  # Whether to omit legends, labels and tooltips

    @property
    def metric(self) -> str:
        """Name of the metric."""
        return str(self.history.series["metric"].iloc[self.row])

    @property
    def restarts(self) -> pd.DataFrame:
        """Restarts of the series: columns ``night`` (position) and ``reason``."""
        key, segments = self.history.series["key"].iloc[self.row], self.history.segments
        return segments[(segments["key"] == key) & segments["metric"].isin(["", self.metric])]


def draw_changes(series: SeriesFigure, regressions: Iterable[Regression] = ()) -> None:
    """Draw changes of the level with their sizes; symbol and colour show worse or better."""
    fig, history, small = series.figure, series.history, series.small
    bottom, height = series.low, series.high - series.low
    regressions, about = list(regressions), history.series.iloc[series.row].to_dict()
    changes = [
        reported_change(change, about, night_name(history.times[change.index]), regressions)
        for change in history.changes[series.row]
    ]
    if not changes:
        return
    worse = worse_direction(series.metric)
    top = series.high - 0.09 * height
    times = history.times[[change.index for change in changes]]
    colours = [WORSE if change.direction == worse else BETTER for change in changes]
    markers = ["triangle" if c.direction > 0 else "inverted_triangle" for c in changes]
    source = ColumnDataSource(
        {
            "x": times,
            "top": np.full(len(changes), top),
            "bottom": np.full(len(changes), bottom),
            "colour": colours,
            "marker": markers,
            "label": [change_label(change) for change in changes],
            "tip": [_change_text(change, history) for change in changes],
        },
        name="changes",
    )
    dashes = Segment(**_UPRIGHT, line_color="colour", line_width=1.5, line_dash=[4, 3])
    add_glyph(fig, dashes, source)
    mark = Scatter(
        x="x", y="top", marker="marker", size=9, line_color="colour", fill_color="colour"
    )
    add_glyph(fig, mark, source, tips=() if small else [("change", "@tip")])
    # Near the right end a label would extend beyond the figure: place it to the left.
    lines = _label_lines([change.index / len(history.times) for change in changes])
    heights = top - 0.06 * height * lines
    late = [change.index > 0.85 * len(history.times) for change in changes]
    for is_late in {*late}:
        chosen = [place for place, value in enumerate(late) if value == is_late]
        if small:
            break
        fig.text(
            times[chosen], heights[chosen], [source.data["label"][i] for i in chosen],
            text_color=INK, text_font_size="12px", text_baseline="middle",
            text_align="right" if is_late else "left", x_offset=-9 if is_late else 9,
        )  # fmt: skip


def _label_lines(places: Sequence[float]) -> NDArray[np.int64]:
    """Return a text line for each label by its position (0 to 1), so that labels do not overlap."""
    lines = np.zeros(len(places), int)
    for i in range(1, len(places)):
        if places[i] - places[i - 1] < LABEL_WIDTH:
            lines[i] = (lines[i - 1] + 1) % 4
    return lines


def change_label(change: ChangePoint) -> str:
    """Return the direction and the size of a change."""
    symbol = "▲" if change.direction > 0 else "▼"
    return f"{symbol} {format_change(change.ratio)}"


def _change_text(change: ChangePoint, history: History) -> str:
    low, high = format_change(change.low), format_change(change.high)
    since, detected = (str(history.times[n])[:10] for n in (change.index, change.detected_at))
    return f"{format_change(change.ratio)} ({low} to {high}) since {since}, detected {detected}"


def draw_builds(series: SeriesFigure, runs: pd.DataFrame) -> None:
    """Draw a tick on the axis at each night with changed packages or code."""
    times, bottom = series.history.times, series.low
    changes = build_changes(runs)
    if not changes:
        return
    height = 0.045 * (series.high - bottom)
    nights_changed = list(changes)
    source = ColumnDataSource(
        {
            "x": times[nights_changed],
            "bottom": np.full(len(changes), bottom),
            "top": np.full(len(changes), bottom + height),
            "night": [str(time)[:10] for time in times[nights_changed]],
            "tip": list(changes.values()),
        },
        name="builds",
    )
    tick = Segment(**_UPRIGHT, line_color=SERIES[3], line_width=4)
    tooltip = [("night", "@night"), ("changed", "@tip")]
    legend = "changed packages"
    add_glyph(series.figure, tick, source, legend=legend, tips=tooltip, hover=_OVER_LINES)


def build_changes(runs: pd.DataFrame) -> dict[int, str]:
    """Return which packages or code of a series changed, by position of the night."""
    names = [name for name in BUILD if name in runs]
    nights = runs.drop_duplicates("night", keep="last").sort_values("night")
    builds = nights[names].astype(object).where(nights[names].notna(), "")
    previous = builds.shift().fillna("")
    changed = ((builds != previous) & (previous != "")).to_numpy()
    texts = {}
    for place in np.flatnonzero(changed.any(axis=1)).tolist():
        before, now = builds.iloc[place - 1], builds.iloc[place]
        parts = [
            f"{BUILD[name]} {str(before[name])[:10]} → {str(now[name])[:10]}"
            for name, is_new in zip(names, changed[place], strict=True)
            if is_new
        ]
        texts[int(nights["night"].iloc[place])] = ", ".join(parts)
    return texts


def draw_restarts(
    series: SeriesFigure, runs: pd.DataFrame, marks: Iterable[Mapping[str, Any]]
) -> None:
    """Draw the restarts of a series and the marks of kind "bankruptcy", with the reasons."""
    times = series.history.times
    restarts = [(times[row.night], str(row.reason)) for row in series.restarts.itertuples()]
    for mark in marks:
        before = mark.get("before") if mark.get("kind") == "bankruptcy" else None
        if before and _selects_any(mark, runs):
            moment = pd.Timestamp(before)
            time = (moment.tz_convert(None) if moment.tzinfo else moment).to_datetime64()
            if times[0] <= time <= times[-1]:
                restarts.append((time, f"{mark['kind']}: {mark.get('reason') or ''}"))
    if not restarts:
        return
    source = ColumnDataSource(
        {
            "x": np.array([time for time, _ in restarts]),
            "bottom": np.full(len(restarts), series.low),
            "top": np.full(len(restarts), series.high),
            "night": [str(time)[:10] for time, _ in restarts],
            "tip": [reason for _, reason in restarts],
        },
        name="restarts",
    )
    line = Segment(**_UPRIGHT, line_color=SERIES[5], line_width=1.5)
    tips = [("night", "@night"), ("restart", "@tip")]
    options: dict[str, Any] = {"legend": "restart", "tips": tips, "hover": _OVER_LINES}
    add_glyph(series.figure, line, source, **({} if series.small else options))


def _selects_any(mark: Mapping[str, Any], runs: pd.DataFrame) -> bool:
    """Return whether a mark selects any of these runs, by the same rules as `apply_marks`."""
    columns = runs.assign(**{name: "" for name in PAIR_KEYS.values() if name not in runs})
    columns = columns.drop(columns=["night", "key"])  # columns of the history: positions, not tags
    names = ({"workload"} | mark_columns([mark])) & set(columns)
    try:
        table = pa.table({name: pa.array(list(columns[name]), from_pandas=True) for name in names})
        return bool(matching(table, Selection.from_mark(mark)).any())
    except (UsageError, KeyError, TypeError, ValueError):  # handwritten; `apply_marks` warns
        return False
