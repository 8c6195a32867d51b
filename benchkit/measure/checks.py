"""Compare the result of a workload with the known answer.

Accepts numbers, arrays and Series; the error is one line with the position of the difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from benchkit.measure.errors import WrongAnswer

__all__ = ["expect"]


def expect(
    value: Any,
    *,
    equals: Any = None,
    close_to: Any = None,
    rtol: float = 1e-9,
    atol: float = 0.0,
    at_least: Any = None,
    at_most: Any = None,
    what: str = "result",
) -> None:
    """Raise `WrongAnswer` unless a value is as expected; NaN is always wrong.

    Parameters
    ----------
    value : scalar or array_like
        Computed value; a Series or an array is compared element by element.
    equals, close_to : scalar or array_like, optional
        The known answer, exactly or within ``atol + rtol * |close_to|``.
    at_least, at_most : scalar, optional
        Bounds, inclusive.
    what : str
        Name of the value, for the message.

    Raises
    ------
    WrongAnswer
        The value differs.
    TypeError
        No expectation is given.

    Examples
    --------
    >>> expect(3.0, close_to=3.0, at_most=4)
    >>> expect(2, equals=3, what="rows")
    Traceback (most recent call last):
        ...
    benchkit.measure.errors.WrongAnswer: rows: 2, expected 3
    """
    if equals is None and close_to is None and at_least is None and at_most is None:
        raise TypeError("expect: pass equals=, close_to=, at_least= or at_most=")
    got, wanted_equal, wanted_close = (_plain(item) for item in (value, equals, close_to))
    if wanted_equal is not None:
        _compare(got, wanted_equal, what, lambda a, b: a == b, "expected")
    if wanted_close is not None:
        _compare(
            got,
            wanted_close,
            what,
            lambda a, b: abs(a - b) <= atol + rtol * abs(b),
            f"expected within {atol:g} + {rtol:g} × of",
        )
    for item in _flat(got):
        if at_least is not None and not item >= at_least:
            raise WrongAnswer(f"{what}: {_short(item)}, expected at least {_short(at_least)}")
        if at_most is not None and not item <= at_most:
            raise WrongAnswer(f"{what}: {_short(item)}, expected at most {_short(at_most)}")


def _plain(value: Any) -> Any:
    """Return NumPy, pandas and the like as numbers and (nested) lists."""
    if value is None or isinstance(value, (str, bytes, bool, int, float, complex)):
        return value
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _flat(value: Any) -> Iterable[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def _compare(got: Any, wanted: Any, what: str, same: Callable[[Any, Any], bool], word: str) -> None:
    if isinstance(got, list) != isinstance(wanted, list):
        if isinstance(got, list):
            wanted = [wanted] * len(got)
        else:
            raise WrongAnswer(f"{what}: {_short(got)}, {word} {_short(wanted)}")
    if not isinstance(got, list):
        if not _is_same(same, got, wanted):
            raise WrongAnswer(f"{what}: {_short(got)}, {word} {_short(wanted)}")
        return
    if len(got) != len(wanted):
        raise WrongAnswer(f"{what}: {len(got)} values, expected {len(wanted)}")
    for index, (a, b) in enumerate(zip(got, wanted, strict=True)):
        _compare(a, b, f"{what}[{index}]", same, word)


def _is_same(same: Callable[[Any, Any], bool], a: Any, b: Any) -> bool:
    try:
        return bool(same(a, b)) and not (isinstance(a, float) and math.isnan(a))
    except TypeError:
        return False


def _short(value: Any) -> str:
    text = f"{value:.12g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
