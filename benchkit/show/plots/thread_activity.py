"""Figures of threads over time: tasks, busy threads, what bound the run, a strip of a window.

The stream of tasks is exact for ten to a million tasks. Up to `MAX_RECTANGLES` visible tasks are
rectangles with tooltips. More are rasterised: a pixel shows the task group with most of its time,
paler the longer the thread was idle. The raster is computed here because for a million rectangles
Bokeh needs 2 s per step and sends 46 MB, and datashader omits lanes of one pixel; this raster takes
0.1 s and sends 0.2 MB.
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
    Image,
    Line,
    LinearColorMapper,
    Quad,
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
from benchkit.formatting import GIB, format_bytes, format_count, format_seconds, short_names
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
    shorten,
    to_tree,
)
from benchkit.show.theme import ACTIVITY_COLOURS, CAUSE_COLOURS, OTHER, distinct_colours
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


#: Maximum number of visible tasks that are drawn as rectangles.
MAX_RECTANGLES = 4000
#: Number of groups with a separate colour, longest time first; the other groups are grey.
MAX_COLOURS = 12
#: Number of brightness levels from nearly idle to fully busy.
LEVELS = 4
#: Colour of a selected group that has no separate colour.
SELECTED = "#cc3311"
#: Width of the image in pixels.
WIDTH = 1200
#: Maximum number of rows of pixels; more threads share rows.
MAX_ROWS = 500
#: Height of a lane in pixels.
LANE_HEIGHT = 26
#: Height of a legend entry in pixels; the legend must not exceed the figure.
LEGEND_LINE_HEIGHT = 17


def task_stream(run: Run | xr.DataTree) -> figure:
    """Draw each task on the lane of its thread, coloured by its group.

    Parameters
    ----------
    run : Run or DataTree
        A run.

    Returns
    -------
    figure
        Time in s after clock on, one lane per worker thread. On a server use `TaskStream`, which
        redraws the raster for each window.
    """
    tree = to_tree(run)
    if not has(tree, "tasks", "task"):
        return empty_figure("What did each thread do?")
    return TaskStream(tree).figure


def _split_over_pixels(
    begin: np.ndarray, end: np.ndarray, first: np.ndarray, last: np.ndarray, pixel: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return task index, pixel and seconds of each part of the tasks that span several pixels.

    A thread runs one task at a time, so few tasks span several pixels.
    """
    long = np.flatnonzero(first != last)
    counts = last[long] - first[long] + 1
    owner = np.repeat(long, counts)
    column = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    column += first[owner]
    edge = column * pixel
    seconds = np.minimum(end[owner], edge + pixel) - np.maximum(begin[owner], edge)
    return owner, column, np.maximum(seconds, 0.0)


class TaskStream:
    """Figure of the tasks of a run within a time window.

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
        # Pages may share a timeline, because it is read only.
        self._timeline = timeline = timeline or TaskTimeline(tree)
        self.n_tasks, self.n_unseen = timeline.n_tasks, timeline.n_unseen
        self.start, self.stop = timeline.start, timeline.stop
        self.threads, self._lane, self._group = timeline.threads, timeline.lane, timeline.group
        self.groups = timeline.groups
        n_threads = max(1, len(self.threads))
        #: Threads per row of the image.
        self.per_row = -(-n_threads // MAX_ROWS)
        #: Number of threads in each row: the last row may have fewer.
        self._threads_in_row = np.bincount(np.arange(n_threads) // self.per_row)
        self._names = list(short_names(timeline.groups).values())
        seconds = np.bincount(
            self._group, weights=self.stop - self.start, minlength=len(self.groups)
        )[: len(self.groups)]
        self.shown = [int(i) for i in np.argsort(-seconds, kind="stable")[:MAX_COLOURS]]
        self.colours = [*distinct_colours([self.groups[i] for i in self.shown]), OTHER, SELECTED]
        #: Colour index of the selected groups.
        self._selected: int | None = None
        self._colour = self._by_rank()
        self.figure = self._draw()

    def _by_rank(self) -> np.ndarray:
        """Return the colour index of each group: a separate colour, or the shared grey."""
        colour = np.full(len(self.groups), len(self.shown))
        colour[self.shown] = np.arange(len(self.shown))
        return colour

    def choose(self, *groups: str) -> None:
        """Draw task groups in one colour and the others in grey.

        Parameters
        ----------
        *groups : str
            Full names of task groups; without arguments the colours are reset.
        """
        self._colour = self._by_rank()
        self._selected = None
        selected = [self.groups.index(group) for group in groups if group in self.groups]
        if selected:
            own = int(self._colour[selected].min())
            self._selected = own if own < len(self.shown) else len(self.shown) + 1
            self._colour[:] = len(self.shown)
            self._colour[selected] = self._selected
        window: Any = self.figure.x_range
        self.show_window(float(window.start), float(window.end))

    @property
    def window(self) -> tuple[float, float]:
        """First start and last end, in s."""
        return self._timeline.whole

    def inside(self, left: float, right: float) -> np.ndarray:
        """Return the tasks that overlap a time window.

        Parameters
        ----------
        left, right : float
            Ends of the window, in s.

        Returns
        -------
        ndarray of int
            Indices of the tasks.
        """
        return self._timeline.inside(left, right)

    def raster(self, left: float, right: float, width: int = WIDTH) -> np.ndarray:
        """Return the image of a time window.

        Parameters
        ----------
        left, right : float
            Ends of the window, in s.
        width : int, default 1200
            Width in pixels.

        Returns
        -------
        ndarray of uint8, shape (n_rows, width)
            0 is idle; else 1 + colour x `LEVELS` + level, with the colour of the group with most of
            the time of the pixel. More than `MAX_ROWS` threads share rows.
        """
        n_rows, n_colours = len(self._threads_in_row), len(self.colours)
        index = self.inside(left, right)
        pixel = (right - left) / width
        begin = np.maximum(self.start[index], left)
        end = np.minimum(self.stop[index], right)
        first = np.minimum(((begin - left) / pixel).astype(np.int64), width - 1)
        last = np.minimum(((end - left) / pixel).astype(np.int64), width - 1)
        owner = np.flatnonzero(first == last)  # most tasks, if many are visible
        column, seconds = first[owner], end[owner] - begin[owner]
        if len(owner) < len(index):
            more = _split_over_pixels(begin - left, end - left, first, last, pixel)
            owner, column, seconds = map(
                np.concatenate, zip((owner, column, seconds), more, strict=True)
            )
        cell = self._lane[index][owner] // self.per_row * width + column
        colour = self._colour[self._group[index]][owner]
        time = np.bincount(
            cell * n_colours + colour, weights=seconds, minlength=n_rows * width * n_colours
        ).reshape(n_rows * width, n_colours)
        busy = time.sum(axis=1)
        whole = pixel * np.repeat(self._threads_in_row, width)
        level = np.ceil(np.clip(busy / whole, 0, 1) * LEVELS - 1e-9).astype(np.int64)
        most = time.argmax(axis=1)
        if self._selected is not None:  # draw it wherever it ran, so that short tasks are visible
            most = np.where(time[:, self._selected] > 0, self._selected, most)
        image = 1 + most * LEVELS + np.clip(level, 1, LEVELS) - 1
        image[busy <= 0] = 0
        return image.astype(np.uint8).reshape(n_rows, width)

    def show_window(self, left: float, right: float) -> None:
        """Draw a time window: rectangles for few tasks, otherwise the raster.

        Parameters
        ----------
        left, right : float
            Ends of the window, in s; an empty window is ignored.
        """
        if not right > left:
            return
        index = self.inside(left, right)
        if len(index) <= MAX_RECTANGLES:
            self._rectangle_source.data = self._rectangles(index)
            self._image_source.data = _NO_IMAGE
            return
        image = self.raster(left, right)
        self._rectangle_source.data = self._rectangles(index[:0])
        self._image_source.data = {
            "image": [image],
            "x": [left],
            "y": [-0.5],
            "dw": [right - left],
            "dh": [float(len(self._threads_in_row) * self.per_row)],
        }

    def _rectangles(self, index: np.ndarray) -> dict[str, Any]:
        group = self._group[index]
        colours: Any = np.array(self.colours, dtype=object)
        names: Any = np.array(self._names, dtype=object)
        lane = self._lane[index].astype(float)
        return {
            "left": self.start[index],
            "right": self.stop[index],
            "top": lane + 0.42,
            "bottom": lane - 0.42,
            "colour": colours[self._colour[group]],
            "group": names[group],
            "thread": self.threads[self._lane[index]],
            "ms": (self.stop[index] - self.start[index]) * 1e3,
        }

    def _draw(self) -> figure:
        left, right = self.window
        unseen = f", {format_count(self.n_unseen)} not recorded" if self.n_unseen else ""
        title = f"What did each thread do? ({format_count(self.n_tasks)} tasks{unseen}; by group)"
        n_lanes = len(self.threads)
        margin = 0.02 * (right - left)
        names = [self._names[i] for i in self.shown]
        if len(self.groups) > len(self.shown):
            names.append("other groups")
        height = max(110 + LANE_HEIGHT * n_lanes, 75 + LEGEND_LINE_HEIGHT * len(names))
        fig = make_figure(
            title,
            "time (s)",
            "thread" if self.per_row == 1 else f"thread ({self.per_row} per row of pixels)",
            height=int(np.clip(height, 180, 640)),
            x_range=Range1d(start=left - margin, end=right + margin),
            y_range=(-0.6, n_lanes - 0.4),
            active_scroll="xwheel_zoom",
        )
        self._rectangle_source = ColumnDataSource(self._rectangles(np.arange(0)))
        self._image_source = ColumnDataSource(_NO_IMAGE)
        palette = ["#00000000"]
        for colour in self.colours:
            alphas = [int(255 * (0.25 + 0.75 * (i + 1) / LEVELS)) for i in range(LEVELS)]
            palette += [f"{colour}{alpha:02x}" for alpha in alphas]
        mapper = LinearColorMapper(palette=palette, low=0, high=len(palette) - 1)
        image = Image(image="image", x="x", y="y", dw="dw", dh="dh", color_mapper=mapper)
        add_glyph(fig, image, self._image_source)
        sides: dict[str, Any] = {side: side for side in ("left", "right", "top", "bottom")}
        # The outline keeps tasks visible that are shorter than 1/1000 of the window.
        quads = Quad(**sides, fill_color="colour", line_color="colour", line_alpha=0.6)
        tips = [
            ("group", "@group"),
            ("start", "@left{0.000} s"),
            ("duration", "@ms{0,0.0} ms"),
            ("thread", "@thread"),
        ]
        add_glyph(fig, quads, self._rectangle_source, tips=tips)
        fig.ygrid.grid_line_color = None
        invisible = ColumnDataSource({side: [np.nan] for side in sides})
        for name, colour in zip(names, self.colours, strict=False):
            swatch = Quad(**sides, fill_color=colour, line_color=colour)
            add_glyph(fig, swatch, invisible, legend=shorten(name, 28))
        place_legend(fig)
        if n_lanes <= 20:
            fig.yaxis.ticker = list(range(n_lanes))
            fig.yaxis.major_label_overrides = {i: str(t) for i, t in enumerate(self.threads)}
        self.show_window(left - margin, right + margin)
        return fig


_NO_IMAGE: dict[str, list[Any]] = {"image": [], "x": [], "y": [], "dw": [], "dh": []}
