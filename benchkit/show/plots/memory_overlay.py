"""Figure of two runs: memory over time from the start of each run.

Input: two DataTrees; output: a Bokeh figure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from bokeh.models import ColumnDataSource, HoverTool
from bokeh.plotting import figure

from benchkit.formatting import GIB
from benchkit.show.plots.base import empty_figure, has, legend_beside, make_figure, part
from benchkit.show.theme import OTHER

__all__ = ["PAIR_COLOURS", "memory_overlay"]

#: Colours of the first and the second run in all figures of pairs.
PAIR_COLOURS = ("#4477aa", "#cc3311")


def memory_overlay(trees: Sequence[xr.DataTree], names: Sequence[str]) -> figure:
    """Draw the process memory of the clusters of two runs over time, from the start of each.

    Parameters
    ----------
    trees : sequence of DataTree
        The runs.
    names : sequence of str
        Names of the runs.

    Returns
    -------
    figure
        Time in s after clock on, memory in GiB; dashed: spilled to disk.
    """
    title = "How much memory did each take?"
    if not any(has(tree, "scheduler", "time") for tree in trees):
        return empty_figure(title)
    drawn = make_figure(title, "time since the start of each run (s)", "memory (GiB)")
    for tree, name, colour in zip(trees, names, PAIR_COLOURS, strict=True):
        if not has(tree, "scheduler", "time"):
            continue
        data = part(tree, "scheduler")
        spilled = np.nan_to_num(data["spilled"].values) / GIB
        source = ColumnDataSource(
            {
                "time": data["time"].values,
                "process": data["process"].values / GIB,
                "spilled": spilled,
            }
        )
        line = drawn.line(
            "time", "process", source=source, color=colour, width=2, legend_label=name
        )
        if spilled.any():
            drawn.line(
                "time", "spilled", source=source, color=colour, line_dash="dashed",
                legend_label=f"{name}, spilled",
            )  # fmt: skip
        tips = [("run", name), ("time", "@time{0.0} s"), ("memory", "@process{0.00} GiB")]
        tips += [("spilled", "@spilled{0.00} GiB")]
        drawn.add_tools(HoverTool(renderers=[line], tooltips=tips, mode="vline"))
        end = float(tree["duration"]) if "duration" in tree.data_vars else np.nan
        if np.isfinite(end):
            drawn.scatter(
                [end], [0.0], marker="triangle", size=11, color=colour, line_color=OTHER,
                legend_label=f"end of {name}",
            )  # fmt: skip
    drawn.y_range.start = 0
    legend_beside(drawn)
    return drawn
