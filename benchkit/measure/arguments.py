"""Check arguments that commands, Python functions and notebooks share: one function per kind.

``papermill -p NAME VALUE`` passes text where a notebook expects a list, and a number where the text
looks like one. Each function returns the value to use, or raises an error of one line.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any

from benchkit.measure.errors import UsageError


def list_of(value: Any, name: str) -> list[Any]:
    """Return a list argument; one text, path or object counts as a list of one.

    Examples
    --------
    >>> list_of("tip", "environments"), list_of('["tip", "release"]', "environments")
    (['tip'], ['tip', 'release'])
    """
    items = value
    if isinstance(value, str):
        items = [value] if value.strip() else []
        if value.lstrip().startswith("["):
            try:
                items = json.loads(value)
            except ValueError as error:
                raise _not_a_list(value, name) from error
    elif value is None:
        return []
    elif isinstance(value, os.PathLike) or not isinstance(value, Iterable):
        items = [value]
    items = [value] if isinstance(value, (Mapping, bytes)) else list(items)
    for item in items:
        if item is None or isinstance(item, (Mapping, bytes, bool, Real)):
            raise _not_a_list(value, name)
    return items


def _not_a_list(value: Any, name: str) -> UsageError:
    return UsageError(
        f"{name}={value!r}: must be a list of texts; papermill takes "
        f"-y '{{{name}: [first, second]}}'"
    )


def own_metric(name: Any, value: Any, unit: Any, better: Any) -> dict[str, Any]:
    """Return a metric that a user measured, for the tail of a recording."""
    if not isinstance(name, str) or not name.isidentifier():
        raise UsageError(f"metric name {name!r}: give a name such as rows_per_s")
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise UsageError(f"metric {name}={value!r}: must be a finite number")
    directions = {"more": "higher", "less": "lower", "higher": "higher", "lower": "lower", "": ""}
    if better not in directions:
        raise UsageError(f'metric {name}: better={better!r}: use "more", "less" or ""')
    units = check_text(unit, f"unit of {name}")
    return {"value": float(value), "units": units, "better": directions[better]}


def declared_unit(metrics: Mapping[str, Any], name: str) -> tuple[str, str]:
    """Return unit and direction of a metric that a workload declares: a text, or both."""
    declared = metrics.get(name, "1")
    return (declared, "") if isinstance(declared, str) else (str(declared[0]), str(declared[1]))


def check_text(value: Any, name: str) -> str:
    """Return an argument that must be text and not empty."""
    if not isinstance(value, str):
        raise UsageError(f"{name}={value!r}: must be text; papermill takes -r {name} VALUE")
    if not value.strip():
        raise UsageError(f"{name}={value!r}: is empty: give a name")
    return value


def check_scale(scale: Any) -> float:
    """Return a share of the full size of the data."""
    if _is_number(scale) and 0 < scale <= 1:
        return float(scale)
    raise UsageError(f"scale={scale!r}: must be a number above 0 and up to 1")


def check_count(value: Any, name: str, least: int = 1) -> int:
    """Return a whole number."""
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least:
        return int(value)
    raise UsageError(f"{name}={value!r}: must be a whole number, {least} or more")


def check_seconds(value: Any, name: str) -> float | None:
    """Return a time limit."""
    if value is None:
        return None
    if _is_number(value) and 0 < value < math.inf:
        return float(value)
    raise UsageError(f"{name}={value!r}: must be a number of seconds above 0")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def check_mapping(value: Any, name: str) -> dict[str, Any]:
    """Return a mapping argument."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(
            f"{name}={value!r}: must be a dict; papermill takes -y '{{{name}: {{key: value}}}}'"
        )
    for key in value:
        if not isinstance(key, str) or not key.strip():
            raise UsageError(f"{name}: key {key!r} must be text and not empty")
    return dict(value)


def check_tags(tags: Any) -> dict[str, Any]:
    """Return the tags of a run as JSON values."""
    return {key: _json_value(value) for key, value in check_mapping(tags, "tags").items()}


def _json_value(value: Any) -> Any:
    if getattr(value, "shape", None) == ():  # a NumPy scalar
        value = value.item()
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return str(value)
    return value
