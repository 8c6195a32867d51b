"""Figures of one run: memory by kind, task groups by activity, the stream of tasks.

A run's DataTree in, a Bokeh figure out. Every figure has a title, units on both axes, and a name
for those who do not see it.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import xarray as xr
from bokeh.models import ColumnDataSource, HoverTool, NumeralTickFormatter
from bokeh.plotting import figure

from benchkit.show.theme import ACTIVITY_COLOURS, MEMORY_COLOURS, group_colour

__all__ = ["memory_by_kind", "task_group_bars", "task_stream"]

GIB = 2**30
#: More task groups than this are too many bars to read; the rest is one bar.
MOST_GROUPS = 12
#: Beyond this many rectangles a browser is slow; the longest are drawn, and the title says so.
MOST_TASKS = 20_000


def _group(tree: xr.DataTree, name: str) -> xr.Dataset:
    node: Any = tree[name]
    return node.to_dataset()


def _figure(title: str, x: str, y: str, **options: Any) -> Any:
    look: dict[str, Any] = {
        "height": 300,
        "sizing_mode": "stretch_width",
        "toolbar_location": "above",
        **options,
    }
    drawn = figure(
        title=title,
        x_axis_label=x,
        y_axis_label=y,
        tools="xpan,xwheel_zoom,box_zoom,reset,save",
        html_attributes={"role": "img", "aria-label": title},
        **look,
    )
    drawn.toolbar.logo = None
    return drawn


def _nothing(title: str) -> Any:
    """Return a figure that says that there is nothing to draw: missing is never drawn as 0."""
    drawn = figure(
        title=title,
        height=90,
        sizing_mode="stretch_width",
        toolbar_location=None,
        tools="",
        x_range=(0, 1),
        y_range=(0, 1),
        html_attributes={"role": "img", "aria-label": f"{title} Nothing was recorded."},
    )
    drawn.axis.visible = drawn.grid.visible = False
    drawn.text([0.01], [0.5], ["Nothing was recorded."], text_baseline="middle", color="#888888")
    return drawn


def _has(tree: xr.DataTree, group: str, dim: str) -> bool:
    return group in tree.children and bool(tree[group].sizes.get(dim))


def memory_by_kind(tree: xr.DataTree) -> Any:
    """Draw the cluster's memory over time, stacked by kind, under its limit.

    Parameters
    ----------
    tree : DataTree
        A run with the group ``scheduler``.

    Returns
    -------
    figure
        Time in s after clock on, memory in GiB.
    """
    if not _has(tree, "scheduler", "time"):
        return _nothing("Where was the cluster's memory?")
    data = _group(tree, "scheduler")
    drawn = _figure("Where was the cluster's memory?", "time (s)", "memory (GiB)")
    kinds = [kind for kind in MEMORY_COLOURS if kind in data]
    columns = {kind: np.nan_to_num(data[kind].values) / GIB for kind in kinds}
    # Spilled data is counted as managed by Dask but lies on disk: it is stacked on top, apart.
    if {"managed", "spilled"} <= set(columns):
        columns["managed"] = np.maximum(columns["managed"] - columns["spilled"], 0.0)
    source = ColumnDataSource({"time": data["time"].values, **columns})
    drawn.varea_stack(
        kinds,
        x="time",
        source=source,
        color=[MEMORY_COLOURS[kind] for kind in kinds],
        legend_label=[kind.replace("_", " ") for kind in kinds],
        alpha=0.85,
    )
    limit = float(tree.attrs.get("memory_limit") or 0) / GIB
    if limit:
        drawn.line(
            [float(data["time"].min()), float(data["time"].max())],
            [limit, limit],
            color="#888888",
            line_dash="dashed",
            legend_label="limit of all workers",
        )
    drawn.legend.location = "top_left"
    drawn.legend.background_fill_alpha = 0.6
    return drawn


def task_group_bars(tree: xr.DataTree) -> Any:
    """Draw thread-seconds by task group and activity, the busiest group on top.

    Parameters
    ----------
    tree : DataTree
        A run with the group ``task_groups``.

    Returns
    -------
    figure
        Thread-seconds by group.
    """
    if not _has(tree, "task_groups", "task_group"):
        return _nothing("In which task groups were threads busy?")
    data = _group(tree, "task_groups")
    seconds = data["seconds"].transpose("task_group", "action").values
    order = np.argsort(-seconds.sum(axis=1), kind="stable")
    shown, rest = order[:MOST_GROUPS], order[MOST_GROUPS:]
    names = [str(name) for name in data["task_group"].values[shown]]
    rows = seconds[shown]
    if len(rest):
        names.append(f"{len(rest)} other groups")
        rows = np.vstack([rows, seconds[rest].sum(axis=0)])
    labels = [re.sub(r"-[0-9a-f]{16,}$", "", name) for name in names]
    labels = [name if len(name) <= 40 else f"{name[:18]} … {name[-18:]}" for name in labels]
    # A factor must be distinct: a space of no width tells apart what the hash did.
    labels = [label + "\u200b" * index for index, label in enumerate(labels)]
    actions = [str(action) for action in data["action"].values]
    source = ColumnDataSource(
        {
            "label": labels,
            "name": names,
            **{action: rows[:, index] for index, action in enumerate(actions)},
        }
    )
    drawn = _figure(
        "In which task groups were threads busy?",
        "thread-seconds (s)",
        "task group",
        y_range=labels[::-1],
        height=max(160, 90 + 26 * len(labels)),
    )
    used = [action for index, action in enumerate(actions) if rows[:, index].any()]
    for renderer in drawn.hbar_stack(
        used,
        y="label",
        height=0.8,
        source=source,
        color=[ACTIVITY_COLOURS[action] for action in used],
        legend_label=used,
    ):
        tips = [("group", "@name"), (renderer.name, f"@{{{renderer.name}}}{{0.000}} s")]
        drawn.add_tools(HoverTool(renderers=[renderer], tooltips=tips))
    if used:
        drawn.legend.location = "bottom_right"
    drawn.xaxis.formatter = NumeralTickFormatter(format="0.[00]")
    drawn.x_range.start = 0
    return drawn


def task_stream(tree: xr.DataTree) -> Any:
    """Draw each task as a bar on the lane of its thread, coloured by its group.

    Parameters
    ----------
    tree : DataTree
        A run with the group ``tasks``.

    Returns
    -------
    figure
        Time in s after clock on, one lane a worker thread.
    """
    if not _has(tree, "tasks", "task"):
        return _nothing("What did each thread do?")
    tasks = _group(tree, "tasks")
    groups = _group(tree, "task_groups")["task_group"].values
    start, duration = tasks["start"].values, tasks["duration"].values
    known = np.flatnonzero(np.isfinite(start) & np.isfinite(duration))
    shown = known[np.argsort(-duration[known], kind="stable")[:MOST_TASKS]]
    title = f"What did each thread do? ({len(known):,} tasks)".replace(",", " ")
    if len(shown) < len(known):
        title = f"What did each thread do? (the longest {len(shown)} of {len(known)} tasks)"
    index = tasks["group"].values[shown]
    colours: Any = np.array([group_colour(str(name)) for name in groups], dtype=object)
    names: Any = np.array([str(name) for name in groups], dtype=object)
    source = ColumnDataSource(
        {
            "left": start[shown],
            "right": start[shown] + duration[shown],
            "lane": tasks["thread"].values[shown],
            "top": tasks["thread"].values[shown] + 0.4,
            "bottom": tasks["thread"].values[shown] - 0.4,
            "group": names[index],
            "colour": colours[index],
            "ms": duration[shown] * 1e3,
        }
    )
    drawn = _figure(title, "time (s)", "thread")
    drawn.quad(
        left="left",
        right="right",
        top="top",
        bottom="bottom",
        color="colour",
        line_color=None,
        source=source,
    )
    tips = [("group", "@group"), ("start", "@left{0.000} s"), ("duration", "@ms{0.0} ms")]
    drawn.add_tools(HoverTool(tooltips=tips))
    lanes = np.unique(tasks["thread"].values[known])
    if len(lanes) <= 20:
        drawn.yaxis.ticker = lanes.tolist()
    return drawn
