"""Plots of runs, comparisons and histories as Bokeh figures.

This package is also available as ``benchkit.plots``.
"""

from __future__ import annotations

from importlib import import_module

import pandas as pd

from benchkit.show.plots.accessor import RunPlots
from benchkit.show.plots.base import load_bokeh
from benchkit.show.plots.comparison import heat_map, raw_points, waterfall
from benchkit.show.plots.flame import flame_difference, flame_graph
from benchkit.show.plots.history import history_plot, sparkline
from benchkit.show.plots.run_metrics import (
    memory_by_kind,
    memory_by_worker,
    memory_overlay,
    scheduler_load,
    task_group_bars,
    worker_heat,
    worker_load,
)
from benchkit.show.plots.sweep import bisection_steps, sweep_plot
from benchkit.show.plots.thread_activity import (
    BusyThreads,
    TaskStream,
    busy_threads,
    limits_over_time,
    task_stream,
)
from benchkit.show.plots.transfers import TransferMatrix, transfer_difference, transfer_matrix

__all__ = [
    "BusyThreads",
    "RunPlots",
    "TaskStream",
    "TransferMatrix",
    "bisection_steps",
    "busy_threads",
    "flame_difference",
    "flame_graph",
    "heat_map",
    "in_notebook",
    "limits_over_time",
    "memory_by_kind",
    "memory_by_worker",
    "memory_overlay",
    "history_plot",
    "raw_points",
    "sweep_plot",
    "scheduler_load",
    "sparkline",
    "task_group_bars",
    "task_stream",
    "transfer_difference",
    "transfer_matrix",
    "waterfall",
    "worker_heat",
    "worker_load",
]


def in_notebook(*, hvplot: bool = False) -> None:
    """Configure ``bokeh.io.show`` to draw in this notebook without network access.

    Figures that are the last expression of a cell do not need it.

    Parameters
    ----------
    hvplot : bool, default False
        Load hvPlot, too: ``DataFrame.hvplot``, ``Dataset.hvplot`` and ``DataArray.hvplot``. Without
        network access, hvPlot imported in any other way leaves all figures empty.
    """
    if hvplot:
        import holoviews

        holoviews.extension.inline = True
        for accessor in ("pandas", "xarray"):
            import_module(f"hvplot.{accessor}")
    # Show names of variants and definitions of arms in full.
    pd.set_option("display.max_colwidth", 240)
    load_bokeh()


def __dir__() -> list[str]:
    return __all__
