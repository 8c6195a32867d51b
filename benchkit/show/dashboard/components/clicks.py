"""Click actions of figures: open a run, two runs, or the explanation of a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bokeh.models import CustomJS, TapTool

from benchkit.show.dashboard.web.template import CLICK_ROW_SCRIPT, CLICK_RUN_SCRIPT

__all__ = ["CLICKS", "leading", "linked"]

CLICKS = "A click on a dot opens the run; two clicks with Shift held put two runs side by side."


def linked(drawn: Any) -> Any:
    """Open the page of a run on a click in a figure, and the page of two runs on two Shift-clicks.

    Run ids come from column ``id`` of the sources "runs" and "failures". A is the run with the
    lower ``rank``, without ranks the lower ``x``.
    """
    _follow(drawn, ("runs", "failures"), CLICK_RUN_SCRIPT)
    return drawn


def leading(drawn: Any, way: Callable[[str, str], str]) -> Any:
    """Open the address ``way(workload, contender)`` on a click on a row of a comparison."""
    for renderer in drawn.renderers:
        source = renderer.data_source
        if source.name == "rows":
            pairs = zip(source.data["workload"], source.data["contender"], strict=True)
            source.data["way"] = [way(*pair) for pair in pairs]
    _follow(drawn, ("rows",), CLICK_ROW_SCRIPT)
    return drawn


def _follow(drawn: Any, names: tuple[str, ...], code: str) -> None:
    renderers = [one for one in drawn.renderers if one.data_source.name in names]
    for source in {id(one.data_source): one.data_source for one in renderers}.values():
        source.selected.js_on_change("indices", CustomJS(args={"source": source}, code=code))
    if renderers and not drawn.select(TapTool):
        drawn.add_tools(TapTool(renderers=renderers))
