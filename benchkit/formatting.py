"""Format numbers with their unit and three significant digits.

Shared by the command line, notebooks and pages. Imports the standard library only. A value that is
None, NaN or infinite is `MISSING`.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

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
#: Outcomes that are no failures.
NO_FAILURE = ("ok", "skipped")
#: Limits of a run that are shown with its outcome -> what they mean.
SHOWN_LIMITS = {
    "disturbed": "something else used the machine or the cluster",
    "unfinished": "tasks were left when the clock stopped",
}
#: Text of an unknown number; never 0.
MISSING = "–"
#: Rows of a table or list; the rest is counted or on its own page.
ROWS_SHOWN = 20
#: Parts that a sentence names; more are no longer read.
PARTS_NAMED = 3
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
        return f"{value:,.0f}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, 6)}f}"


def run_limits(record: Mapping[str, Any]) -> list[str]:
    """Return the limits of a run that are shown with its outcome.

    Examples
    --------
    >>> run_limits({"quality": '{"duration": "disturbed", "memory_peak": "cut disturbed"}'})
    ['disturbed']
    """
    notes = record.get("quality") or {}
    try:
        notes = json.loads(notes) if isinstance(notes, str) else notes
    except ValueError:  # written by hand
        return []
    if not isinstance(notes, Mapping):  # NaN
        return []
    return sorted({kind for words in notes.values() for kind in words.split()} & {*SHOWN_LIMITS})


def format_outcome(record: Mapping[str, Any]) -> str:
    """Return the outcome of a run as a symbol and words, with the limits of the run.

    Examples
    --------
    >>> format_outcome({"outcome": "ok", "quality": '{"duration": "disturbed"}'})
    '✓ ok, disturbed'
    """
    outcome = str(record.get("outcome"))
    return ", ".join([" ".join(OUTCOME_WORDS.get(outcome, ("?", outcome))), *run_limits(record)])


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1.

    Examples
    --------
    >>> counted(1, "run"), counted(2000, "run")
    ('1 run', '2,000 runs')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


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
    power = 0
    while abs(value) >= 1023.5 and power < len(_BYTES) - 1:
        value /= 1024
        power += 1
    return f"{value:.0f} B" if power == 0 else f"{_three_digits(value)} {_BYTES[power]}"


def format_seconds(value: float | None) -> str:
    """Return a duration in the unit that needs the fewest digits.

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
    """Return a count with a comma between groups of three digits.

    Examples
    --------
    >>> format_count(1234567)
    '1,234,567'
    """
    if not _is_finite(value):
        return MISSING
    if float(value).is_integer():
        return f"{int(value):,}"
    return _three_digits(value)


def format_change(ratio: float | None) -> str:
    """Return the ratio contender / baseline as a signed change in %.

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


#: With this factor or more, a change is also stated as a factor: −99 % and −98 % look alike.
LARGE_FACTOR = 5


def format_factor(ratio: float | None) -> str:
    """Return the factor of a large change, else an empty text.

    Examples
    --------
    >>> format_factor(0.011), format_factor(12.3), format_factor(0.5)
    ('about 91 times', 'about 12 times', '')
    """
    if not _is_finite(ratio) or ratio <= 0:
        return ""
    factor = max(ratio, 1 / ratio)
    return f"about {float(f'{factor:.2g}'):,.0f} times" if factor >= LARGE_FACTOR else ""


def format_quantity(value: float | None, units: str) -> str:
    """Return a value with its unit.

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


def package_path(path: str) -> str:
    """Return the path of a source file relative to the folder of installed packages.

    Examples
    --------
    >>> package_path("/opt/env/lib/python3.12/site-packages/pandas/core/frame.py")
    'pandas/core/frame.py'
    """
    return re.split(r"(?:site-packages|lib/python[\d.]+)/", path.replace("\\", "/"))[-1]


def short_group(name: str) -> str:
    """Return the name of a task group without Dask's hash.

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


def signed_parts(
    total: float, named: Sequence[tuple[float, str]], rest: str
) -> tuple[str, list[tuple[str, str]]]:
    """Return seconds and some of their parts as text, rounded so that the parts sum to the total.

    Examples
    --------
    >>> signed_parts(6.5, [(5.0, "transfer"), (-0.5, "compute")], "all other parts")
    ('+6.50 s', [('+5.00 s', 'transfer'), ('−0.50 s', 'compute'), ('+2.00 s', 'all other parts')])
    """
    largest = max(1e-6, abs(total), *(abs(seconds) for seconds, _ in named))
    decimals = max(0, 2 - math.floor(math.log10(largest)))

    def text(seconds: float) -> str:
        return f"{'+' if seconds >= 0 else '−'}{abs(seconds):.{decimals}f} s"

    rounded = [(round(seconds, decimals), name) for seconds, name in named]
    total = round(total, decimals)
    others = round(total - sum(seconds for seconds, _ in rounded), decimals)
    if others or not rounded:
        rounded.append((others, rest))
    return text(total), [(text(seconds), name) for seconds, name in rounded]
