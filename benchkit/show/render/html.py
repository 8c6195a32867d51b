"""Draw a page as HTML: for panes of the dashboard, and for files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

from bokeh.embed import json_item
from markupsafe import Markup

from benchkit.show.pages.page import (
    PERIODS,
    Bar,
    Cell,
    Content,
    Figure,
    Filter,
    Interval,
    LiveFigure,
    Page,
    Row,
    Section,
    Spark,
    Table,
    Target,
    Text,
    row_filters,
)
from benchkit.show.plots.base import set_time_axis
from benchkit.show.plots.comparison import interval_bar
from benchkit.show.plots.history import sparkline
from benchkit.show.templates import load_macros
from benchkit.table import columns_of_numbers
from benchkit.text import escape, html_text

#: Address of a page; None: there is none, and the text is no link.
Href: TypeAlias = Callable[[Target], str | None]
#: Styles of a page, with the colours of both themes, and of the elements in it. The elements of the
#: dashboard are in shadow roots: these inherit the colours of the page, not its rules.
PAGE_STYLES, ELEMENT_STYLES = (
    (Path(__file__).parent / name).read_text(encoding="utf-8")
    for name in ("page.css", "elements.css")
)
#: Macros that return elements as HTML.
ELEMENTS = load_macros("render/elements.html")
#: Width of the longest bar of a column, in pixels.
BAR_WIDTH = 150
#: Approximate height of a table row, in rem.
ROW_HEIGHT_REM = 1.9


def link(text: str, target: str, *, label: str = "", kind: str = "") -> Markup:
    """Return a link."""
    more = f" aria-label='{escape(label)}'" if label else ""
    more += f" class='{escape(kind)}'" if kind else ""
    breakable = escape(text).replace("[", "<wbr>[").replace(",", ",<wbr>")
    return Markup(f"<a href='{escape(target)}'{more}>{breakable}</a>")


def span(
    text: str, kind: str = "", *, title: str = "", write: Callable[[str], str] = escape
) -> Markup:
    """Return text with a CSS class and a tooltip."""
    more = f" class='{escape(kind)}'" if kind else ""
    more += f" title='{escape(title)}'" if title else ""
    return Markup(f"<span{more}>{write(text)}</span>")


def code(text: str) -> Markup:
    """Return text in a fixed-width font."""
    return Markup(f"<code>{escape(text)}</code>")


def html_table(
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    tight: bool = False,
    visible_rows: int = 0,
    attributes: Sequence[str] = (),
) -> str:
    """Return a table whose cells may contain markup; `attributes` are those of each row."""
    rows = list(rows)
    height = visible_rows * ROW_HEIGHT_REM if len(rows) > visible_rows else 0
    texts = [[re.sub(r"<[^<>]*>", "", str(cell)) for cell in row] for row in rows]
    numbers = columns_of_numbers(texts)
    kind = "tight" if tight else "loose"
    return str(ELEMENTS.table(titles, rows, numbers, kind, height, attributes))


def cell_markup(cell: Cell, href: Href) -> Markup:
    """Return a cell of a table."""
    if isinstance(cell, str):
        return Markup(escape(cell))
    if isinstance(cell, Spark):
        return Markup(
            sparkline(
                cell.values, cell.changes, worse=cell.worse, failed=cell.failed, label=cell.label
            )
        )
    if isinstance(cell, Interval):
        return Markup(interval_bar(**asdict(cell)))
    if isinstance(cell, Bar):
        return Markup(ELEMENTS.bar(cell, BAR_WIDTH))
    if isinstance(cell, Text):
        return _text(cell, href)
    return Markup("<br>").join(_text(text, href) for text in cell)


def _text(text: Text, href: Href, write: Callable[[str], str] = escape) -> Markup:
    target = href(text.target) if isinstance(text.target, Target) else text.target
    if target:
        made = link(text.text, target, label=text.title, kind=text.tone)
    elif text.tone == "code":
        made = Markup(ELEMENTS.code_block(text.text, text.title))
    elif text.tone or text.title:
        made = span(text.text, text.tone, title=text.title, write=write)
    else:
        made = Markup(write(text.text))
    return made + (Markup(f" <small>{escape(text.small)}</small>") if text.small else "")


def table_markup(table: Table, href: Href) -> str:
    """Return a table, with what its columns mean below it."""
    if not table.rows:
        return str(ELEMENTS.paragraph(table.empty)) if table.empty else ""
    rows = [[cell_markup(cell, href) for cell in row.cells] for row in table.rows]
    attributes = [_attributes(row) if table.is_filtered else "" for row in table.rows]
    visible = table.visible_rows
    markup = html_table(
        table.columns, rows, tight=bool(visible), visible_rows=visible, attributes=attributes
    )
    return markup + (str(ELEMENTS.glossary(table.terms, table.terms_title)) if table.terms else "")


def _attributes(row: Row) -> Markup:
    """Return what the script of a site compares and sorts by."""
    order = ",".join(
        "" if not isinstance(cell, Text) or cell.order is None else f"{cell.order:.6g}"
        for cell in row.cells
    )
    quiet = " data-quiet" if row.is_quiet else ""
    words = escape(row.words.lower())
    return Markup(f" data-words='{words}' data-size='{row.size:.4g}' data-order='{order}'{quiet}")


def head_markup(page: Page) -> str:
    """Return the head of a page: title, state, lines and key figures."""
    return str(
        ELEMENTS.page_head(
            page.title,
            state=page.state.text,
            good=page.state.tone != "bad",
            lines=page.lines,
            error=page.error,
            figures={figure.name: figure.value for figure in page.figures},
            usual={figure.name: figure.usual for figure in page.figures},
        )
    )


def section_markup(section: Section, href: Href) -> str:
    """Return a section."""
    body = "".join(content_markup(content, href) for content in section.contents())
    return f"{ELEMENTS.heading(section.title, section.note)}{body}" if body else ""


def content_markup(content: Content, href: Href) -> str:
    """Return a part of a section; a figure as data, which the script of a site draws."""
    if isinstance(content, Table):
        return table_markup(content, href)
    if isinstance(content, Figure):
        data = json.dumps(json_item(static_figure(content)), separators=(",", ":"))
        # A browser ends a script at the first "</script", also in a string of JSON.
        data = data.replace("<", "\\u003c")
        return f'<div class="figure"><script type="application/json">{data}</script></div>'
    texts = [_text(text, href, html_text) for text in content]  # sentences; cells are names
    return "".join(t if t.startswith(("<pre", "<details")) else f"<p>{t}</p>" for t in texts)


def static_figure(content: Figure) -> Any:
    """Return a figure of Bokeh that needs no server."""
    made = content.make()
    figure = made.figure if isinstance(made, LiveFigure) else made
    if content.times is not None:
        set_time_axis(figure, content.times)
    return figure


def page_markup(page: Page, href: Href) -> str:
    """Return a page of a site, whose script shows one of the sections with choices."""
    parts = [head_markup(page)]
    for has_choice, group in groupby(page.sections, lambda section: section.choice is not None):
        sections = list(group)
        if not has_choice:
            parts += [section_markup(section, href) for section in sections]
            continue
        choices: dict[tuple[str, str], str] = {}
        for section in sections:
            assert section.choice is not None
            markup = section_markup(section, href)
            choices[section.choice] = choices.get(section.choice, "") + markup
        is_filtered = any(getattr(section.content, "is_filtered", False) for section in sections)
        has_figures = any(isinstance(section.content, Figure) for section in sections)
        filters = [Filter("metric", "Metric", "", {name: key for key, name in choices})]
        filters += [Filter("range", "Range", "", PERIODS)] if has_figures else []
        filters += row_filters({}) if is_filtered else []
        parts.append(str(ELEMENTS.choices(list(choices.values()), filters)))
    return "".join(parts)
