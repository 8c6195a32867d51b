"""Answers of tools for agents: JSON of at most 10 kB; text of runs is marked as untrusted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from benchkit.values import json_safe

#: Size of an answer: a model reads each byte of it, and forgets other things for it.
MAX_BYTES = 10_000
#: Bytes for the note and the names of the sections.
_FOR_NOTE = 900
#: Longer texts and lists are cut: tracebacks, names of tasks.
_MAX_CHARACTERS, _MAX_ITEMS = 500, 20


def as_answer(
    sections: Mapping[str, Sequence[Any]],
    *,
    narrow: str,
    totals: Mapping[str, str] | None = None,
) -> str:
    """Return rows as the JSON text of an answer.

    Examples
    --------
    >>> as_answer({"rows": [{"a": 1, "b": None}]}, narrow="Select fewer rows.")
    '{"untrusted":{"rows":[{"a":1}]}}'
    """
    room = MAX_BYTES - _FOR_NOTE
    shown: dict[str, list[Any]] = {}
    left_out = []
    for name, rows in sections.items():
        shown[name] = []
        for row in rows:
            part = _fitting(_shorten(row), room) if not shown[name] else _shorten(row)
            size = len(_dump(part)) + 1
            if size > room:
                break
            room -= size
            shown[name].append(part)
        total = (totals or {}).get(name, str(len(rows)))
        if total != str(len(shown[name])):
            left_out.append(f"{len(shown[name])} of {total} {name}")
        elif rows and shown[name][0] != _shorten(rows[0]):
            left_out.append(f"a part of the fields of {name}")
    note = {"note": f"Shown: {', '.join(left_out)}. {narrow}"} if left_out else {}
    return _dump({**note, "untrusted": shown})


def _dump(value: Any) -> str:
    # ASCII: no invisible characters and no change of the direction of text.
    return json.dumps(value, separators=(",", ":"), default=str)


def _fitting(row: Any, room: int) -> Any:
    """Return the first fields of a row that fit, if it is too long for an answer of its own."""
    if not isinstance(row, dict) or len(_dump(row)) < room:
        return row
    part: dict[str, Any] = {}
    for name, value in row.items():
        if len(_dump({**part, name: value})) < room:
            part[name] = value
    return part


def _shorten(value: Any) -> Any:
    """Return a value with short texts and lists, and numbers of six digits."""
    value = json_safe(value)
    if isinstance(value, dict):
        return {
            _shorten(name): _shorten(item)
            for name, item in value.items()
            if item is not None and item not in ("", [], {})
        }
    if isinstance(value, list):
        more = len(value) - _MAX_ITEMS
        items = [_shorten(item) for item in value[:_MAX_ITEMS]]
        return [*items, f"... {more} more"] if more > 0 else items
    if isinstance(value, str) and len(value) > _MAX_CHARACTERS:
        return f"{value[:_MAX_CHARACTERS]}... {len(value) - _MAX_CHARACTERS} more characters"
    return float(f"{value:.6g}") if isinstance(value, float) else value
