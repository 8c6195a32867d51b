"""Write values of runs as HTML, Markdown, workflow commands of GitHub and messages of a chat.

Names, errors and logs are untrusted: each form is shown literally and never has an effect.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from typing import Any

#: Beginning of a code block.
_FENCE = re.compile("`{3,}")
#: Maximum characters of a value in a chat; whole errors would hide the other lines.
_MAX_CHAT = 200


def escape(value: Any) -> str:
    """Escape the HTML characters of a value, quotes included.

    Examples
    --------
    >>> escape("<script>")
    '&lt;script&gt;'
    """
    return html.escape(str(value), quote=True)


def html_text(text: str) -> str:
    """Escape a text for HTML and make its backquoted parts `<code>` elements.

    Examples
    --------
    >>> html_text("`benchkit run` adds <1 run>")
    '<code>benchkit run</code> adds &lt;1 run&gt;'
    """
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def markdown_text(value: object) -> str:
    """Return a value as one line of Markdown that is shown literally."""
    line = " ".join(str(value).split())
    # A greater-than sign begins a quotation at the start of a line only, and is readable elsewhere.
    line = re.sub("^>", "&gt;", line.replace("&", "&amp;").replace("<", "&lt;"))
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", line).replace("@", "@\u200b")


def markdown_code(value: object) -> str:
    """Return a value as inline code."""
    line = " ".join(str(value).split()).replace("|", "\\|")
    longest = max((len(run) for run in re.findall(r"`+", line)), default=0)
    ticks = "`" * (longest + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}" if line else ""


def markdown_block(value: str) -> str:
    """Return a text as a fenced code block."""
    longest = max((len(run) for run in re.findall(r"`{3,}", value)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}text\n{value.rstrip()}\n{fence}"


def github_text(text: str, *, is_property: bool = False) -> str:
    """Return a text of a workflow command: a line break would start a new command."""
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if is_property else text


def chat_text(text: str) -> str:
    """Return a text as one line of a chat: ``<!channel>`` would call all members of a channel."""
    line = " ".join(text.split())
    line = line if len(line) <= _MAX_CHAT else f"{line[: _MAX_CHAT - 1]}…"
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def cut_markdown(text: str, most: int) -> str:
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
