"""Bokeh's models written and walked over without asking for defaults that do not matter.

To send a model, Bokeh (3.7 to 3.9) finds out the default of each property that was never set, of
which a figure has a hundred, and leaves it out: two thirds of the time that a page costs its
server. To find the models that a page is made of it looks into as many. What was set is known
without; this asks for that only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import bokeh.model.util as models_of
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

__all__ = ["install_fast_serializer"]

_slow = HasProps.query_properties_with_values
_slow_walk: Any = getattr(models_of, "visit_immediate_value_references", None)


def install_fast_serializer() -> bool:
    """Let models be written quickly from now on, in this process.

    Returns
    -------
    bool
        Whether they are: if anything else were written of some models than before, as may be with
        another release of Bokeh, all stays as it was.
    """
    if _slow_walk is None:  # private to Bokeh, so another release may do without
        return False
    sample = _sample()
    _let(_quick, _quick_walk)
    try:  # before Bokeh's own way, which leaves traces of the defaults that it asked for
        quickly = _told_of(sample)
    except (AttributeError, TypeError):
        quickly = None
    _let(_slow, _slow_walk)
    agreed = _told_of(sample) == quickly
    if agreed:
        _let(_quick, _quick_walk)
    return agreed


def _let(write: Callable[..., Any], walk: Callable[..., Any]) -> None:
    HasProps.query_properties_with_values = write  # type: ignore[method-assign]
    models_of.visit_immediate_value_references = walk


def _told_of(sample: Model) -> Any:
    """Return which models a model is made of, in order, and what is written of them."""
    return models_of.collect_models(sample), Serializer().encode(sample)


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


def _quick_walk(value: Any, visitor: Callable[[Model], None]) -> None:
    """Do what `bokeh.model.util.visit_immediate_value_references` does."""
    if not isinstance(value, HasProps):
        models_of.visit_value_and_its_immediate_references(value, visitor)
        return
    held = {
        *value._property_values,
        *value._unstable_default_values,
        *(value.themed_values() or ()),
    }
    for name, always in _holding(type(value)):
        if always or name in held:
            models_of.visit_value_and_its_immediate_references(getattr(value, name), visitor)


@cache
def _holding(kind: type[HasProps]) -> list[tuple[str, bool]]:
    """Return the properties that may hold models, and whether those never set may do so, too."""
    found = []
    for name in kind.properties_with_refs():
        default = kind.lookup(name).class_default(kind)
        is_bare = default is None or default is Undefined or isinstance(default, (str, int, float))
        found.append(
            (name, not (is_bare or (isinstance(default, (list, dict, tuple)) and not default)))
        )
    return found
