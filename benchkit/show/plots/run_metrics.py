"""Figures of runs over time, by worker and by task group: memory, load, thread-seconds.

Input: a run, or two for the overlay of their memory; output: a Bokeh figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from bokeh.models import (
    ColumnDataSource,
    CustomJSHover,
    DataRange1d,
    FixedTicker,
    HoverTool,
    Image,
    Line,
    LinearColorMapper,
    NumeralTickFormatter,
    Quad,
    Scatter,
)
from bokeh.plotting import figure

from benchkit.formatting import GIB, MIB, short_names
from benchkit.show.plots.base import (
    INK,
    add_colour_bar,
    add_glyph,
    add_limit,
    add_stack,
    empty_figure,
    make_figure,
    place_legend,
    read_group,
    row_labels,
    to_tree,
)
from benchkit.show.theme import ACTIVITY_COLOURS, MEMORY_COLOURS, OTHER, SERIES
from benchkit.store.build.processes import process_ids, share_processes
from benchkit.store.run import Run, worker_names

#: Variable -> title, name of the value, unit, divisor, number format of the tooltip.
_HEAT_KINDS = {
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
    title, label, unit, divisor, number_format = _HEAT_KINDS[name]
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


#: Maximum number of task groups with a bar each; the other groups share one bar.
MAX_GROUPS = 12
#: Maximum number of workers with names in the legend.
MAX_NAMED_WORKERS = 8
#: The y axis includes a limit if the largest value is above the limit divided by this number.
MAX_LIMIT_RATIO = 5
#: Maximum number of workers drawn as lines; more lines cannot be distinguished.
MAX_LINES = 16
#: Colours of the first and the second run in all figures of pairs.
PAIR_COLOURS = ("#4477aa", "#cc3311")


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
    title = "Where was the cluster's memory?"
    limit = float(to_tree(run).attrs.get("memory_limit") or 0) / GIB
    data = read_group(run, "scheduler", "time")
    workers = read_group(run, "workers", "time") if worker is not None else None
    if workers is not None:
        data = workers.isel(worker=worker)
        title = f"Where was the memory of worker {data['name'].item()}?{process_note(workers)}"
        limit = float(data["memory_limit"]) / GIB
        data = data.isel(time=np.flatnonzero(np.isfinite(data["process"].values)))
    if data is None:
        return empty_figure(title)
    fig = make_figure(title, "time (s)", "memory (GiB)", y_range=DataRange1d(start=0))
    kinds = [kind for kind in MEMORY_COLOURS if kind in data]
    columns = {kind: np.nan_to_num(data[kind].values) / GIB for kind in kinds}
    # Dask counts spilled data as managed, but it is on disk: stack it separately, on top.
    if {"managed", "spilled"} <= set(columns):
        columns["managed"] = np.maximum(columns["managed"] - columns["spilled"], 0.0)
    source = ColumnDataSource({"time": data["time"].values, **columns})
    colours = [MEMORY_COLOURS[kind] for kind in kinds]
    add_stack(fig, source, kinds, colours, [_KINDS[kind] for kind in kinds])
    if limit and data.sizes["time"]:
        span = [float(data["time"].values.min()), float(data["time"].values.max())]
        line = Line(x="time", y="limit", line_color=OTHER, line_dash="dashed")
        add_glyph(fig, line, {"time": span, "limit": [limit, limit]}, legend="limit")
    tips = [("time", "@time{0.0} s")]
    tips += [(_KINDS[kind], f"@{kind}{{0.00}} GiB") for kind in reversed(kinds)]
    invisible = Line(x="time", y=kinds[0], line_alpha=0)
    add_glyph(fig, invisible, source, tips=tips, hover={"mode": "vline"})
    place_legend(fig)
    return fig


#: Kind of memory -> legend.
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
    title = "How was memory spread over the workers?"
    data = read_group(run, "workers", "time")
    if data is None:
        return empty_figure(title)
    if data.sizes["worker"] > MAX_LINES:
        return worker_heat(run)
    limits = data["memory_limit"].values
    highest = float(np.nanmax(data["process"].values, initial=0))
    fig = make_figure(
        title + process_note(data),
        "time (s)",
        "memory (GiB)",
        y_range=_range_with_limit(float(limits.max(initial=0)) / GIB, highest / GIB),
    )
    _draw_workers(fig, data, worker_names(to_tree(run)))
    add_limit(fig, np.unique(limits[limits > 0])[:3] / GIB, "limit of a worker")
    place_legend(fig)
    return fig


def _range_with_limit(limit: float, highest: float) -> DataRange1d:
    """Return a y range from 0 to a limit, or to the values if they are much lower than it."""
    includes_limit = limit / MAX_LIMIT_RATIO < highest <= limit
    return DataRange1d(start=0, end=1.05 * limit) if includes_limit else DataRange1d(start=0)


def _most_threads(data: xr.Dataset) -> int:
    """Return the maximum number of threads at the same time: workers may replace others."""
    joined = np.nan_to_num(data["joined"].values, nan=-np.inf)
    left = np.nan_to_num(data["left"].values, nan=np.inf)
    present = (joined <= joined[:, None]) & (left > joined[:, None])
    return int((present * data["nthreads"].values).sum(axis=1).max(initial=0))


def worker_load(run: Run | xr.DataTree) -> list[figure]:
    """Draw CPU, network and disk over time, summed over the workers.

    Parameters
    ----------
    run : Run or DataTree
        A run.

    Returns
    -------
    list of figure
        CPU in % of one core; received and sent, and read and written, in MiB/s; highest
        utilization (%) and memory (GiB) of a GPU, if Dask measured them.
    """
    titles = (
        "How busy were the CPUs?",
        "How much data did workers receive and send?",
        "How much data did workers read and write?",
    )
    data = read_group(run, "workers", "time")
    if data is None:
        return [empty_figure(title) for title in titles]
    limit, highest = 100.0 * _most_threads(data), float(np.fmax.reduce(_cpu(data)))
    y_range = _range_with_limit(limit, highest)
    cpu = _draw_sums(data, titles[0], "CPU (% of a core)", {"cpu": "all workers"}, 1.0, y_range)
    if cpu.legend:
        add_limit(cpu, [limit], "all threads")
    network = {"net_read": "received", "net_write": "sent"}
    disk = {"disk_read": "read", "disk_write": "written"}
    gpus = {
        "gpu_utilization": ("How busy were the GPUs?", "GPU (% of one)", 1.0),
        "gpu_memory_used": ("How much memory of GPUs was used?", "GPU memory (GiB)", 1 / GIB),
    }
    return [
        cpu,
        _draw_sums(data, titles[1], "network (MiB/s)", network, 1 / MIB),
        _draw_sums(data, titles[2], "disks (MiB/s)", disk, 1 / MIB),
        *(
            _draw_sums(data, title, label, {name: "highest"}, factor)
            for name, (title, label, factor) in gpus.items()
            if name in data
        ),
    ]


def _cpu(workers: xr.Dataset) -> np.ndarray:
    """Return the CPU of all workers over time; workers of a process report the same value."""
    ids, values = process_ids(workers), workers["cpu"].transpose("worker", "time").values
    return _sum([np.fmax.reduce(values[ids == number]) for number in np.unique(ids)])


def _sum(rows: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """Return the sum of rows, NaN where all are."""
    # Here and below not by xarray, whose sums and groups import all of dask.array: 0.4 s.
    return np.where(np.isnan(rows).all(axis=0), np.nan, np.nansum(rows, axis=0))


def _draw_sums(
    data: xr.Dataset,
    title: str,
    label: str,
    legend: dict[str, str],
    factor: float,
    y_range: DataRange1d | None = None,
) -> figure:
    """Draw sums over the workers, times a factor, one line per variable in `legend`.

    Of GPUs the highest value is drawn.
    """
    names = [name for name in legend if name in data and np.isfinite(data[name].values).any()]
    if not names:
        return empty_figure(title)
    columns: dict[str, Any] = {"time": data["time"].values}
    for name in names:
        values = data[name].transpose("worker", "time").values
        # All workers of a host report the same counters: take the mean per host, then the sum.
        if name.startswith(("net_", "disk_")):
            own = [values[data["host"].values == host] for host in set(data["host"].values)]
            counts = [np.maximum(np.isfinite(rows).sum(axis=0), 1) for rows in own]
            means = [_sum(rows) / count for rows, count in zip(own, counts, strict=True)]
            columns[name] = _sum(means) * factor
        elif name.startswith("gpu_"):  # several workers may watch the same GPU
            columns[name] = np.fmax.reduce(values) * factor
        elif name == "cpu":
            columns[name] = _cpu(data) * factor
        else:
            columns[name] = _sum(values) * factor
    y_range = y_range or DataRange1d(start=0)
    fig = make_figure(title, "time (s)", label, height=200, y_range=y_range)
    source = ColumnDataSource(columns)
    tips = [("time", "@time{0.0} s")]
    unit = label.partition("(")[2].rstrip(")")
    tips += [(legend[name], f"@{name}{{0,0.0}} {unit}".rstrip()) for name in names]
    for name, colour in zip(names, SERIES, strict=False):
        line = Line(x="time", y=name, line_color=colour, line_width=1.6)
        add_glyph(fig, line, source, legend=legend[name], tips=tips, hover={"mode": "vline"})
        tips = []  # the tooltip of the first line has the values of all
    place_legend(fig)
    return fig


def _draw_workers(fig: figure, data: xr.Dataset, names: list[str]) -> None:
    """Draw the process memory of each worker as a line."""
    time, values = data["time"].values, data["process"].values / GIB
    few = len(names) <= MAX_NAMED_WORKERS
    for index, worker in enumerate(names):
        reported = np.isfinite(values[:, index])
        line = Line(
            x="time",
            y="value",
            line_color=SERIES[index % len(SERIES)],
            line_width=1.6 if few else 1.0,
            line_alpha=0.9 if few else 0.5,
        )
        columns = {"time": time[reported], "value": values[reported, index]}
        add_glyph(fig, line, columns, legend=f"worker {worker}" if few else "", name=worker)
    tips = [("worker", "$name"), ("time", "$x{0.0} s"), ("memory", "$y{0.00} GiB")]
    fig.add_tools(HoverTool(tooltips=tips))


#: Lines of tasks that wait, and of workers that accept none. Runs before format 3 have fewer.
_TASK_LINES = {
    "n_tasks": "all tasks",
    "queued": "queued",
    "restricted": "restricted",
    "unrunnable": "no worker",
    "n_paused": "paused workers",
}


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
    titles = (
        "How busy was the scheduler?",
        "How delayed was the scheduler's event loop?",
        "How many tasks did the scheduler hold?",
    )
    data = read_group(run, "scheduler", "time")
    if data is None:
        return [empty_figure(title) for title in titles]
    data = data.expand_dims(worker=1, axis=1)
    return [
        _draw_sums(data, titles[0], "CPU (% of a core)", {"cpu": "scheduler"}, 1.0),
        _draw_sums(data, titles[1], "delay (ms)", {"lag_max": "longest", "lag_mean": "mean"}, 1e3),
        _draw_sums(data, titles[2], "tasks", _TASK_LINES, 1.0),
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
    title = "In which task groups were threads busy?"
    data = read_group(run, "task_groups", "task_group")
    if data is None:
        return empty_figure(title)
    seconds = np.nan_to_num(data["seconds"].transpose("task_group", "action").values)
    order = np.argsort(-seconds.sum(axis=1), kind="stable")
    shown, rest = order[:MAX_GROUPS], order[MAX_GROUPS:]
    names = [str(name) for name in data["task_group"].values[shown]]
    rows = seconds[shown]
    if len(rest):
        names.append(f"{len(rest)} other groups")
        rows = np.vstack([rows, seconds[rest].sum(axis=0)])
    unique = short_names(map(str, data["task_group"].values))
    labels = row_labels([unique.get(name, name) for name in names], 36)
    actions = [str(action) for action in data["action"].values]
    # In seconds, all ticks of an axis that ends below 0.01 s would be 0.
    factor, unit = (1e3, "ms") if rows.sum(axis=1).max() < 0.1 else (1.0, "s")
    columns = {action: rows[:, index] * factor for index, action in enumerate(actions)}
    source = ColumnDataSource({"label": labels, "name": names, **columns})
    fig = make_figure(
        title,
        f"time of threads ({unit})",
        "task group",
        y_range=labels[::-1],
        height=max(170, 95 + 24 * len(labels)),
        x_range=DataRange1d(start=0),
        tools="save",
    )
    used = [action for index, action in enumerate(actions) if rows[:, index].any()]
    renderers = fig.hbar_stack(
        used,
        y="label",
        height=0.78,
        source=source,
        color=[ACTIVITY_COLOURS.get(action, OTHER) for action in used],
        **({"legend_label": used} if used else {}),
    )
    for action, renderer in zip(used, renderers, strict=True):
        tips = [("group", "@name"), (action, f"@{{{action}}}{{0.000}} {unit}")]
        fig.add_tools(HoverTool(renderers=[renderer], tooltips=tips))
    place_legend(fig)
    fig.xaxis.formatter = NumeralTickFormatter(format="0.[00]")
    fig.ygrid.grid_line_color = None
    return fig


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
