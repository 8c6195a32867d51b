"""Write Markdown that is safe to send: values of runs are escaped, long texts are cut."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["code", "cut", "fenced", "table", "text"]


def text(value: object) -> str:
    """Return a value as one line of Markdown that is shown literally.

    Markup, HTML, cell separators of tables and ``@`` mentions have no effect.
    """
    line = " ".join(str(value).split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", line).replace("@", "@\u200b")


def code(value: object) -> str:
    """Return a value as inline code; the value may contain backticks."""
    line = " ".join(str(value).split()).replace("|", "\\|")
    longest = max((len(run) for run in re.findall(r"`+", line)), default=0)
    ticks = "`" * (longest + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}" if line else ""


def fenced(value: str, language: str = "text") -> str:
    """Return a text as a fenced code block; the text may contain fences."""
    longest = max((len(run) for run in re.findall(r"`{3,}", value)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{value.rstrip()}\n{fence}"


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; the cells must be Markdown."""
    lines = [f"| {' | '.join(names)} |", "|" + " --- |" * len(names)]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def cut(lines: Sequence[str], most: int, *, rest: str = "and {n} more lines") -> str:
    """Return lines as one text of at most `most` bytes; omitted lines are counted at the end.

    GitHub rejects comments above 65,536 characters and discards step summaries above 1 MiB.
    """
    size = 0
    for place, line in enumerate(lines):
        size += len(line.encode()) + 1
        if size > most - 100 and place < len(lines) - 1:
            left = rest.format(n=len(lines) - place)
            return "\n".join([*lines[:place], "", left]) + "\n"
    return "\n".join(lines) + "\n"
