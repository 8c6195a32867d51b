"""Escape values of runs for HTML: names, errors and logs are untrusted."""

from __future__ import annotations

import html
from typing import Any

__all__ = ["escape"]


def escape(value: Any) -> str:
    """Escape the HTML characters of a value, quotes included.

    Examples
    --------
    >>> escape("<script>")
    '&lt;script&gt;'
    """
    return html.escape(str(value), quote=True)
