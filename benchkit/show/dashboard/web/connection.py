"""What passes between a page and its browser before all of it is painted.

Panel takes a page for connected once its last figure is painted, and fails or forgets what is said
before. A browser that has something to say holds the document already; only what is put into the
page has to wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import panel as pn

__all__ = ["is_being_painted", "listen_at_once", "once_painted"]

#: Pages that browsers build, and what is called when they are painted.
_unpainted: WeakKeyDictionary[Any, list[Callable[[], None]]] = WeakKeyDictionary()


def listen_at_once() -> None:
    """Let answers reach the browser from its first word on, a click in the first second among them.

    It is called for each page before its content is made.
    """
    document = pn.state.curdoc
    if document is None or document.session_context is None:
        return
    _unpainted[document] = []

    def heard(event: Any) -> None:
        if getattr(event, "setter", None) is not None:  # from the browser, not from the server
            told(event)

    def told(event: Any) -> None:
        # Panel changes a page outside of its lock, and holds what it would send, if it is loaded.
        for known in ("_connected", "_loaded"):
            getattr(pn.state, known, {})[document] = True

    def painted() -> None:
        for callback in _unpainted.pop(document, []):
            callback()

    def left(_: Any) -> None:
        _unpainted.pop(document, None)

    document.on_change(heard)
    document.on_message("bokeh_event", told)
    document.on_session_destroyed(left)
    pn.state.onload(painted)


def is_being_painted(document: Any) -> bool:
    """Return whether a browser has a page and builds it: what is put into it now would be lost.

    Before it has come it is not: it will be given all that the page holds by then.
    """
    session = getattr(document.session_context, "session", None)
    return document in _unpainted and session is not None and session.connection_count > 0


def once_painted(document: Any, callback: Callable[[], None]) -> None:
    """Call something when the browser that builds a page has painted it."""
    _unpainted[document].append(callback)
