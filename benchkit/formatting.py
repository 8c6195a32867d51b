"""Format numbers with their unit and three significant digits, and rows as tables.

Shared by the command line, notebooks and pages. Imports the standard library only, `rich` on use.
"""

from __future__ import annotations

import html
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    import rich.table

__all__ = [
    "GIB",
    "MIB",
    "MISSING",
    "OUTCOME_WORDS",
    "Table",
    "columns_of_numbers",
    "counted",
    "format_bytes",
    "format_change",
    "format_count",
    "format_quantity",
    "format_seconds",
    "short_group",
    "short_names",
]

#: Outcome -> symbol and words, so that pages do not show an outcome by its colour only.
OUTCOME_WORDS = {
    "ok": ("✓", "ok"),
    "wrong_answer": ("✗", "wrong answer"),
    "failed": ("✗", "failed"),
    "timeout": ("◷", "timed out"),
    "lost_workers": ("⚠", "lost workers"),
    "infrastructure": ("⚠", "infrastructure"),
    "skipped": ("↷", "skipped"),
}

#: Text of an unknown number; never 0.
MISSING = "–"
MIB = 2**20  # bytes
GIB = 2**30  # bytes
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def _is_finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def _three_digits(value: float) -> str:
    """Format with three significant digits, and without an exponent."""
    if value == 0:
        return "0"
    if abs(value) >= 999.5:
        return f"{value:,.0f}".replace(",", " ")
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, 6)}f}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1.

    Parameters
    ----------
    number : int
        The number.
    noun : str
        The noun in the singular; its plural must end in s.

    Returns
    -------
    str
        Number and noun.

    Examples
    --------
    >>> counted(1, "run"), counted(2, "run")
    ('1 run', '2 runs')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def format_bytes(value: float | None) -> str:
    """Return bytes with a binary prefix.

    Parameters
    ----------
    value : float or None
        In B.

    Returns
    -------
    str
        Value and unit; `MISSING` if the value is None, NaN or infinite.

    Examples
    --------
    >>> format_bytes(3 * 2**30)
    '3.00 GiB'
    >>> format_bytes(None)
    '–'
    """
    if not _is_finite(value):
        return MISSING
    power = 0
    while abs(value) >= 1023.5 and power < len(_BYTES) - 1:
        value /= 1024
        power += 1
    return f"{value:.0f} B" if power == 0 else f"{_three_digits(value)} {_BYTES[power]}"


def format_seconds(value: float | None) -> str:
    """Return a duration in the unit that needs the fewest digits.

    Parameters
    ----------
    value : float or None
        In s.

    Returns
    -------
    str
        Value and unit, from µs to h; `MISSING` if the value is None, NaN or infinite.

    Examples
    --------
    >>> format_seconds(0.01234), format_seconds(12.34), format_seconds(754)
    ('12.3 ms', '12.3 s', '12 min 34 s')
    """
    if not _is_finite(value):
        return MISSING
    size = abs(value)
    if size >= 3600:
        return f"{value // 3600:.0f} h {value % 3600 // 60:.0f} min"
    if size >= 100:
        minutes, seconds = divmod(round(value), 60)
        return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
    if size == 0 or size >= 1:
        return f"{_three_digits(value)} s"
    if size >= 1e-3:
        return f"{_three_digits(value * 1e3)} ms"
    return f"{_three_digits(value * 1e6)} µs"


def format_count(value: float | None) -> str:
    """Return a count with a space between groups of three digits.

    Parameters
    ----------
    value : float or None
        The count.

    Returns
    -------
    str
        The count; `MISSING` if the value is None, NaN or infinite.

    Examples
    --------
    >>> format_count(1234567)
    '1 234 567'
    """
    if not _is_finite(value):
        return MISSING
    if float(value).is_integer():
        return f"{int(value):,}".replace(",", " ")
    return _three_digits(value)


def format_change(ratio: float | None) -> str:
    """Return the ratio contender / baseline as a signed change in %.

    Parameters
    ----------
    ratio : float or None
        Dimensionless; 1 is no change.

    Returns
    -------
    str
        The change; `MISSING` if the ratio is None, NaN or infinite.

    Examples
    --------
    >>> format_change(1.042), format_change(0.5), format_change(1.0)
    ('+4.2 %', '−50 %', '±0 %')
    """
    if not _is_finite(ratio):
        return MISSING
    percent = (ratio - 1) * 100
    if abs(percent) < 0.05:
        return "±0 %"
    sign = "+" if percent > 0 else "−"
    size = abs(percent)
    return f"{sign}{size:.1f} %" if size < 10 else f"{sign}{size:.0f} %"


def format_quantity(value: float | None, units: str) -> str:
    """Return a value with its unit.

    Parameters
    ----------
    value : float or None
        In `units`.
    units : str
        Unit of a metric: s, B, B/s, %, 1 or USD.

    Returns
    -------
    str
        Value and unit; `MISSING` if the value is None, NaN or infinite.

    Examples
    --------
    >>> format_quantity(2**20, "B"), format_quantity(3, "1"), format_quantity(12.5, "%")
    ('1.00 MiB', '3', '12.5 %')
    """
    if not _is_finite(value):
        return MISSING
    formats = {"s": format_seconds, "B": format_bytes, "1": format_count, "": format_count}
    if units in formats:
        return formats[units](value)
    if units == "B/s":
        return f"{format_bytes(value)}/s"
    return f"{_three_digits(value)} {units}"


def short_group(name: str) -> str:
    """Return the name of a task group without Dask's hash.

    Parameters
    ----------
    name : str
        Name of a task group.

    Returns
    -------
    str
        The name without hexadecimal parts of 16 or more digits.

    Examples
    --------
    >>> short_group("sum-3d240ae1878b4bf2def0f035e33e1f11")
    'sum'
    >>> short_group("getitem-e334b54419f24194433e0020262b3f17-q2")
    'getitem-q2'
    """
    return re.sub(r"-[0-9a-f]{16,}(?=-|$)", "", name)


def short_names(groups: Iterable[str]) -> dict[str, str]:
    """Return unique short names of task groups.

    Parameters
    ----------
    groups : iterable of str
        Names of task groups.

    Returns
    -------
    dict of str to str
        Short name by name; equal short names are numbered.

    Examples
    --------
    >>> short_names(["sum-3d240ae1878b4bf2def0", "inc-7", "sum-0035e33e1f113d240"])
    {'sum-3d240ae1878b4bf2def0': 'sum', 'inc-7': 'inc-7', 'sum-0035e33e1f113d240': 'sum #2'}
    """
    counts: Counter[str] = Counter()
    names = {}
    for group in groups:
        short = short_group(group)
        counts[short] += 1
        names[group] = short if counts[short] == 1 else f"{short} #{counts[short]}"
    return names


#: A cell that is aligned to the right: a number with optional unit, star and count in parentheses.
_NUMBER = re.compile(r"^[+−±-]?\d[\d ]*(\.\d+)?\*?( ?(%|[a-zA-Zµ]+|\d+))*( \(.*\))?$|^–$")


def columns_of_numbers(rows: Sequence[Sequence[str]]) -> list[bool]:
    """Return for each column whether its cells are numbers, with or without units, or empty.

    Parameters
    ----------
    rows : sequence of sequence of str
        Cells of each row.

    Returns
    -------
    list of bool
        Empty without rows; False for a column without any number.
    """
    return [
        any(cells) and all(_NUMBER.match(cell) or not cell for cell in cells)
        for cells in zip(*rows, strict=True)
    ]


#: Cells of at most this many characters, such as intervals, have one line in HTML.
_ONE_LINE = 24


class Table:
    """Rows that can be rendered as text, by rich, as Markdown and as HTML.

    Parameters
    ----------
    rows : sequence of mapping
        Column name -> value; all rows have the keys of the first row.
    names : sequence of str, optional
        Columns in order; by default those of the first row, except columns without any value.
    align_numbers : bool, default True
        Align columns of numbers, with their titles, to the right.
    """

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
        """Return the rows of a pandas table or series.

        Parameters
        ----------
        frame : DataFrame or Series
            The rows; an index with texts is the first column, numbers of rows are omitted.
        index : str, optional
            Title of the column of the index; by default the name of the index.

        Returns
        -------
        Table
            The table; missing values are empty.
        """
        if hasattr(frame, "to_frame"):
            frame = frame.to_frame()
        if frame.index.dtype.kind not in "iu":
            frame = frame.rename_axis(index or frame.index.name or "").reset_index()
        frame = frame.rename(columns=str).astype(object)
        return cls(frame.where(frame.notna(), None).to_dict("records"), list(map(str, frame)))

    def to_text(self, *, width: int | None = None) -> str:
        """Return aligned text, with a line of column names.

        Parameters
        ----------
        width : int, optional
            Maximum number of characters per line; by default lines are not cut.

        Returns
        -------
        str
            Empty if there are no rows.
        """
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
        """Return a Markdown table.

        Parameters
        ----------
        escape : bool, default True
            Whether to escape ``|`` and ``<`` in cells; False if the cells are Markdown.

        Returns
        -------
        str
            The table, without a line end after its last row.
        """
        rules = "".join(" ---: |" if right else " --- |" for right in self._align_right)
        lines = [f"| {' | '.join(self.names)} |", f"|{rules}"]
        for row in self.cells:
            if escape:
                row = [cell.replace("|", "\\|").replace("<", "&lt;") for cell in row]
            lines.append(f"| {' | '.join(row)} |")
        return "\n".join(lines)

    def to_html(self) -> str:
        """Return an HTML table.

        Returns
        -------
        str
            The table; markup in cells is escaped.
        """

        def line(tag: str, cells: Sequence[str]) -> str:
            texts = []
            for right, cell in zip(self._align_right, cells, strict=True):
                style = f"text-align:{'right' if right else 'left'}"
                if len(cell) <= _ONE_LINE:
                    style += ";white-space:nowrap"
                texts.append(f"<{tag} style='{style}'>{html.escape(cell)}</{tag}>")
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
