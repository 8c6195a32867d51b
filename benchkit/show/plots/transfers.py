"""The matrix of transfers: who sent how much to whom.

A run's DataTree in, a Bokeh figure out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from bokeh.models import (
    ColumnDataSource,
    CustomJSHover,
    FixedTicker,
    HoverTool,
    LinearColorMapper,
    Range1d,
)
from bokeh.models.annotations import ColorBar

from benchkit.show.plots.base import INK, has, make_figure, nothing, part, worker_names
from benchkit.store.text import format_bytes, format_quantity

__all__ = ["transfer_matrix"]

MIB = 2**20
#: More workers than this have no room for numbers in their cells, for names beside them (they are
#: drawn as a picture then), or for level names below.
MOST_NUMBERS, MOST_NAMES, MOST_LEVEL = 16, 40, 8
#: From almost the ground of the page, by day and by night; what is not known is that ground.
_PALETTE = tuple(f"#3d85c6{alpha:02x}" for alpha in range(24, 256))


def transfer_matrix(tree: xr.DataTree, value: str = "bytes") -> Any:
    """Draw transfers of task results, senders down, receivers across.

    Parameters
    ----------
    tree : DataTree
        A run.
    value : {"bytes", "bytes_compressed", "count", "seconds"}
        What a cell shows.

    Returns
    -------
    figure
        A cell a pair. Hatched, among hundreds of workers blank: neither end was there to tell.
    """
    title = "Who sent how much to whom?"
    if not has(tree, "transfers", "source"):
        return nothing(title)
    data = part(tree, "transfers")
    names = _names(tree, data["source"].values)
    cells = data[value].values.astype(float)
    unit, divisor = {
        "bytes": ("MiB", MIB), "bytes_compressed": ("MiB on the wire", MIB),
        "count": ("transfers", 1), "seconds": ("s", 1),
    }[value]  # fmt: skip
    shown = cells / divisor
    told = f"{title} ({_in_all(float(np.nansum(cells)), unit)} in all)"
    most = max(float(np.nanmax(shown, initial=0)), 1e-9)
    mapper = LinearColorMapper(palette=_PALETTE, low=0, high=most, nan_color=(0, 0, 0, 0))
    draw = _cells if len(names) <= MOST_NAMES else _picture
    drawn = draw(data, names, shown, mapper, told)
    bar = ColorBar(color_mapper=mapper, title=unit, title_text_color=INK, width=10)
    bar.major_label_text_color, bar.background_fill_alpha = INK, 0.0
    drawn.add_layout(bar, "right")
    return drawn


def _cells(
    data: xr.Dataset, names: list[str], values: np.ndarray, mapper: LinearColorMapper, title: str
) -> Any:
    """Draw a box a pair, with its number where there is room."""
    rows, columns = (grid.ravel() for grid in np.indices(values.shape))
    shown = values.ravel()
    known = np.isfinite(shown)
    drawn = make_figure(
        title,
        "receiver",
        "sender",
        x_range=names,
        y_range=names[::-1],
        height=int(np.clip(140 + 26 * len(names), 220, 640)),
        tools="save",
    )
    source = ColumnDataSource(
        {
            "source": [names[row] for row in rows],
            "destination": [names[column] for column in columns],
            "value": shown,
            "text": [_short(number) for number in np.nan_to_num(shown)],
            "count": data["count"].values.ravel(),
            "mib": data["bytes"].values.ravel() / MIB,
            "wire": data["bytes_compressed"].values.ravel() / MIB,
            "seconds": data["seconds"].values.ravel(),
            "alpha": np.where(known, 0.9, 0.0),
        },
        name="pairs",
    )
    boxes = drawn.rect(
        "destination", "source", 0.96, 0.94, source=source, line_color=None,
        fill_color={"field": "value", "transform": mapper}, fill_alpha="alpha",
    )  # fmt: skip
    if not known.all():
        drawn.rect(
            [names[i] for i in columns[~known]], [names[i] for i in rows[~known]], 0.96, 0.94,
            line_color=None, fill_alpha=0, hatch_pattern="right_diagonal_line", hatch_color=INK,
            hatch_alpha=0.4,
        )  # fmt: skip
    if len(names) <= MOST_NUMBERS:
        chosen = np.flatnonzero(known & (shown > 0)).tolist()
        drawn.text(
            [source.data["destination"][i] for i in chosen],
            [source.data["source"][i] for i in chosen],
            [source.data["text"][i] for i in chosen],
            text_align="center", text_baseline="middle", text_font_size="11px",
            # Of its own ground: no ink is read on all the blues, by day and by night.
            text_color="#1c2530", background_fill_color="#eef2f6", background_fill_alpha=0.85,
            padding=2, border_radius=3,
        )  # fmt: skip
    if len(names) > MOST_LEVEL:
        drawn.xaxis.major_label_orientation = 0.7
    tips = [
        ("from", "@source"), ("to", "@destination"), ("transfers", "@count{0,0}"),
        ("bytes", "@mib{0,0.0} MiB, @wire{0,0.0} on the wire"), ("took", "@seconds{0.00} s"),
    ]  # fmt: skip
    drawn.add_tools(HoverTool(renderers=[boxes], tooltips=tips))
    return drawn


def _picture(
    data: xr.Dataset, names: list[str], values: np.ndarray, mapper: LinearColorMapper, title: str
) -> Any:
    """Draw a dot a pair: hundreds of workers have a hundred thousand pairs."""
    count = len(names)
    drawn = make_figure(
        f"{title}, {count} senders and receivers",
        "receiver",
        "sender",
        x_range=Range1d(start=0, end=count, bounds=(0, count)),
        y_range=Range1d(start=count, end=0, bounds=(0, count)),
        height=640,
        tools="box_zoom,wheel_zoom,reset,save",
    )
    each = {
        "value": values,
        "count": data["count"].values,
        "mib": data["bytes"].values / MIB,
        "wire": data["bytes_compressed"].values / MIB,
        "seconds": data["seconds"].values,
    }
    source = ColumnDataSource(
        {name: [array.astype("f4")] for name, array in each.items()}, name="pairs"
    )
    picture = drawn.image("value", x=0, y=0, dw=count, dh=count, source=source, color_mapper=mapper)
    drawn.xaxis.ticker = drawn.yaxis.ticker = FixedTicker(ticks=[])
    drawn.grid.visible = False
    name = CustomJSHover(args={"names": names}, code=_NAME)
    tips = [
        ("from", "$y{custom}"), ("to", "$x{custom}"), ("transfers", "@count{0,0}"),
        ("bytes", "@mib{0,0.0} MiB, @wire{0,0.0} on the wire"), ("took", "@seconds{0.00} s"),
    ]  # fmt: skip
    drawn.add_tools(
        HoverTool(renderers=[picture], tooltips=tips, formatters={"$x": name, "$y": name})
    )
    return drawn


#: Rows of the matrix lie as they are counted: the axis of senders begins at the top.
_NAME = "return names[Math.min(names.length - 1, Math.max(0, Math.floor(value)))]"


def _in_all(total: float, unit: str) -> str:
    if not unit.startswith("MiB"):
        return format_quantity(total, unit)
    return format_bytes(total) + unit.removeprefix("MiB")


def _short(number: float) -> str:
    return "" if not number else "< 0.01" if number < 0.01 else f"{number:,.3g}"


def _names(tree: xr.DataTree, indices: np.ndarray) -> list[str]:
    """Return what workers are called; -1 is whoever is none."""
    known = worker_names(tree)
    return ["client" if i < 0 else known[i] if i < len(known) else str(i) for i in indices]
