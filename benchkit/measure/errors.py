"""What the measured side refuses, each with the exit code of the command that meets it.

These live here and not in `benchkit.errors`, which gathers them, because this folder is copied
alone into the environment under test.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "BenchkitError",
    "InvalidClusterError",
    "InvalidParameterError",
    "InvalidSelectionError",
    "InvalidWorkloadError",
    "ClusterError",
    "DeadlinePassed",
    "DatasetError",
    "MissingPackage",
    "UnknownWorkload",
    "UsageError",
    "WrongAnswer",
    "did_you_mean",
]


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return a hint naming the known word nearest to `name`, or `otherwise`."""
    near = get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise


class BenchkitError(Exception):
    """A refusal with one line to show: the thing, what is wrong, what would be right."""

    exit_code = 3


class UsageError(BenchkitError):
    """The caller asked for something that does not exist or does not make sense."""

    exit_code = 2


class UnknownWorkload(UsageError):
    """A workload was asked for that no folder or plugin provides."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        known = list(dict.fromkeys(known))
        far = ", ".join(map(repr, get_close_matches(name, known, n=3, cutoff=0.0)))
        nearest = f"; the nearest are {far}" if far else ""
        hint = did_you_mean(name, known, f"see `benchkit list workloads`{nearest}")
        super().__init__(f"no workload named {name!r}: {hint}")


class InvalidSelectionError(UsageError):
    """A selection expression (`-k`) cannot be read, or selects nothing."""


class InvalidParameterError(UsageError):
    """A workload was given a parameter, or a value of one, that it does not have."""


class InvalidWorkloadError(UsageError):
    """A workload is declared in a way that cannot work."""


class MissingPackage(BenchkitError):
    """A workload needs a package that this environment does not have."""


class InvalidClusterError(UsageError):
    """A cluster is asked for by a class or an option that does not exist."""


class ClusterError(BenchkitError):
    """A cluster could not be opened, or not as it was asked for."""


class DatasetError(BenchkitError):
    """An input dataset could not be made or read."""


class DeadlinePassed(BenchkitError):
    """A workload did not end before its deadline."""


class WrongAnswer(BenchkitError):
    """A workload's result is not the known answer."""
