"""Exceptions of `benchkit.measure` and the exit codes of commands that end with them.

Defined here and re-exported by `benchkit.errors`, because this folder is copied alone into the
environment under test.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return a hint with the known name nearest to `name`."""
    similar = get_close_matches(name, [other for other in known if other != name], n=1)
    return f"did you mean {similar[0]!r}?" if similar else otherwise


def error_summary(error: BaseException) -> str:
    """Return the class and the first line of the message of an exception.

    Examples
    --------
    >>> error_summary(ValueError("bad shape"))
    'ValueError: bad shape'
    """
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # of the __str__ of a foreign class
        lines = ["its message cannot be printed"]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


class BenchkitError(Exception):
    """Base class; the message is one line: the object, the problem, the correction."""

    exit_code = 3


class UsageError(BenchkitError):
    """An argument names something that does not exist, or is invalid."""

    exit_code = 2


class UnknownWorkload(UsageError):
    """No folder or plugin provides a workload of this name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        known = [other for other in dict.fromkeys(known) if other != name]
        inside = [repr(other) for other in known if name.lower() in other.lower()][:3]
        hint = f"did you mean {' or '.join(inside)}?" if inside and len(name) > 2 else ""
        hint = hint or did_you_mean(name, known, "see `benchkit list workloads`")
        super().__init__(f"no workload named {name!r}: {hint}")


class InvalidSelectionError(UsageError):
    """A selection expression (`-k`) is invalid or selects nothing."""


class InvalidParameterError(UsageError):
    """A workload or recipe does not have this parameter or value."""


class InvalidWorkloadError(UsageError):
    """The declaration of a workload is invalid."""


class MissingPackage(BenchkitError):
    """A workload needs a package that this environment does not have."""


class InvalidClusterError(UsageError):
    """A cluster class or one of its options does not exist."""


class ClusterError(BenchkitError):
    """A cluster did not start, or not with the requested workers."""


class DatasetError(BenchkitError):
    """An input dataset could not be made or read."""


class DeadlinePassed(BenchkitError):
    """A step of a workload did not end before its deadline."""


class WrongAnswer(BenchkitError):
    """The result of a workload is not the known answer."""
