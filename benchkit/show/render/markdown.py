"""Draw a page as Markdown: summaries, issues and comments."""

from __future__ import annotations

import re
from collections.abc import Callable

from benchkit.show.pages.page import (
    Bar,
    Cell,
    Content,
    Figure,
    Interval,
    Page,
    Section,
    Spark,
    Table,
    Target,
    Text,
)
from benchkit.table import Table as TextTable
from benchkit.text import markdown_block, markdown_text

#: Rows of a table; the rest is counted.
MAX_ROWS = 100


def no_address(target: Target) -> str | None:
    """Return no address: texts are no links."""
    return None


def page_markdown(page: Page, href: Callable[[Target], str | None] = no_address) -> str:
    """Return a page, with headings from the second level."""
    parts = [f"## {markdown_text(f'{page.title} {page.state.text}')}"]
    lines = [page.error, *page.lines]
    lines += [f"{each.name}: {each.value} {each.usual}" for each in page.figures]
    parts += ["\n".join(f"- {markdown_text(line)}" for line in lines if line)]
    parts += [
        section_markdown(section, href)
        for section in page.sections
        if not isinstance(section.content, Figure)
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def section_markdown(section: Section, href: Callable[[Target], str | None] = no_address) -> str:
    """Return a section."""
    contents = section.contents()
    parts = [f"### {markdown_text(section.title)}", markdown_text(section.note)]
    parts += [_content(content, href) for content in contents]
    return "\n\n".join(part for part in parts if part) if contents else ""


def _content(content: Content, href: Callable[[Target], str | None]) -> str:
    """Return a part of a section; figures are left out."""
    if isinstance(content, Figure):
        return ""
    if isinstance(content, Table):
        return table_markdown(content, href)
    return "\n\n".join(_line(text, href) for text in content)


def table_markdown(table: Table, href: Callable[[Target], str | None] = no_address) -> str:
    """Return a table without its small figures."""
    if not table.rows:
        return markdown_text(table.empty)
    cells = [(i, cell) for row in table.rows for i, cell in enumerate(row.cells)]
    figures = {i for i, cell in cells if isinstance(cell, Spark | Bar | Interval)}
    kept = [i for i in range(len(table.columns)) if i not in figures]
    names = [table.columns[i] for i in kept]
    rows = [
        {name: _cell(row.cells[i], href) for name, i in zip(names, kept, strict=True)}
        for row in table.rows[:MAX_ROWS]
    ]
    text = TextTable(rows, names).to_markdown(escape=False)
    left = len(table.rows) - len(rows)
    return f"{text}\n\nand {left} more" if left else text


def _cell(cell: Cell, href: Callable[[Target], str | None]) -> str:
    if isinstance(cell, str):
        return markdown_text(cell)
    if isinstance(cell, Text):
        return _text(cell, href)
    if isinstance(cell, Spark | Bar | Interval):
        return ""
    return "<br>".join(_text(text, href) for text in cell)


def _text(text: Text, href: Callable[[Target], str | None]) -> str:
    target = href(text.target) if isinstance(text.target, Target) else text.target
    made = markdown_text(text.text)
    if target and not re.search(r"[\s<>]", target):
        made = f"[{made}](<{target}>)"
    return f"{made} {markdown_text(text.small)}" if text.small else made


def _line(text: Text, href: Callable[[Target], str | None]) -> str:
    return markdown_block(text.text) if text.tone == "code" else f"- {_text(text, href)}"
