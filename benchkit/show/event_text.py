"""Format cluster events, which are stored as JSON, as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from benchkit.formatting import format_bytes

__all__ = ["format_event"]


def format_event(message: str) -> str:
    """Return the readable text of an event that is stored as JSON.

    Examples
    --------
    >>> format_event('{"n_lost": 1, "expected": false}'), format_event('{"rss": 1035849728}')
    ('1 lost, not expected', '988 MiB in use')
    """
    try:
        fields = json.loads(message)
    except (ValueError, RecursionError):  # deeply nested JSON
        return message
    if not isinstance(fields, dict):
        return message
    if fields.keys() == {"status", "before"}:
        return f"from {fields['before']} to {fields['status']}"
    return ", ".join(_field_text(name, value) for name, value in fields.items())


def _field_text(name: str, value: Any) -> str:
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
