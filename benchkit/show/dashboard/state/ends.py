"""Fields for the ends of the window of time, which the keyboard reaches."""

from __future__ import annotations

from typing import Any

import panel as pn

from benchkit.show.dashboard.state.time_window import Window

__all__ = ["end_fields"]


def end_fields(window: Window) -> list[Any]:
    """Return fields for the ends of the window: what dragging does, by the keyboard."""
    fields = [
        pn.widgets.FloatInput(
            name=name, value=None, width=112, format="0.000", margin=(5, 10, 5, 0)
        )
        for name in ("From (s)", "To (s)")
    ]

    saying = False

    def show() -> None:
        nonlocal saying
        saying = True
        for field, end in zip(fields, window.ends, strict=True):
            field.value = round(end, 6)
        saying = False

    def typed(event: Any) -> None:
        if saying:
            return
        ends = list(window.ends)
        ends[fields.index(event.obj)] = event.new
        if event.new is None or not window.look(*ends):
            show()  # what makes no sense is gone again

    show()
    window.follow(show)
    for field in fields:
        field.param.watch(typed, "value")
    return fields
