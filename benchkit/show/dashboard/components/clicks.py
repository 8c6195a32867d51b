"""Click actions of figures: open a run, two runs, or the explanation of a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bokeh.models import CustomJS, TapTool
from bokeh.models.renderers import GlyphRenderer
from bokeh.plotting import figure

from benchkit.show.dashboard.web.template import CLICK_ROW_SCRIPT, CLICK_RUN_SCRIPT

CLICK_HELP = "A click on a dot opens the run; two clicks with Shift held compare two runs."


def open_on_run_click(plot: figure) -> figure:
    """Open the page of a run on a click in a figure, and the page of two runs on two Shift-clicks.

    Run ids come from column ``id`` of the sources "runs" and "failures". A is the run with the
    lower ``rank``, without ranks the lower ``x``.
    """
    return _on_click(plot, ("runs", "failures"), CLICK_RUN_SCRIPT)


def open_on_row_click(plot: figure, target: Callable[[str, str], str]) -> figure:
    """Open an address on a click on a row of a comparison."""
    for renderer in _renderers(plot, ("rows",)):
        data = renderer.data_source.data
        pairs = zip(data["workload"], data["contender"], strict=True)
        data["target"] = [target(*pair) for pair in pairs]
    return _on_click(plot, ("rows",), CLICK_ROW_SCRIPT)


def _on_click(plot: figure, names: tuple[str, ...], code: str) -> figure:
    renderers = _renderers(plot, names)
    for source in {renderer.data_source for renderer in renderers}:
        source.selected.js_on_change("indices", CustomJS(args={"source": source}, code=code))
    if renderers and not plot.select(TapTool):
        plot.add_tools(TapTool(renderers=renderers))
    return plot


def _renderers(plot: figure, names: tuple[str, ...]) -> list[Any]:
    return [
        renderer
        for renderer in plot.renderers
        if isinstance(renderer, GlyphRenderer) and renderer.data_source.name in names
    ]
