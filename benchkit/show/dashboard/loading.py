"""How the content of a page comes into its frame.

A page is sent as a frame with a placeholder, in some milliseconds and however large the store. Its
content is made while the browser reads its scripts: what is seen first, and then what is below it.
"""

from __future__ import annotations

import logging
import math
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
#: What is below the first screen waits while others got their first screens so recently, ...
OTHERS_MS = 150
#: ... but not for longer than this.
PATIENCE_S = 3.0

_log = logging.getLogger(__name__)


def filled_later(make: Callable[[], Any], *, below: int = 0) -> Any:
    """Return a place for what `make` returns, which is called once the page has been sent.

    Parameters
    ----------
    make : callable
        Returns the content.
    below : int, default 0
        About how high it is, in pixels, if it is below what is seen first: then it is made when
        nobody waits for a first screen.
    """
    place = pn.Column(sizing_mode="stretch_width", margin=0)
    document = pn.state.curdoc
    if document is None or document.session_context is None:
        place[:] = [make()]
        return place
    if below:
        place.param.update(tags=["coming"], min_height=below)

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
        place.param.update(objects=[content], **({"tags": [], "min_height": None} if below else {}))

    def begin() -> None:
        session = getattr(document.session_context, "session", None)
        if session is not None and session.connection_count:
            # What is put into a page while the browser builds it would be lost.
            pn.state.onload(fill_in_turn)
        else:
            fill_in_turn()

    def fill_in_turn() -> None:
        # One thread serves all: between two contents it sends the pages that were asked for.
        now = time.monotonic()
        if now < _turn.begins or (
            below and now < patience and _turn.is_of_others(id(document), now)
        ):
            document.add_timeout_callback(begin, BREATH_MS)
            return
        try:
            fill()
        finally:
            now = time.monotonic()
            _turn.begins = now + BREATH_MS / 1e3
            if not below:
                _turn.first, _turn.first_at = id(document), now

    patience = time.monotonic() + PATIENCE_S
    document.add_timeout_callback(begin, 1 if below else PAUSE_MS)
    return place


@dataclass
class _Turn:
    begins: float = 0.0
    #: The document whose first screen was made last, and when.
    first: int = 0
    first_at: float = -math.inf

    def is_of_others(self, document: int, now: float) -> bool:
        """Tell whether others wait for their first screens, as far as one can know."""
        return document != self.first and now < self.first_at + OTHERS_MS / 1e3


_turn = _Turn()
