"""Task stream: the tasks of each thread over time, exact for ten to a million tasks.

Few visible tasks are rectangles with tooltips. Many are rasterised: a pixel shows the task group
with most of its time, paler the longer the thread was idle. The raster is computed here because
for a million rectangles Bokeh needs 2 s per step and sends 46 MB, and datashader omits lanes of one
pixel; this raster takes 0.1 s and sends 0.2 MB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from bokeh.models import ColumnDataSource, HoverTool, Image, LinearColorMapper, Quad
from bokeh.plotting import figure

from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.formatting import format_count, short_names
from benchkit.show.plots.base import add, empty_figure, has, legend_beside, make_figure, to_tree
from benchkit.show.theme import OTHER, distinct_colours
from benchkit.store.run import Run

__all__ = ["TaskStream", "task_stream"]

#: Maximum number of visible tasks that are drawn as rectangles.
MOST_RECTANGLES = 4000
#: Number of groups with a separate colour, longest time first; the other groups are grey.
MOST_COLOURS = 12
#: Number of brightness levels from nearly idle to fully busy.
LEVELS = 4
#: Colour of a selected group that has no separate colour.
CHOSEN = "#cc3311"
WIDTH = 1200
#: Maximum number of rows of pixels; more threads share rows.
MOST_ROWS = 500
#: Height in pixels of a lane, and of a legend line (the legend must not exceed the figure).
LANE, LEGEND_LINE = 26, 17


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


@dataclass(frozen=True)
class Raster:
    """The task stream as an image.

    Attributes
    ----------
    image : ndarray of uint8, shape (n_rows, width)
        0 is idle; else 1 + colour x `LEVELS` + level.
    busy_s : float
        Thread-seconds in view, exact.
    """

    image: np.ndarray
    busy_s: float


def _pieces(
    begin: np.ndarray, end: np.ndarray, first: np.ndarray, last: np.ndarray, pixel: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split tasks over their pixels; return index of the task, pixel and time in it per piece.

    A thread runs one task at a time, so these are few.
    """
    long = np.flatnonzero(first != last)
    counts = last[long] - first[long] + 1
    owner = np.repeat(long, counts)
    column = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    column += first[owner]
    edge = column * pixel
    piece = np.minimum(end[owner], edge + pixel) - np.maximum(begin[owner], edge)
    return owner, column, np.maximum(piece, 0.0)


class TaskStream:
    """Figure of the tasks of a run within a time window.

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
        self._within = within = within or TaskTimeline(tree)  # read only, so pages may share it
        self.n_tasks, self.n_unseen = within.n_tasks, within.n_unseen
        self.start, self.stop = within.start, within.stop
        self.threads, self._lane, self._group = within.threads, within.lane, within.group
        self.groups = within.groups
        n_threads = max(1, len(self.threads))
        #: Threads per row of the image, and in each row: the last row may have fewer.
        self.per_row = -(-n_threads // MOST_ROWS)
        self._held = np.bincount(np.arange(n_threads) // self.per_row)
        self._names = list(short_names(within.groups).values())
        seconds = np.bincount(
            self._group, weights=self.stop - self.start, minlength=len(self.groups)
        )[: len(self.groups)]
        self.shown = [int(i) for i in np.argsort(-seconds, kind="stable")[:MOST_COLOURS]]
        self.colours = [*distinct_colours([self.groups[i] for i in self.shown]), OTHER, CHOSEN]
        #: Colour index of the selected groups.
        self._chosen: int | None = None
        self._colour = self._by_rank()
        self.figure = self._draw()

    def _by_rank(self) -> np.ndarray:
        """Return the colour index of each group: a separate colour, or the shared grey."""
        colour = np.full(len(self.groups), len(self.shown))
        colour[self.shown] = np.arange(len(self.shown))
        return colour

    def choose(self, *groups: str) -> None:
        """Draw groups in one colour and the others in grey; without arguments reset the colours."""
        self._colour = self._by_rank()
        self._chosen = None
        chosen = [self.groups.index(group) for group in groups if group in self.groups]
        if chosen:
            own = int(self._colour[chosen].min())
            self._chosen = own if own < len(self.shown) else len(self.shown) + 1
            self._colour[:] = len(self.shown)
            self._colour[chosen] = self._chosen
        window = self.figure.x_range
        self.show_window(float(window.start), float(window.end))

    @property
    def window(self) -> tuple[float, float]:
        """First start and last end, in s."""
        return self._within.whole

    def inside(self, left: float, right: float) -> np.ndarray:
        """Return the indices of the tasks that overlap a time window."""
        return self._within.inside(left, right)

    def raster(self, left: float, right: float, width: int = WIDTH) -> Raster:
        """Return the image of a time window.

        Parameters
        ----------
        left, right : float
            Ends of the window, in s.
        width : int, default 1200
            Width in pixels.

        Returns
        -------
        Raster
            Each pixel is the group with most of its time; busy time is exact at every zoom level.
            More than `MOST_ROWS` threads share rows.
        """
        n_rows, n_colours = len(self._held), len(self.colours)
        index = self.inside(left, right)
        pixel = (right - left) / width
        begin = np.maximum(self.start[index], left)
        end = np.minimum(self.stop[index], right)
        first = np.minimum(((begin - left) / pixel).astype(np.int64), width - 1)
        last = np.minimum(((end - left) / pixel).astype(np.int64), width - 1)
        owner = np.flatnonzero(first == last)  # most tasks, if many are visible
        column, piece = first[owner], end[owner] - begin[owner]
        if len(owner) < len(index):
            more = _pieces(begin - left, end - left, first, last, pixel)
            owner, column, piece = map(
                np.concatenate, zip((owner, column, piece), more, strict=True)
            )
        cell = self._lane[index][owner] // self.per_row * width + column
        colour = self._colour[self._group[index]][owner]
        time = np.bincount(
            cell * n_colours + colour, weights=piece, minlength=n_rows * width * n_colours
        ).reshape(n_rows * width, n_colours)
        busy = time.sum(axis=1)
        whole = pixel * np.repeat(self._held, width)
        level = np.ceil(np.clip(busy / whole, 0, 1) * LEVELS - 1e-9).astype(np.int64)
        most = time.argmax(axis=1)
        if self._chosen is not None:  # draw it wherever it ran, so that short tasks are visible
            most = np.where(time[:, self._chosen] > 0, self._chosen, most)
        image = 1 + most * LEVELS + np.clip(level, 1, LEVELS) - 1
        image[busy <= 0] = 0
        picture = image.astype(np.uint8).reshape(n_rows, width)
        return Raster(picture, float(np.maximum(end - begin, 0.0).sum()))

    def show_window(self, left: float, right: float) -> None:
        """Draw a time window: rectangles for few tasks, otherwise the raster."""
        if not right > left:
            return
        index = self.inside(left, right)
        if len(index) <= MOST_RECTANGLES:
            self._bars.data = self._rectangles(index)
            self._picture.data = _NO_PICTURE
            return
        image = self.raster(left, right).image
        self._bars.data = self._rectangles(index[:0])
        self._picture.data = {
            "image": [image],
            "x": [left],
            "y": [-0.5],
            "dw": [right - left],
            "dh": [float(len(self._held) * self.per_row)],
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

    def _draw(self) -> Any:
        left, right = self.window
        unseen = f", {format_count(self.n_unseen)} not recorded" if self.n_unseen else ""
        title = f"What did each thread do? ({format_count(self.n_tasks)} tasks{unseen})"
        n_lanes = len(self.threads)
        margin = 0.02 * (right - left)
        names = [self._names[i] for i in self.shown]
        if len(self.groups) > len(self.shown):
            names.append("other groups")
        tall = max(110 + LANE * n_lanes, 75 + LEGEND_LINE * len(names))
        drawn = make_figure(
            title,
            "time (s)",
            "thread" if self.per_row == 1 else f"thread ({self.per_row} a row of pixels)",
            height=int(np.clip(tall, 180, 640)),
            x_range=(left - margin, right + margin),
            y_range=(-0.6, n_lanes - 0.4),
            active_scroll="xwheel_zoom",
        )
        self._bars = ColumnDataSource(self._rectangles(np.arange(0)))
        self._picture = ColumnDataSource(_NO_PICTURE)
        palette = ["#00000000"]
        for colour in self.colours:
            alphas = [int(255 * (0.25 + 0.75 * (i + 1) / LEVELS)) for i in range(LEVELS)]
            palette += [f"{colour}{alpha:02x}" for alpha in alphas]
        mapper = LinearColorMapper(palette=palette, low=0, high=len(palette) - 1)
        picture = Image(image="image", x="x", y="y", dw="dw", dh="dh", color_mapper=mapper)
        add(drawn, picture, self._picture)
        sides: dict[str, Any] = {side: side for side in ("left", "right", "top", "bottom")}
        # The outline keeps tasks visible that are shorter than 1/1000 of the window.
        quads = Quad(**sides, fill_color="colour", line_color="colour", line_alpha=0.6)
        bars = add(drawn, quads, self._bars)
        tips = [
            ("group", "@group"),
            ("start", "@left{0.000} s"),
            ("took", "@ms{0,0.0} ms"),
            ("thread", "@thread"),
        ]
        drawn.add_tools(HoverTool(renderers=[bars], tooltips=tips))
        drawn.ygrid.grid_line_color = None
        nowhere = ColumnDataSource({side: [np.nan] for side in sides})
        for name, colour in zip(names, self.colours, strict=False):
            label = name if len(name) <= 28 else f"{name[:13]}…{name[-14:]}"
            swatch = Quad(**sides, fill_color=colour, line_color=colour)
            add(drawn, swatch, nowhere, legend=label)
        if names:
            legend_beside(drawn)
        if n_lanes <= 20:
            drawn.yaxis.ticker = list(range(n_lanes))
            drawn.yaxis.major_label_overrides = {i: str(t) for i, t in enumerate(self.threads)}
        self.show_window(left - margin, right + margin)
        return drawn


_NO_PICTURE: dict[str, list[Any]] = {"image": [], "x": [], "y": [], "dw": [], "dh": []}
