"""Selects and fields above a list, whose values are in the address of the page."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import panel as pn
from panel.viewable import Viewable

from benchkit.show.dashboard.components import ui
from benchkit.show.dashboard.state.url import write_address
from benchkit.store.schema import METRICS

__all__ = ["filtered", "find_field", "has_words", "metric_select", "select"]


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


def has_words(name: str, find: str) -> bool:
    """Return whether a name contains every word of a text, ignoring case."""
    return all(word in name.lower() for word in find.lower().split())


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
        body[:] = make(values)
        if events and view:
            write_address(view, {**fixed, **values})

    update()
    for widget in widgets.values():
        widget.param.watch(update, "value")
    return ui.column(pn.FlexBox(*widgets.values()), body)
