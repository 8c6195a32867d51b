"""Check arguments that the command line, Python and notebooks take, before anything is written."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from typing import Any

from benchkit.measure.artifacts import parse_capture
from benchkit.measure.errors import InvalidParameterError, UsageError

__all__ = ["as_list", "check_run_arguments"]


def as_list(value: Any, name: str) -> list[Any]:
    """Return a list that may be given as text: papermill and shells pass text only.

    Parameters
    ----------
    value : str, path or iterable
        A text is one item, or a JSON list.
    name : str
        Name of the argument, for errors.

    Returns
    -------
    list
        The items.

    Raises
    ------
    UsageError
        The value is neither.

    Examples
    --------
    >>> as_list("tip", "environments"), as_list('["tip", "release"]', "environments")
    (['tip'], ['tip', 'release'])
    """
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            return list(json.loads(value))
        except json.JSONDecodeError as error:
            raise UsageError(f"{name}: {value!r} is no list in JSON: {error}") from error
    if isinstance(value, (str, os.PathLike)):
        return [value]
    if not isinstance(value, Iterable):
        raise UsageError(f"{name}: {value!r} is a {type(value).__name__}: give a list of names")
    return list(value)


def check_run_arguments(
    *,
    repeats: Any = 1,
    scale: Any = 1.0,
    capture: Any = "full",
    deadline_s: Any = None,
    tags: Any = None,
    workload: Any = "adhoc",
) -> None:
    """Check the arguments of a measurement.

    Parameters
    ----------
    repeats : int
        Number of runs, 1 or more.
    scale : float
        Above 0 and up to 1.
    capture : str
        See `benchkit.measure.artifacts.parse_capture`.
    deadline_s : float, optional
        Time limit in s, above 0.
    tags : mapping of str to str, optional
        Values of other types are stored as text.
    workload : str
        Name for the run.

    Raises
    ------
    UsageError, InvalidParameterError
        An argument is invalid; the message says what would be valid.
    """
    if type(repeats) is not int or repeats < 1:
        raise UsageError(f"repeats {repeats!r}: must be a whole number, 1 or more")
    if not _is_number(scale) or not 0 < scale <= 1:
        raise InvalidParameterError(f"scale {scale!r}: choose a number above 0 and up to 1")
    if deadline_s is not None and not (_is_number(deadline_s) and deadline_s > 0):
        raise UsageError(f"deadline_s {deadline_s!r}: must be a number of seconds above 0")
    if not isinstance(capture, str):
        raise UsageError(f"capture {capture!r}: must be a text, such as 'full'")
    parse_capture(capture)
    if tags is not None and not isinstance(tags, Mapping):
        raise UsageError(f"tags {tags!r}: must be a mapping, such as {{'variant': 'A'}}")
    for name in tags or ():
        if not isinstance(name, str) or not name:
            raise UsageError(f"tags {tags!r}: the name {name!r} must be a text")
    if not isinstance(workload, str) or not workload.strip():
        raise UsageError(f"workload {workload!r}: must be a name, such as 'etl'")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
