"""Whose turn it is where one thread serves all: contents are made one after the other.

First screens come before what is below them, whoever came first; between two contents there is
time to send the pages that were asked for meanwhile.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from contextvars import Context
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from tornado.ioloop import IOLoop

__all__ = ["Turns", "turns_here"]

#: Between two contents.
BREATH_S = 0.002
#: Who does not take a turn within this time, for the visitor has left, loses it.
PATIENCE_S = 0.5


class Turns:
    """Those who wait to change their documents, in the order in which they may."""

    def __init__(self) -> None:
        self._waiting: list[tuple[bool, int, Any, Callable[[], None]]] = []
        self._number = count()
        self._timer: Any = None

    def __len__(self) -> int:
        return len(self._waiting)

    def ask(self, document: Any, act: Callable[[], None], *, below: bool = False) -> None:
        """Let something be called in its turn, with the lock of its document.

        Parameters
        ----------
        document : bokeh.document.Document
            What it changes.
        act : callable
            What is called, once, unless the document is gone by then.
        below : bool, default False
            Whether it comes after all who wait for a first screen.
        """
        heapq.heappush(self._waiting, (below, next(self._number), document, act))
        if self._timer is None:
            self._call_in(0.0)

    def _call_in(self, seconds: float) -> None:
        # One timer at a time: two would give two turns at once.
        loop = IOLoop.current()
        if self._timer is not None:
            loop.remove_timeout(self._timer)
        # Of nobody's context: by it Panel knows whose page it is, and the next turn is another's.
        self._timer = Context().run(loop.call_later, seconds, self._give)

    def _give(self) -> None:
        self._timer = None
        while self._waiting:
            _, _, document, act = heapq.heappop(self._waiting)
            if document.session_context is None or document.session_context.destroyed:
                continue
            self._call_in(PATIENCE_S)
            document.add_next_tick_callback(lambda act=act: self._take(act))
            return

    def _take(self, act: Callable[[], None]) -> None:
        try:
            act()
        finally:
            self._call_in(BREATH_S)


_all: WeakKeyDictionary[IOLoop, Turns] = WeakKeyDictionary()


def turns_here() -> Turns:
    """Return the turns of those who are served by this thread's loop."""
    return _all.setdefault(IOLoop.current(), Turns())
