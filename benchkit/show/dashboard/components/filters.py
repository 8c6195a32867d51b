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
    """Return a select.

    Parameters
    ----------
    name : str
        Label.
    options : mapping or list
        Label -> value in the address, or labels that are values.
    value : object
        Initial value, for example of the address; need not be valid.
    width : int
        Width in pixels.
    default : object, optional
        Value used if `value` is not among the options; by default the first option.

    Returns
    -------
    panel.widgets.Select
        The select.
    """
    values = list(options.values()) if isinstance(options, Mapping) else options
    if value not in values:
        value = values[0] if default is None else default
    return pn.widgets.Select(name=name, options=options, value=value, width=width)


def find_field(
    state: Mapping[str, str], placeholder: str = "part of a name", width: int = 190
) -> pn.widgets.TextInput:
    """Return a field for words to find.

    Parameters
    ----------
    state : mapping of str to str
        The address; ``find`` is the initial text.
    placeholder : str, optional
        Text shown in the empty field.
    width : int, default 190
        Width in pixels.

    Returns
    -------
    panel.widgets.TextInput
        The field.
    """
    text = state.get("find", "")
    return pn.widgets.TextInput(name="Find", placeholder=placeholder, value=text, width=width)


def has_words(name: str, find: str) -> bool:
    """Return whether a name contains every word of a text, ignoring case.

    Parameters
    ----------
    name, find : str
        Name, and words separated by spaces.

    Returns
    -------
    bool
        True if it does, also without words.
    """
    return all(word in name.lower() for word in find.lower().split())


def metric_select(
    metrics: Collection[str], value: str | None, *, width: int = 300
) -> pn.widgets.Select:
    """Return a select of metrics by their long names.

    Parameters
    ----------
    metrics : collection of str
        Names of the metrics.
    value : str or None
        Initial metric; the first if it is not among the metrics.
    width : int, default 300
        Width in pixels.

    Returns
    -------
    panel.widgets.Select
        The select.
    """
    return select("Metric", {METRICS[name].long_name: name for name in metrics}, value, width=width)


def filtered(
    view: str,
    widgets: Mapping[str, Any],
    make: Callable[[dict[str, str]], list[Viewable]],
    **fixed: str,
) -> pn.Column:
    """Return filters with the content below, and write their values into the address.

    Parameters
    ----------
    view : str
        Name of the view in the address; empty to keep the address.
    widgets : mapping of str to widget
        Key of the address -> widget.
    make : callable
        Returns the content for the values of the filters; may change the values.
    **fixed
        Further keys of the address.

    Returns
    -------
    panel.Column
        Filters and content.
    """
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
