"""Curves of a simulation: duration, bytes, memory and scheduler against the number of workers."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from bokeh.embed import file_html
from bokeh.layouts import gridplot
from bokeh.models import ColumnDataSource, GridPlot, Line, Range1d, Scatter
from bokeh.models.annotations import Band
from bokeh.plotting import figure
from bokeh.resources import INLINE

from benchkit.show.plots.base import add_glyph, make_figure
from benchkit.show.theme import SERIES

__all__ = ["save_simulation_curves", "simulation_curves"]

#: Column of the table -> label with unit, and divisor.
_PANELS = {
    "duration": ("duration (s)", 1.0),
    "transfer_bytes": ("transferred (GiB)", 2.0**30),
    "memory_peak": ("peak memory of the cluster (GiB)", 2.0**30),
    "scheduler": ("scheduler busy (%)", 0.01),
}


def simulation_curves(table: pd.DataFrame, name: str) -> GridPlot:
    """Draw a simulation as curves over the number of workers.

    Parameters
    ----------
    table : DataFrame
        As `benchkit.experiment.virtual.api.Simulation.table`.
    name : str
        Name of the workload or graph.

    Returns
    -------
    GridPlot
        Four figures; a curve per number of threads and bandwidth. The band of the duration is the
        interval from the draws and the error of the replay.
    """
    figures: list[figure | None] = []
    for column, (label, divisor) in _PANELS.items():
        title = f"{name}, simulated: {label.rpartition(' (')[0]}"
        fig = make_figure(title, "workers", label, x_axis_type="log", width=480, height=300)
        groups = table.groupby(["threads", "bandwidth"], sort=True)
        for number, ((threads, bandwidth), rows) in enumerate(groups):
            rows = rows.sort_values("workers")
            data = {"workers": rows["workers"], "value": rows[column] / divisor}
            if column == "duration":
                data |= {"low": rows["low"], "high": rows["high"]}
            source = ColumnDataSource(data)
            colour = SERIES[number % len(SERIES)]
            legend = ""
            if len(groups) > 1:
                legend = f"{threads} threads, {bandwidth / 2**20:.0f} MiB/s"
            if column == "duration":
                band = Band(
                    base="workers", lower="low", upper="high", source=source,
                    fill_color=colour, fill_alpha=0.2, line_alpha=0.0,
                )  # fmt: skip
                fig.add_layout(band)
            line = Line(x="workers", y="value", line_color=colour, line_width=2)
            add_glyph(fig, line, source, legend=legend)
            point = Scatter(x="workers", y="value", fill_color=colour, line_color=colour, size=6)
            tips = [("workers", "@workers"), (label, "@value{0.00}")]
            add_glyph(fig, point, source, tips=tips)
        top = table["high"].max() if column == "duration" else table[column].max() / divisor
        fig.y_range = Range1d(start=0, end=1.05 * float(top) or 1.0)
        figures.append(fig)
    return gridplot(figures, ncols=2)


def save_simulation_curves(table: pd.DataFrame, name: str, path: str | Path) -> None:
    """Write the curves of a simulation as a page that needs no network.

    Parameters
    ----------
    table, name
        See `simulation_curves`.
    path : path
        HTML file.
    """
    page = file_html(simulation_curves(table, name), INLINE, f"{name}: simulated")
    Path(path).write_text(page, encoding="utf-8")
