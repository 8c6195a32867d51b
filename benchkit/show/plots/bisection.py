"""Figure of a bisection: each run of each build, relative to the good end."""

from __future__ import annotations

from bokeh.models import ColumnDataSource, HoverTool, Range1d
from bokeh.models.annotations import Span
from bokeh.plotting import figure

from benchkit.experiment.bisect.result import OUTCOME, BisectionResult
from benchkit.show.plots.base import INK, empty_figure, legend_beside, make_figure, metric_words

__all__ = ["bisection_steps"]

_LOOKS = {
    "good": ("#2166ac", "circle"),
    "bad": ("#b2182b", "triangle"),
    "first bad": ("#b2182b", "star"),
    "": ("#8a95a2", "square"),
}


def bisection_steps(found: BisectionResult) -> figure:
    """Draw the measurements of a bisection, with builds in order from left to right.

    Parameters
    ----------
    found : BisectionResult
        Return value of `benchkit.experiment.bisect.result.read_bisection`.

    Returns
    -------
    figure
        The value of each run relative to the median of the good end, in %; builds without a
        measurement are omitted and counted in the title. Runs without a result are crosses at the
        bottom, below all values.
    """
    table = found.table()
    measured = table[table["runs"] > 0]
    question = f"With which build did {metric_words(found.metric)} of {found.workload} change?"
    if measured.empty:
        return empty_figure(question)
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
    told = [("build", "@build"), ("block", "@block"), ("run", "@id")]
    heights = [0.0]
    for verdict, (colour, marker) in _LOOKS.items():
        mine = runs[(runs["arm"].map(verdicts) == verdict) & (runs["outcome"] == "ok")]
        if len(mine):
            change = [0.0] * len(mine) if by_outcome else (mine[found.metric] / level - 1) * 100
            heights += [value for value in change if value == value]
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
    low, high = min(heights), max(heights)
    room = (high - low) or 10.0
    bottom = low - 0.2 * room
    drawn.y_range = Range1d(start=bottom, end=high + 0.1 * room)
    if len(failed):
        source = ColumnDataSource(
            {"build": failed["arm"], "bottom": [bottom] * len(failed), "id": failed["id"],
             "block": failed["block"], "outcome": failed["outcome"].str.replace("_", " ")},
            name="failed",
        )  # fmt: skip
        crosses = drawn.scatter(
            "build", "bottom", source=source, color="#b2182b", marker="x", size=11, line_width=2.5,
            legend_label="no result", level="overlay",
        )  # fmt: skip
        drawn.add_tools(HoverTool(renderers=[crosses], tooltips=[*told, ("ended", "@outcome")]))
    if by_outcome:
        drawn.yaxis.ticker = [bottom, 0.0]
        drawn.yaxis.major_label_overrides = {bottom: "no result", 0.0: "ok"}
    drawn.add_layout(Span(location=0, dimension="width", line_color=INK, line_dash="dotted"))
    tips = [*told] if by_outcome else [*told, ("change", "@change{+0.0} %")]
    drawn.add_tools(HoverTool(renderers=hits, tooltips=tips))
    if drawn.legend:
        legend_beside(drawn)
    return drawn
