"""Addresses of views: the query string contains the state of the page.

Panel's ``pn.state.location.sync`` is not used: it parses values as JSON (the text "007" becomes a
number), writes the default of every widget into the address when a page opens, which adds an entry
to the browser's history, and keeps keys without a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

import panel as pn
from bokeh.model import Model

from benchkit.analysis.regression.history import SERIES_FIELDS
from benchkit.show.pages.page import Target


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


def href(target: Target) -> str:
    """Return the address of the page that a text leads to."""
    if target.view == "regression":  # on the page of its series
        return history_address(target.keys, target.keys.get("metric"))
    return address(target.view, **target.keys)


def write_address(view: str, state: Mapping[str, Any]) -> None:
    """Write the state of a page into its address, as a new entry of the browser's history."""
    location = pn.state.location
    if location is None:
        return
    new = address(view, **{k: v for k, v in state.items() if k != "view"})
    # Add no entry if the keys are equal, for example with another encoding.
    if dict(parse_qsl(new[1:])) != dict(parse_qsl((location.search or "")[1:])):
        location.search = new


#: Milliseconds without input before the browser's history gets an entry.
DELAY_MS = 600


class Debounced:
    """Callable that runs an action once, after calls have stopped for `DELAY_MS`."""

    def __init__(
        self, action: Callable[[], Any], model: Callable[[], Model | None] = lambda: None
    ) -> None:
        self._action, self._model = action, model
        self._n_calls = self._n_checked = 0

    def __call__(self, *events: Any) -> None:
        """Request the action."""
        self._n_calls += 1
        document = pn.state.curdoc or getattr(self._model(), "document", None)
        if document is None or document.session_context is None:  # in a notebook
            self._n_calls = 0
            self._action()
        elif self._n_calls == 1:

            def check() -> None:
                if self._n_checked != self._n_calls:  # called again meanwhile
                    self._n_checked = self._n_calls
                    document.add_timeout_callback(check, DELAY_MS)
                    return
                self._n_calls = self._n_checked = 0
                self._action()

            self._n_checked = 1
            document.add_timeout_callback(check, DELAY_MS)
