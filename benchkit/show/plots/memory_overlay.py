"""Figure of two runs: memory over time from the start of each run.

Input: two runs; output: a Bokeh figure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from bokeh.models import ColumnDataSource, DataRange1d, Line, Scatter
from bokeh.plotting import figure

from benchkit.formatting import GIB
from benchkit.show.plots.base import (
    add_glyph,
    empty_figure,
    make_figure,
    place_legend,
    read_group,
    to_tree,
)
from benchkit.show.theme import OTHER
from benchkit.store.run import Run

__all__ = ["PAIR_COLOURS", "memory_overlay"]

#: Colours of the first and the second run in all figures of pairs.
PAIR_COLOURS = ("#4477aa", "#cc3311")


def memory_overlay(runs: Sequence[Run | xr.DataTree], names: Sequence[str]) -> figure:
    """Draw the process memory of the clusters of two runs over time, from the start of each.

    Parameters
    ----------
    runs : sequence of Run or DataTree
        The runs.
    names : sequence of str
        Names of the runs.

    Returns
    -------
    figure
        Time in s after clock on, memory in GiB; dashed: spilled to disk.
    """
    title = "How much memory did each run use?"
    groups = [read_group(run, "scheduler", "time") for run in runs]
    if all(data is None for data in groups):
        return empty_figure(title)
    fig = make_figure(
        title, "time since the start of each run (s)", "memory (GiB)", y_range=DataRange1d(start=0)
    )
    for run, data, name, colour in zip(runs, groups, names, PAIR_COLOURS, strict=True):
        if data is None:
            continue
        spilled = np.nan_to_num(data["spilled"].values) / GIB
        columns = {"time": data["time"].values, "process": data["process"].values / GIB}
        source = ColumnDataSource({**columns, "spilled": spilled})
        tips = [("run", name), ("time", "@time{0.0} s"), ("memory", "@process{0.00} GiB")]
        tips += [("spilled", "@spilled{0.00} GiB")]
        line = Line(x="time", y="process", line_color=colour, line_width=2)
        add_glyph(fig, line, source, legend=name, tips=tips, hover={"mode": "vline"})
        if spilled.any():
            dashes = Line(x="time", y="spilled", line_color=colour, line_dash="dashed")
            add_glyph(fig, dashes, source, legend=f"{name}, spilled")
        tree = to_tree(run)
        end = float(tree["duration"]) if "duration" in tree.data_vars else np.nan
        if np.isfinite(end):
            mark = Scatter(marker="triangle", size=11, fill_color=colour, line_color=OTHER)
            add_glyph(fig, mark, {"x": [end], "y": [0.0]}, legend=f"end of {name}")
    place_legend(fig)
    return fig
