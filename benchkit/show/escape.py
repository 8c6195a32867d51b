"""Escape values of runs for HTML: names, errors and logs are untrusted."""

from __future__ import annotations

import html
import re
from typing import Any

__all__ = ["escape", "escape_with_code"]


def escape(value: Any) -> str:
    """Return a value with HTML characters escaped, quotes included.

    Examples
    --------
    >>> escape("<script>")
    '&lt;script&gt;'
    """
    return html.escape(str(value), quote=True)


def escape_with_code(text: str) -> str:
    """Return escaped text in which backquoted parts are `<code>` elements.

    Examples
    --------
    >>> escape_with_code("`benchkit run` makes <one>")
    '<code>benchkit run</code> makes &lt;one&gt;'
    """
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))
