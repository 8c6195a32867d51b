"""The one door by which values of runs get into markup: names, errors and logs are untrusted."""

from __future__ import annotations

import html
from typing import Any

__all__ = ["esc"]


def esc(value: Any) -> str:
    """Return a value as text that HTML shows and never obeys.

    Examples
    --------
    >>> esc("<script>")
    '&lt;script&gt;'
    """
    return html.escape(str(value), quote=True)
