"""Format numbers with their unit and three significant digits, and rows as tables.

Shared by the terminal, notebooks and pages. Imports the standard library only, `rich` on demand.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import rich.table

__all__ = [
    "GIB",
    "MIB",
    "MISSING",
    "OUTCOME_WORDS",
    "Table",
    "clean_text",
    "counted",
    "flatten",
    "format_bytes",
    "format_change",
    "format_count",
    "format_quantity",
    "format_seconds",
    "json_safe",
    "short_group",
    "short_names",
]

#: Outcome -> symbol and words: a colour is never the only sign.
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
#: Bytes of one mebibyte.
MIB = 2**20
#: Bytes of one gibibyte.
GIB = 2**30
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def _is_finite(value: float | None) -> bool:
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
    """Return a number with its noun, in the plural where it takes one.

    Examples
    --------
    >>> counted(1, "run"), counted(2, "run")
    ('1 run', '2 runs')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def format_bytes(value: float | None) -> str:
    """Return bytes with a binary prefix.

    Examples
    --------
    >>> format_bytes(3 * 2**30)
    '3.00 GiB'
    >>> format_bytes(None)
    '–'
    """
    if not _is_finite(value):
        return MISSING
    assert value is not None
    power = 0
    while abs(value) >= 1023.5 and power < len(_BYTES) - 1:
        value /= 1024
        power += 1
    return f"{value:.0f} B" if power == 0 else f"{_three_digits(value)} {_BYTES[power]}"


def format_seconds(value: float | None) -> str:
    """Return seconds in the unit that suits them.

    Examples
    --------
    >>> format_seconds(0.01234), format_seconds(12.34), format_seconds(754)
    ('12.3 ms', '12.3 s', '12 min 34 s')
    """
    if not _is_finite(value):
        return MISSING
    assert value is not None
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
    """Return a count with thin groups of three digits.

    Examples
    --------
    >>> format_count(1234567)
    '1 234 567'
    """
    if not _is_finite(value):
        return MISSING
    assert value is not None
    if float(value).is_integer():
        return f"{int(value):,}".replace(",", " ")
    return _three_digits(value)


def format_change(ratio: float | None) -> str:
    """Return contender / baseline as a signed change in %.

    Examples
    --------
    >>> format_change(1.042), format_change(0.5), format_change(1.0)
    ('+4.2 %', '−50 %', '±0 %')
    """
    if not _is_finite(ratio):
        return MISSING
    assert ratio is not None
    percent = (ratio - 1) * 100
    if abs(percent) < 0.05:
        return "±0 %"
    sign = "+" if percent > 0 else "−"
    size = abs(percent)
    return f"{sign}{size:.1f} %" if size < 10 else f"{sign}{size:.0f} %"


def format_quantity(value: float | None, units: str) -> str:
    """Return a value in the units of the metrics table (s, B, B/s, %, 1, USD) as text.

    Examples
    --------
    >>> format_quantity(2**20, "B"), format_quantity(3, "1"), format_quantity(12.5, "%")
    ('1.00 MiB', '3', '12.5 %')
    """
    if not _is_finite(value):
        return MISSING
    assert value is not None
    if units == "s":
        return format_seconds(value)
    if units == "B":
        return format_bytes(value)
    if units == "B/s":
        return f"{format_bytes(value)}/s"
    if units in ("1", ""):
        return format_count(value)
    return f"{_three_digits(value)} {units}"


def short_group(name: str) -> str:
    """Return the name of a task group without Dask's hash, which says nothing to a reader.

    Examples
    --------
    >>> short_group("sum-3d240ae1878b4bf2def0f035e33e1f11")
    'sum'
    >>> short_group("getitem-e334b54419f24194433e0020262b3f17-q2")
    'getitem-q2'
    """
    return re.sub(r"-[0-9a-f]{16,}(?=-|$)", "", name)


def short_names(groups: Iterable[str]) -> dict[str, str]:
    """Return a name to show for each task group: without Dask's hash, each one once.

    Examples
    --------
    >>> short_names(["sum-3d240ae1878b4bf2def0", "inc-7", "sum-0035e33e1f113d240"])
    {'sum-3d240ae1878b4bf2def0': 'sum', 'inc-7': 'inc-7', 'sum-0035e33e1f113d240': 'sum #2'}
    """
    seen: dict[str, int] = {}
    names = {}
    for group in groups:
        short = short_group(group)
        seen[short] = seen.get(short, 0) + 1
        names[group] = short if seen[short] == 1 else f"{short} #{seen[short]}"
    return names


def clean_text(value: Any) -> str:
    r"""Return text with NUL and half surrogate pairs replaced by their escape sequences.

    Task keys and error messages can hold any character. pandas 3 and Arrow refuse half a
    surrogate pair, and HDF5 cuts a text at a NUL.

    Parameters
    ----------
    value : object
        The text; None becomes an empty text.

    Returns
    -------
    str
        Text that can be encoded as UTF-8.

    Examples
    --------
    >>> clean_text("a\0b")
    'a\\x00b'
    """
    text = "" if value is None else str(value)
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


def json_safe(value: Any) -> Any:
    """Return a value as JSON types: NaN, infinity and pandas.NA become None.

    Parameters
    ----------
    value : object
        Numbers, NumPy scalars, texts, and mappings, lists and tuples of them. Other types are
        returned unchanged.

    Returns
    -------
    object
        The value; mappings as dict with text keys, lists and tuples as list.

    Examples
    --------
    >>> json_safe({"ratio": float("nan"), "runs": (1, 2)})
    {'ratio': None, 'runs': [1, 2]}
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Mapping):
        return {str(name): json_safe(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(item) for item in value]
    if type(value).__name__ == "NAType":  # pandas.NA, without an import of pandas
        return None
    if hasattr(value, "item") and not hasattr(value, "__len__"):  # a NumPy scalar
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def flatten(values: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings with their dotted names.

    Parameters
    ----------
    values : mapping
        Mappings of mappings; an empty inner mapping is yielded as a value.
    prefix : str, optional
        Prepended to each name, dot included.

    Yields
    ------
    tuple of str and object
        Dotted name and value.

    Examples
    --------
    >>> dict(flatten({"a": {"b": 1, "c": {}}, "d": 2}))
    {'a.b': 1, 'a.c': {}, 'd': 2}
    """
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


#: Text of a number with a unit, a count in parentheses or a star; such columns are right-aligned.
_NUMBER = re.compile(r"^[+−±-]?\d[\d ]*(\.\d+)?\*?( ?(%|[a-zA-Zµ]+|\d+))*( \(.*\))?$|^–$")


class Table:
    """Rows that can be shown as text, by rich, as Markdown and as HTML.

    Parameters
    ----------
    rows : sequence of mapping
        Column name -> value; all rows have the keys of the first.
    names : sequence of str, optional
        Columns to show, in order; by default those of the first row that are not empty in all
        rows.
    align_numbers : bool, default True
        Align columns to the right that hold numbers only; applies to text and rich.
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
        self._align_right = [
            align_numbers and all(_NUMBER.match(row[i]) or not row[i] for row in self.cells)
            for i in range(len(self.names))
        ]

    def to_text(self, *, width: int | None = None) -> str:
        """Return aligned text: one line of column names and one line per row.

        Parameters
        ----------
        width : int, optional
            Cut lines to this number of characters; None keeps them whole.

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
        lines = [f"| {' | '.join(self.names)} |", "|" + " --- |" * len(self.names)]
        for row in self.cells:
            if escape:
                row = [cell.replace("|", "\\|").replace("<", "&lt;") for cell in row]
            lines.append(f"| {' | '.join(row)} |")
        return "\n".join(lines)

    def to_html(self) -> str:
        """Return an HTML table; markup in cells is escaped."""
        left = "style='text-align:left'"
        head = "".join(f"<th {left}>{html.escape(name)}</th>" for name in self.names)
        body = "".join(
            f"<tr>{''.join(f'<td {left}>{html.escape(cell)}</td>' for cell in row)}</tr>"
            for row in self.cells
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    _repr_html_ = to_html


def _cell_text(value: Any) -> str:
    """Return a value on one line: line ends and control codes in texts of runs become spaces."""
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value)
    return re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", str(value))
