"""Figures of busy threads over time by activity, and the strip that selects a time window.

Input: the DataTree of a run; output: a Bokeh figure.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from bokeh.models import ColumnDataSource, HoverTool, Line, Range1d, RangeTool, Scatter, VArea
from bokeh.models.annotations import Span
from bokeh.plotting import figure

from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.formatting import GIB
from benchkit.show.event_text import in_words
from benchkit.show.plots.base import (
    INK,
    add,
    add_limit,
    add_stack,
    empty_figure,
    has,
    legend_beside,
    make_figure,
    part,
    to_tree,
    worker_names,
)
from benchkit.show.theme import ACTIVITY_COLOURS
from benchkit.store.run import Run

__all__ = ["BusyThreads", "busy_threads", "mark_events", "whole_time", "window_strip"]

TITLE = "What were threads busy with?"
#: Topics of events that change the capacity of a cluster -> colour; steals are too many to draw.
_MARKED = {
    "worker-removed": "#cc3311",
    "worker-fail-hard": "#cc3311",
    "worker-restart-memory": "#ee7733",
    "worker-status-change": "#aa8800",
}
MOST_MARKS = 200


def busy_threads(run: Run | xr.DataTree) -> figure:
    """Draw the number of busy threads over time, stacked by activity.

    Parameters
    ----------
    run : Run or DataTree
        A run.

    Returns
    -------
    figure
        Time in s after clock on, threads. On a server use `BusyThreads`, which has a higher
        resolution in a shorter window.
    """
    tree = to_tree(run)
    if not has(tree, "tasks", "task"):
        return empty_figure(TITLE)
    return BusyThreads(tree).figure


class BusyThreads:
    """Figure of busy threads by activity within a time window.

    Parameters
    ----------
    tree : DataTree
        A run with the group ``tasks``.
    within : TaskTimeline, optional
        Tasks of the run, if already read.

    Attributes
    ----------
    figure : figure
        The figure; `show_window` draws another time window into it.
    """

    def __init__(self, tree: xr.DataTree, within: TaskTimeline | None = None) -> None:
        self._within = within or TaskTimeline(tree)
        self._source = ColumnDataSource(self._columns(None))
        self.figure = self._draw(tree)

    def show_window(self, left: float, right: float) -> None:
        """Draw a time window with as many points as the whole run."""
        if right > left:
            self._source.data = self._columns((left, right))

    def _columns(self, window: tuple[float, float] | None) -> dict[str, Any]:
        table = self._within.busy_threads(window)
        return {"time": table.index.to_numpy(), **{name: table[name].to_numpy() for name in table}}

    def _draw(self, tree: xr.DataTree) -> Any:
        drawn = make_figure(TITLE, "time (s)", "threads", height=200)
        names = [name for name in ACTIVITY_COLOURS if name in self._source.data]
        add_stack(drawn, self._source, names, [ACTIVITY_COLOURS[name] for name in names], names)
        n_threads = int(tree.attrs.get("n_threads") or 0)
        add_limit(drawn, [n_threads] if n_threads else [], "all threads")
        line = add(drawn, Line(x="time", y=names[0], line_alpha=0), self._source)
        tips = [("time", "@time{0.00} s"), *((name, f"@{{{name}}}{{0.00}}") for name in names)]
        drawn.add_tools(HoverTool(renderers=[line], tooltips=tips, mode="vline"))
        drawn.y_range.start = 0
        legend_beside(drawn)
        return drawn


def whole_time(tree: xr.DataTree, within: TaskTimeline) -> tuple[float, float]:
    """Return the first and the last time of the data of a run, in s after clock on."""
    ends = [0.0]
    if "duration" in tree.data_vars:
        ends.append(float(tree["duration"]))
    if within.n_tasks:
        ends += within.whole
    for name in ("scheduler", "workers"):
        if has(tree, name, "time"):
            time = part(tree, name)["time"].values
            ends += [float(np.nanmin(time)), float(np.nanmax(time))]
    left, right = min(ends), max(ends)
    return left, right if right > left else left + 1.0


def window_strip(tree: xr.DataTree, whole: tuple[float, float], window: Range1d) -> figure:
    """Draw the whole run as a thin strip with a box for the window, which users can move or redraw.

    Parameters
    ----------
    tree : DataTree
        A run.
    whole : tuple of float
        First and last time, in s.
    window : Range1d
        The range of the box; figures that share it are updated.

    Returns
    -------
    figure
        Process memory of the cluster over the whole run.
    """
    title = "Window of time (s) over the cluster's memory: drag across this strip or any plot below"
    left, right = whole
    # No ticks and labels: the plots below have the same time axis.
    drawn = make_figure(
        title,
        "",
        "",
        height=74,
        x_range=Range1d(start=left, end=right),
        tools="",
        toolbar_location=None,
    )
    drawn.yaxis.visible = False
    drawn.ygrid.grid_line_color = None
    drawn.title.text_font_size = "12px"
    values = np.array([])
    if has(tree, "scheduler", "time"):
        data = part(tree, "scheduler")
        time, values = data["time"].values, np.nan_to_num(data["process"].values) / GIB
        area = VArea(x="time", y1=0, y2="memory", fill_color=INK, fill_alpha=0.45)
        add(drawn, area, {"time": time, "memory": values})
    drawn.y_range = Range1d(start=0, end=max(1.15 * float(values.max(initial=0.0)), 1e-3))
    tool = RangeTool(x_range=window, start_gesture="pan")
    tool.overlay.fill_color, tool.overlay.fill_alpha = "#4477aa", 0.2
    tool.overlay.line_color = "#4477aa"
    drawn.add_tools(tool)
    return drawn


def mark_events(drawn: Any, run: Run, worker: int | None = None) -> None:
    """Add vertical lines to a figure over time where workers were paused, restarted or lost.

    Parameters
    ----------
    drawn : figure
        A figure with an x axis in s after clock on.
    run : Run
        The run with the events.
    worker : int, optional
        Index of the worker of the figure; by default all workers.
    """
    events = run.events()
    events = events[events["topic"].isin(list(_MARKED))] if len(events) else events
    if worker is not None and len(events):
        events = events[events["worker"] == worker]
    if events.empty:
        return
    n_events = len(events)
    events = events.head(MOST_MARKS)
    for row in events.itertuples():
        drawn.add_layout(
            Span(location=row.time, dimension="height", line_color=_MARKED[row.topic],
                 line_dash="dotted", line_alpha=0.7)
        )  # fmt: skip
    names = pd.Series(worker_names(run.tree), dtype=object)
    source = ColumnDataSource(
        {
            "time": events["time"],
            "y": np.zeros(len(events)),
            "what": events["topic"],
            "worker": events["worker"].map(names).fillna("–"),
            "text": events["message"].map(in_words),
            "colour": events["topic"].map(_MARKED),
        }
    )
    dots = add(
        drawn,
        Scatter(
            x="time", y="y", marker="triangle", size=10, line_color="colour", fill_color="colour"
        ),
        source,
        legend="events" if n_events <= MOST_MARKS else f"first {MOST_MARKS} of {n_events} events",
    )
    tips = [("event", "@what"), ("worker", "@worker"), ("time", "@time{0.00} s")]
    tips.append(("what", "@text"))
    drawn.add_tools(HoverTool(renderers=[dots], tooltips=tips))
