"""Page of two runs: its sections below each other, of one time window and task group."""

from __future__ import annotations

from functools import partial

import panel as pn
from panel.viewable import Viewable

from benchkit.errors import BenchkitError
from benchkit.show.dashboard.components.widgets import window_controls
from benchkit.show.dashboard.run.page import live_views
from benchkit.show.dashboard.run.task_groups import choose_group
from benchkit.show.dashboard.state.cache import load_run
from benchkit.show.dashboard.state.time_window import PairWindow
from benchkit.show.dashboard.state.url import address, href
from benchkit.show.pages.pair import PairData, page, sections
from benchkit.show.render import panel as ui

TITLE = "Two runs"


def view(state: dict[str, str]) -> Viewable:
    """Return the page of two runs."""
    if not {"a", "b"} <= set(state):
        return ui.message("Which two runs?", "Select two runs in the list of runs.", back=True)
    try:
        data = PairData(load_run(state["a"]), load_run(state["b"]))
    except BenchkitError as error:
        return ui.message("These runs cannot be shown", str(error), back=True)
    window = PairWindow(data, state)
    first, *others = sections(data, {})
    return ui.column(
        ui.guard(lambda: ui.head(page(data, {}))),
        ui.guard(lambda: ui.section(first, href)),
        *ui.guard_parts(lambda: controls(window)),
        *live_views(window, partial(sections, data), [section.key for section in others]),
    )


def controls(window: PairWindow) -> list[Viewable]:
    """Return the widgets that show and set the window and the group, and a link that swaps."""

    def swap_link() -> pn.pane.HTML:
        swapped = {"a": window.ids["b"], "b": window.ids["a"]}
        target = address("pair", **window.state(**swapped))
        return ui.link_line("See also", {target: "swap A and B"})

    links = swap_link()
    window.subscribe(lambda: links.param.update(object=swap_link().object))
    widgets = window_controls(
        window,
        choose_group(window, {name: name for name in window.data.groups}),
        button="Whole runs",
        title="Time window (s) of both runs, over the memory of B: drag in this or any plot",
    )
    return [*widgets, links]
