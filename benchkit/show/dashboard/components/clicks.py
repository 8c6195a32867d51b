"""What a click on a figure leads to: the page of a run, two runs side by side, a row's cause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bokeh.models import CustomJS, TapTool

__all__ = ["CLICKS", "leading", "linked"]

CLICKS = "A click on a dot opens the run; two clicks with Shift held put two runs side by side."

#: With Shift the first of two runs waits for the second, in whichever figure and of whichever kind
#: they are: each kind has a source of its own. The one that ranks first is A, else the older.
_CLICKED = """
const held = (window.benchkitHeld ??= new Map());
if (!window.benchkitShift) held.clear();
const rank = source.data.rank ?? source.data.x;
for (const at of source.selected.indices) held.set(source.data.id[at], rank[at]);
const ids = [...held.keys()].filter((id) => id).sort((a, b) => held.get(a) - held.get(b));
if (window.benchkitShift ? ids.length > 1 : ids.length) {
  held.clear();
  window.location.search = window.benchkitShift
    ? `?view=pair&a=${ids[0]}&b=${ids[ids.length - 1]}` : `?view=run&id=${ids[0]}`;
}
"""
_LED = """
const [at] = source.selected.indices;
if (at !== undefined) window.location.search = source.data.way[at];
"""


def linked(drawn: Any) -> Any:
    """Let a click on a run of a figure open its page, and two with Shift hold two side by side.

    Runs are what sources named "runs" and "failures" have ``id`` of; A is what has the lower
    ``rank``, or ``x`` where there is none.
    """
    _follow(drawn, ("runs", "failures"), _CLICKED)
    return drawn


def leading(drawn: Any, way: Callable[[str, str], str]) -> Any:
    """Let a click on a row of a comparison lead to ``way(workload, contender)``."""
    for renderer in drawn.renderers:
        source = renderer.data_source
        if source.name == "rows":
            pairs = zip(source.data["workload"], source.data["contender"], strict=True)
            source.data["way"] = [way(*pair) for pair in pairs]
    _follow(drawn, ("rows",), _LED)
    return drawn


def _follow(drawn: Any, names: tuple[str, ...], code: str) -> None:
    renderers = [one for one in drawn.renderers if one.data_source.name in names]
    for source in {id(one.data_source): one.data_source for one in renderers}.values():
        source.selected.js_on_change("indices", CustomJS(args={"source": source}, code=code))
    if renderers and not drawn.select(TapTool):
        drawn.add_tools(TapTool(renderers=renderers))
