"""Rows as a table for a terminal: aligned, numbers to the right, no wider than they need."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

__all__ = ["as_table"]

_NUMBER = re.compile(r"^[+−±-]?\d[\d ]*(\.\d+)?\*?( ?(%|[a-zA-Zµ]+|\d+))*( \(.*\))?$|^–$")


def as_table(rows: Sequence[dict[str, Any]], *, width: int | None = None) -> str:
    """Return rows as aligned text; columns that are empty throughout are left out.

    Parameters
    ----------
    rows : sequence of dict
        All with the keys of the first.
    width : int, optional
        The last column is cut to fit into so many characters; None leaves it whole.

    Returns
    -------
    str
        A line of names and a line a row; an empty text for no rows.
    """
    if not rows:
        return ""
    names = [name for name in rows[0] if any(row.get(name) not in ("", None, []) for row in rows)]
    cells = [[_text(row.get(name)) for name in names] for row in rows]
    right = [all(_NUMBER.match(row[i]) or not row[i] for row in cells) for i in range(len(names))]
    widths = [max(len(name), *(len(row[i]) for row in cells)) for i, name in enumerate(names)]
    lines = []
    for line in [names, *cells]:
        padded = [
            cell.rjust(size) if to_right else cell.ljust(size)
            for cell, size, to_right in zip(line, widths, right, strict=True)
        ]
        text = "  ".join(padded).rstrip()
        lines.append(text if width is None or len(text) <= width else f"{text[: width - 1]}…")
    return "\n".join(lines)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value)
    # A text of a run may hold line ends and control codes; a table has one line a row.
    return re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", str(value))
