"""Show a page, or sections of one, as outputs of the cells of a notebook."""

from __future__ import annotations

from collections.abc import Sequence

from bokeh.io import show as show_figure
from IPython.display import HTML, display

from benchkit.show.pages.page import Figure, Page, Section
from benchkit.show.render.html import ELEMENTS, section_markup
from benchkit.show.render.markdown import no_address


def show(content: Page | Section | Sequence[Section]) -> None:
    """Show a page or sections of it; a report has the styles of all pages for them."""
    if isinstance(content, Page):
        _show_markup(str(ELEMENTS.page_head(content.title, lines=content.lines)))
        content = content.sections
    for section in [content] if isinstance(content, Section) else content:
        if isinstance(section.content, Figure):
            _show_markup(str(ELEMENTS.heading(section.title, section.note)))
            show_figure(section.content.make())
        else:
            _show_markup(section_markup(section, no_address))


def _show_markup(markup: str) -> None:
    display(HTML(f"<div class='page'>{markup}</div>"))
