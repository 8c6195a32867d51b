"""Call stacks of a run: the flame graph of all tasks or of one prefix, and what is looked for."""

from __future__ import annotations

from typing import Any

import panel as pn

from benchkit.show.dashboard import parts
from benchkit.show.dashboard.window import Window
from benchkit.show.plots.base import has
from benchkit.show.plots.flame import flame_graph

__all__ = ["stacks"]

ALL = "all tasks"


def stacks(window: Window) -> Any:
    """Return the flame graph with a choice of prefixes and a field to search in.

    Begins with the prefix of the group that the page points at.
    """
    run = window.run
    if not has(run.tree, "profile", "frame"):
        return parts.message(
            "No call stacks", "Capture in full takes them; this run had less, or none was taken."
        )
    profile = run.profile()
    roots = profile[profile["parent"] < 0].sort_values("count", ascending=False)
    prefix = pn.widgets.Select(name="Tasks", options=[ALL, *map(str, roots["prefix"])], width=280)
    find = pn.widgets.TextInput(name="Find", placeholder="function or file", width=280)
    shown = pn.Column(sizing_mode="stretch_width")

    def draw(*events: Any) -> None:
        chosen = None if prefix.value == ALL else prefix.value
        shown[:] = [parts.figure(flame_graph(run.tree, chosen, str(find.value or "").strip()))]

    def point() -> None:
        wanted = window.prefix
        prefix.value = wanted if wanted in prefix.options else ALL

    point()
    window.follow(point)
    draw()
    for widget in (prefix, find):
        widget.param.watch(draw, "value")
    return pn.Column(
        pn.Row(prefix, find),
        shown,
        parts.words("A click makes a call as wide as the page, two clicks show everything again."),
        sizing_mode="stretch_width",
    )
