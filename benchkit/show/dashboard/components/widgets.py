"""Filters above lists and plots, with values in the address; clicks on figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import panel as pn
from bokeh.models import CustomJS, TapTool
from bokeh.models.renderers import GlyphRenderer
from bokeh.plotting import figure
from panel.viewable import Viewable

from benchkit.show.dashboard.state.time_window import Window, align
from benchkit.show.dashboard.state.url import write_address
from benchkit.show.dashboard.web.template import CLICK_RUN_SCRIPT
from benchkit.show.pages.page import Filter
from benchkit.show.plots.base import retitle
from benchkit.show.plots.thread_activity import window_strip
from benchkit.show.render import panel as ui


def select(
    name: str, options: Mapping[str, Any] | list[str], value: Any, *, width: int
) -> pn.widgets.Select:
    """Return a select."""
    values = list(options.values()) if isinstance(options, Mapping) else options
    value = value if value in values else values[0]
    return pn.widgets.Select(name=name, options=options, value=value, width=width)


class FilterBar:
    """The widgets of filters; a new value of one calls a function with the filter and the value."""

    def __init__(self, filters: Sequence[Filter], change: Callable[[Filter, str], object]) -> None:
        self._change, self._is_updating = change, False
        self._widgets = {each.key: self._widget(each) for each in filters}
        self.view = pn.FlexBox(*self._widgets.values())

    def __bool__(self) -> bool:
        return bool(self._widgets)

    def _widget(self, choice: Filter) -> pn.widgets.Select | pn.widgets.TextInput:
        widget: pn.widgets.Select | pn.widgets.TextInput
        own: dict[str, Any] = {"name": choice.name, "value": choice.value, "margin": (5, 10, 5, 0)}
        # As wide as the longest text: 7 pixels a character.
        width = min(60 + 7 * max(map(len, choice.options or [choice.placeholder])), 300)
        if choice.options is None:
            own["placeholder"] = choice.placeholder
            widget = pn.widgets.TextInput(**own, width=max(width, 190))
        else:
            widget = pn.widgets.Select(**own, options=dict(choice.options), width=max(width, 130))

        def change(event: Any) -> None:
            if not self._is_updating:
                self._change(choice, str(event.new or "").strip())

        widget.param.watch(change, "value")
        return widget

    def show(self, filters: Sequence[Filter]) -> None:
        """Set the widgets to filters with the same keys."""
        self._is_updating = True
        for choice in filters:
            options = {} if choice.options is None else {"options": dict(choice.options)}
            self._widgets[choice.key].param.update(**options, value=choice.value)
        self._is_updating = False


def filtered(
    view: str,
    filters: Callable[[Mapping[str, str]], Sequence[Filter]],
    make: Callable[[dict[str, str]], Sequence[Viewable]],
    state: Mapping[str, str],
    **fixed: str,
) -> pn.Column:
    """Return filters with the content below, and write their values into the address.

    `filters` returns those for a state: a new value of one can change the options of others.
    """
    choices = filters(state)
    values = {each.key: each.value for each in choices}

    def update(choice: Filter, text: str) -> Sequence[Viewable]:
        values.update({**dict.fromkeys(choice.resets, ""), choice.key: text})
        choices = filters(values)
        bar.show(choices)
        values.update({each.key: each.value for each in choices})
        if view:
            write_address(view, {**fixed, **values})
        return make(dict(values))

    def change(choice: Filter, text: str) -> None:
        body[:] = ui.guard_parts(lambda: update(choice, text))

    bar = FilterBar(choices, change)
    body = ui.column(*ui.guard_parts(lambda: make(dict(values))))
    return ui.column(bar.view, body)


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
