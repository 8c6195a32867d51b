"""Annotations of the figure of a series, which show possible causes of its changes.

Draws changes of the level with their sizes, changes of packages, and restarts of the series.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from bokeh.models import ColumnDataSource, Scatter, Segment
from bokeh.plotting import figure
from numpy.typing import NDArray

from benchkit.analysis.changepoints import ChangePoint
from benchkit.analysis.regression.history import History, night_name
from benchkit.analysis.regression.level_events import worse_direction
from benchkit.analysis.regression.regression import Regression
from benchkit.analysis.regression.status import reported_change
from benchkit.errors import UsageError
from benchkit.formatting import format_change
from benchkit.show.plots.base import INK, add_glyph
from benchkit.show.plots.sparkline import BETTER, WORSE
from benchkit.show.theme import SERIES
from benchkit.store.filters import matching
from benchkit.store.marks import mark_columns

__all__ = ["BUILD", "SeriesFigure", "draw_builds", "draw_changes", "draw_restarts"]

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
#: Fields of a mark that select its runs.
_SELECTORS = ("runs", "workload", "where", "since", "before")


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
            "label": [_change_label(change) for change in changes],
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


def _change_label(change: ChangePoint) -> str:
    symbol = "▲" if change.direction > 0 else "▼"
    return f"{symbol} {format_change(change.ratio)}"


def _change_text(change: ChangePoint, history: History) -> str:
    low, high = format_change(change.low), format_change(change.high)
    since, detected = (str(history.times[n])[:10] for n in (change.index, change.detected_at))
    return f"{format_change(change.ratio)} ({low} to {high}) since {since}, detected {detected}"


def draw_builds(series: SeriesFigure, runs: pd.DataFrame) -> None:
    """Draw a tick on the axis at each night with changed packages or code."""
    times, bottom = series.history.times, series.low
    names = [name for name in BUILD if name in runs]
    nights = runs.drop_duplicates("night", keep="last").sort_values("night")
    builds = nights[names].astype(object).where(nights[names].notna(), "")
    previous = builds.shift().fillna("")
    changed = ((builds != previous) & (previous != "")).to_numpy()
    at = np.flatnonzero(changed.any(axis=1))
    if not at.size:
        return
    tips = []
    for place in at.tolist():
        before, now = builds.iloc[place - 1], builds.iloc[place]
        parts = [
            f"{BUILD[name]} {str(before[name])[:10]} → {str(now[name])[:10]}"
            for name, is_new in zip(names, changed[place], strict=True)
            if is_new
        ]
        tips.append(", ".join(parts))
    height = 0.045 * (series.high - bottom)
    nights_changed = nights["night"].to_numpy(int)[at]
    source = ColumnDataSource(
        {
            "x": times[nights_changed],
            "bottom": np.full(at.size, bottom),
            "top": np.full(at.size, bottom + height),
            "night": [str(time)[:10] for time in times[nights_changed]],
            "tip": tips,
        },
        name="builds",
    )
    tick = Segment(**_UPRIGHT, line_color=SERIES[3], line_width=4)
    tooltip = [("night", "@night"), ("changed", "@tip")]
    legend = "changed packages"
    add_glyph(series.figure, tick, source, legend=legend, tips=tooltip, hover=_OVER_LINES)


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
    selectors = {name: mark[name] for name in _SELECTORS if mark.get(name) is not None}
    columns = runs.assign(**{name: "" for name in ("tags", "params") if name not in runs})
    columns = columns.drop(columns=["night", "key"])  # columns of the history: positions, not tags
    names = mark_columns([mark]) & set(columns)
    try:
        table = pa.table({name: pa.array(list(columns[name]), from_pandas=True) for name in names})
        return bool(matching(table, **selectors).any())
    except (UsageError, KeyError, TypeError, ValueError):  # handwritten; `apply_marks` warns
        return False
