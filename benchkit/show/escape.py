"""The one door by which values of runs get into markup: names, errors and logs are untrusted."""

from __future__ import annotations

import html
import re
from typing import Any

__all__ = ["escape", "escape_with_code"]


def escape(value: Any) -> str:
    """Return a value as text that HTML shows and never obeys.

    Examples
    --------
    >>> esc("<script>")
    '&lt;script&gt;'
    """
    return html.escape(str(value), quote=True)


def escape_with_code(text: str) -> str:
    """Return a sentence as markup that shows what stands between backquotes as code.

    Examples
    --------
    >>> prose("`benchkit run` makes <one>")
    '<code>benchkit run</code> makes &lt;one&gt;'
    """
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))
