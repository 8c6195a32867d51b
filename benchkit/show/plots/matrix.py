"""Heat map of pairs of workers: boxes for dozens of workers, an image for hundreds.

Input: arrays; output: a Bokeh figure, which can be updated with other numbers of the same pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
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
from bokeh.plotting import figure as Figure
from numpy.typing import NDArray

from benchkit.show.plots.base import INK, add_colour_bar, add_glyph, make_figure, retitle

__all__ = ["Matrix"]

#: Maximum number of workers with numbers in the cells.
MAX_NUMBERS = 16
#: Maximum number of workers with names on the axes; more are drawn as an image.
MAX_NAMES = 40
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
