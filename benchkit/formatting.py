"""Numbers as people read them: with a unit and no more digits than mean something.

Shared by tables on a terminal, notebooks and pages. Standard library only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

__all__ = [
    "OUTCOME_WORDS",
    "MISSING",
    "counted",
    "format_bytes",
    "format_change",
    "format_count",
    "format_quantity",
    "format_seconds",
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

#: What stands where a number is not known; never 0.
MISSING = "–"
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def _known(value: float | None) -> bool:
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
    if not _known(value):
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
    if not _known(value):
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
    if not _known(value):
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
    if not _known(ratio):
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
    if not _known(value):
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
