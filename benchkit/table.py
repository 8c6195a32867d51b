"""Show rows as a table: in a terminal, as Markdown, and in HTML.

Shared by the command line, notebooks and pages. Imports the standard library only, `rich` on use.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import rich.table

#: A cell that is aligned to the right: a number with optional unit, star and count in parentheses.
#: Words are separated by a space, and few: a sentence that begins with a number is a text.
_NUMBER = re.compile(
    r"[+−±-]? ?\d[\d ,]*(\.\d+)?\*?"
    r"( ?(%|[a-zA-Zµ][\da-zA-Zµ]*))?( (%|[\da-zA-Zµ]+)){0,3}( \(.*\))?|–"
)


def columns_of_numbers(rows: Sequence[Sequence[str]]) -> list[bool]:
    """Return for each column whether its cells are numbers, with or without units, or empty."""
    return [
        any(cells) and all(_NUMBER.fullmatch(cell) or not cell for cell in cells)
        for cells in zip(*rows, strict=True)
    ]


#: Cells of at most this many characters, such as intervals, have one line in HTML.
_ONE_LINE = 24


class Table:
    """Rows that can be rendered as text, by rich, as Markdown and as HTML."""

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        names: Sequence[str] | None = None,
        *,
        align_numbers: bool = True,
    ) -> None:
        if names is None:
            first = rows[0] if rows else {}
            names = [n for n in first if any(row.get(n) not in ("", None, []) for row in rows)]
        self.names = list(names)
        self.cells = [[_cell_text(row.get(name)) for name in self.names] for row in rows]
        numbers = columns_of_numbers(self.cells) or [False] * len(self.names)
        self._align_right = [align_numbers and is_number for is_number in numbers]

    @classmethod
    def from_frame(cls, frame: Any, index: str = "") -> Table:
        """Return the rows of a pandas table or series."""
        if hasattr(frame, "to_frame"):
            frame = frame.to_frame()
        if frame.index.dtype.kind not in "iu":
            frame = frame.rename_axis(index or frame.index.name or "").reset_index()
        frame = frame.rename(columns=str).astype(object)
        return cls(frame.where(frame.notna(), None).to_dict("records"), list(map(str, frame)))

    def to_text(self, *, width: int | None = None) -> str:
        """Return aligned text, with a line of column names."""
        if not self.cells:
            return ""
        lines = [self.names, *self.cells]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.names))]
        texts = []
        for line in lines:
            padded = [
                cell.rjust(size) if align_right else cell.ljust(size)
                for cell, size, align_right in zip(line, widths, self._align_right, strict=True)
            ]
            text = "  ".join(padded).rstrip()
            texts.append(text if width is None or len(text) <= width else f"{text[: width - 1]}…")
        return "\n".join(texts)

    def __rich__(self) -> rich.table.Table:
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(box=None, pad_edge=False)
        for name, align_right in zip(self.names, self._align_right, strict=True):
            table.add_column(Text(name), justify="right" if align_right else "left")
        for row in self.cells:
            table.add_row(*(Text(cell) for cell in row))
        return table

    def to_markdown(self, *, escape: bool = True) -> str:
        """Return a Markdown table."""
        rules = "".join(" ---: |" if right else " --- |" for right in self._align_right)
        lines = [f"| {' | '.join(self.names)} |", f"|{rules}"]
        for row in self.cells:
            if escape:
                row = [cell.replace("|", "\\|").replace("<", "&lt;") for cell in row]
            lines.append(f"| {' | '.join(row)} |")
        return "\n".join(lines)

    def to_html(self) -> str:
        """Return an HTML table.

        Each cell has the name of its column as ``data-label``: a page on a narrow screen shows the
        cells of a row below each other, without the head of the table.
        """

        def line(tag: str, cells: Sequence[str]) -> str:
            texts = []
            for name, right, cell in zip(self.names, self._align_right, cells, strict=True):
                style = f"text-align:{'right' if right else 'left'}"
                if len(cell) <= _ONE_LINE:
                    style += ";white-space:nowrap"
                label = f" data-label='{html.escape(name)}'" if tag == "td" else ""
                texts.append(f"<{tag}{label} style='{style}'>{html.escape(cell)}</{tag}>")
            return f"<tr>{''.join(texts)}</tr>"

        body = "".join(line("td", row) for row in self.cells)
        return f"<table><thead>{line('th', self.names)}</thead><tbody>{body}</tbody></table>"

    _repr_html_ = to_html


def _cell_text(value: Any) -> str:
    """Return a value as a line of text; line ends and other control codes become spaces."""
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value)
    return re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", str(value))
