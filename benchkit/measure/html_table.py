"""Tables in HTML, which notebooks show for workloads and datasets."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def html_table(title: str, rows: Iterable[Sequence[object]]) -> str:
    """Return a heading and a table, without rows whose last cell is empty.

    Examples
    --------
    >>> html_table("a < b", [("size", 3), ("url", "")])
    '<h4>a &lt; b</h4><table><tr><th>size</th><td>3</td></tr></table>'
    """
    lines = (
        f"<tr><th>{html.escape(str(name))}</th>"
        + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in cells)
        + "</tr>"
        for name, *cells in rows
        if cells[-1] != ""
    )
    return f"<h4>{html.escape(title)}</h4><table>{''.join(lines)}</table>"
