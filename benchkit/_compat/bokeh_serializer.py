"""Faster serialization of Bokeh models: skip properties that were never set.

To send a model, Bokeh computes the default of each property that was never set (about 100 per
figure) and then leaves it out; this takes two thirds of the server time of a page. To collect the
models of a page it reads these properties too. This module replaces both functions by versions
that read only the properties that were set.

Replaces `HasProps.query_properties_with_values` and
`bokeh.model.util.visit_immediate_value_references`; checked with Bokeh 3.9.2. Upstream:
https://github.com/bokeh/bokeh/blob/f701bc9d443cc398960c562e366b37bc2bc1341e/src/bokeh/core/has_props.py
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import bokeh
import bokeh.model.util as model_util
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

_bokeh_query = HasProps.query_properties_with_values
_bokeh_visit: Any = getattr(model_util, "visit_immediate_value_references", None)


def install_fast_serializer() -> bool:
    """Use the fast serializer in this process if it gives the same result as Bokeh's."""
    if _bokeh_visit is None:
        _warn_fallback()
        return False
    sample = _sample()
    _install(_fast_query, _fast_visit)
    try:  # first the fast functions: Bokeh's own store the defaults that they compute
        fast = _serialize(sample)
    except (AttributeError, TypeError):
        fast = None
    _install(_bokeh_query, _bokeh_visit)
    is_equal = bool(_serialize(sample) == fast)
    if is_equal:
        _install(_fast_query, _fast_visit)
    else:
        _warn_fallback()
    return is_equal


def _warn_fallback() -> None:
    warnings.warn(
        f"fast serializer not used: not compatible with Bokeh {bokeh.__version__}; "
        "pages take longer to load",
        RuntimeWarning,
        stacklevel=3,
    )


def _install(query: Callable[..., Any], visit: Callable[..., Any]) -> None:
    HasProps.query_properties_with_values = query  # type: ignore[method-assign]
    model_util.visit_immediate_value_references = visit


def _serialize(sample: Model) -> Any:
    """Return the models that a model refers to, in order, and its serialized form."""
    return model_util.collect_models(sample), Serializer().encode(sample)


def _sample() -> Model:
    """Return a model that refers to models of many types."""
    plot = figure(title="sample", tools="xwheel_zoom,hover", x_range=Range1d(start=0, end=1))
    plot.rect("x", "y", 1, 1, source={"x": [1], "y": [2]}, fill_color="navy")
    plot.varea_stack(["y"], x="x", source={"x": [1], "y": [2]}, legend_label=["y"])
    children: list[UIElement] = [Div(text="sample"), Slider(start=0, end=1, value=0.5), plot]
    return Column(children=children, styles={"color": "navy"})


def _fast_query(
    self: HasProps,
    query: Callable[[Any], bool],
    *,
    include_defaults: bool = True,
    include_undefined: bool = False,
) -> dict[str, Any]:
    """Replace `HasProps.query_properties_with_values`."""
    themed = self.themed_values() or {}
    unstable = self._unstable_default_values
    set_names = {*self._property_values, *unstable, *themed}
    if include_defaults or include_undefined or not _required_properties(type(self)) <= set_names:
        return _bokeh_query(
            self, query, include_defaults=include_defaults, include_undefined=include_undefined
        )
    result = {}
    for key in self.properties(_with_props=True):
        if key not in set_names or not query(descriptor := self.lookup(key)):
            continue
        value = descriptor.get_value(self)
        if key in themed or key not in unstable or not isinstance(value, PropertyValueContainer):
            result[key] = value
    return result


@cache
def _required_properties(kind: type[HasProps]) -> frozenset[str]:
    """Return the names of properties without a default, which Bokeh requires to be set."""
    return frozenset(
        name
        for name in kind.properties(_with_props=True)
        if kind.lookup(name).class_default(kind) is Undefined
    )


def _fast_visit(value: Any, visitor: Callable[[Model], None]) -> None:
    """Replace `bokeh.model.util.visit_immediate_value_references`."""
    if not isinstance(value, HasProps):
        model_util.visit_value_and_its_immediate_references(value, visitor)
        return
    set_names = {
        *value._property_values,
        *value._unstable_default_values,
        *(value.themed_values() or ()),
    }
    for name, default_refers in _reference_properties(type(value)):
        if default_refers or name in set_names:
            model_util.visit_value_and_its_immediate_references(getattr(value, name), visitor)


@cache
def _reference_properties(kind: type[HasProps]) -> list[tuple[str, bool]]:
    """Return properties that may refer to models, and whether their defaults may, too."""
    result = []
    for name in kind.properties_with_refs():
        default = kind.lookup(name).class_default(kind)
        is_bare = default is None or default is Undefined or isinstance(default, (str, int, float))
        result.append(
            (name, not (is_bare or (isinstance(default, (list, dict, tuple)) and not default)))
        )
    return result
