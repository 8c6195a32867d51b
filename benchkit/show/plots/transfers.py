"""Matrices of the transfers between pairs of workers, and of their difference between two runs.

Input: runs; output: a Bokeh figure, in which dozens of workers are boxes, and hundreds an image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from bokeh.models import (
    ColumnDataSource,
    CustomJSHover,
    FixedTicker,
    HoverTool,
    Image,
    LinearColorMapper,
    Range1d,
    Rect,
    Text,
)
from bokeh.plotting import figure
from bokeh.plotting import figure as Figure
from numpy.typing import NDArray

from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.formatting import MIB, format_bytes, format_quantity
from benchkit.show.plots.base import (
    INK,
    add_colour_bar,
    add_glyph,
    empty_figure,
    make_figure,
    retitle,
    to_tree,
)
from benchkit.show.plots.run_metrics import MAX_NAMES
from benchkit.store.run import Run, worker_names

#: Maximum number of workers with numbers in the cells.
MAX_NUMBERS = 16
#: Maximum number of workers with horizontal names below.
MAX_HORIZONTAL = 8
#: From almost transparent to opaque, in both themes; unknown values are fully transparent.
_PALETTE = tuple(f"#3d85c6{alpha:02x}" for alpha in range(24, 256))
#: Palette of differences, from less to more.
_DIVERGING = (
    *(f"#2166ac{alpha:02x}" for alpha in range(255, 15, -2)),
    *(f"#b2182b{alpha:02x}" for alpha in range(16, 256, 2)),
)
#: JavaScript for the name at a position; row 0 of the matrix is at the top of the sender axis.
_NAME = "return names[Math.min(names.length - 1, Math.max(0, Math.floor(value)))]"

Cells = Mapping[str, NDArray[np.float64]]
Tips = Sequence[tuple[str, str]]


class Matrix:
    """Heat map of numbers of pairs: senders as rows, receivers as columns."""

    def __init__(
        self, title: str, cells: Cells, unit: str, tips: Tips, *, names: list[str],
        signed: bool = False,
    ) -> None:  # fmt: skip
        # cells: (n_names, n_names), `value`, which is drawn, and other columns named in `tips`. NaN
        # is hatched; in the image for hundreds of workers it is blank.
        self._names, self._signed = names, signed
        self._mapper = LinearColorMapper(
            palette=_DIVERGING if signed else _PALETTE, nan_color=(0, 0, 0, 0)
        )
        self._pairs = ColumnDataSource(name="pairs")
        self._numbers, self._missing = ColumnDataSource(), ColumnDataSource()
        self._as_boxes = len(names) <= MAX_NAMES
        self._fill(cells)
        draw = self._draw_boxes if self._as_boxes else self._draw_image
        self._hover = HoverTool(tooltips=self._tooltips(tips))
        self.figure = draw(self._title(title))
        self.figure.add_tools(self._hover)
        self._bar = add_colour_bar(self.figure, self._mapper, unit)

    def show(self, title: str, cells: Cells, unit: str, tips: Tips) -> None:
        """Draw other numbers of the same pairs."""
        # cells: (n_names, n_names), `value`, which is drawn, and other columns named in `tips`.
        self._fill(cells)
        self._bar.title = unit
        retitle(self.figure, self._title(title))
        self._hover.tooltips = self._tooltips(tips)

    def _title(self, title: str) -> str:
        # The image has no names on its axes.
        count = len(self._names)
        return title if self._as_boxes else f"{title}, {count} senders and receivers"

    def _tooltips(self, tips: Tips) -> list[tuple[str, str]]:
        ends = ("@source", "@destination") if self._as_boxes else ("$y{custom}", "$x{custom}")
        return [("from", ends[0]), ("to", ends[1]), *tips]

    def _fill(self, cells: Cells) -> None:
        values = np.asarray(cells["value"], float)
        most = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
        self._mapper.update(low=-most if self._signed else 0, high=most)
        if not self._as_boxes:
            self._pairs.data = {name: [array.astype("f4")] for name, array in cells.items()}
            return
        rows, columns = (grid.ravel() for grid in np.indices(values.shape))
        ends = {
            "source": np.array(self._names, dtype=object)[rows],
            "destination": np.array(self._names, dtype=object)[columns],
        }
        values = values.ravel()
        known = np.isfinite(values)
        self._pairs.data = {
            **ends,
            **{name: array.ravel() for name, array in cells.items()},
            "alpha": np.where(known, 0.9, 0.0),
        }
        self._missing.data = {name: end[~known] for name, end in ends.items()}
        has_room = len(self._names) <= MAX_NUMBERS
        numbered = np.flatnonzero(known & (values != 0) & has_room)
        self._numbers.data = {
            **{name: end[numbered] for name, end in ends.items()},
            "text": [_number_text(values[i], self._signed) for i in numbered],
        }

    def _draw_boxes(self, title: str) -> Figure:
        """Draw one box per pair, with its number if there is room."""
        names = self._names
        fig = make_figure(
            title,
            "receiver",
            "sender",
            x_range=names,
            y_range=names[::-1],
            height=int(np.clip(140 + 26 * len(names), 220, 640)),
            tools="save",
        )
        box: dict[str, Any] = {"x": "destination", "y": "source", "width": 0.96, "height": 0.94}
        colour: Any = {"field": "value", "transform": self._mapper}
        boxes = add_glyph(
            fig, Rect(**box, line_color=None, fill_color=colour, fill_alpha="alpha"), self._pairs
        )
        hatched = Rect(
            **box, line_color=None, fill_alpha=0, hatch_pattern="right_diagonal_line",
            hatch_color=INK, hatch_alpha=0.4,
        )  # fmt: skip
        add_glyph(fig, hatched, self._missing)
        # Numbers have a background: no text colour is readable on all box colours in both themes.
        number_look: dict[str, Any] = {
            "background_fill_color": "#eef2f6",
            "background_fill_alpha": 0.85,
            "padding": 2,
            "border_radius": 3,
        }
        number = Text(
            x="destination", y="source", text="text", text_align="center",
            text_baseline="middle", text_font_size="11px", text_color="#1c2530",
            **number_look,
        )  # fmt: skip
        add_glyph(fig, number, self._numbers)
        if len(names) > MAX_HORIZONTAL:
            fig.xaxis.major_label_orientation = 0.7
        self._hover.renderers = [boxes]
        return fig

    def _draw_image(self, title: str) -> Figure:
        """Draw one image pixel per pair: hundreds of workers have a hundred thousand pairs."""
        count = len(self._names)
        fig = make_figure(
            title,
            "receiver",
            "sender",
            x_range=Range1d(start=0, end=count, bounds=(0, count)),
            y_range=Range1d(start=count, end=0, bounds=(0, count)),
            height=640,
            tools="box_zoom,wheel_zoom,reset,save",
        )
        glyph = Image(image="value", x=0, y=0, dw=count, dh=count, color_mapper=self._mapper)
        self._hover.renderers = [add_glyph(fig, glyph, self._pairs)]
        fig.xaxis.ticker = fig.yaxis.ticker = FixedTicker(ticks=[])
        fig.grid.visible = False
        name = CustomJSHover(args={"names": self._names}, code=_NAME)
        self._hover.formatters = {"$x": name, "$y": name}
        return fig


def _number_text(number: float, signed: bool) -> str:
    sign = ("−" if number < 0 else "+") if signed else ""
    size = abs(number)
    return f"{sign}< 0.01" if size < 0.01 else f"{sign}{size:,.3g}"


TITLE = "How much did workers send to each other?"
#: Maximum number of rows: with more workers, neighbours share a row. An image of 300 x 300 pairs
#: with its tooltips is 1.8 MB of a page.
MAX_ROWS = 300
#: Name of the receiver of results that a client fetched.
CLIENT = "client"
#: Value of a cell -> its unit, and the divisor from the recorded unit.
UNITS = {
    "bytes": ("MiB", MIB), "bytes_compressed": ("MiB on the wire", MIB),
    "count": ("transfers", 1), "seconds": ("s", 1),
}  # fmt: skip
#: Label of a value -> its name.
VALUES = {
    "bytes": "bytes", "bytes on the wire": "bytes_compressed", "number": "count",
    "time": "seconds",
}  # fmt: skip
_TIPS = (
    ("transfers", "@count{0,0}"),
    ("bytes", "@mib{0,0.0} MiB, @wire{0,0.0} on the wire"),
    ("duration", "@seconds{0.00} s"),
)
_DIFFERENCE_TIPS = (
    ("transfers", "@count{+0,0}"),
    ("bytes", "@mib{+0,0.0} MiB, @wire{+0,0.0} on the wire"),
    ("duration", "@seconds{+0.00} s"),
)
_WINDOW_TIPS = (("transfers", "@count{0,0}"), ("duration", "@seconds{0.00} s"))


def transfer_matrix(run: Run | xr.DataTree, value: str = "bytes") -> figure:
    """Draw transfers of task results, senders down, receivers across.

    Parameters
    ----------
    run : Run or DataTree
        A run.
    value : {"bytes", "bytes_compressed", "count", "seconds"}
        The value of a cell.

    Returns
    -------
    figure
        One cell per pair. Hatched (blank with hundreds of workers): no data from either end.
    """
    return TransferMatrix(run, value=value).figure


class TransferMatrix:
    """Figure of the transfers of a run within a time window.

    Parameters
    ----------
    run : Run or DataTree
        A run.
    timeline : TaskTimeline, optional
        Tasks of the run; without them only the whole run can be drawn.
    value : {"bytes", "bytes_compressed", "count", "seconds"}
        The value of a cell when the whole run is drawn.

    Attributes
    ----------
    figure : figure
        The figure; `show_window` draws another time window into it.
    """

    def __init__(
        self, run: Run | xr.DataTree, timeline: TaskTimeline | None = None, *, value: str = "bytes"
    ) -> None:
        self._timeline, self._value = timeline, value
        self._matrix: Matrix | None = None
        self._rows: list[int] = []
        self._names: list[str] = []
        data = _transfers(run)
        if data is None:
            self.figure = empty_figure(TITLE)
            return
        self._rows, self._names = _rows(_names(run, data))
        self._whole = _cells(data, self._rows, len(self._names))
        self._matrix = Matrix(*self._contents(None), names=self._names)
        self.figure = self._matrix.figure

    @property
    def has_windows(self) -> bool:
        """Whether the times at which tasks fetched their inputs were recorded."""
        return (
            self._matrix is not None and self._timeline is not None and self._timeline.has_transfers
        )

    def show_window(self, window: tuple[float, float] | None, value: str = "") -> None:
        """Draw the transfers within a time window in s; None is the whole run.

        A window has counts and seconds of fetches between workers only; bytes are recorded for the
        whole run.

        Parameters
        ----------
        window : tuple of float or None
            First and last time in s after clock on.
        value : {"", "bytes", "bytes_compressed", "count", "seconds"}
            The value of a cell when the whole run is drawn; "" keeps the current value.
        """
        self._value = value or self._value
        if self._matrix is not None:
            title, cells, unit, tips = self._contents(window)
            self._matrix.show(title, cells, unit, tips)

    def _contents(self, window: tuple[float, float] | None) -> tuple[str, Cells, str, Tips]:
        """Return the title, the cells, their unit and the tooltips of a pair."""
        if window is None or not self.has_windows:
            unit, _ = UNITS[self._value]
            total = float(np.nansum(self._whole[self._value]))
            title = f"{TITLE} ({_total_text(total, unit)} in total)"
            return title, _to_units(self._whole, self._value), unit, _TIPS
        assert self._timeline is not None
        # Fetches of clients are recorded for the whole run only; -1 here is an unknown worker.
        is_worker = np.array([name != CLIENT for name in self._names])
        empty = np.where(is_worker[:, None] & is_worker, 0.0, np.nan)
        cells = {name: empty.copy() for name in ("count", "seconds")}
        fetches = self._timeline.transfers(window)
        known = (fetches[["source", "destination"]] >= 0).all(axis=1)
        row_of = np.array(self._rows, int)
        ends = [row_of[fetches.loc[known, end]] for end in ("source", "destination")]
        for name, cell in cells.items():
            np.add.at(cell, tuple(ends), fetches.loc[known, name])
        value = self._value if self._value == "count" else "seconds"
        unit, _ = UNITS[value]
        n_fetches = int(np.nansum(cells["count"]))
        title = f"How much did workers fetch within the window? ({n_fetches:,} fetches)"
        return title, {"value": cells[value], **cells}, unit, _WINDOW_TIPS


def transfer_difference(a: Run | xr.DataTree, b: Run | xr.DataTree, value: str = "bytes") -> figure:
    """Draw the difference of the transfers between workers of two runs.

    Parameters
    ----------
    a, b : Run or DataTree
        Runs. Workers are matched by name; if no name is in both runs, as on clusters with unique
        names, they are matched by position.
    value : {"bytes", "bytes_compressed", "count", "seconds"}
        The value of a cell, B − A.

    Returns
    -------
    figure
        One cell per pair; a worker that is missing in a run counts as 0 there.
    """
    title = "Which workers sent more or less in B than in A?"
    data, workers = [], []
    for run, name in ((a, "A"), (b, "B")):
        transfers = _transfers(run)
        if transfers is None:
            return empty_figure(title, f"No transfers were recorded for {name}.")
        data.append(transfers)
        workers.append(_names(run, transfers))
    if not (set(workers[0]) & set(workers[1])) - {CLIENT}:
        workers = [_numbered(side) for side in workers]
    both = list(dict.fromkeys([*workers[0], *workers[1]]))
    both.sort(key=lambda name: name == CLIENT)  # last, as in each run
    shared, names = _rows(both)
    row_of = dict(zip(both, shared, strict=True))
    sides = [
        _cells(each, [row_of[name] for name in own], len(names))
        for own, each in zip(workers, data, strict=True)
    ]
    difference = {name: sides[1][name] - sides[0][name] for name in sides[0]}
    unit, _ = UNITS[value]
    total = float(np.nansum(difference[value]))
    sign = "+" if total > 0 else "−" if total else ""
    title = f"{title} ({sign}{_total_text(abs(total), unit)} in total)"
    cells = _to_units(difference, value)
    return Matrix(title, cells, unit, _DIFFERENCE_TIPS, names=names, signed=True).figure


def _transfers(run: Run | xr.DataTree) -> xr.Dataset | None:
    """Return the transfers of a run; None if no end of any transfer reported."""
    tree = to_tree(run)
    if "transfers" not in tree.children:
        return None
    data = Run(tree).transfers()
    n_workers = tree["workers"].sizes["worker"]
    silent = not data.sizes["pair"] and data.sizes["incomplete_report"] == n_workers
    return None if silent else data


def _names(run: Run | xr.DataTree, data: xr.Dataset) -> list[str]:
    """Return the names of the workers, and that of the clients if they fetched."""
    return [*worker_names(to_tree(run)), *([CLIENT] if _has_client(data) else [])]


def _has_client(data: xr.Dataset) -> bool:
    return bool((data["source"].values < 0).any() or (data["destination"].values < 0).any())


def _rows(names: list[str]) -> tuple[list[int], list[str]]:
    """Return the row of each name in the matrix, and the names of the rows.

    Neighbours share a row if there are many workers; the client has its own.
    """
    workers = [name for name in names if name != CLIENT]
    step = max(1, -(-len(workers) // MAX_ROWS))
    blocks = [workers[first : first + step] for first in range(0, len(workers), step)]
    rows = [place // step for place in range(len(workers))]
    labels = [block[0] if len(block) == 1 else f"{block[0]} to {block[-1]}" for block in blocks]
    if CLIENT in names:
        return [*rows, len(labels)], [*labels, CLIENT]
    return rows, labels


def _cells(data: xr.Dataset, rows: list[int], n_rows: int) -> dict[str, NDArray[np.float64]]:
    """Return sums by pair of rows, in which `rows` is the row of each worker, then the client.

    NaN if no worker of the pair reported. A row without workers has 0: they are in the other run.
    """
    places = np.array(rows, int)
    reported = np.ones(len(rows), bool)
    reported[data["incomplete"].values] = False
    if _has_client(data):
        reported[-1] = False
    known = np.ones(n_rows, bool)
    known[places] = False
    known[places[reported]] = True
    source, destination = (places[data[end].values] for end in ("source", "destination"))
    pair = source * n_rows + destination

    def sums(weights: NDArray[Any]) -> NDArray[np.float64]:
        flat = np.bincount(pair, weights.astype(float), n_rows**2).astype(float)
        return flat.reshape(n_rows, n_rows)

    cells = {}
    for name in UNITS:
        values = data[name].values.astype(float)
        finite = np.isfinite(values)
        # Only senders count the bytes on the wire.
        either = known[:, None] | (known & (name != "bytes_compressed"))
        unknown = (~either | (sums(~finite) > 0)) & (sums(finite) == 0)
        cells[name] = np.where(unknown, np.nan, sums(np.where(finite, values, 0.0)))
    return cells


def _to_units(cells: dict[str, NDArray[np.float64]], value: str) -> dict[str, NDArray[np.float64]]:
    """Return the values and tooltip columns of the cells of whole runs, in display units."""
    return {
        "value": cells[value] / UNITS[value][1],
        "count": cells["count"],
        "mib": cells["bytes"] / MIB,
        "wire": cells["bytes_compressed"] / MIB,
        "seconds": cells["seconds"],
    }


def _numbered(names: list[str]) -> list[str]:
    return [name if name == CLIENT else f"worker {place}" for place, name in enumerate(names)]


def _total_text(total: float, unit: str) -> str:
    if not unit.startswith("MiB"):
        return format_quantity(total, unit)
    return format_bytes(total) + unit.removeprefix("MiB")
