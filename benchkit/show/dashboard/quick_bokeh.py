"""Bokeh's models written without asking for the defaults that are not written.

To send a model, Bokeh (3.7 to 3.9) finds out the default of each property that was never set, of
which a figure has a hundred, and leaves it out: two thirds of the time that a page costs its
server. What was set is known without; this asks for that only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from bokeh.core.has_props import HasProps
from bokeh.core.property.singletons import Undefined
from bokeh.core.property.wrappers import PropertyValueContainer
from bokeh.core.serialization import Serializer
from bokeh.model import Model
from bokeh.models.layouts import Column
from bokeh.models.ranges import Range1d
from bokeh.models.ui import UIElement
from bokeh.models.widgets import Div, Slider
from bokeh.plotting import figure

__all__ = ["hurry_up"]

_slow = HasProps.query_properties_with_values


def hurry_up() -> bool:
    """Let models be written quickly from now on, in this process.

    Returns
    -------
    bool
        Whether they are: if anything else were written of some models than before, as may be with
        another release of Bokeh, all stays as it was.
    """
    HasProps.query_properties_with_values = _slow  # type: ignore[method-assign]
    sample = _sample()
    usual = Serializer().encode(sample)
    HasProps.query_properties_with_values = _quick  # type: ignore[method-assign]
    try:
        agreed = Serializer().encode(sample) == usual
    except (AttributeError, TypeError):
        agreed = False
    if not agreed:
        HasProps.query_properties_with_values = _slow  # type: ignore[method-assign]
    return bool(agreed)


def _sample() -> Model:
    """Return a model that holds others of many kinds."""
    drawn = figure(title="sample", tools="xwheel_zoom,hover", x_range=Range1d(start=0, end=1))
    drawn.rect("x", "y", 1, 1, source={"x": [1], "y": [2]}, fill_color="navy")
    drawn.varea_stack(["y"], x="x", source={"x": [1], "y": [2]}, legend_label=["y"])
    children: list[UIElement] = [Div(text="sample"), Slider(start=0, end=1, value=0.5), drawn]
    return Column(children=children, styles={"color": "navy"})


def _quick(
    self: HasProps,
    query: Callable[[Any], bool],
    *,
    include_defaults: bool = True,
    include_undefined: bool = False,
) -> dict[str, Any]:
    """Do what `HasProps.query_properties_with_values` does."""
    themed = self.themed_values() or {}
    unstable = self._unstable_default_values
    chosen = {*self._property_values, *unstable, *themed}
    if include_defaults or include_undefined or not _required(type(self)) <= chosen:
        return _slow(
            self, query, include_defaults=include_defaults, include_undefined=include_undefined
        )
    found = {}
    for key in self.properties(_with_props=True):
        if key not in chosen or not query(descriptor := self.lookup(key)):
            continue
        value = descriptor.get_value(self)
        if key in themed or key not in unstable or not isinstance(value, PropertyValueContainer):
            found[key] = value
    return found


@cache
def _required(kind: type[HasProps]) -> frozenset[str]:
    """Return the properties that have no default, without which Bokeh refuses to write."""
    return frozenset(
        name
        for name in kind.properties(_with_props=True)
        if kind.lookup(name).class_default(kind) is Undefined
    )
