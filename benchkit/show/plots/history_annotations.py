"""Annotations of the figure of a series, which show possible causes of its changes.

Draws changes of the level with their sizes, changes of packages, and restarts of the series.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from bokeh.models import ColumnDataSource, HoverTool, Scatter, Segment
from numpy.typing import NDArray

from benchkit.analysis.changepoint.detect import ChangePoint
from benchkit.analysis.regression.history import History
from benchkit.analysis.regression.level_events import worse_direction
from benchkit.errors import UsageError
from benchkit.formatting import format_change
from benchkit.show.plots.base import INK, add
from benchkit.show.plots.sparkline import BETTER, WORSE
from benchkit.show.theme import SERIES
from benchkit.store.index.query import matching
from benchkit.store.marks import mark_columns

__all__ = ["BUILD", "draw_builds", "draw_changes", "draw_restarts"]

#: Columns of a run whose change between two nights can explain a step -> their label.
BUILD = {
    "dask": "dask",
    "distributed": "distributed",
    "python": "Python",
    "git_commit": "commit",
    "packages_hash": "packages",
}
_UPRIGHT: dict[str, Any] = {"x0": "x", "y0": "bottom", "x1": "x", "y1": "top"}
#: Width of the label of a change, as a share of the figure.
LABEL_WIDTH = 0.1
#: Fields of a mark that select its runs.
_SELECTORS = ("runs", "workload", "where", "since", "before")


def draw_changes(
    drawn: Any, history: History, row: int, ends: tuple[float, float], divisor: float, small: bool
) -> None:
    """Draw changes of the level with their sizes; symbol and colour show worse or better."""
    changes = history.changes[row]
    if not changes:
        return
    worse = worse_direction(str(history.series["metric"].iloc[row]))
    top = ends[1] - 0.09 * (ends[1] - ends[0])
    times = history.times[[change.index for change in changes]]
    colours = [WORSE if change.direction == worse else BETTER for change in changes]
    markers = ["triangle" if c.direction > 0 else "inverted_triangle" for c in changes]
    source = ColumnDataSource(
        {
            "x": times,
            "top": np.full(len(changes), top),
            "bottom": np.full(len(changes), ends[0]),
            "colour": colours,
            "marker": markers,
            "label": [_size(change) for change in changes],
            "tip": [_words(change, history) for change in changes],
        },
        name="changes",
    )
    dashes = Segment(**_UPRIGHT, line_color="colour", line_width=1.5, line_dash=[4, 3])
    add(drawn, dashes, source)
    mark = Scatter(
        x="x", y="top", marker="marker", size=9, line_color="colour", fill_color="colour"
    )
    marks = add(drawn, mark, source)
    # Near the right end a label would extend beyond the figure: place it to the left.
    lines = _lines([change.index / len(history.times) for change in changes])
    heights = top - 0.06 * (ends[1] - ends[0]) * lines
    late = [change.index > 0.85 * len(history.times) for change in changes]
    for is_late in {*late}:
        chosen = [place for place, value in enumerate(late) if value == is_late]
        if small:
            break
        drawn.text(
            times[chosen], heights[chosen], [source.data["label"][i] for i in chosen],
            text_color=INK, text_font_size="12px", text_baseline="middle",
            text_align="right" if is_late else "left", x_offset=-9 if is_late else 9,
        )  # fmt: skip
    if not small:
        drawn.add_tools(HoverTool(renderers=[marks], tooltips=[("changed", "@tip")]))


def _lines(places: Sequence[float]) -> NDArray[np.int64]:
    """Return a text line for each label by its position (0 to 1), so that labels do not overlap."""
    lines = np.zeros(len(places), int)
    for at in range(1, len(places)):
        if places[at] - places[at - 1] < LABEL_WIDTH:
            lines[at] = (lines[at - 1] + 1) % 4
    return lines


def _size(change: ChangePoint) -> str:
    symbol = "▲" if change.direction > 0 else "▼"
    return f"{symbol} {format_change(change.ratio)}"


def _words(change: ChangePoint, history: History) -> str:
    low, high = format_change(change.low), format_change(change.high)
    since, seen = (str(history.times[n])[:10] for n in (change.index, change.detected_at))
    return f"{format_change(change.ratio)} ({low} to {high}) since {since}, seen {seen}"


def draw_builds(
    drawn: Any, history: History, runs: pd.DataFrame, ends: tuple[float, float]
) -> None:
    """Draw a tick on the axis at each night with changed packages or code."""
    names = [name for name in BUILD if name in runs]
    nights = runs.drop_duplicates("night", keep="last").sort_values("night")
    facts = nights[names].astype(object).where(nights[names].notna(), "")
    changed = (facts != facts.shift()).to_numpy() & (facts.shift().fillna("") != "").to_numpy()
    at = np.flatnonzero(changed.any(axis=1))
    if not at.size:
        return
    tips = []
    for place in at.tolist():
        before, now = facts.iloc[place - 1], facts.iloc[place]
        parts = [
            f"{BUILD[name]} {str(before[name])[:10]} → {str(now[name])[:10]}"
            for name, is_new in zip(names, changed[place], strict=True)
            if is_new
        ]
        tips.append(", ".join(parts))
    height = 0.045 * (ends[1] - ends[0])
    source = ColumnDataSource(
        {
            "x": history.times[nights["night"].to_numpy(int)[at]],
            "bottom": np.full(at.size, ends[0]),
            "top": np.full(at.size, ends[0] + height),
            "night": [str(history.times[n])[:10] for n in nights["night"].to_numpy(int)[at]],
            "tip": tips,
        },
        name="builds",
    )
    tick = Segment(**_UPRIGHT, line_color=SERIES[3], line_width=4)
    ticks = add(drawn, tick, source, legend="other packages")
    tooltips = [("night", "@night"), ("changed", "@tip")]
    drawn.add_tools(HoverTool(renderers=[ticks], tooltips=tooltips, line_policy="interp"))


def draw_restarts(
    drawn: Any,
    history: History,
    about: pd.Series,
    runs: pd.DataFrame,
    ends: tuple[float, float],
    marks: Iterable[Mapping[str, Any]],
    small: bool,
) -> None:
    """Draw the restarts of a series and the marks of kind "bankruptcy", with the reasons."""
    mine = history.segments[
        (history.segments["key"] == about["key"])
        & history.segments["metric"].isin(["", about["metric"]])
    ]
    told = [(history.times[row.night], str(row.reason)) for row in mine.itertuples()]
    first, last = history.times[0], history.times[-1]
    for mark in marks:
        at = mark.get("before") if mark.get("kind") == "bankruptcy" else None
        if at and _is_about(mark, runs):
            moment = pd.Timestamp(at)
            time = moment.tz_convert(None) if moment.tzinfo else moment
            if first <= time.to_datetime64() <= last:
                reason = f"{mark['kind']}: {mark.get('reason') or ''}"
                told.append((time.to_datetime64(), reason))
    if not told:
        return
    source = ColumnDataSource(
        {
            "x": np.array([time for time, _ in told]),
            "bottom": np.full(len(told), ends[0]),
            "top": np.full(len(told), ends[1]),
            "night": [str(time)[:10] for time, _ in told],
            "tip": [reason for _, reason in told],
        },
        name="restarts",
    )
    line = Segment(**_UPRIGHT, line_color=SERIES[5], line_width=1.5)
    lines = add(drawn, line, source, legend="" if small else "begins anew")
    if small:
        return
    tooltips = [("night", "@night"), ("begins anew", "@tip")]
    drawn.add_tools(HoverTool(renderers=[lines], tooltips=tooltips, line_policy="interp"))


def _is_about(mark: Mapping[str, Any], runs: pd.DataFrame) -> bool:
    """Return whether a mark selects any of these runs, by the same rules as `apply_marks`."""
    chosen = {name: mark[name] for name in _SELECTORS if mark.get(name) is not None}
    known = runs.assign(**{name: "" for name in ("tags", "params") if name not in runs})
    known = known.drop(columns=["night", "key"])  # columns of the history: positions, not tags
    names = mark_columns([mark]) & set(known)
    try:
        table = pa.table({name: _column(known[name]) for name in names})
        return bool(matching(table, **chosen).any())
    except (UsageError, KeyError, TypeError, ValueError):  # handwritten; `apply_marks` warns
        return False


def _column(values: pd.Series) -> pa.Array:
    """Return a column of runs as in the index of a store: mappings are JSON text."""
    texts = [json.dumps(each) if isinstance(each, Mapping) else each for each in values]
    return pa.array(texts, from_pandas=True)
