"""Figure of a bisection: each run of each build, relative to the good end."""

from __future__ import annotations

from bokeh.models import ColumnDataSource, HoverTool, Range1d
from bokeh.models.annotations import Span
from bokeh.models.renderers import DataRenderer
from bokeh.plotting import figure

from benchkit.experiment.bisect.replay import EVENTS
from benchkit.experiment.bisect.result import BisectionResult
from benchkit.show.plots.base import INK, empty_figure, make_figure, metric_label, place_legend
from benchkit.show.theme import BETTER, UNCHANGED, WORSE

#: Verdict -> colour and marker.
_LOOKS = {
    "good": (BETTER, "circle"),
    "bad": (WORSE, "triangle"),
    "first bad": (WORSE, "star"),
    "": (UNCHANGED, "square"),
}


def bisection_steps(result: BisectionResult) -> figure:
    """Draw the measurements of a bisection, with builds in order from left to right.

    Parameters
    ----------
    result : BisectionResult
        Return value of `benchkit.experiment.bisect.result.read_bisection`.

    Returns
    -------
    figure
        The value of each run relative to the median of the good end, in %; builds without a
        measurement are omitted and counted in the title. Runs without a result are crosses at the
        bottom, below all values.
    """
    table = result.table()
    measured = table[table["runs"] > 0]
    question = f"With which build did {metric_label(result.metric)} of {result.workload} change?"
    if measured.empty:
        return empty_figure(question)
    n_unmeasured = len(table) - len(measured)
    names = measured["build"].tolist()
    runs = result.runs
    by_events = result.metric in EVENTS
    level = 1.0
    if not by_events:
        ends = runs[(runs["arm"] == names[0]) & (runs["outcome"] == "ok")]
        level = float(ends[result.metric].median()) if len(ends) else 1.0
    fig = make_figure(
        f"{question} {n_unmeasured} builds were not measured." if n_unmeasured else question,
        "build",
        result.metric if by_events else f"change against {names[0]} (%)",
        x_range=names,
        height=320,
        tools="reset,save",
    )
    fig.xaxis.major_label_orientation = 0.6
    verdicts = dict(zip(measured["build"], measured["verdict"], strict=True))
    renderers: list[DataRenderer] = []
    tooltips = [("build", "@build"), ("block", "@block"), ("run", "@id")]
    heights = [0.0]
    for verdict, (colour, marker) in _LOOKS.items():
        rows = runs[(runs["arm"].map(verdicts) == verdict) & (runs["outcome"] == "ok")]
        if len(rows):
            change = [0.0] * len(rows) if by_events else (rows[result.metric] / level - 1) * 100
            heights += [value for value in change if value == value]
            source = ColumnDataSource(
                {"build": rows["arm"], "change": change, "id": rows["id"], "block": rows["block"]}
            )
            renderers.append(
                fig.scatter(
                    "build", "change", source=source, color=colour, marker=marker, alpha=0.75,
                    size=13 if verdict == "first bad" else 8, legend_label=verdict or "undecided",
                )
            )  # fmt: skip
    failed = runs[runs["outcome"] != "ok"]
    low, high = min(heights), max(heights)
    room = (high - low) or 10.0
    bottom = low - 0.2 * room
    fig.y_range = Range1d(start=bottom, end=high + 0.1 * room)
    if len(failed):
        source = ColumnDataSource(
            {"build": failed["arm"], "bottom": [bottom] * len(failed), "id": failed["id"],
             "block": failed["block"], "outcome": failed["outcome"].str.replace("_", " ")},
            name="failed",
        )  # fmt: skip
        crosses = fig.scatter(
            "build", "bottom", source=source, color=WORSE, marker="x", size=11, line_width=2.5,
            legend_label="no result", level="overlay",
        )  # fmt: skip
        fig.add_tools(HoverTool(renderers=[crosses], tooltips=[*tooltips, ("outcome", "@outcome")]))
    if by_events:
        fig.yaxis.ticker = [bottom, 0.0]
        fig.yaxis.major_label_overrides = {bottom: "no result", 0.0: "ok"}
    fig.add_layout(Span(location=0, dimension="width", line_color=INK, line_dash="dotted"))
    if not by_events:
        tooltips.append(("change", "@change{+0.0} %"))
    fig.add_tools(HoverTool(renderers=renderers, tooltips=tooltips))
    place_legend(fig)
    return fig
