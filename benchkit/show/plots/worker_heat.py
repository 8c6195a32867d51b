"""Heat map of a variable of each worker over time: one row per worker, values as colours.

Input: a run; output: a Bokeh figure.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from bokeh.models import CustomJSHover, FixedTicker, Image, LinearColorMapper, Quad
from bokeh.plotting import figure

from benchkit.formatting import GIB
from benchkit.show.plots.base import (
    INK,
    add_colour_bar,
    add_glyph,
    empty_figure,
    make_figure,
    read_group,
    to_tree,
)
from benchkit.store.build.processes import share_processes
from benchkit.store.run import Run, worker_names

__all__ = ["process_note", "worker_heat"]

#: Variable -> title, name of the value, unit, divisor, number format of the tooltip.
_KINDS = {
    "process": ("How was memory spread over the workers?", "memory", "GiB", GIB, "0.00"),
    "cpu": ("How busy was each worker?", "CPU", "% of a core", 1.0, "0"),
    "executing": ("How many tasks ran on each worker?", "tasks running", "1", 1.0, "0"),
}
#: From transparent to opaque, so that low values show the page background in both themes.
_PALETTE = tuple(f"#3d85c6{alpha:02x}" for alpha in range(256))
#: Maximum number of columns of the image.
MAX_COLUMNS = 400
#: Maximum number of workers with names on the axis.
MAX_NAMES = 40


def worker_heat(run: Run | xr.DataTree, name: str = "process") -> figure:
    """Draw a variable of each worker over time as colours, for up to hundreds of workers.

    Parameters
    ----------
    run : Run or DataTree
        A run.
    name : {"process", "cpu", "executing"}
        Process memory in GiB, CPU in % of a core, or the number of executing tasks.

    Returns
    -------
    figure
        Time in s after clock on, one row per worker in order of arrival. Memory ranges from 0 to
        the largest limit. Hatched: the worker was absent or had not yet reported a value.
    """
    title, label, unit, divisor, number_format = _KINDS[name]
    data = read_group(run, "workers", "time")
    if data is None:
        return empty_figure(title)
    names = worker_names(to_tree(run))
    if name != "executing":
        title += process_note(data)
    grid, begin, end = _grid(data, name)
    grid = grid / divisor
    most = float(np.nanmax(grid, initial=0.0))
    if name == "process":
        most = max(most, float(np.nanmax(data["memory_limit"].values, initial=0.0)) / divisor)
    count = len(names)
    fig = make_figure(
        title, "time (s)", "worker", y_range=(0, count), x_range=(begin, end),
        height=int(np.clip(120 + 18 * count, 200, 560)),
    )  # fmt: skip
    gaps = Quad(
        left="left", right="right", top="top", bottom="bottom", fill_alpha=0, line_color=None,
        hatch_pattern="right_diagonal_line", hatch_color=INK, hatch_alpha=0.4,
    )  # fmt: skip
    add_glyph(fig, gaps, _gaps(grid, begin, end))
    mapper = LinearColorMapper(
        palette=_PALETTE, low=0.0, high=most or 1.0, nan_color="rgba(0, 0, 0, 0)"
    )
    image = Image(image="value", x="x", y="y", dw="dw", dh="dh", color_mapper=mapper)
    index = np.repeat(np.arange(count, dtype="f8")[:, None], grid.shape[1], axis=1)
    columns = {
        "value": [grid[::-1].astype("f4")], "worker": [index[::-1]], "x": [begin], "y": [0.0],
        "dw": [end - begin], "dh": [float(count)],
    }  # fmt: skip
    heights = [count - i - 0.5 for i in range(count)]  # the first worker at the top
    fig.yaxis.ticker = FixedTicker(ticks=heights)
    fig.yaxis.major_label_overrides = dict(zip(heights, names, strict=True))
    if count > MAX_NAMES:
        fig.yaxis.major_label_text_font_size = "0px"
        fig.yaxis.major_tick_line_color = None
        fig.yaxis.axis_label = f"{count} workers"
    fig.ygrid.visible = False
    tips = [
        ("worker", "@worker{custom}"),
        ("time", "$x{0.0} s"),
        (label, f"@value{{{number_format}}} {unit}"),
    ]
    name_of = CustomJSHover(args={"names": names}, code="return names[Math.round(value)]")
    add_glyph(fig, image, columns, tips=tips, hover={"formatters": {"@worker": name_of}})
    add_colour_bar(fig, mapper, unit)
    return fig


def process_note(workers: xr.Dataset) -> str:
    """Return the end of a title: the values of a worker are those of its process."""
    if not share_processes(workers):
        return ""
    return " (values of the process that workers share)"


def _grid(data: xr.Dataset, name: str) -> tuple[np.ndarray, float, float]:
    """Return the last reported value of each worker at evenly spaced times, and the time range.

    Rows are workers; NaN before the first value of a worker and after it left.
    """
    time, values = data["time"].values, data[name].values
    begin, end = float(time.min()), float(time.max())
    end = end if end > begin else begin + 1.0
    n_columns = int(np.clip(len(time), 1, MAX_COLUMNS))
    edges = np.linspace(begin, end, n_columns + 1)[1:]  # a column shows the value at its end
    left = np.nan_to_num(data["left"].values, nan=np.inf)
    grid = np.full((values.shape[1], n_columns), np.nan)
    for worker in range(values.shape[1]):
        reported = np.flatnonzero(np.isfinite(values[:, worker]))
        if not len(reported):
            continue
        last = np.searchsorted(time[reported], edges, side="right") - 1
        present = (last >= 0) & (edges <= max(left[worker], float(time[reported[-1]])))
        grid[worker, present] = values[reported[last[present]], worker]
    return grid, begin, end


def _gaps(grid: np.ndarray, begin: float, end: float) -> dict[str, list[float]]:
    """Return the sides of rectangles that cover the times without data, per worker."""
    count, n_columns = grid.shape
    sides: dict[str, list[float]] = {"left": [], "right": [], "top": [], "bottom": []}
    for worker, is_gap in enumerate(np.isnan(grid)):
        changes = np.flatnonzero(np.diff(np.concatenate([[0], is_gap.astype("i1"), [0]])))
        for first, stop in changes.reshape(-1, 2):
            sides["left"].append(begin + (end - begin) * first / n_columns)
            sides["right"].append(begin + (end - begin) * stop / n_columns)
            sides["top"].append(count - worker)
            sides["bottom"].append(count - worker - 1.0)
    return sides
