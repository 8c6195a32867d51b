"""The figure of a bisection: every run of every build, against the good end."""

from __future__ import annotations

from typing import Any

from bokeh.models import ColumnDataSource, HoverTool
from bokeh.models.annotations import Span

from benchkit.experiment.bisected import OUTCOME, Bisected
from benchkit.show.plots.base import INK, legend_beside, make_figure, nothing

__all__ = ["bisection_steps"]

_LOOKS = {
    "good": ("#2166ac", "circle"),
    "bad": ("#b2182b", "triangle"),
    "first bad": ("#b2182b", "star"),
    "": ("#8a95a2", "square"),
}


def bisection_steps(found: Bisected) -> Any:
    """Draw what a bisection measured, builds in order from left to right.

    Parameters
    ----------
    found : Bisected
        As `benchkit.experiment.bisected.read_bisection` gives it.

    Returns
    -------
    figure
        Each run's value against the median of the good end, in %; builds that were never measured
        are left out and counted in the title. Failed runs are crosses at the bottom.
    """
    table = found.table()
    measured = table[table["runs"] > 0]
    question = f"With which build did {found.metric} of {found.workload} change?"
    if measured.empty:
        return nothing(question)
    left_out = len(table) - len(measured)
    names = measured["build"].tolist()
    runs = found.runs
    by_outcome = found.metric == OUTCOME
    level = 1.0
    if not by_outcome:
        ends = runs[(runs["arm"] == names[0]) & (runs["outcome"] == "ok")]
        level = float(ends[found.metric].median()) if len(ends) else 1.0
    drawn = make_figure(
        f"{question} {left_out} builds needed no run." if left_out else question,
        "build",
        "ended" if by_outcome else f"against {names[0]} (%)",
        x_range=names,
        height=320,
        tools="reset,save",
    )
    drawn.xaxis.major_label_orientation = 0.6
    verdicts = dict(zip(measured["build"], measured["verdict"], strict=True))
    hits = []
    for verdict, (colour, marker) in _LOOKS.items():
        mine = runs[(runs["arm"].map(verdicts) == verdict) & (runs["outcome"] == "ok")]
        if len(mine):
            change = [0.0] * len(mine) if by_outcome else (mine[found.metric] / level - 1) * 100
            source = ColumnDataSource(
                {"build": mine["arm"], "change": change, "id": mine["id"], "block": mine["block"]}
            )
            hits.append(
                drawn.scatter(
                    "build", "change", source=source, color=colour, marker=marker, alpha=0.75,
                    size=13 if verdict == "first bad" else 8, legend_label=verdict or "not known",
                )
            )  # fmt: skip
    failed = runs[runs["outcome"] != "ok"]
    if len(failed):
        source = ColumnDataSource(
            {"build": failed["arm"], "change": [-100.0 if by_outcome else 0.0] * len(failed),
             "id": failed["id"], "block": failed["block"]}
        )  # fmt: skip
        hits.append(
            drawn.scatter(
                "build", "change", source=source, color="#b2182b", marker="x", size=9,
                legend_label="failed",
            )
        )  # fmt: skip
    drawn.add_layout(Span(location=0, dimension="width", line_color=INK, line_dash="dotted"))
    tips = [("build", "@build"), ("change", "@change{+0.0} %"), ("block", "@block"), ("run", "@id")]
    drawn.add_tools(HoverTool(renderers=hits, tooltips=tips))
    if drawn.legend:
        legend_beside(drawn)
    return drawn
