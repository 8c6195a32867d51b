"""Align the time axes of the figures of a report, so that they can be read one below the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bokeh.models import Range1d
from bokeh.plotting import figure

from benchkit.show.plots.base import place_legend

#: Columns of a legend below a figure: three fit on the screen of a telephone.
LEGEND_COLUMNS = 3
#: Height of a row of the legend, in pixels.
LEGEND_ROW = 22


def align_time_axes(figures: Iterable[figure]) -> list[figure]:
    """Give figures over the time of a run the same left and right end, in pixels and in seconds."""
    figures = list(figures)
    drawn = [fig for fig in figures if fig.xaxis[0].visible]
    left = max((int(fig.min_border_left or 0) for fig in drawn), default=0)
    ranges = [fig.x_range for fig in drawn if isinstance(fig.x_range, Range1d)]
    ends: list[tuple[Any, Any]] = [(x_range.start, x_range.end) for x_range in ranges]
    for fig in drawn:
        fig.min_border_left, fig.min_border_right = left, 16
        if ends:
            fig.x_range = Range1d(start=min(s for s, _ in ends), end=max(e for _, e in ends))
        if fig.legend:
            place_legend(fig, "below")
            legend = fig.legend[0]
            legend.ncols = LEGEND_COLUMNS
            n_rows = -(-len(legend.items) // LEGEND_COLUMNS)
            fig.height = int(fig.height or 0) + LEGEND_ROW * n_rows
    return figures
