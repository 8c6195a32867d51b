"""Addresses of views: the query string contains the state of the page.

Panel's ``pn.state.location.sync`` is not used: it parses values as JSON (the text "007" becomes a
number), writes the default of every widget into the address when a page opens, which adds an entry
to the browser's history, and keeps keys without a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

import panel as pn

from benchkit.analysis.regression.history import SERIES_FIELDS

__all__ = ["address", "history_address", "write_address"]


def address(view: str, **keys: Any) -> str:
    """Return the address of a view.

    Examples
    --------
    >>> address("history", workload="array.sum[k=1]", metric=None)
    '?view=history&workload=array.sum%5Bk%3D1%5D'
    """
    present = {name: value for name, value in keys.items() if value not in (None, "")}
    return "?" + urlencode({"view": view, **present})


def history_address(series: Mapping[str, Any], metric: str | None = None) -> str:
    """Return the address of the history of a series."""
    return address("history", metric=metric, **{name: series.get(name) for name in SERIES_FIELDS})


def write_address(view: str, state: Mapping[str, Any]) -> None:
    """Write the state of a page into its address, as a new entry of the browser's history."""
    location = pn.state.location
    if location is None:
        return
    new = address(view, **{k: v for k, v in state.items() if k != "view"})
    # Add no entry if the keys are equal, for example with another encoding.
    if dict(parse_qsl(new[1:])) != dict(parse_qsl((location.search or "")[1:])):
        location.search = new
