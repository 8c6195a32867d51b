"""Escape values of runs for HTML: names, errors and logs are untrusted."""

from __future__ import annotations

import html
import re
from typing import Any

from markupsafe import Markup

__all__ = ["escape", "escape_with_code"]


def escape(value: Any) -> str:
    """Escape the HTML characters of a value, quotes included.

    Parameters
    ----------
    value : object
        The value; it is converted to text.

    Returns
    -------
    str
        HTML.

    Examples
    --------
    >>> escape("<script>")
    '&lt;script&gt;'
    """
    return html.escape(str(value), quote=True)


def escape_with_code(text: str) -> Markup:
    """Escape a text and make its backquoted parts `<code>` elements.

    Parameters
    ----------
    text : str
        The text.

    Returns
    -------
    Markup
        HTML.

    Examples
    --------
    >>> escape_with_code("`benchkit run` adds <1 run>")
    Markup('<code>benchkit run</code> adds &lt;1 run&gt;')
    """
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", escape(text)))
