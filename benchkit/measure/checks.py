"""Compare the result of a workload with the known answer.

Accepts numbers, arrays and Series; the error is one line with the position of the difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from dask.base import is_dask_collection

from benchkit.measure.errors import WrongAnswer

#: Default of `equals`: the expected answer may be None.
_NOTHING: Any = object()


def expect(
    value: Any,
    *,
    equals: Any = _NOTHING,
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
        Value, computed first if it is a Dask collection; a Series or an array is compared
        element by element.
    equals, close_to : scalar or array_like, optional
        The known answer, exactly or within ``atol + rtol * |close_to|``.
    rtol, atol : float
        Relative and absolute tolerance of `close_to`; by default 1e-9 and 0.
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
    if equals is _NOTHING and close_to is None and at_least is None and at_most is None:
        raise TypeError("expect: pass equals=, close_to=, at_least= or at_most=")
    actual, exact, approximate = (_to_python(item) for item in (value, equals, close_to))
    if equals is not _NOTHING:
        _compare(actual, exact, what, lambda a, b: a == b, "expected")
    if approximate is not None:
        _compare(
            actual,
            approximate,
            what,
            lambda a, b: abs(a - b) <= atol + rtol * abs(b),
            f"expected within {atol:g} + {rtol:g} × of",
        )
    for item in _flatten(actual):
        if at_least is not None and not item >= at_least:
            raise WrongAnswer(f"{what}: {_format(item)}, expected at least {_format(at_least)}")
        if at_most is not None and not item <= at_most:
            raise WrongAnswer(f"{what}: {_format(item)}, expected at most {_format(at_most)}")


def _to_python(value: Any) -> Any:
    """Convert NumPy, pandas, Dask and similar values to numbers and (nested) lists."""
    if is_dask_collection(value):
        value = value.compute()
    if value is None or isinstance(value, (str, bytes, bool, int, float, complex)):
        return value
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_to_python(item) for item in value]
    return value


def _flatten(value: Any) -> Iterable[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _flatten(item)
    else:
        yield value


def _compare(
    actual: Any, expected: Any, label: str, is_equal: Callable[[Any, Any], bool], phrase: str
) -> None:
    if isinstance(actual, list) and not isinstance(expected, list):
        expected = [expected] * len(actual)
    if not isinstance(actual, list):
        if isinstance(expected, list) or not _holds(is_equal, actual, expected):
            raise WrongAnswer(f"{label}: {_format(actual)}, {phrase} {_format(expected)}")
        return
    if len(actual) != len(expected):
        raise WrongAnswer(f"{label}: {len(actual)} values, expected {len(expected)}")
    for index, (a, b) in enumerate(zip(actual, expected, strict=True)):
        _compare(a, b, f"{label}[{index}]", is_equal, phrase)


def _holds(is_equal: Callable[[Any, Any], bool], a: Any, b: Any) -> bool:
    """Return whether two values are equal; NaN is equal to nothing."""
    try:
        return bool(is_equal(a, b)) and not (isinstance(a, float) and math.isnan(a))
    except TypeError:
        return False


def _format(value: Any) -> str:
    text = f"{value:.12g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
