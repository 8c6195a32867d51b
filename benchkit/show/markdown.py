"""Write Markdown: values of runs are escaped, long texts are cut."""

from __future__ import annotations

import re
from bisect import bisect_right

__all__ = ["code", "cut", "fenced", "text"]

#: Beginning of a code block.
_FENCE = re.compile("`{3,}")


def text(value: object) -> str:
    """Return a value as one line of Markdown that is shown literally."""
    line = " ".join(str(value).split())
    # A greater-than sign begins a quotation at the start of a line only, and is readable elsewhere.
    line = re.sub("^>", "&gt;", line.replace("&", "&amp;").replace("<", "&lt;"))
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", line).replace("@", "@\u200b")


def code(value: object) -> str:
    """Return a value as inline code."""
    line = " ".join(str(value).split()).replace("|", "\\|")
    longest = max((len(run) for run in re.findall(r"`+", line)), default=0)
    ticks = "`" * (longest + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}" if line else ""


def fenced(value: str, language: str = "text") -> str:
    """Return a text as a fenced code block."""
    longest = max((len(run) for run in re.findall(r"`{3,}", value)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{value.rstrip()}\n{fence}"


def cut(text: str, most: int) -> str:
    """Cut a text at the end of a line, or of a code block, to a maximum size.

    GitHub rejects comments above 65,536 characters and discards step summaries above 1 MiB.
    """
    parts = _parts(text.rstrip("\n").split("\n"))
    size = 0
    for i, part in enumerate(parts):
        size += len(part.encode()) + 1
        if size > most - 100 and i < len(parts) - 1:
            return "\n".join([*parts[:i], "", f"and {len(parts) - i} more lines"]) + "\n"
    return "\n".join(parts) + "\n"


def _parts(lines: list[str]) -> list[str]:
    """Return each complete code block as one text, and every other line."""
    ends: dict[str, list[int]] = {}
    for i, line in enumerate(lines):
        if _FENCE.fullmatch(line):
            ends.setdefault(line, []).append(i)
    parts, i = [], 0
    while i < len(lines):
        fence = _FENCE.match(lines[i])
        closing = ends.get(fence[0], []) if fence else []
        place = bisect_right(closing, i)
        stop = closing[place] if place < len(closing) else i
        parts.append("\n".join(lines[i : stop + 1]))
        i = stop + 1
    return parts
