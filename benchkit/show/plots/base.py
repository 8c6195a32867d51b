"""Common style of all figures: a title and units on both axes, for light and dark pages.

Backgrounds are transparent and text is grey with enough contrast on white and on black, so that
a figure needs no theme.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import xarray as xr
from bokeh.core.properties import expr, value
from bokeh.io import output_notebook, show
from bokeh.io.state import curstate
from bokeh.models import ColumnDataSource, CustomJS, HoverTool, Line, Range1d, Stack, VArea
from bokeh.models.annotations import ColorBar, Legend, LegendItem, Span, Title
from bokeh.models.glyph import Glyph
from bokeh.models.mappers import ColorMapper
from bokeh.models.renderers import GlyphRenderer
from bokeh.plotting import figure
from bokeh.resources import Resources

from benchkit.errors import UsageError
from benchkit.show.theme import OTHER
from benchkit.store.run import Run
from benchkit.store.schema import METRICS

#: Colour of text. Contrast 4.0 : 1 on white and 4.4 : 1 on the dark background of the pages.
INK = "#748190"
_LINES = "#8a95a2"
#: Pixels between the left end of a figure and its frame, at least, and its title.
_LEFT_BORDER, _TITLE_MARGIN = 64, 6


def make_figure(title: str, x: str, y: str, **options: Any) -> figure:
    """Return an empty figure."""
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
    look.setdefault("min_border_left", max(_LEFT_BORDER, round(44 + 6.2 * longest)))
    # The title starts left of the frame, so that it also fits on the screen of a telephone.
    start = min(0, _TITLE_MARGIN - min(_LEFT_BORDER, look["min_border_left"]))
    style: dict[str, Any] = {"text_color": INK, "text_font_size": "13px", "offset": start}
    heading = Title(text=title, text_font_style="normal", **style)
    fig = figure(
        title=heading,
        x_axis_label=x,
        y_axis_label=y,
        html_attributes={"role": "img", "aria-label": title},
        **look,
    )
    fig.toolbar.logo = None
    fig.toolbar.autohide = True
    fig._ipython_display_ = partial(_display, fig)  # type: ignore[attr-defined]
    fig.border_fill_color = fig.background_fill_color = None
    fig.outline_line_color = None
    for axis in fig.axis:
        axis.axis_label_text_color = axis.major_label_text_color = INK
        axis.axis_label_text_font_style = "normal"
        axis.axis_line_color = axis.major_tick_line_color = _LINES
        axis.minor_tick_line_color = None
        axis.axis_line_alpha = 0.5
    for grid in fig.grid:
        grid.grid_line_color = _LINES
        grid.grid_line_alpha = 0.22
    return fig


def _display(fig: figure) -> None:
    """Show a figure that is the last expression of a cell; IPython finds this as its method."""
    if not curstate().notebook:
        load_bokeh()
    show(fig)


def load_bokeh() -> None:
    """Load the part of BokehJS that these figures need (1 MB of 4 MB) into a notebook."""
    output_notebook(Resources(mode="inline", components=["bokeh"]), hide_banner=True)


def add_glyph(
    fig: figure,
    glyph: Glyph,
    source: Any,
    *,
    legend: str = "",
    tips: Sequence[tuple[str, str]] = (),
    hover: Mapping[str, Any] | None = None,
    **options: Any,
) -> GlyphRenderer:
    """Add a glyph to a figure.

    Bokeh's own methods (``figure.line``) add two copies of each glyph (unselected, muted), which
    are most of the models of a page and are not used here.
    """
    if not isinstance(source, ColumnDataSource):
        source = ColumnDataSource(source)
    options = {"nonselection_glyph": None, "muted_glyph": None, **options}
    renderer = fig.add_glyph(source, glyph, **options)
    if tips:
        fig.add_tools(HoverTool(renderers=[renderer], tooltips=list(tips), **(hover or {})))
    if legend:
        item = LegendItem(label=value(legend), renderers=[renderer])
        if fig.legend:
            items: list[Any] = fig.legend[0].items
            items.append(item)
        else:
            fig.add_layout(Legend(items=[item]))
    return renderer


def add_stack(
    fig: figure, source: ColumnDataSource, names: list[str], colours: list[str], legend: list[str]
) -> None:
    """Add columns over ``time`` to a figure as stacked areas."""
    sums = [expr(Stack(fields=names[:count])) for count in range(len(names) + 1)]
    for i, (colour, label) in enumerate(zip(colours, legend, strict=True)):
        area = VArea(x="time", y1=sums[i], y2=sums[i + 1], fill_color=colour, fill_alpha=0.85)
        add_glyph(fig, area, source, legend=label, name=names[i])


def add_colour_bar(fig: figure, mapper: ColorMapper, unit: str, **options: Any) -> ColorBar:
    """Add the scale of a colour mapper to the right of a figure."""
    look: dict[str, Any] = {"major_label_text_color": INK, "background_fill_alpha": 0.0}
    bar = ColorBar(
        color_mapper=mapper, title=unit, title_text_color=INK, width=10, **look, **options
    )
    fig.add_layout(bar, "right")
    return bar


def add_limit(fig: figure, heights: Iterable[float], legend: str) -> None:
    """Add dashed horizontal lines to a figure."""
    look: dict[str, Any] = {"line_color": OTHER, "line_dash": "dashed"}
    spans = [Span(location=height, dimension="width", **look) for height in heights]
    for span in spans:
        fig.add_layout(span)
    if spans:  # a legend entry needs a renderer with data: an invisible point
        invisible = {"x": [float("nan")], "y": [float("nan")]}
        add_glyph(fig, Line(x="x", y="y", **look), invisible, legend=legend)


def place_legend(fig: figure, place: Literal["right", "below"] = "right") -> None:
    """Move the legend of a figure, if it has one, out of the plot area."""
    if not fig.legend:
        return
    legend = fig.legend[0]
    fig.add_layout(legend, place)
    legend.update(
        background_fill_alpha=0.0,
        border_line_alpha=0.0,
        label_text_color=INK,
        label_text_font_size="11px",
        glyph_width=14,
        glyph_height=14,
        spacing=14 if (below := place == "below") else 2,
        padding=4,
        margin=0,
        orientation="horizontal" if below else "vertical",
    )
    if not below:
        move = CustomJS(args={"figure": fig, "legend": legend}, code=read_script("narrow_legend"))
        fig.js_on_change("outer_width", move)


#: Border left of a figure over time, in pixels, where no server aligns figures below each other.
_TIME_BORDER = 78
#: Columns of a legend below a figure: three fit on the screen of a telephone; height of a row.
_LEGEND_COLUMNS, _LEGEND_ROW = 3, 22


def set_time_axis(fig: figure, ends: tuple[float, float]) -> None:
    """Give figures over the time of a run the same left and right end, in pixels and in seconds."""
    if not fig.xaxis[0].visible:  # a message instead of a plot
        return
    fig.min_border_left, fig.min_border_right = _TIME_BORDER, 16
    fig.x_range = Range1d(start=ends[0], end=ends[1])
    if fig.legend:
        place_legend(fig, "below")
        legend = fig.legend[0]
        legend.ncols = _LEGEND_COLUMNS
        fig.height = int(fig.height or 0) + _LEGEND_ROW * -(-len(legend.items) // _LEGEND_COLUMNS)


def empty_figure(title: str, text: str = "Nothing was recorded.") -> figure:
    """Return a figure that contains a text only: missing data are never drawn as 0."""
    fig = make_figure(
        title, "", "", height=90, tools="", toolbar_location=None, x_range=[0, 1], y_range=[0, 1]
    )
    fig.html_attributes = {"role": "img", "aria-label": f"{title} {text}"}
    fig.axis.visible = fig.grid.visible = False
    fig.text(
        [0.005], [0.5], [text], text_baseline="middle", text_color=INK,
        text_font_size="12px",
    )  # fmt: skip
    return fig


def retitle(fig: figure, title: str) -> None:
    """Set the title of a figure and its label for screen readers."""
    assert isinstance(fig.title, Title)
    fig.title.text = title
    fig.html_attributes = {**fig.html_attributes, "aria-label": title}


@lru_cache
def read_script(name: str) -> str:
    """Return a JavaScript file of the folder ``js``, as code of a Bokeh callback."""
    return (Path(__file__).parent / "js" / f"{name}.js").read_text(encoding="utf-8")


def has(tree: xr.DataTree, group: str, dim: str) -> bool:
    """Return whether a run has a group with at least one entry along a dimension."""
    return group in tree.children and bool(tree[group].sizes.get(dim))


def read_group(run: Run | xr.DataTree, group: str, dim: str) -> xr.Dataset | None:
    """Return one group of a run."""
    tree = to_tree(run)
    return tree[group].to_dataset() if has(tree, group, dim) else None


def to_tree(run: Run | xr.DataTree) -> xr.DataTree:
    """Return the DataTree of a run."""
    tree = run.tree if isinstance(run, Run) else run
    if not isinstance(tree, xr.DataTree):
        raise UsageError(f"plots take a Run, not {run!r}: open runs with Store.open")
    return tree


def shorten(name: str, most: int) -> str:
    """Cut the middle of a name that is too long for a label.

    Examples
    --------
    >>> shorten("array.basic_sum[kind=fast-thin]", 16)
    'array.b…st-thin]'
    """
    return name if len(name) <= most else f"{name[: (most - 1) // 2]}…{name[-(most // 2) :]}"


def row_labels(names: Iterable[str], most: int) -> list[str]:
    """Return distinct labels of rows, because the factors of a range must be distinct."""
    labels = [shorten(name, most) for name in names]
    return [label + "\u200b" * labels[:i].count(label) for i, label in enumerate(labels)]


def metric_label(name: str) -> str:
    """Return the name of a metric in words."""
    return METRICS[name].long_name if name in METRICS else name.replace("_", " ")
