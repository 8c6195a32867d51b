"""Panel app of the dashboard; the address selects the view.

``panel serve benchkit/show/dashboard/app.py`` and ``benchkit dashboard`` run this file. A view is a
module with a `TITLE` and a function `view(state)`, listed in `VIEWS`. The address
(``?view=run&id=...&tab=tasks``) contains the whole state of a page.
"""

from __future__ import annotations

import os
from types import ModuleType

import panel as pn
from panel.viewable import Viewable

from benchkit.show.dashboard import compare, live, pair
from benchkit.show.dashboard.lists import environments, runs, workloads
from benchkit.show.dashboard.nights import history, overview, regressions
from benchkit.show.dashboard.run import page as run_page
from benchkit.show.dashboard.web.template import page, style_widgets
from benchkit.show.render import panel as ui

VIEWS: dict[str, ModuleType] = {
    "overview": overview,
    "regressions": regressions,
    "history": history,
    "runs": runs,
    "run": run_page,
    "pair": pair,
    "follow": live,
    "compare": compare,
    "workloads": workloads,
    "environments": environments,
}
#: Views that make tables of Panel after the page was sent, which must have their scripts already.
#: Other views get the 0.5 MB with their first table, or do without.
_WITH_LATER_TABLES = ("run", "pair", "follow")
#: Views in the navigation bar; they need no further key of the address.
_NAVIGATION = (
    *("overview", "regressions", "history", "runs"),
    *("compare", "follow", "workloads", "environments"),
)


def application() -> pn.Template:
    """Return the page for the address of the session."""
    state = _state()
    name = state.get("view") or ("follow" if os.environ.get(live.FOLLOW_VARIABLE) else "overview")
    pn.extension(*(["tabulator"] if name in _WITH_LATER_TABLES else []), notifications=False)
    style_widgets()
    title = VIEWS[name].TITLE if name in VIEWS else "No such page"
    navigation = [{"name": key, "title": VIEWS[key].TITLE} for key in _NAVIGATION]
    return page(
        # loading.js waits until the root has children, so it must be a Column.
        ui.column(_content(name, state), margin=0),
        name,
        title=f"{title} · benchkit",
        current="runs" if name in ("run", "pair") else name,
        navigation=navigation,
    )


def _content(name: str, state: dict[str, str]) -> Viewable:
    if name not in VIEWS:
        return ui.message("There is no such page", f"Views are {', '.join(VIEWS)}.", back=True)
    try:
        return VIEWS[name].view(state)
    except Exception as error:
        return ui.error_message("This page cannot be shown", error)


def _state() -> dict[str, str]:
    """Return the keys of the address; of repeated keys the first value."""
    return {
        name: values[0].decode("utf-8", "replace")
        for name, values in pn.state.session_args.items()
        if values
    }


# By `panel serve` on this file: as `pn.state.served`, which reads sources of all frames (0.3 s).
if __name__.startswith("bokeh_app_"):
    application().servable()
