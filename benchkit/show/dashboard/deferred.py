"""How the content of a page comes into its frame.

A page is sent as a frame with a placeholder, in some milliseconds and however large the store. Its
content is made while the browser reads its scripts: what is seen first, and then what is below it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import panel as pn
from bokeh.settings import settings
from panel.io.resources import LOCAL_DIST

from benchkit.show.dashboard.components import components as parts
from benchkit.show.dashboard.web.connection import is_being_painted, once_painted
from benchkit.show.dashboard.web.turns import turns_here

__all__ = ["filled_later"]

#: The page itself is sent before its content is begun with; browsers take longer to read scripts.
PAUSE_MS = 60

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

    def ask() -> None:
        turns_here().ask(document, take, below=bool(below))

    def ask_again() -> None:  # on the loop, whatever thread Panel calls this in
        document.add_next_tick_callback(ask)

    def take() -> None:
        if is_being_painted(document):
            once_painted(document, ask_again)
        else:
            fill()

    document.add_timeout_callback(ask, 1 if below else PAUSE_MS)
    return place
