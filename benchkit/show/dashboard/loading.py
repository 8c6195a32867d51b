"""How the content of a page comes into its frame.

A page is sent as a frame with a placeholder, in some milliseconds and however large the store. Its
content is made while the browser reads its scripts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import panel as pn
from bokeh.settings import settings
from panel.io.resources import LOCAL_DIST

from benchkit.show.dashboard import parts

__all__ = ["filled_later"]

#: The page itself is sent before its content is begun with; browsers take longer to read scripts.
PAUSE_MS = 60
#: Between the contents of two pages.
BREATH_MS = 20

_log = logging.getLogger(__name__)


def filled_later(make: Callable[[], Any]) -> Any:
    """Return a place for what `make` returns, which is called once the page has been sent."""
    place = pn.Column(sizing_mode="stretch_width", margin=0)
    document = pn.state.curdoc
    if document is None or document.session_context is None:
        place[:] = [make()]
        return place

    if settings.resources(default="server") == "server":
        # Panel does so when it writes a page; of one whose frame it had before, it forgets to, and
        # asks a CDN for its styles.
        document.template_variables["dist_url"] = f"{pn.state.rel_path or '.'}/{LOCAL_DIST}"

    def fill() -> None:
        try:
            content = make()
        except Exception as error:  # a page that is for ever being made tells nobody
            _log.exception("a page could not be made")
            told = f"{type(error).__name__}: {error}"
            content = parts.message("This page cannot be shown", told, back=True)
        place[:] = [content]

    def begin() -> None:
        session = getattr(document.session_context, "session", None)
        if session is not None and session.connection_count:
            # What is put into a page while the browser builds it would be lost.
            pn.state.onload(fill_in_turn)
        else:
            fill_in_turn()

    def fill_in_turn() -> None:
        # One thread serves all: between two contents it sends the pages that were asked for.
        if time.monotonic() < _turn.begins:
            document.add_timeout_callback(begin, BREATH_MS)
            return
        try:
            fill()
        finally:
            _turn.begins = time.monotonic() + BREATH_MS / 1e3

    document.add_timeout_callback(begin, PAUSE_MS)
    return place


@dataclass
class _Turn:
    begins: float = 0.0


_turn = _Turn()
