"""The dashboard: one app, its views by name in the address.

``panel serve benchkit/show/dashboard/app.py`` and ``benchkit dashboard`` run this file. A view is a
module with a `TITLE` and a function `view(state)`; adding one is a line in `VIEWS`. The address
(``?view=run&id=...&tab=tasks``) holds the whole state of a page.
"""

from __future__ import annotations

import logging
import os
from types import ModuleType
from typing import Any

import panel as pn

from benchkit._compat.bokeh_serializer import install_fast_serializer
from benchkit.errors import BenchkitError
from benchkit.show.dashboard import live as follow
from benchkit.show.dashboard.compare import page as compare
from benchkit.show.dashboard.components import components as parts
from benchkit.show.dashboard.lists import environments, runs, workloads
from benchkit.show.dashboard.nights import history, overview
from benchkit.show.dashboard.pair import page as pair
from benchkit.show.dashboard.run import page as run
from benchkit.show.dashboard.state.cache import all_nights
from benchkit.show.dashboard.web.template import page, style_widgets

__all__ = ["VIEWS", "application"]

_log = logging.getLogger(__name__)

VIEWS: dict[str, ModuleType] = {
    "overview": overview,
    "history": history,
    "runs": runs,
    "run": run,
    "pair": pair,
    "follow": follow,
    "compare": compare,
    "workloads": workloads,
    "environments": environments,
}
#: Runs of one afternoon are a list; so many days of them are nights to look back on.
FEWEST_NIGHTS = 3
#: Views that need no more than their name are in the navigation.
_LISTED = ("overview", "history", "runs", "compare", "follow", "workloads", "environments")


def application() -> Any:
    """Return the page that the visitor's address asks for."""
    pn.extension("tabulator", notifications=False)
    style_widgets()
    state = _state()
    name = state.get("view") or _first()
    title = VIEWS[name].TITLE if name in VIEWS else "No such page"
    navigation = [{"name": key, "title": VIEWS[key].TITLE} for key in _LISTED]
    return page(
        _content(name, state),
        name,
        title=f"{title} · benchkit",
        current="runs" if name in ("run", "pair") else name,
        navigation=navigation,
    )


def _content(name: str, state: dict[str, str]) -> Any:
    if name not in VIEWS:
        return parts.message("There is no such page", f"Views are {', '.join(VIEWS)}.", back=True)
    try:
        return VIEWS[name].view(state)
    except BenchkitError as error:
        return parts.message("This cannot be shown", str(error))
    except Exception as error:
        _log.exception("view %r failed", name)
        return parts.message(
            "This page cannot be shown", f"{type(error).__name__}: {error}", back=True
        )


def _first() -> str:
    """Return the view to begin with: what runs if that is followed, else the last night."""
    if os.environ.get(follow.FOLLOW_VARIABLE):
        return "follow"
    try:
        return "overview" if len(all_nights().times) >= FEWEST_NIGHTS else "runs"
    except BenchkitError:
        return "runs"


def _state() -> dict[str, str]:
    """Return what the address says, each name once; the server takes no more than 64 kB of it."""
    return {
        name: values[0].decode("utf-8", "replace")
        for name, values in pn.state.session_args.items()
        if values
    }


if pn.state.served:  # by `panel serve` on this file
    install_fast_serializer()
    application().servable()
