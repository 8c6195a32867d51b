"""Figures of busy threads and of what bound the run over time, and the strip of a time window.

Input: a run; output: a Bokeh figure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from bokeh.models import (
    ColumnDataSource,
    DataRange1d,
    HoverTool,
    Line,
    Range1d,
    RangeTool,
    Scatter,
    VArea,
    VBar,
)
from bokeh.models.annotations import Span
from bokeh.plotting import figure

from benchkit.analysis.insight.limits import Limits, run_limits
from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.errors import NotRecorded
from benchkit.formatting import GIB, format_bytes, format_seconds
from benchkit.show.plots.base import (
    INK,
    add_glyph,
    add_limit,
    add_stack,
    empty_figure,
    has,
    make_figure,
    place_legend,
    read_group,
    to_tree,
)
from benchkit.show.theme import ACTIVITY_COLOURS, CAUSE_COLOURS
from benchkit.store.run import Run, worker_names


def format_event(message: str) -> str:
    """Return the readable text of an event that is stored as JSON.

    Examples
    --------
    >>> format_event('{"n_lost": 1, "expected": false}'), format_event('{"rss": 1035849728}')
    ('1 lost, not expected', '988 MiB in use')
    """
    try:
        fields = json.loads(message)
    except (ValueError, RecursionError):  # deeply nested JSON
        return message
    if not isinstance(fields, dict):
        return message
    if fields.keys() == {"status", "before"}:
        return f"from {fields['before']} to {fields['status']}"
    return ", ".join(_field_text(name, value) for name, value in fields.items())


def _field_text(name: str, value: Any) -> str:
    """Return one field of an event as text: counts, sizes and boolean values."""
    words = name.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"not {words}"
    if name == "rss" and isinstance(value, int | float):
        return f"{format_bytes(value)} in use"
    if name.startswith("n_"):
        return f"{value} {words[2:]}"
    if isinstance(value, Mapping | list):
        return f"{words} {json.dumps(value)}"
    return f"{words} {value}"


#: Cause -> legend, short enough for the width of the legends of other figures over time.
CAUSE_LABELS = {
    "computing": "compute, threads busy",
    "not parallel": "compute, threads idle",
    "straggler": "compute, last tasks",
    "seceded": "tasks without thread",
    "unfinished": "tasks without end",
    "no processor": "no processor",
    "restricted": "restricted tasks",
    "transfer": "transfers",
    "disk": "disk",
    "worker paused": "paused workers",
    "no worker": "no worker",
    "stealing": "stealing",
    "queued": "tasks elsewhere",
    "worker loop": "loops of workers",
    "scheduler": "scheduler",
    "messages": "messages",
    "graph": "graphs, scheduler",
    "client graph": "graphs, client",
    "gather": "results to client",
    "client": "client",
    "unexplained": "unexplained",
}

LIMITS_TITLE = "What bound the run?"
#: Number of bars: about one for each four pixels of a wide page.
N_LIMIT_BARS = 240

TITLE = "What were threads busy with?"
#: Topic of events that change the capacity of a cluster -> colour.
_EVENT_COLOURS = {
    "worker-removed": "#cc3311",
    "worker-fail-hard": "#cc3311",
    "worker-restart-memory": "#ee7733",
    "worker-status-change": "#aa8800",
}
#: Maximum number of events that are drawn.
MAX_EVENTS = 200

#: Activity of a task that waits for data: in the worker's event loop, not in a thread.
FETCH = "transfer"


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
    timeline : TaskTimeline, optional
        Tasks of the run, if already read.

    Attributes
    ----------
    figure : figure
        The figure; `show_window` draws another time window into it.
    """

    def __init__(self, tree: xr.DataTree, timeline: TaskTimeline | None = None) -> None:
        self._timeline = timeline or TaskTimeline(tree)
        self._source = ColumnDataSource(self._columns(None))
        self.figure = self._draw(tree)

    def show_window(self, left: float, right: float) -> None:
        """Draw a time window with as many points as the whole run.

        Parameters
        ----------
        left, right : float
            Ends of the window, in s; an empty window is ignored.
        """
        if right > left:
            self._source.data = self._columns((left, right))

    def _columns(self, window: tuple[float, float] | None) -> dict[str, Any]:
        table = self._timeline.busy_threads(window)
        return {"time": table.index.to_numpy(), **{name: table[name].to_numpy() for name in table}}

    def _draw(self, tree: xr.DataTree) -> figure:
        fig = make_figure(TITLE, "time (s)", "threads", height=200, y_range=DataRange1d(start=0))
        names = [name for name in ACTIVITY_COLOURS if name in self._source.data]
        # Workers fetch data while their threads compute: stacked, the sum would exceed the threads.
        on_threads = [name for name in names if name != FETCH]
        colours = [ACTIVITY_COLOURS[name] for name in on_threads]
        add_stack(fig, self._source, on_threads, colours, on_threads)
        if FETCH in names:
            fetching = Line(x="time", y=FETCH, line_color=ACTIVITY_COLOURS[FETCH], line_width=1.5)
            legend = f"{FETCH} (needs no thread)"
            add_glyph(fig, fetching, self._source, legend=legend, name=FETCH)
        n_threads = int(tree.attrs.get("n_threads") or 0)
        add_limit(fig, [n_threads] if n_threads else [], "all threads")
        invisible = Line(x="time", y=names[0], line_alpha=0)
        tips = [("time", "@time{0.00} s"), *((name, f"@{{{name}}}{{0.00}}") for name in names)]
        add_glyph(fig, invisible, self._source, tips=tips, hover={"mode": "vline"})
        place_legend(fig)
        return fig


def whole_time(run: Run | xr.DataTree, timeline: TaskTimeline) -> tuple[float, float]:
    """Return the first and the last time of the data of a run."""
    tree = to_tree(run)
    ends = [0.0]
    if "duration" in tree.data_vars:
        ends.append(float(tree["duration"]))
    if timeline.n_tasks:
        ends += timeline.whole
    for name in ("scheduler", "workers"):
        data = read_group(tree, name, "time")
        if data is not None:
            ends += [float(np.nanmin(data["time"])), float(np.nanmax(data["time"]))]
    left, right = min(ends), max(ends)
    return left, right if right > left else left + 1.0


def window_strip(run: Run | xr.DataTree, whole: tuple[float, float], window: Range1d) -> figure:
    """Draw the whole run as a thin strip with a box for the window, which users can move."""
    title = "Window of time (s) over the cluster's memory: drag across this strip or any plot below"
    left, right = whole
    # No ticks and labels: the plots below have the same time axis.
    fig = make_figure(
        title,
        "",
        "",
        height=74,
        x_range=Range1d(start=left, end=right),
        tools="",
        toolbar_location=None,
    )
    fig.yaxis.visible = False
    fig.ygrid.grid_line_color = None
    data = read_group(run, "scheduler", "time")
    highest = 0.0
    if data is not None:
        memory = np.nan_to_num(data["process"].values) / GIB
        highest = float(memory.max())
        area = VArea(x="time", y1=0, y2="memory", fill_color=INK, fill_alpha=0.45)
        add_glyph(fig, area, {"time": data["time"].values, "memory": memory})
    fig.y_range = Range1d(start=0, end=max(1.15 * highest, 1e-3))
    tool = RangeTool(x_range=window, start_gesture="pan")
    tool.overlay.fill_color, tool.overlay.fill_alpha = "#4477aa", 0.2
    tool.overlay.line_color = "#4477aa"
    fig.add_tools(tool)
    return fig


def mark_events(fig: figure, run: Run, worker: int | None = None) -> None:
    """Add vertical lines to a figure over time where workers were paused, restarted or lost."""
    events = run.events()
    events = events[events["topic"].isin(list(_EVENT_COLOURS))] if len(events) else events
    if worker is not None and len(events):
        events = events[events["worker"] == worker]
    if events.empty:
        return
    n_events = len(events)
    events = events.head(MAX_EVENTS)
    for row in events.itertuples():
        fig.add_layout(
            Span(location=row.time, dimension="height", line_color=_EVENT_COLOURS[row.topic],
                 line_dash="dotted", line_alpha=0.7)
        )  # fmt: skip
    names = pd.Series(worker_names(run.tree), dtype=object)
    source = ColumnDataSource(
        {
            "time": events["time"],
            "y": np.zeros(len(events)),
            "topic": events["topic"],
            "worker": events["worker"].map(names).fillna("–"),
            "text": events["message"].map(format_event),
            "colour": events["topic"].map(_EVENT_COLOURS),
        }
    )
    dot = Scatter(
        x="time", y="y", marker="triangle", size=10, line_color="colour", fill_color="colour"
    )
    tips = [("event", "@topic"), ("worker", "@worker"), ("time", "@time{0.00} s")]
    tips.append(("details", "@text"))
    legend = "events" if n_events <= MAX_EVENTS else f"first {MAX_EVENTS} of {n_events} events"
    add_glyph(fig, dot, source, legend=legend, tips=tips)


def limits_over_time(run: Run, limits: Limits | None = None) -> figure:
    """Draw what bound a run over time: compute, network, disk, scheduler, client or its graph.

    Parameters
    ----------
    run : Run
        A run.
    limits : Limits, optional
        Its limits, if already computed.

    Returns
    -------
    figure
        Time in s after clock on, share of the time in %. The walk from the last task back to the
        start gives each moment the cause that the next step waited for; a bar is divided by the
        shares of the causes in it.
    """
    try:
        limits = limits or run_limits(run)
    except NotRecorded:
        text = "The dependencies of the tasks, or the duration, were not recorded."
        return empty_figure(LIMITS_TITLE, text)
    table = 100 * limits.over_time(N_LIMIT_BARS)
    width = limits.duration / N_LIMIT_BARS
    tops = np.cumsum(table.to_numpy(), axis=1)
    columns = {"time": table.index.to_numpy(), "from": table.index - width / 2}
    columns |= {"to": table.index + width / 2}
    columns |= {CAUSE_LABELS[str(name)]: table[name].to_numpy() for name in table}
    columns |= {f"top {place}": tops[:, place] for place in range(tops.shape[1])}
    columns |= {"top -1": np.zeros(N_LIMIT_BARS)}
    source = ColumnDataSource(columns)
    fig = make_figure(
        f"{LIMITS_TITLE} A bar is {format_seconds(width)}",
        "time (s)",
        "share (%)",
        height=190,
        x_range=(0.0, limits.duration),
        y_range=(0, 100),
    )
    for place, name in enumerate(table):
        colour, label = CAUSE_COLOURS[str(name)], CAUSE_LABELS[str(name)]
        bar = VBar(
            x="time", width=width, bottom=f"top {place - 1}", top=f"top {place}",
            fill_color=colour, line_color=colour, line_width=0.5,
        )  # fmt: skip
        add_glyph(fig, bar, source, legend=label, name=label)
    tips = [("cause", "$name"), ("share", "@$name{0.0} %"), ("time", "@from{0.00} to @to{0.00} s")]
    fig.add_tools(HoverTool(tooltips=tips))
    place_legend(fig, "right")
    return fig
