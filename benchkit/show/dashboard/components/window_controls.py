"""Widgets above the plots of a run that show and set the time window."""

from __future__ import annotations

from typing import Any

import panel as pn
from panel.viewable import Viewable

from benchkit.show.dashboard.components import ui
from benchkit.show.dashboard.state.time_window import Window, align
from benchkit.show.plots.base import retitle
from benchkit.show.plots.thread_activity import window_strip

__all__ = ["window_controls"]


def window_controls(
    window: Window, group: pn.widgets.Select, *, button: str, title: str = ""
) -> list[Viewable]:
    """Return a strip of the whole time range, and fields for group and window."""
    strip = window_strip(window.run.tree, window.whole, window.range)
    align(strip)
    if title:
        retitle(strip, title)
    description = ui.paragraph(window.description)
    whole = pn.widgets.Button(name=button, button_type="default", width=110, align="end")
    whole.on_click(window.reset)

    def show() -> None:
        ui.set_paragraph(description, window.description)
        whole.disabled = window.part is None

    window.subscribe(show, now=True)
    place = pn.Column(description, width=330, align="end")
    row = pn.FlexBox(group, *_end_fields(window), whole, place, align_items="end")
    return [ui.figure(strip), row]


def _end_fields(window: Window) -> list[pn.widgets.FloatInput]:
    """Return input fields for both ends of the window, for use with the keyboard."""
    fields = [
        pn.widgets.FloatInput(
            name=name, value=None, width=112, format="0.000", margin=(5, 10, 5, 0)
        )
        for name in ("From (s)", "To (s)")
    ]
    is_updating = False

    def show() -> None:
        nonlocal is_updating
        is_updating = True
        for field, end in zip(fields, window.ends, strict=True):
            field.value = round(end, 6)
        is_updating = False

    def set_window(event: Any) -> None:
        if is_updating:
            return
        ends = list(window.ends)
        ends[fields.index(event.obj)] = event.new
        if event.new is None or not window.zoom(*ends):
            show()  # restore the valid values

    window.subscribe(show, now=True)
    for field in fields:
        field.param.watch(set_window, "value")
    return fields
