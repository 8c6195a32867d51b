"""Figure of an explanation: which task groups and activities the extra seconds went to.

Input: an `Explanation`; output: a Bokeh figure.
"""

from __future__ import annotations

import numpy as np
from bokeh.models import ColumnDataSource, HBar, HoverTool, Segment
from bokeh.models.annotations import Span
from bokeh.plotting import figure

from benchkit.analysis.compare.explain import IDLE, UNEXPLAINED, Explanation
from benchkit.formatting import counted
from benchkit.show.plots.base import INK, add_glyph, empty_figure, make_figure
from benchkit.show.plots.labels import row_labels
from benchkit.show.theme import ACTIVITY_COLOURS, OTHER

__all__ = ["waterfall"]

#: Height of a row in pixels.
ROW_HEIGHT = 22
#: Maximum number of parts with a row each; the other parts share one row.
MAX_PARTS = 7
#: Parts smaller than this share of the largest part share one row, except idle time.
MIN_SHARE = 0.005


def waterfall(explanation: Explanation) -> figure:
    """Draw the parts of a difference, largest on top, and their sum.

    Parameters
    ----------
    explanation : Explanation
        Return value of `benchkit.analysis.compare.explain.explain`.

    Returns
    -------
    figure
        Additional seconds of wall time of each task group and activity (negative: fewer seconds);
        lines are intervals.
    """
    slower = explanation.total_s >= 0
    question = "Where did the extra seconds go?" if slower else "Where were seconds saved?"
    parts = explanation.parts
    if parts.empty:
        return empty_figure(question)
    small = parts["seconds"].abs() < MIN_SHARE * parts["seconds"].abs().max()
    last = parts["group"].isin([IDLE, UNEXPLAINED])
    largest = parts[~last & ~small].head(MAX_PARTS)
    rest = parts[~last].drop(largest.index)
    rows = [
        (f"{r.activity} in {r.group}", r.seconds, r.low, r.high, str(r.activity))
        for r in largest.itertuples()
    ]
    if len(rest):
        total = float(rest["seconds"].sum())
        rows.append((counted(len(rest), "other part"), total, np.nan, np.nan, "other"))
    rows += [
        (str(r.group), r.seconds, r.low, r.high, "other")
        for r in parts[last].itertuples()
        if r.group == IDLE or r.seconds
    ]
    rows.append(("total", explanation.total_s, np.nan, np.nan, "sum"))
    labels = row_labels([row[0] for row in rows], 52)
    colours = {**ACTIVITY_COLOURS, "other": OTHER, "sum": INK}
    source = ColumnDataSource(
        {
            "label": labels,
            "seconds": [row[1] for row in rows],
            "low": [row[2] for row in rows],
            "high": [row[3] for row in rows],
            "colour": [colours.get(row[4], OTHER) for row in rows],
        }
    )
    counts = f"{explanation.n_baseline} + {explanation.n_contender} runs"
    fig = make_figure(
        f"{question} ({counts})",
        "additional (+) or saved (−) wall time (s)",
        "part" if len(labels) < 5 else "task group and activity",
        y_range=labels[::-1],
        height=100 + ROW_HEIGHT * len(labels),
        tools="save",
    )
    bar = HBar(y="label", right="seconds", height=0.7, line_color="colour", fill_color="colour")
    add_glyph(fig, bar, source)
    interval = Segment(x0="low", y0="label", x1="high", y1="label", line_color=INK, line_width=1.2)
    add_glyph(fig, interval, source)
    fig.add_layout(Span(location=0, dimension="height", line_color=INK, line_width=1))
    tips = [
        ("part", "@label"),
        ("change", "@seconds{+0.000} s"),
        ("interval", "@low{+0.000} to @high{+0.000} s"),
    ]
    fig.add_tools(HoverTool(tooltips=tips))
    fig.ygrid.grid_line_color = None
    return fig
