"""Draw the pictures of the documentation: ``python docs/draw_pictures.py FOLDER``.

Each picture is a page with a Bokeh figure; all load one copy of Bokeh, from the same folder.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import bokeh
import dask.array as da
import numpy as np
import pandas as pd
from bokeh.embed import components
from bokeh.plotting import figure
from dask.distributed import Client, LocalCluster

import benchkit
from benchkit.analysis.effects import compare
from validation.dask_history.history import CONTROL, DATA, night_of, suite

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<script src="bokeh.min.js"></script><style>body {{ margin: 0; background: white }}</style>
{script}{div}</html>"""
RUNS = (3, 5, 10)
CLUSTER = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "1 GiB",
           "dashboard_address": None}  # fmt: skip
N_ROWS = 400


def write(folder: Path, name: str, title: str, plot: figure) -> None:
    """Write the page of a figure."""
    plot.sizing_mode, plot.height, plot.toolbar.logo = "stretch_width", 310, None
    script, div = components(plot)
    page = PAGE.format(title=title, script=script, div=div)
    (folder / f"{name}.html").write_text(page, encoding="utf-8")


def simulate(n_runs: int, change: float, noise: float = 0.05):
    """Compare `N_ROWS` pairs of arms of log-normal runs; return the effects."""
    rng = np.random.default_rng([n_runs, round(100 * change)])
    baseline = 10 * rng.lognormal(sigma=noise, size=(N_ROWS, n_runs))
    contender = 10 * (1 + change) * rng.lognormal(sigma=noise, size=(N_ROWS, n_runs))
    return compare(baseline, contender)


def calibration() -> figure:
    """Draw the share of null rows with a p value below each level: the diagonal is exact."""
    plot = figure(
        title="Equal arms: how often is p below a level?",
        x_axis_label="level",
        y_axis_label="share of rows with p below it",
    )
    plot.line([0, 1], [0, 1], color="gray", line_dash="dashed", legend_label="exact")
    for n_runs, color in zip(RUNS, ("#0072b2", "#d55e00", "#009e73"), strict=True):
        p = np.sort(simulate(n_runs, 0.0).p)
        plot.line(p, np.arange(1, N_ROWS + 1) / N_ROWS, color=color, line_width=2,
                  legend_label=f"{n_runs} + {n_runs} runs")  # fmt: skip
    plot.legend.location = "bottom_right"
    return plot


def detection() -> figure:
    """Draw the share of rows of a changed arm that are decided, by size of the change."""
    plot = figure(
        title="Noise of 5 %: share of rows with a decided change",
        x_axis_label="true change in %",
        y_axis_label="share of rows",
        y_range=(-0.02, 1.02),
    )
    changes = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2)
    for n_runs, color in zip(RUNS, ("#0072b2", "#d55e00", "#009e73"), strict=True):
        shares = [float((simulate(n_runs, change).q < 0.05).mean()) for change in changes]
        percent = [100 * change for change in changes]
        plot.line(percent, shares, color=color, line_width=2,
                  legend_label=f"{n_runs} + {n_runs} runs")  # fmt: skip
        plot.scatter(percent, shares, color=color, size=6)
    plot.legend.location = "bottom_right"
    return plot


def coverage(n_runs: int, change: float) -> float:
    """Return the share of 95 % intervals that contain the true change."""
    effects = simulate(n_runs, change)
    return float(((effects.low <= 1 + change) & (1 + change <= effects.high)).mean())


def dask_history() -> figure:
    """Draw time and memory of the releases of Dask, all workloads together."""
    data = pd.read_parquet(DATA)
    plot = figure(
        title=f"{data['workload'].nunique()} workloads in the releases of Dask",
        x_axis_type="datetime",
        x_axis_label="release",
        y_axis_label=f"relative to {CONTROL}",
    )
    for metric, label, color in (
        ("duration", "time", "#0072b2"),
        ("cpu_time", "CPU time of the workers", "#009e73"),
        ("memory_peak", "peak of memory", "#d55e00"),
    ):
        table = suite(data, metric)
        times = pd.to_datetime([night_of(release) for release in table.index])
        plot.varea(times, table["low"], table["high"], color=color, fill_alpha=0.2)
        plot.line(times, table["ratio"], color=color, line_width=2, legend_label=label)
        plot.scatter(times, table["ratio"], color=color, size=5)
    return plot


def one_run(folder: Path) -> None:
    """Measure a product of random matrices, and draw its memory and its threads."""
    with (
        tempfile.TemporaryDirectory() as store,
        LocalCluster(**CLUSTER) as cluster,
        Client(cluster) as client,
    ):
        with benchkit.record(client, workload="docs.product", store=store) as recorded:
            array = da.random.random((3000, 3000), chunks=500)
            array.dot(array.T).sum().compute()
        write(folder, "memory", "Memory of a run", recorded.run.plot.memory_by_kind())
        write(folder, "groups", "Task groups of a run", recorded.run.plot.task_group_bars())


def main(folder: Path) -> None:
    """Draw all pictures that are not in the folder yet."""
    if (folder / "bokeh.min.js").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    write(folder, "calibration", "Calibration", calibration())
    write(folder, "detection", "Detection", detection())
    write(folder, "dask-history", "Releases of Dask", dask_history())
    one_run(folder)
    source = Path(bokeh.__file__).parent / "server" / "static" / "js" / "bokeh.min.js"
    shutil.copy(source, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
