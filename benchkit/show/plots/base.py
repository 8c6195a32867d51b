"""Common style of all figures: a title and units on both axes, for light and dark pages.

Backgrounds are transparent and text is grey with enough contrast on white and on black, so that
a figure needs no theme.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import xarray as xr
from bokeh.core.properties import expr, value
from bokeh.models import ColumnDataSource, Line, Stack, VArea
from bokeh.models.annotations import Legend, LegendItem, Span
from bokeh.models.glyph import Glyph
from bokeh.plotting import figure

from benchkit.show.theme import OTHER
from benchkit.store.run import Run
from benchkit.store.schema import METRICS

__all__ = [
    "INK",
    "add",
    "add_limit",
    "add_stack",
    "has",
    "legend_beside",
    "make_figure",
    "metric_words",
    "empty_figure",
    "part",
    "retitle",
    "to_tree",
    "worker_names",
]

#: Contrast 4.0 : 1 on white and 4.4 : 1 on the dark background of the pages.
INK = "#748190"
_LINES = "#8a95a2"


def make_figure(title: str, x: str, y: str, **options: Any) -> Any:
    """Return an empty figure; the axis labels `x` and `y` contain units.

    The type is Any because Bokeh's annotations lack most attributes of titles, axes and ranges.
    """
    look: dict[str, Any] = {
        "height": 260,
        "sizing_mode": "stretch_width",
        "toolbar_location": "above",
        "tools": "xpan,xwheel_zoom,xbox_zoom,reset,save",
        **options,
    }
    # Reserve room for the labels before the first layout: a transparent background does not erase
    # what an earlier layout painted at another position.
    rows = options.get("y_range")
    names = [name for name in rows if isinstance(name, str)] if isinstance(rows, list) else []
    longest = max((len(name) for name in names), default=0)
    look.setdefault("min_border_left", max(64, round(44 + 6.2 * longest)))
    drawn: Any = figure(
        title=title,
        x_axis_label=x,
        y_axis_label=y,
        html_attributes={"role": "img", "aria-label": title},
        **look,
    )
    drawn.toolbar.logo = None
    drawn.toolbar.autohide = True
    drawn.border_fill_color = drawn.background_fill_color = None
    drawn.outline_line_color = None
    drawn.title.text_color = INK
    drawn.title.text_font_size = "13px"
    drawn.title.text_font_style = "normal"
    for axis in drawn.axis:
        axis.axis_label_text_color = axis.major_label_text_color = INK
        axis.axis_label_text_font_style = "normal"
        axis.axis_line_color = axis.major_tick_line_color = _LINES
        axis.minor_tick_line_color = None
        axis.axis_line_alpha = 0.5
    for grid in drawn.grid:
        grid.grid_line_color = _LINES
        grid.grid_line_alpha = 0.22
    return drawn


def add(drawn: Any, glyph: Glyph, source: Any, *, legend: str = "", **options: Any) -> Any:
    """Add a glyph to a figure and return its renderer.

    Bokeh's own methods (``drawn.line``) add two copies of each glyph (unselected, muted), which are
    most of the models of a page and are not used here.
    """
    if not isinstance(source, ColumnDataSource):
        source = ColumnDataSource(source)
    renderer = drawn.add_glyph(
        source, glyph, **{"nonselection_glyph": None, "muted_glyph": None, **options}
    )
    if legend:
        item = LegendItem(label=value(legend), renderers=[renderer])
        if drawn.legend:
            drawn.legend[0].items.append(item)
        else:
            drawn.add_layout(Legend(items=[item]))
    return renderer


def add_stack(
    drawn: Any, source: ColumnDataSource, names: list[str], colours: list[str], legend: list[str]
) -> None:
    """Add columns over ``time`` as stacked areas, the first at the bottom."""
    sums = [expr(Stack(fields=names[:count])) for count in range(len(names) + 1)]
    for at, (colour, label) in enumerate(zip(colours, legend, strict=True)):
        glyph = VArea(x="time", y1=sums[at], y2=sums[at + 1], fill_color=colour, fill_alpha=0.85)
        add(drawn, glyph, source, legend=label, name=names[at])


def add_limit(drawn: Any, heights: Iterable[float], legend: str) -> None:
    """Add dashed horizontal lines at `heights` with one legend entry."""
    look: dict[str, Any] = {"line_color": OTHER, "line_dash": "dashed"}
    spans = [Span(location=height, dimension="width", **look) for height in heights]
    for span in spans:
        drawn.add_layout(span)
    if spans:  # a legend entry needs a renderer with data: an invisible point
        nowhere = {"x": [float("nan")], "y": [float("nan")]}
        add(drawn, Line(x="x", y="y", **look), nowhere, legend=legend)


def legend_beside(drawn: Any, *, place: str = "right") -> None:
    """Move the legend outside of the plot area."""
    legend = drawn.legend[0]
    drawn.add_layout(legend, place)
    legend.background_fill_alpha = legend.border_line_alpha = 0.0
    legend.label_text_color = INK
    legend.label_text_font_size = "11px"
    legend.glyph_width = legend.glyph_height = 14
    legend.spacing, legend.padding, legend.margin = 2, 4, 0
    if place != "right":
        legend.orientation, legend.spacing = "horizontal", 14


def empty_figure(title: str, text: str = "Nothing was recorded.") -> Any:
    """Return a figure that contains `text` only: missing data are never drawn as 0."""
    drawn = make_figure(
        title, "", "", height=90, tools="", toolbar_location=None, x_range=[0, 1], y_range=[0, 1]
    )
    drawn.html_attributes = {"role": "img", "aria-label": f"{title} {text}"}
    drawn.axis.visible = drawn.grid.visible = False
    drawn.text(
        [0.005], [0.5], [text], text_baseline="middle", text_color=INK,
        text_font_size="12px",
    )  # fmt: skip
    return drawn


def retitle(drawn: Any, title: str) -> None:
    """Set the title of a figure and its label for screen readers."""
    drawn.title.text = title
    drawn.html_attributes = {**drawn.html_attributes, "aria-label": title}


def metric_words(name: str) -> str:
    """Return the long name of a metric; for a metric of a workload, its name with spaces."""
    return METRICS[name].long_name if name in METRICS else name.replace("_", " ")


def has(tree: xr.DataTree, group: str, dim: str) -> bool:
    """Return whether a run has a group with at least one entry along a dimension."""
    return group in tree.children and bool(tree[group].sizes.get(dim))


def to_tree(run: Run | xr.DataTree) -> xr.DataTree:
    """Return the DataTree of a run."""
    return run.tree if isinstance(run, Run) else run


def part(tree: xr.DataTree, name: str) -> xr.Dataset:
    """Return one group of a run as a Dataset."""
    node: Any = tree[name]
    return node.to_dataset()


def worker_names(tree: xr.DataTree) -> list[str]:
    """Return the unique names of the workers of a run, in order.

    A nanny reuses the name for a restarted worker; these get the suffix "(restart n)".
    """
    if not has(tree, "workers", "worker"):
        return []
    came: Counter[str] = Counter()
    names = []
    for name in map(str, part(tree, "workers")["name"].values):
        names.append(f"{name} (restart {came[name]})" if came[name] else name)
        came[name] += 1
    return names
