"""Delay an action until input has stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import panel as pn
from bokeh.model import Model

__all__ = ["Debounced"]

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
