"""Figures of one series over nights: runs, levels, changes and their possible causes.

Input: a `History` and the position of a series; output: a Bokeh figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
from bokeh.models.annotations import Label
from numpy.typing import NDArray

from benchkit.analysis.regression.history import History
from benchkit.formatting import counted, format_quantity
from benchkit.show.plots.base import INK, add, empty_figure, legend_beside, make_figure
from benchkit.show.plots.history_annotations import BUILD, draw_builds, draw_changes, draw_restarts
from benchkit.show.plots.sparkline import WORSE
from benchkit.show.theme import SERIES
from benchkit.store.schema import METRICS

__all__ = ["history_plot"]

_POINT = SERIES[0]
#: Runs farther from the others than this multiple of their range are drawn at the edge.
FARTHEST = 1.5
#: Size of a triangle at the edge, in pixels.
EDGE_SIZE = 9
_BYTES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def history_plot(
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

    Returns
    -------
    figure
        The metric over nights. Its data sources ``runs`` and ``failures`` hold the id of each run;
        the page defines the action of a tap.
    """
    about = history.series.iloc[row]
    metric = METRICS[str(about["metric"])]
    title = f"{metric.long_name}: how has it changed?"
    values = history.values[row]
    known = np.isfinite(values)
    if not known.any():
        return empty_figure(title)
    divisor, unit = _unit(metric.units, float(np.nanmax(values)))
    runs = history.runs[history.runs["key"] == about["key"]]
    ok = runs[(runs["outcome"] == "ok") & runs[metric.name].notna()]
    ends = _ends(ok, metric.name, values / divisor, divisor, from_zero)
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
    points = _points(drawn, history, ok, metric.name, divisor, ends, small)
    failures = _failures(drawn, history, runs, ends[0], small)
    _median(drawn, history.times, values / divisor, small)
    draw_changes(drawn, history, row, ends, divisor, small)
    if not small:
        draw_builds(drawn, history, runs, ends)
    draw_restarts(drawn, history, about, runs, ends, marks, small)
    drawn.add_tools(TapTool(renderers=[*points, *failures]))
    drawn.x_range.default_span = timedelta(days=2)  # around a single night
    drawn.xaxis[0].formatter = CustomJSTickFormatter(code=_DATE)
    if not small:
        legend_beside(drawn, place="below")
    return drawn


#: JavaScript for dates, because Bokeh's formatter prints "11/2026". Ticks closer than a day also
#: get a time, because their dates would be equal.
_DATE = """
const close = ticks.length > 1 && ticks[1] - ticks[0] < 864e5;
return new Date(tick).toISOString().slice(0, close ? 16 : 10).replace("T", " ");
"""


def _unit(units: str, most: float) -> tuple[float, str]:
    """Return the divisor of the values and the unit of the result."""
    if units == "B":
        return next(((float(size), name) for size, name in _BYTES if most >= size), (1.0, "B"))
    if units == "s" and most < 1e-1:
        return 1e-3, "ms"
    return 1.0, "" if units == "1" else units


def _ends(
    ok: pd.DataFrame,
    name: str,
    medians: NDArray[np.float64],
    divisor: float,
    from_zero: bool,
) -> tuple[float, float]:
    """Return the ends of the y axis, with room for labels above and for failures below.

    The axis contains all runs, also runs set aside, except a few far outliers that would compress
    the range of all others.
    """
    each = ok[name].to_numpy(float) / divisor
    counted = each[ok["comparable"].to_numpy(bool)]
    usual = np.concatenate([medians[np.isfinite(medians)], np.quantile(counted, [0.05, 0.95])])
    low, high = float(usual.min()), float(usual.max())
    reach = FARTHEST * (high if from_zero else _spread(low, high))
    near = each[(each >= low - reach) & (each <= high + reach)]
    low, high = min(low, near.min(initial=low)), max(high, near.max(initial=high))
    if from_zero:
        return 0.0, high * 1.22 if high > 0 else 1.0
    return low - 0.15 * _spread(low, high), high + 0.3 * _spread(low, high)


def _spread(low: float, high: float) -> float:
    return (high - low) or abs(high) * 0.1 or 1.0


def _points(
    drawn: Any,
    history: History,
    ok: pd.DataFrame,
    name: str,
    divisor: float,
    ends: tuple[float, float],
    small: bool,
) -> list[Any]:
    """Draw runs; runs set aside by a mark are hollow, runs beyond the axis are at its end."""
    found = []
    beyond = 0
    inset = 0.03 * (ends[1] - ends[0])  # keeps triangles at the edge fully visible
    for counts, words in ((True, "runs"), (False, "runs set aside")):
        part = ok[ok["comparable"] == counts]
        if part.empty:
            continue
        values = part[name].to_numpy(float) / divisor
        above, below = values > ends[1], values < ends[0]
        outside = above | below
        beyond += int(outside.sum())
        marker = np.select([above, below], ["triangle", "inverted_triangle"], "circle")
        columns = {
            "x": history.times[part["night"].to_numpy(int)],
            "y": np.select([above, below], [ends[1] - inset, ends[0] + inset], values),
            "marker": marker.tolist(),
            "size": np.where(outside, EDGE_SIZE, 4 if small else 6),
            "id": part["id"].astype(str).tolist(),
        }
        if not small:
            columns |= _told(history, part)
            columns["value"] = [format_quantity(v, METRICS[name].units) for v in part[name]]
        source = ColumnDataSource(columns, name="runs")
        look: dict[str, Any] = {"line_color": _POINT, "fill_color": _POINT if counts else None,
                "fill_alpha": 0.45, "line_alpha": 0.6}  # fmt: skip
        look |= {"x": "x", "y": "y", "marker": "marker", "size": "size"}
        dot = Scatter(**look)
        chosen = Scatter(**look | {"line_color": INK, "line_width": 2})
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
    if beyond:
        _tell_beyond(drawn, beyond, ends[1])
    return found


def _tell_beyond(drawn: Any, count: int, top: float) -> None:
    """Add a label with the number of runs beyond the axis, drawn as triangles at its end."""
    told = Label(
        x=4, y=top, x_units="screen", y_offset=-2, text_baseline="top", text_font_size="11px",
        text_color=INK, text=f"{counted(count, 'run')} beyond this axis",
    )  # fmt: skip
    drawn.add_layout(told)
    drawn.html_attributes["aria-label"] += f", {told.text}"


def _told(history: History, runs: pd.DataFrame) -> dict[str, list[str]]:
    """Return the columns of the tooltips of runs."""
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
        for name, word in BUILD.items()
        if record.get(name) and pd.notna(record[name])
    ]
    return ", ".join(parts)


def _failures(
    drawn: Any, history: History, runs: pd.DataFrame, bottom: float, small: bool
) -> list[Any]:
    """Draw failed runs as crosses on the axis: they have no value, which is different from 0."""
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
    """Draw a line through the medians of the nights, with gaps at missing nights."""
    last = int(np.flatnonzero(np.isfinite(values))[-1])
    first = int(np.flatnonzero(np.isfinite(values))[0])
    part = slice(first, last + 1)
    line = Line(x="x", y="y", line_color=_POINT, line_alpha=0.55, line_width=1.2)
    columns = {"x": times[part], "y": values[part]}
    add(drawn, line, columns, legend="" if small else "median of the night")


def _pieces(history: History, row: int) -> list[tuple[int, int]]:
    """Return the start and stop index of each range of nights without change or restart."""
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
