"""Figures of one run over time and by task group: memory, load, thread-seconds.

Input: the DataTree of a run; output: a Bokeh figure.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from bokeh.models import ColumnDataSource, HoverTool, Line, NumeralTickFormatter
from bokeh.plotting import figure

from benchkit.formatting import GIB, MIB, short_group
from benchkit.show.plots.base import (
    add,
    add_limit,
    add_stack,
    empty_figure,
    has,
    legend_beside,
    make_figure,
    part,
    to_tree,
    worker_names,
)
from benchkit.show.plots.worker_heat import worker_heat
from benchkit.show.theme import ACTIVITY_COLOURS, MEMORY_COLOURS, OTHER, SERIES
from benchkit.store.run import Run

__all__ = [
    "memory_by_kind",
    "memory_by_worker",
    "scheduler_load",
    "task_group_bars",
    "worker_load",
]

#: Maximum number of task groups with a bar each; the other groups share one bar.
MOST_GROUPS = 12
#: Maximum number of workers with names in the legend.
MOST_NAMED_WORKERS = 8
#: The y axis includes a limit if the largest value is above the limit divided by this number.
FLATTEST = 5
#: Maximum number of workers drawn as lines; more lines cannot be distinguished.
MOST_LINES = 16


def memory_by_kind(run: Run | xr.DataTree, worker: int | None = None) -> figure:
    """Draw memory over time, stacked by kind, with its limit.

    Parameters
    ----------
    run : Run or DataTree
        A run.
    worker : int, optional
        Index of one worker; by default the whole cluster.

    Returns
    -------
    figure
        Time in s after clock on, memory in GiB.
    """
    tree = to_tree(run)
    title = "Where was the cluster's memory?"
    group, limit = "scheduler", float(tree.attrs.get("memory_limit") or 0) / GIB
    if worker is not None and has(tree, "workers", "time"):
        group = "workers"
    if not has(tree, group, "time"):
        return empty_figure(title)
    data = part(tree, group)
    if group == "workers":
        data = data.isel(worker=worker)
        title = f"Where was the memory of worker {data['name'].item()}?"
        limit = float(data["memory_limit"]) / GIB
        data = data.isel(time=np.flatnonzero(np.isfinite(data["process"].values)))
    drawn = make_figure(title, "time (s)", "memory (GiB)")
    kinds = [kind for kind in MEMORY_COLOURS if kind in data]
    columns = {kind: np.nan_to_num(data[kind].values) / GIB for kind in kinds}
    # Dask counts spilled data as managed, but it is on disk: stack it separately, on top.
    if {"managed", "spilled"} <= set(columns):
        columns["managed"] = np.maximum(columns["managed"] - columns["spilled"], 0.0)
    source = ColumnDataSource({"time": data["time"].values, **columns})
    colours = [MEMORY_COLOURS[kind] for kind in kinds]
    add_stack(drawn, source, kinds, colours, [_KINDS[kind] for kind in kinds])
    if limit and data.sizes["time"]:
        span = [float(data["time"].min()), float(data["time"].max())]
        line = Line(x="time", y="limit", line_color=OTHER, line_dash="dashed")
        add(drawn, line, {"time": span, "limit": [limit, limit]}, legend="limit")
    tips = [("time", "@time{0.0} s")]
    tips += [(_KINDS[kind], f"@{kind}{{0.00}} GiB") for kind in reversed(kinds)]
    unseen = add(drawn, Line(x="time", y=kinds[0], line_alpha=0), source)
    drawn.add_tools(HoverTool(renderers=[unseen], tooltips=tips, mode="vline"))
    drawn.y_range.start = 0
    legend_beside(drawn)
    return drawn


_KINDS = {
    "managed": "task results",
    "unmanaged_old": "unmanaged, old",
    "unmanaged_recent": "unmanaged, recent",
    "spilled": "spilled to disk",
}


def memory_by_worker(run: Run | xr.DataTree) -> figure:
    """Draw the process memory of each worker over time, with the limit of one worker.

    Parameters
    ----------
    run : Run or DataTree
        A run.

    Returns
    -------
    figure
        Time in s after clock on, memory in GiB; one line per worker, or, with many workers, one
        row of colours per worker (`worker_heat`).
    """
    tree = to_tree(run)
    title = "How was memory spread over the workers?"
    if not has(tree, "workers", "time"):
        return empty_figure(title)
    if tree["workers"].sizes["worker"] > MOST_LINES:
        return worker_heat(tree)
    drawn = _lines(tree, title, "memory (GiB)", "process", 1 / GIB)
    limits = part(tree, "workers")["memory_limit"].values
    add_limit(drawn, np.unique(limits[limits > 0])[:3] / GIB, "limit of a worker")
    drawn.y_range.start = 0
    _show_limit(drawn, float(limits.max(initial=0)) / GIB, _highest(tree) / GIB)
    if drawn.legend:
        legend_beside(drawn)
    return drawn


def _highest(tree: xr.DataTree) -> float:
    """Return the highest memory of any worker, in B."""
    return float(np.nanmax(part(tree, "workers")["process"].values, initial=0))


def _show_limit(drawn: Any, limit: float, highest: float) -> None:
    """Extend the y axis to a limit, unless the values would be too low in the figure to read."""
    if limit / FLATTEST < highest <= limit:
        drawn.y_range.end = 1.05 * limit


def _most_threads(data: xr.Dataset) -> int:
    """Return the maximum number of threads at the same time: workers may replace others."""
    joined = np.nan_to_num(data["joined"].values, nan=-np.inf)
    left = np.nan_to_num(data["left"].values, nan=np.inf)
    here = (joined <= joined[:, None]) & (left > joined[:, None])
    return int((here * data["nthreads"].values).sum(axis=1).max(initial=0))


def worker_load(run: Run | xr.DataTree) -> list[figure]:
    """Draw CPU, network and disk over time, summed over the workers.

    Parameters
    ----------
    run : Run or DataTree
        A run.

    Returns
    -------
    list of figure
        CPU in % of one core; received and sent, and read and written, in MiB/s.
    """
    tree = to_tree(run)
    titles = ("How busy were the CPUs?", "What went over the network?", "What went to the disks?")
    if not has(tree, "workers", "time"):
        return [empty_figure(title) for title in titles]
    data = part(tree, "workers")
    n_threads = _most_threads(data)
    cpu = _sums(data, titles[0], "CPU (% of a core)", {"cpu": "all workers"}, 1.0)
    if cpu.legend:
        add_limit(cpu, [100 * n_threads], "all threads")
    _show_limit(cpu, 100.0 * n_threads, float(data["cpu"].sum("worker").values.max(initial=0)))
    network = {"net_read": "received", "net_write": "sent"}
    disk = {"disk_read": "read", "disk_write": "written"}
    return [
        cpu,
        _sums(data, titles[1], "network (MiB/s)", network, 1 / MIB),
        _sums(data, titles[2], "disks (MiB/s)", disk, 1 / MIB),
    ]


def _sums(data: xr.Dataset, title: str, label: str, names: dict[str, str], factor: float) -> Any:
    known = [name for name in names if name in data and np.isfinite(data[name].values).any()]
    if not known:
        return empty_figure(title)
    columns: dict[str, Any] = {"time": data["time"].values}
    for name in known:
        values = data[name]
        # All workers of a host report the same counters: take the mean per host, then the sum.
        if name.startswith(("net_", "disk_")):
            values = values.groupby("host").mean("worker", skipna=True)
            columns[name] = values.sum("host", min_count=1).values * factor
        else:
            columns[name] = values.sum("worker", min_count=1).values * factor
    drawn = make_figure(title, "time (s)", label, height=200)
    source = ColumnDataSource(columns)
    for name, colour in zip(known, SERIES, strict=False):
        line = Line(x="time", y=name, line_color=colour, line_width=1.6)
        add(drawn, line, source, legend=names[name])
    tips = [("time", "@time{0.0} s")]
    unit = label.partition("(")[2].rstrip(")")
    tips += [(names[name], f"@{name}{{0,0.0}} {unit}".rstrip()) for name in known]
    drawn.add_tools(HoverTool(renderers=drawn.renderers[:1], tooltips=tips, mode="vline"))
    drawn.y_range.start = 0
    legend_beside(drawn)
    return drawn


def _lines(tree: xr.DataTree, title: str, label: str, name: str, factor: float) -> Any:
    data = part(tree, "workers")
    drawn = make_figure(title, "time (s)", label)
    time, values = data["time"].values, data[name].values * factor
    names = worker_names(tree)
    few = len(names) <= MOST_NAMED_WORKERS
    for index, worker in enumerate(names):
        known = np.isfinite(values[:, index])
        line = Line(
            x="time",
            y="value",
            line_color=SERIES[index % len(SERIES)],
            line_width=1.6 if few else 1.0,
            line_alpha=0.9 if few else 0.5,
        )
        columns = {"time": time[known], "value": values[known, index]}
        add(drawn, line, columns, legend=f"worker {worker}" if few else "", name=worker)
    what, _, unit = label.partition(" (")
    tips = [("worker", "$name"), ("time", "$x{0.0} s"), (what, f"$y{{0.00}} {unit.rstrip(')')}")]
    drawn.add_tools(HoverTool(tooltips=tips))
    return drawn


def scheduler_load(run: Run | xr.DataTree) -> list[figure]:
    """Draw the CPU, the event loop delay and the number of tasks of the scheduler over time.

    Parameters
    ----------
    run : Run or DataTree
        A run.

    Returns
    -------
    list of figure
        CPU in %, delay in ms, tasks and workers as counts, over time in s.
    """
    tree = to_tree(run)
    titles = (
        "How busy was the scheduler?",
        "How late was the scheduler's event loop?",
        "How many tasks did the scheduler hold?",
    )
    if not has(tree, "scheduler", "time"):
        return [empty_figure(title) for title in titles]
    data = part(tree, "scheduler").expand_dims(worker=1, axis=1)
    return [
        _sums(data, titles[0], "CPU (% of a core)", {"cpu": "scheduler"}, 1.0),
        _sums(data, titles[1], "delay (ms)", {"lag_max": "longest", "lag_mean": "mean"}, 1e3),
        _sums(data, titles[2], "tasks", {"n_tasks": "known", "queued": "queued"}, 1.0),
    ]


def task_group_bars(run: Run | xr.DataTree) -> figure:
    """Draw thread-seconds by task group and activity, the busiest group on top.

    Parameters
    ----------
    run : Run or DataTree
        A run.

    Returns
    -------
    figure
        Thread-seconds by group.
    """
    tree = to_tree(run)
    title = "In which task groups were threads busy?"
    if not has(tree, "task_groups", "task_group"):
        return empty_figure(title)
    data = part(tree, "task_groups")
    seconds = np.nan_to_num(data["seconds"].transpose("task_group", "action").values)
    order = np.argsort(-seconds.sum(axis=1), kind="stable")
    shown, rest = order[:MOST_GROUPS], order[MOST_GROUPS:]
    names = [str(name) for name in data["task_group"].values[shown]]
    rows = seconds[shown]
    if len(rest):
        names.append(f"{len(rest)} other groups")
        rows = np.vstack([rows, seconds[rest].sum(axis=0)])
    labels = [short_group(name) for name in names]
    labels = [name if len(name) <= 36 else f"{name[:17]}…{name[-18:]}" for name in labels]
    # Factors must be distinct: zero-width spaces distinguish names that differed in the hash only.
    labels = [label + "\u200b" * index for index, label in enumerate(labels)]
    actions = [str(action) for action in data["action"].values]
    columns = {action: rows[:, index] for index, action in enumerate(actions)}
    source = ColumnDataSource({"label": labels, "name": names, **columns})
    drawn = make_figure(
        title,
        "thread-seconds (s)",
        "task group",
        y_range=labels[::-1],
        height=max(170, 95 + 24 * len(labels)),
        tools="save",
    )
    used = [action for index, action in enumerate(actions) if rows[:, index].any()]
    for renderer in drawn.hbar_stack(
        used,
        y="label",
        height=0.78,
        source=source,
        color=[ACTIVITY_COLOURS.get(action, OTHER) for action in used],
        **({"legend_label": used} if used else {}),
    ):
        tips = [("group", "@name"), (renderer.name, f"@{{{renderer.name}}}{{0.000}} s")]
        drawn.add_tools(HoverTool(renderers=[renderer], tooltips=tips))
    if used:
        legend_beside(drawn)
    drawn.xaxis.formatter = NumeralTickFormatter(format="0.[00]")
    drawn.ygrid.grid_line_color = None
    drawn.x_range.start = 0
    return drawn
