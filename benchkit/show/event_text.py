"""Format cluster events, which are stored as JSON, as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from benchkit.formatting import format_bytes

__all__ = ["in_words"]


def in_words(message: str) -> str:
    """Return the readable text of an event that is stored as JSON.

    Examples
    --------
    >>> in_words('{"n_lost": 1, "expected": false}'), in_words('{"rss": 1035849728}')
    ('1 lost, not expected', '988 MiB in use')
    """
    try:
        facts = json.loads(message)
    except ValueError:
        return message
    if not isinstance(facts, dict):
        return message
    if facts.keys() == {"status", "before"}:
        return f"from {facts['before']} to {facts['status']}"
    return ", ".join(_fact(name, value) for name, value in facts.items())


def _fact(name: str, value: Any) -> str:
    """Return one field of an event as text: counts, sizes and boolean values."""
    words = name.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"not {words}"
    if name == "rss" and isinstance(value, int | float):
        return f"{format_bytes(value)} in use"
    if name.startswith("n_"):
        return f"{value} {words[2:]}"
    if isinstance(value, Mapping | list):
        return f"{words} {json.dumps(value)}"
    return f"{words} {value}"
