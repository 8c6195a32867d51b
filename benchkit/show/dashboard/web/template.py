"""The HTML page around every view: navigation, styles and scripts.

Colours are CSS variables that follow the system setting or the button of the page. All styles and
scripts are files of this folder; a page loads nothing from other hosts.
"""

from __future__ import annotations

from pathlib import Path

import panel as pn
from panel.viewable import Viewable

from benchkit.show.render.html import PAGE_STYLES

_FOLDER = Path(__file__).parent


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


_TEMPLATE = _read("page.html")
_PAGE_STYLES = PAGE_STYLES + _read("loading.css") + _read("keyboard.css")
_SCRIPT = _read("page.js") + _read("keyboard.js") + _read("loading.js")

#: For widgets: Bokeh draws the arrow of a select in black, invisible on a dark background.
WIDGET_STYLES = _read("widget.css")
#: For tables: replaces the colours of Tabulator's themes by the variables of the page.
TABLE_STYLES = [_read("table.css")]
#: For tables with columns narrower than their titles.
WRAPPED_TITLES_STYLES = _read("wrapped_titles.css")
#: For tabs.
TABS_STYLES = _read("tabs.css")
#: Opens the page of the clicked run; with Shift, the page of two runs. The first of two runs is
#: stored in the window until the second is clicked, because every figure has its own source. The
#: run with the lower rank, else the older run, is A.
CLICK_RUN_SCRIPT = _read("click_run.js")


def style_widgets() -> None:
    """Use the colours of the page in selects, fields and buttons of all views."""
    widgets = (
        *(pn.widgets.Select, pn.widgets.TextInput, pn.widgets.FloatInput),
        *(pn.widgets.Checkbox, pn.widgets.Button),
    )
    for kind in widgets:
        kind.stylesheets = [WIDGET_STYLES]  # type: ignore[assignment]


class _Template(pn.Template):
    """Template without the text form of Panel, which each `add_panel` makes of all elements."""

    def __repr__(self) -> str:
        return type(self).__name__


def page(
    view: Viewable, name: str, *, title: str, current: str, navigation: list[dict[str, str]]
) -> pn.Template:
    """Return the page that contains a view."""
    template = _Template(_TEMPLATE)
    template.location = True
    variables = {"page_title": title, "view_name": name, "styles": _PAGE_STYLES, "script": _SCRIPT}
    for key, value in {**variables, "current": current, "navigation": navigation}.items():
        template.add_variable(key, value)
    template.add_panel("view", view)
    return template
