"""Figures of one series over nights: points, levels, what changed and why it might have.

A `History` and the position of a series in, a Bokeh figure out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from bokeh.models import (
    ColumnDataSource,
    CustomJSTickFormatter,
    HoverTool,
    Line,
    Range1d,
    Scatter,
    Segment,
    TapTool,
)
from numpy.typing import NDArray

from benchkit.analysis.changepoints import ChangePoint
from benchkit.analysis.history import History
from benchkit.analysis.levels import worse_direction
from benchkit.show.plots.base import INK, add, legend_beside, make_figure, nothing
from benchkit.show.plots.sparkline import BETTER, WORSE
from benchkit.show.theme import SERIES
from benchkit.store.schema import METRICS
from benchkit.store.text import format_change, format_quantity

__all__ = ["over_nights"]

_POINT = SERIES[0]
_UPRIGHT: dict[str, Any] = {"x0": "x", "y0": "bottom", "x1": "x", "y1": "top"}
#: Of a change's label, as a share of the figure.
LABEL_WIDTH = 0.1
_BYTES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
#: Facts of a run that changed between two nights explain a step -> how they are called.
_BUILD = {
    "dask": "dask",
    "distributed": "distributed",
    "python": "Python",
    "git_commit": "commit",
    "packages_hash": "packages",
}


def over_nights(
    history: History,
    row: int,
    *,
    marks: Iterable[Mapping[str, Any]] = (),
    from_zero: bool = True,
    height: int = 360,
    small: bool = False,
) -> Any:
    """Draw one series: runs, medians of nights, levels, changes, builds, failures.

    Parameters
    ----------
    history : History
        As `build_history` returns it.
    row : int
        Position of the series in ``history.series``.
    marks : iterable of mapping
        Marks to be shown at their moments, as `Store.marks` gives them.
    from_zero : bool, default True
        Whether the axis begins at 0; else it fits the data and says so.
    height : int, default 360
        In pixels.
    small : bool, default False
        A multiple beside a larger figure: no legend, no tools but a tap, no builds; a page has
        several, and what hovering tells is the larger one's business.

    Returns
    -------
    figure
        Nights against the metric. Its data source ``runs`` holds the id of each run, and so does
        ``failures``; what a tap does is the page's business.
    """
    about = history.series.iloc[row]
    metric = METRICS[str(about["metric"])]
    title = f"{metric.long_name}: how has it changed?"
    values = history.values[row]
    known = np.isfinite(values)
    if not known.any():
        return nothing(title)
    divisor, unit = _unit(metric.units, float(np.nanmax(values)))
    runs = history.runs[history.runs["key"] == about["key"]]
    ends = _ends(runs, metric.name, values / divisor, from_zero)
    drawn = make_figure(
        title if not small else metric.long_name,
        "" if small else "night (UTC)",
        f"{unit or 'number'}{'' if from_zero else ', not from 0'}" if small
        else f"{metric.name.replace('_', ' ')} ({unit or '1'})"
        + ("" if from_zero else ", axis not from 0"),
        height=height,
        x_axis_type="datetime",
        y_range=Range1d(start=ends[0], end=ends[1]),
        tools="" if small else "xpan,xwheel_zoom,xbox_zoom,reset,save",
        **({"toolbar_location": None} if small else {}),
    )  # fmt: skip
    drawn.html_attributes = {
        "role": "img",
        "aria-label": f"{about['workload']}: {metric.long_name} over {int(known.sum())} nights",
    }
    _levels(drawn, history, row, divisor, small)
    points = _points(drawn, history, runs, metric.name, divisor, small)
    failures = _failures(drawn, history, runs, ends[0], small)
    _median(drawn, history.times, values / divisor, small)
    _changes(drawn, history, row, ends, divisor, small)
    if not small:
        _builds(drawn, history, runs, ends)
    _restarts(drawn, history, about, ends, marks, small)
    drawn.add_tools(TapTool(renderers=[*points, *failures]))
    drawn.x_range.default_span = timedelta(days=2)  # around a single night
    drawn.xaxis[0].formatter = CustomJSTickFormatter(code=_DATE)
    if not small:
        legend_beside(drawn, place="below")
    return drawn


#: Bokeh's own formatter says "11/2026"; nights are dates as everywhere else here. Those that lie
#: closer than a day would be the same word again and again.
_DATE = """
const close = ticks.length > 1 && ticks[1] - ticks[0] < 864e5;
return new Date(tick).toISOString().slice(0, close ? 16 : 10).replace("T", " ");
"""


def _unit(units: str, most: float) -> tuple[float, str]:
    """Return what values are divided by, and the unit they have then."""
    if units == "B":
        return next(((float(size), name) for size, name in _BYTES if most >= size), (1.0, "B"))
    if units == "s" and most < 1e-1:
        return 1e-3, "ms"
    return 1.0, "" if units == "1" else units


def _ends(
    runs: pd.DataFrame, name: str, values: NDArray[np.float64], from_zero: bool
) -> tuple[float, float]:
    """Return the ends of the axis: with room for labels above and for failures below."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if from_zero:
        return 0.0, high * 1.22 if high > 0 else 1.0
    room = (high - low) or abs(high) * 0.1 or 1.0
    return low - 0.15 * room, high + 0.3 * room


def _points(
    drawn: Any, history: History, runs: pd.DataFrame, name: str, divisor: float, small: bool
) -> list[Any]:
    """Draw the runs; those that a mark sets aside are hollow."""
    ok = runs[(runs["outcome"] == "ok") & runs[name].notna()]
    found = []
    for counts, words in ((True, "runs"), (False, "runs set aside")):
        part = ok[ok["comparable"] == counts]
        if part.empty:
            continue
        columns = {
            "x": history.times[part["night"].to_numpy(int)],
            "y": part[name].to_numpy(float) / divisor,
            "id": part["id"].astype(str).tolist(),
        }
        if not small:
            columns |= _told(history, part)
            columns["value"] = [format_quantity(v, METRICS[name].units) for v in part[name]]
        source = ColumnDataSource(columns, name="runs")
        look: dict[str, Any] = {"line_color": _POINT, "fill_color": _POINT if counts else None,
                "fill_alpha": 0.45, "line_alpha": 0.6}  # fmt: skip
        dot = Scatter(x="x", y="y", size=4 if small else 6, **look)
        chosen = Scatter(x="x", y="y", size=6, **look | {"line_color": INK, "line_width": 2})
        dots = add(
            drawn, dot, source, legend="" if small else words,
            **({} if small else {"selection_glyph": chosen}),
        )  # fmt: skip
        found.append(dots)
        if small:
            continue
        tips = [("night", "@night"), ("value", "@value"), ("build", "@build"), ("run", "@short")]
        if not counts:
            tips.append(("set aside", "@reason"))
        drawn.add_tools(HoverTool(renderers=[dots], tooltips=tips, point_policy="snap_to_data"))
    return found


def _told(history: History, runs: pd.DataFrame) -> dict[str, list[str]]:
    """Return what hovering over a run tells."""
    reasons = runs["reason"] if "reason" in runs else pd.Series("", index=runs.index)
    return {
        "id": runs["id"].astype(str).tolist(),
        "short": [str(name)[:13] for name in runs["id"]],
        "night": [str(history.times[night])[:10] for night in runs["night"]],
        "build": [_build(record) for record in runs.to_dict("records")],
        "reason": reasons.fillna("").astype(str).tolist(),
    }


def _build(record: Mapping[str, Any]) -> str:
    parts = [
        f"{word} {str(record[name])[:10]}"
        for name, word in _BUILD.items()
        if record.get(name) and pd.notna(record[name])
    ]
    return ", ".join(parts)


def _failures(
    drawn: Any, history: History, runs: pd.DataFrame, bottom: float, small: bool
) -> list[Any]:
    """Draw runs that did not end ok as crosses on the axis: they have no value, not the value 0."""
    bad = runs[~runs["outcome"].isin(["ok", "skipped"])]
    if bad.empty:
        return []
    errors = bad["error"].fillna("") if "error" in bad else pd.Series("", index=bad.index)
    source = ColumnDataSource(
        {
            "x": history.times[bad["night"].to_numpy(int)],
            "y": np.full(len(bad), bottom),
            **_told(history, bad),
            "outcome": bad["outcome"].str.replace("_", " ").tolist(),
            "error": [str(text)[:200] for text in errors],
        },
        name="failures",
    )
    cross = Scatter(x="x", y="y", marker="x", size=11, line_width=2.5, line_color=WORSE)
    crosses = add(drawn, cross, source, legend="" if small else "no result", level="overlay")
    if small:
        return [crosses]
    tips = [("night", "@night"), ("ended", "@outcome"), ("error", "@error"), ("build", "@build")]
    drawn.add_tools(HoverTool(renderers=[crosses], tooltips=tips))
    return [crosses]


def _median(
    drawn: Any, times: NDArray[np.datetime64], values: NDArray[np.float64], small: bool
) -> None:
    """Draw a line through the nights; it breaks where nights are missing."""
    last = int(np.flatnonzero(np.isfinite(values))[-1])
    first = int(np.flatnonzero(np.isfinite(values))[0])
    part = slice(first, last + 1)
    line = Line(x="x", y="y", line_color=_POINT, line_alpha=0.55, line_width=1.2)
    columns = {"x": times[part], "y": values[part]}
    add(drawn, line, columns, legend="" if small else "median of the night")


def _pieces(history: History, row: int) -> list[tuple[int, int]]:
    """Return first and last night of each stretch without a change or a new beginning."""
    about = history.series.iloc[row]
    mine = history.segments[
        (history.segments["key"] == about["key"])
        & history.segments["metric"].isin(["", about["metric"]])
    ]
    cuts = {0, len(history.times), *mine["night"].tolist()}
    cuts |= {change.index for change in history.changes[row]}
    ends = sorted(cuts)
    return list(pairwise(ends))


def _levels(drawn: Any, history: History, row: int, divisor: float, small: bool) -> None:
    pieces = []
    for start, stop in _pieces(history, row):
        values = history.values[row, start:stop]
        there = np.flatnonzero(np.isfinite(values))
        if there.size:
            level = float(np.nanmedian(values)) / divisor
            first, last = history.times[start + there[[0, -1]]]
            pieces.append((first, last, level))
    x0, x1, levels = (list(column) for column in zip(*pieces, strict=True))
    level_line = Segment(
        x0="x0", y0="level", x1="x1", y1="level", line_color=INK, line_width=3, line_alpha=0.55
    )
    columns = {"x0": np.array(x0), "x1": np.array(x1), "level": levels}
    add(drawn, level_line, columns, legend="" if small else "level")


def _changes(
    drawn: Any, history: History, row: int, ends: tuple[float, float], divisor: float, small: bool
) -> None:
    """Mark where the level changed, with its size: worse and better by symbol and colour."""
    changes = history.changes[row]
    if not changes:
        return
    worse = worse_direction(str(history.series["metric"].iloc[row]))
    top = ends[1] - 0.09 * (ends[1] - ends[0])
    times = history.times[[change.index for change in changes]]
    colours = [WORSE if change.direction == worse else BETTER for change in changes]
    source = ColumnDataSource(
        {
            "x": times,
            "top": np.full(len(changes), top),
            "bottom": np.full(len(changes), ends[0]),
            "colour": colours,
            "label": [_size(change) for change in changes],
            "tip": [_words(change, history) for change in changes],
        },
        name="changes",
    )
    dashes = Segment(**_UPRIGHT, line_color="colour", line_width=1.5, line_dash=[4, 3])
    add(drawn, dashes, source)
    mark = Scatter(
        x="x", y="top", size=9, line_color="colour", fill_color="colour",
        marker="inverted_triangle" if all(c.direction < 0 for c in changes) else "triangle",
    )  # fmt: skip
    marks = add(drawn, mark, source)
    # Near the right end a label would leave the picture.
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
    """Return a line for each label, by its place from 0 to 1, so that neighbours do not collide."""
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


def _builds(drawn: Any, history: History, runs: pd.DataFrame, ends: tuple[float, float]) -> None:
    """Draw a tick at the axis where the packages or the code became others."""
    names = [name for name in _BUILD if name in runs]
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
            f"{_BUILD[name]} {str(before[name])[:10]} → {str(now[name])[:10]}"
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


def _restarts(
    drawn: Any,
    history: History,
    about: pd.Series,
    ends: tuple[float, float],
    marks: Iterable[Mapping[str, Any]],
    small: bool,
) -> None:
    """Draw where the series begins anew, and other marks that name a moment, with the reason."""
    mine = history.segments[
        (history.segments["key"] == about["key"])
        & history.segments["metric"].isin(["", about["metric"]])
    ]
    told = [(history.times[row.night], str(row.reason)) for row in mine.itertuples()]
    first, last = history.times[0], history.times[-1]
    for mark in marks:
        at = mark.get("before") if mark.get("kind") == "bankruptcy" else None
        if at:
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
