"""Addresses of views: the whole state of a page, one way to write it."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlencode

import panel as pn

__all__ = ["address", "remember"]


def address(view: str, **keys: Any) -> str:
    """Return the address of a state of a view; what is None or empty is left out.

    Examples
    --------
    >>> address("history", workload="array.sum[k=1]", metric=None)
    '?view=history&workload=array.sum%5Bk%3D1%5D'
    """
    given = {name: value for name, value in keys.items() if value not in (None, "")}
    return "?" + urlencode({"view": view, **given})


def remember(view: str, state: dict[str, Any]) -> None:
    """Write the state of a page into its address; the browser's back leads to the one before."""
    location = pn.state.location
    if location is None:
        return
    new = address(view, **{k: v for k, v in state.items() if k != "view"})
    # The same in other words is no new entry of the browser's history.
    if dict(parse_qsl(new[1:])) != dict(parse_qsl((location.search or "")[1:])):
        location.search = new
