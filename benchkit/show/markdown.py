"""Write Markdown: values of runs are escaped, long texts are cut."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from benchkit.formatting import Table

__all__ = ["code", "cut", "fenced", "table", "text"]


def text(value: object) -> str:
    """Return a value as one line of Markdown that is shown literally.

    Parameters
    ----------
    value : object
        The value. Markup, HTML, cell separators of tables and ``@`` mentions in it have no effect.

    Returns
    -------
    str
        Markdown.
    """
    line = " ".join(str(value).split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", line).replace("@", "@\u200b")


def code(value: object) -> str:
    """Return a value as inline code.

    Parameters
    ----------
    value : object
        The value; it may contain backticks.

    Returns
    -------
    str
        Markdown on one line; empty for an empty value.
    """
    line = " ".join(str(value).split()).replace("|", "\\|")
    longest = max((len(run) for run in re.findall(r"`+", line)), default=0)
    ticks = "`" * (longest + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}" if line else ""


def fenced(value: str, language: str = "text") -> str:
    """Return a text as a fenced code block.

    Parameters
    ----------
    value : str
        The text; it may contain fences.
    language : str, default "text"
        Language of the block.

    Returns
    -------
    str
        Markdown.
    """
    longest = max((len(run) for run in re.findall(r"`{3,}", value)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{value.rstrip()}\n{fence}"


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table.

    Parameters
    ----------
    names : sequence of str
        Distinct names of the columns.
    rows : iterable of sequence of str
        The cells of each row, as Markdown.

    Returns
    -------
    list of str
        Lines of Markdown.
    """
    table = Table([dict(zip(names, row, strict=True)) for row in rows], names)
    return table.to_markdown(escape=False).split("\n")


def cut(lines: Sequence[str], most: int, *, rest: str = "and {n} more lines") -> str:
    """Join lines to a text of a maximum size.

    GitHub rejects comments above 65,536 characters and discards step summaries above 1 MiB.

    Parameters
    ----------
    lines : sequence of str
        The lines.
    most : int
        Maximum size of the text in bytes.
    rest : str
        Last line if lines were omitted; ``{n}`` is their number.

    Returns
    -------
    str
        The text, with a line end.
    """
    size = 0
    for i, line in enumerate(lines):
        size += len(line.encode()) + 1
        if size > most - 100 and i < len(lines) - 1:
            return "\n".join([*lines[:i], "", rest.format(n=len(lines) - i)]) + "\n"
    return "\n".join(lines) + "\n"
