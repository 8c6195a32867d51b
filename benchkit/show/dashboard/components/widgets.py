"""Selects and fields above lists and plots, with values in the address; clicks on figures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import panel as pn
from bokeh.models import CustomJS, TapTool
from bokeh.models.renderers import GlyphRenderer
from bokeh.plotting import figure
from panel.viewable import Viewable

from benchkit.show.dashboard.state.time_window import Window, align
from benchkit.show.dashboard.state.url import write_address
from benchkit.show.dashboard.web.template import CLICK_RUN_SCRIPT
from benchkit.show.plots.base import retitle
from benchkit.show.plots.thread_activity import window_strip
from benchkit.show.render import panel as ui
from benchkit.store.schema import METRICS


def select(
    name: str,
    options: Mapping[str, Any] | list[str],
    value: Any,
    *,
    width: int,
    default: Any = None,
) -> pn.widgets.Select:
    """Return a select."""
    values = list(options.values()) if isinstance(options, Mapping) else options
    if value not in values:
        value = values[0] if default is None else default
    return pn.widgets.Select(name=name, options=options, value=value, width=width)


def find_field(
    state: Mapping[str, str], placeholder: str = "part of a name", width: int = 190
) -> pn.widgets.TextInput:
    """Return a field for words to find."""
    text = state.get("find", "")
    return pn.widgets.TextInput(name="Find", placeholder=placeholder, value=text, width=width)


def metric_select(
    metrics: Collection[str], value: str | None, *, width: int = 300
) -> pn.widgets.Select:
    """Return a select of metrics by their long names."""
    return select("Metric", {METRICS[name].long_name: name for name in metrics}, value, width=width)


def filtered(
    view: str,
    widgets: Mapping[str, Any],
    make: Callable[[dict[str, str]], list[Viewable]],
    **fixed: str,
) -> pn.Column:
    """Return filters with the content below, and write their values into the address."""
    body = ui.column()

    def update(*events: Any) -> None:
        values = {key: str(widget.value or "") for key, widget in widgets.items()}
        body[:] = ui.guard_parts(lambda: make(values))
        if events and view:
            write_address(view, {**fixed, **values})

    update()
    for widget in widgets.values():
        widget.param.watch(update, "value")
    return ui.column(pn.FlexBox(*widgets.values()), body)


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


CLICK_HELP = "A click on a dot opens the run; two clicks with Shift held compare two runs."


def open_on_run_click(plot: figure) -> figure:
    """Open the page of a run on a click in a figure, and the page of two runs on two Shift-clicks.

    Run ids come from column ``id`` of the sources "runs" and "failures". A is the run with the
    lower ``rank``, without ranks the lower ``x``.
    """
    renderers: list[Any] = [
        renderer
        for renderer in plot.renderers
        if isinstance(renderer, GlyphRenderer) and renderer.data_source.name in ("runs", "failures")
    ]
    for source in {renderer.data_source for renderer in renderers}:
        callback = CustomJS(args={"source": source}, code=CLICK_RUN_SCRIPT)
        source.selected.js_on_change("indices", callback)
    if renderers and not plot.select(TapTool):
        plot.add_tools(TapTool(renderers=renderers))
    return plot
