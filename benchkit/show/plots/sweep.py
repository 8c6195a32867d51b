"""Figures of the arms of a sweep, and of the builds of a bisection."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from bokeh.embed import file_html
from bokeh.layouts import gridplot
from bokeh.models import ColumnDataSource, GridPlot, HoverTool, Line, Range1d, Scatter, Segment
from bokeh.models.annotations import Band, Span
from bokeh.models.renderers import DataRenderer
from bokeh.plotting import figure
from bokeh.resources import INLINE

from benchkit.analysis.compare.comparison import Comparison
from benchkit.show.plots.base import (
    INK,
    add_glyph,
    empty_figure,
    make_figure,
    metric_label,
    place_legend,
    shorten,
)
from benchkit.show.theme import BETTER, SERIES, UNCHANGED, WORSE
from benchkit.whole_file import write_whole

if TYPE_CHECKING:
    from benchkit.experiment.bisect.result import BisectionResult

#: Column of the table -> label with unit, and divisor.
_PANELS = {
    "seconds": ("duration (s)", 1.0),
    "transfer_bytes": ("transferred (GiB)", 2.0**30),
    "memory_peak": ("peak memory of the cluster (GiB)", 2.0**30),
    "scheduler": ("scheduler busy (%)", 0.01),
}

#: Axes of numbers that differ by factors -> label.
_CONTINUOUS = {"workers": "workers", "bandwidth": "bandwidth of a worker (B/s)"}


def sweep_plot(
    comparison: Comparison,
    points: Mapping[str, Mapping[str, Any]],
    key: str,
    metric: str = "duration",
) -> figure:
    """Draw the change of a metric over the values of a swept setting, one curve per workload.

    Parameters
    ----------
    comparison : Comparison
        A comparison whose contenders are the points of a sweep.
    points : mapping of str to mapping
        Values by key of each contender, as in the plan of the experiment.
    key : str
        The setting along the x axis.
    metric : str, default "duration"
        The metric to draw.

    Returns
    -------
    figure
        Change against the baseline in % with its interval, at each value; 0 at the value of a
        baseline that is part of the sweep. Arms that also differ in other settings have separate
        curves.
    """
    question = f"How does {metric_label(metric)} depend on {key}?"
    frame = comparison.frame[comparison.frame["metric"] == metric]
    frame = frame[[key in points.get(str(name), {}) for name in frame["contender"]]]
    if frame.empty:
        return empty_figure(question)
    if key in points.get(comparison.baseline, {}):
        start = frame.drop_duplicates("workload").assign(
            contender=comparison.baseline, ratio=1.0, low=1.0, high=1.0, verdict="baseline"
        )
        frame = pd.concat([start, frame], ignore_index=True)
    values = [points[str(name)][key] for name in frame["contender"]]
    levels = [value for i, value in enumerate(values) if value not in values[:i]]  # lists, too
    levels = sorted(levels, key=_order)
    others = [
        ", ".join(f"{k.rpartition('.')[2]}={v}" for k, v in points[str(name)].items() if k != key)
        for name in frame["contender"]
    ]
    frame = frame.assign(position=[levels.index(value) for value in values], other=others)
    fig = make_figure(
        question,
        key,
        f"change against {comparison.baseline} (%)",
        height=340,
        tools="save",
        x_range=(-0.4, len(levels) - 0.6),
    )
    groups = list(frame.groupby(["workload", "other"], sort=False))[: len(SERIES)]
    for colour, ((workload, other), rows) in zip(SERIES, groups, strict=False):
        rows = rows.sort_values("position")
        name = f"{workload}, {other}" if other else str(workload)
        percent = {side: (rows[side] - 1) * 100 for side in ("ratio", "low", "high")}
        names = {"name": [name] * len(rows), "verdict": rows["verdict"]}
        source = ColumnDataSource({"x": rows["position"], **percent, **names})
        if all(map(_is_number, levels)):  # between two words is nothing
            add_glyph(fig, Line(x="x", y="ratio", line_color=colour, line_width=1.8), source)
        interval = Segment(x0="x", y0="low", x1="x", y1="high", line_color=colour, line_width=1.2)
        add_glyph(fig, interval, source, legend=shorten(name, 40))
        dot = Scatter(x="x", y="ratio", line_color=colour, fill_color=colour, size=7)
        tips = [
            ("workload", "@name"),
            ("change", "@ratio{+0.0} %"),
            ("interval", "@low{+0.0} to @high{+0.0} %"),
            ("verdict", "@verdict"),
        ]
        add_glyph(fig, dot, source, tips=tips)
    fig.add_layout(Span(location=0, dimension="width", line_color=INK, line_width=1))
    fig.xaxis.ticker = list(range(len(levels)))
    fig.xaxis.major_label_overrides = {i: str(value) for i, value in enumerate(levels)}
    place_legend(fig)
    return fig


def _order(value: Any) -> tuple[int, Any]:
    """Return the key that sorts numbers before texts."""
    return (0, float(value)) if _is_number(value) else (1, str(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def simulation_curves(table: pd.DataFrame, name: str) -> GridPlot:
    """Draw a simulation as curves over what differs: workers, bandwidth, a setting or threads."""
    axes = ["workers", "bandwidth", *_settings(table), "threads"]
    several = [axis for axis in axes if table[axis].astype(str).nunique() > 1] or ["workers"]
    x, others = several[0], several[1:]
    levels = sorted(dict.fromkeys(table[x]), key=_order) if x not in _CONTINUOUS else []
    figures: list[figure | None] = []
    for column, (label, divisor) in _PANELS.items():
        title = f"{name}, simulated: {label.rpartition(' (')[0]}"
        scale = "linear" if levels else "log"
        fig = make_figure(title, _CONTINUOUS.get(x, x), label, x_axis_type=scale, height=300)
        groups = list(table.groupby(others, sort=True)) if others else [((), table)]
        for number, (values, rows) in enumerate(groups):
            place = [levels.index(value) for value in rows[x]] if levels else rows[x]
            rows = rows.assign(x=place).sort_values("x")
            data = {"x": rows["x"], "value": rows[column] / divisor, "of": rows[x].astype(str)}
            if column == "seconds":
                data |= {"low": rows["low"], "high": rows["high"]}
            source = ColumnDataSource(data)
            colour = SERIES[number % len(SERIES)]
            pairs = zip(others, values, strict=True)
            legend = ", ".join(_level_text(axis, value) for axis, value in pairs)
            if column == "seconds":
                band = Band(
                    base="x", lower="low", upper="high", source=source,
                    fill_color=colour, fill_alpha=0.2, line_alpha=0.0,
                )  # fmt: skip
                fig.add_layout(band)
            if all(map(_is_number, levels)):
                line = Line(x="x", y="value", line_color=colour, line_width=2)
                add_glyph(fig, line, source)
            point = Scatter(x="x", y="value", fill_color=colour, line_color=colour, size=6)
            tips = [(x, "@of"), (label, "@value{0.00}")]
            add_glyph(fig, point, source, tips=tips, legend=legend)
        top = table["high"].max() if column == "seconds" else table[column].max() / divisor
        fig.y_range = Range1d(start=0, end=1.05 * float(top) or 1.0)
        if levels:
            fig.xaxis.ticker = list(range(len(levels)))
            fig.xaxis.major_label_overrides = {i: str(v) for i, v in enumerate(levels)}
        figures.append(fig)
    return gridplot(figures, ncols=2, sizing_mode="stretch_width")


def _settings(table: pd.DataFrame) -> list[str]:
    """Return the names of the swept settings of a simulation's table: others have no point."""
    return [name for name in table.columns if "." in name]


def _level_text(axis: str, value: Any) -> str:
    if axis == "bandwidth":
        return f"{value / 2**20:.0f} MiB/s"
    return f"{value} threads" if axis == "threads" else f"{axis.rpartition('.')[2]}={value}"


def save_simulation_curves(table: pd.DataFrame, name: str, path: str | Path) -> None:
    """Write the curves of a simulation as a page that needs no network."""
    page = file_html(simulation_curves(table, name), INLINE, f"{name}: simulated")
    write_whole(Path(path), page)


#: Verdict -> colour and marker.
_LOOKS = {
    "good": (BETTER, "circle"),
    "bad": (WORSE, "triangle"),
    "first bad": (WORSE, "star"),
    "": (UNCHANGED, "square"),
}


def bisection_steps(result: BisectionResult) -> figure:
    """Draw the measurements of a bisection, with builds in order from left to right.

    Parameters
    ----------
    result : BisectionResult
        Return value of `benchkit.experiment.bisect.result.read_bisection`.

    Returns
    -------
    figure
        The value of each run relative to the median of the good end, in %; builds without a
        measurement are omitted and counted in the title. Runs without a result are crosses at the
        bottom, below all values.
    """
    from benchkit.experiment.bisect.replay import EVENTS  # imports what builds environments

    table = result.table()
    measured = table[table["runs"] > 0]
    question = f"With which build did {metric_label(result.metric)} of {result.workload} change?"
    if measured.empty:
        return empty_figure(question)
    n_unmeasured = len(table) - len(measured)
    names = measured["build"].tolist()
    runs = result.runs
    by_events = result.metric in EVENTS
    level = 1.0
    if not by_events:
        ends = runs[(runs["arm"] == names[0]) & (runs["outcome"] == "ok")]
        level = float(ends[result.metric].median()) if len(ends) else 1.0
    fig = make_figure(
        f"{question} {n_unmeasured} builds were not measured." if n_unmeasured else question,
        "build",
        result.metric if by_events else f"change against {names[0]} (%)",
        x_range=names,
        height=320,
        tools="reset,save",
    )
    fig.xaxis.major_label_orientation = 0.6
    verdicts = dict(zip(measured["build"], measured["verdict"], strict=True))
    renderers: list[DataRenderer] = []
    tooltips = [("build", "@build"), ("block", "@block"), ("run", "@id")]
    heights = [0.0]
    for verdict, (colour, marker) in _LOOKS.items():
        rows = runs[(runs["arm"].map(verdicts) == verdict) & (runs["outcome"] == "ok")]
        if len(rows):
            change = [0.0] * len(rows) if by_events else (rows[result.metric] / level - 1) * 100
            heights += [value for value in change if value == value]
            source = ColumnDataSource(
                {"build": rows["arm"], "change": change, "id": rows["id"], "block": rows["block"]}
            )
            renderers.append(
                fig.scatter(
                    "build", "change", source=source, color=colour, marker=marker, alpha=0.75,
                    size=13 if verdict == "first bad" else 8, legend_label=verdict or "undecided",
                )
            )  # fmt: skip
    failed = runs[runs["outcome"] != "ok"]
    low, high = min(heights), max(heights)
    room = (high - low) or 10.0
    bottom = low - 0.2 * room
    fig.y_range = Range1d(start=bottom, end=high + 0.1 * room)
    if len(failed):
        source = ColumnDataSource(
            {"build": failed["arm"], "bottom": [bottom] * len(failed), "id": failed["id"],
             "block": failed["block"], "outcome": failed["outcome"].str.replace("_", " ")},
            name="failed",
        )  # fmt: skip
        crosses = fig.scatter(
            "build", "bottom", source=source, color=WORSE, marker="x", size=11, line_width=2.5,
            legend_label="no result", level="overlay",
        )  # fmt: skip
        fig.add_tools(HoverTool(renderers=[crosses], tooltips=[*tooltips, ("outcome", "@outcome")]))
    if by_events:
        fig.yaxis.ticker = [bottom, 0.0]
        fig.yaxis.major_label_overrides = {bottom: "no result", 0.0: "ok"}
    fig.add_layout(Span(location=0, dimension="width", line_color=INK, line_dash="dotted"))
    if not by_events:
        tooltips.append(("change", "@change{+0.0} %"))
    fig.add_tools(HoverTool(renderers=renderers, tooltips=tooltips))
    place_legend(fig)
    return fig
