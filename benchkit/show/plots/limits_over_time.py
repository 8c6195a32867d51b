"""Figure of what bound a run over time.

Input: a run; output: a Bokeh figure.
"""

from __future__ import annotations

import numpy as np
from bokeh.models import ColumnDataSource, HoverTool, VBar
from bokeh.plotting import figure

from benchkit.analysis.insight.limits import Limits, run_limits
from benchkit.errors import NotRecorded
from benchkit.formatting import format_seconds
from benchkit.show.plots.base import add_glyph, empty_figure, make_figure, place_legend
from benchkit.show.theme import CAUSE_COLOURS
from benchkit.store.run import Run

__all__ = ["limits_over_time"]

#: Cause -> legend, short enough for the width of the legends of other figures over time.
LEGEND = {
    "computing": "compute, threads busy",
    "not parallel": "compute, threads idle",
    "straggler": "compute, last tasks",
    "transfer": "transfers",
    "disk": "disk",
    "worker paused": "paused workers",
    "scheduler": "scheduler",
    "graph": "handling of graphs",
    "client": "client",
}

TITLE = "What bound the run?"
#: Number of bars: about one for each four pixels of a wide page.
N_BARS = 240


def limits_over_time(run: Run, limits: Limits | None = None) -> figure:
    """Draw what bound a run over time: compute, network, disk, scheduler, client or its graph.

    Parameters
    ----------
    run : Run
        A run.
    limits : Limits, optional
        Its limits, if already computed.

    Returns
    -------
    figure
        Time in s after clock on, share of the time in %. The walk from the last task back to the
        start gives each moment the cause that the next step waited for; a bar is divided by the
        shares of the causes in it.
    """
    try:
        limits = limits or run_limits(run)
    except NotRecorded:
        text = "The dependencies of the tasks, or the duration, were not recorded."
        return empty_figure(TITLE, text)
    table = 100 * limits.over_time(N_BARS)
    width = limits.duration / N_BARS
    tops = np.cumsum(table.to_numpy(), axis=1)
    columns = {"time": table.index.to_numpy(), "from": table.index - width / 2}
    columns |= {"to": table.index + width / 2}
    columns |= {LEGEND[str(name)]: table[name].to_numpy() for name in table}
    columns |= {f"top {place}": tops[:, place] for place in range(tops.shape[1])}
    columns |= {"top -1": np.zeros(N_BARS)}
    source = ColumnDataSource(columns)
    fig = make_figure(
        f"{TITLE} A bar is {format_seconds(width)}",
        "time (s)",
        "share (%)",
        height=190,
        x_range=(0.0, limits.duration),
        y_range=(0, 100),
    )
    for place, name in enumerate(table):
        colour, label = CAUSE_COLOURS[str(name)], LEGEND[str(name)]
        bar = VBar(
            x="time", width=width, bottom=f"top {place - 1}", top=f"top {place}",
            fill_color=colour, line_color=colour, line_width=0.5,
        )  # fmt: skip
        add_glyph(fig, bar, source, legend=label, name=label)
    tips = [("cause", "$name"), ("share", "@$name{0.0} %"), ("time", "@from{0.00} to @to{0.00} s")]
    fig.add_tools(HoverTool(tooltips=tips))
    place_legend(fig, "right")
    return fig
