"""Panel app of the dashboard; the address selects the view.

``panel serve benchkit/show/dashboard/app.py`` and ``benchkit dashboard`` run this file. A view is a
module with a `TITLE` and a function `view(state)`, listed in `VIEWS`. The address
(``?view=run&id=...&tab=tasks``) contains the whole state of a page.
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
#: Nights from which on the first page is the overview instead of the list of runs.
FEWEST_NIGHTS = 3
#: Views in the navigation bar: those that need no further key.
_LISTED = ("overview", "history", "runs", "compare", "follow", "workloads", "environments")


def application() -> Any:
    """Return the page for the address of the session.

    Returns
    -------
    panel.Template
        The page, ready to serve.
    """
    pn.extension("tabulator", notifications=False)
    style_widgets()
    state = _state()
    name = state.get("view") or _first()
    title = VIEWS[name].TITLE if name in VIEWS else "No such page"
    navigation = [{"name": key, "title": VIEWS[key].TITLE} for key in _LISTED]
    return page(
        # loading.js waits until the root has children, so it must be a Column.
        pn.Column(_content(name, state), sizing_mode="stretch_width", margin=0),
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
    """Return the default view: the followed experiment, the last night, or the list of runs."""
    if os.environ.get(follow.FOLLOW_VARIABLE):
        return "follow"
    try:
        return "overview" if len(all_nights().times) >= FEWEST_NIGHTS else "runs"
    except BenchkitError:
        return "runs"


def _state() -> dict[str, str]:
    """Return the keys of the address; of repeated keys the first value."""
    return {
        name: values[0].decode("utf-8", "replace")
        for name, values in pn.state.session_args.items()
        if values
    }


if pn.state.served:  # by `panel serve` on this file
    install_fast_serializer()
    application().servable()
