"""Draw a page, and elements that views share, as panes of Panel.

Only this module makes panes of HTML from text of runs.

Text is escaped unless it is `Markup`. Panel's panes for Markdown, HTML and plain strings execute
scripts in the text; a test checks that no view uses them.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

import panel as pn
from bokeh.models.ui import UIElement
from panel.viewable import Viewable

from benchkit.errors import BenchkitError, describe_error
from benchkit.show.pages.page import Figure, Page, Section
from benchkit.show.render.html import (
    ELEMENT_STYLES,
    ELEMENTS,
    Href,
    head_markup,
    section_markup,
    static_figure,
)

_log = logging.getLogger(__name__)

#: Title of the message in place of a part.
_MISSING = "This part cannot be shown"
#: Shown with verdicts on an experiment that is not complete.
INTERIM_WARNING = (
    "Looking at interim results several times makes wrong verdicts more frequent than the "
    "intervals state: decide at the end."
)


def column(*content: Viewable, **options: Any) -> pn.Column:
    """Return elements below each other, as wide as the page."""
    return pn.Column(*content, sizing_mode="stretch_width", **options)


def html_pane(markup: str) -> pn.pane.HTML:
    """Return HTML in the style of the page."""
    # Panel escapes the text by methods of `str`, which `Markup` replaces.
    return pn.pane.HTML(
        str(markup), stylesheets=[ELEMENT_STYLES], sizing_mode="stretch_width", margin=0
    )


def _element(name: str) -> Callable[..., pn.pane.HTML]:
    """Return a function that makes a pane from a macro of ``elements.html``."""

    def make(*values: Any, **options: Any) -> pn.pane.HTML:
        """Return the element as a pane; the arguments are those of the macro."""
        return html_pane(getattr(ELEMENTS, name)(*values, **options))

    return make


code_block = _element("code_block")
column_list = _element("column_list")
facts = _element("facts")
form = _element("form")
glossary = _element("glossary")
heading = _element("heading")
link_line = _element("link_line")
link_list = _element("link_list")
message = _element("message")
page_head = _element("page_head")
paragraph = _element("paragraph")


def page_parts(page: Page, href: Href) -> list[Viewable]:
    """Return a page: its head, and a pane for each section."""
    return [head(page), *(section(each, href) for each in page.sections)]


def head(page: Page) -> pn.pane.HTML:
    """Return the head of a page."""
    return html_pane(head_markup(page))


def section(
    content: Section, href: Href, prepare: Callable[[Any], Any] = lambda plot: plot
) -> Viewable:
    """Return a section of a page; `prepare` takes and returns its figure."""
    if isinstance(content.content, Figure):
        plot = prepare(static_figure(content.content))
        return column(heading(content.title, content.note), figure(plot))
    return html_pane(section_markup(content, href))


def set_paragraph(pane: pn.pane.HTML, text: str) -> None:
    """Replace the text of a pane from `paragraph`; faster than a new pane."""
    pane.object = str(ELEMENTS.paragraph(text, "soft"))


def json_block(value: Any, title: str = "") -> pn.pane.HTML:
    """Return a value as JSON with sorted keys."""
    return code_block(json.dumps(value, indent=1, sort_keys=True), title)


def error_message(title: str, error: Exception) -> pn.pane.HTML:
    """Return the message of an error; the log gets the traceback of an unexpected one."""
    if not isinstance(error, BenchkitError):
        _log.error("%s", title, exc_info=error)
    return message(title, describe_error(error))


def guard(make: Callable[[], Viewable], title: str = _MISSING) -> Viewable:
    """Return a part of a page, or an error message in its place."""
    return guard_parts(lambda: [make()], title)[0]


def guard_parts(
    make: Callable[[], Sequence[Viewable]], title: str = _MISSING
) -> Sequence[Viewable]:
    """Return parts of a page, or an error message in their place."""
    try:
        return make()
    except Exception as error:  # damaged runs raise various errors
        return [error_message(title, error)]


def deferred(make: Callable[[], list[Viewable]], title: str) -> pn.Column:
    """Return a part that is made in a thread, after the rest of the page is shown."""
    place = column(paragraph("Opening runs to see where the time went …"), tags=["loading"])

    async def fill() -> None:
        content = await asyncio.to_thread(guard_parts, make, title)
        place.param.update(objects=content, tags=[])

    pn.state.onload(fill)
    return place


def figure(plot: UIElement) -> pn.pane.Bokeh:
    """Return a Bokeh figure as a pane."""
    # Brighter on a dark page; `styles` of the pane do not reach the figure.
    plot.stylesheets = [*plot.stylesheets, ":host { filter: var(--figure, none); }"]
    # Bokeh draws once into the leftmost pixels before the width is known; a transparent background
    # would not cover these pixels later.
    return pn.pane.Bokeh(
        plot,
        sizing_mode="stretch_width",
        margin=(0, 0, 6, 0),
        styles={"clip-path": "inset(0 0 0 6px)"},
    )
