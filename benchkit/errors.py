"""Every exception of benchkit, with the exit code of the command that meets it.

The ones raised on the measured side are defined in `benchkit.measure.errors`, because that folder
is copied alone into the environment under test; here they are all together.
"""

from __future__ import annotations

from benchkit.measure.errors import (
    BadCluster,
    BadParameter,
    BadSelection,
    BadWorkload,
    BenchkitError,
    ClusterTrouble,
    DatasetTrouble,
    DeadlinePassed,
    MissingPackage,
    UnknownWorkload,
    UsageError,
    WrongAnswer,
    did_you_mean,
)

__all__ = [
    "AlreadyStored",
    "BadCluster",
    "BadEnvironment",
    "BadImport",
    "BadNotebook",
    "BadParameter",
    "BadSelection",
    "BadStore",
    "BadWorkload",
    "BenchkitError",
    "ClusterTrouble",
    "DatasetTrouble",
    "DeadlinePassed",
    "EnvironmentTrouble",
    "FailedEnd",
    "MissingExtra",
    "MissingPackage",
    "NotEnoughRuns",
    "SiteTrouble",
    "StoreTrouble",
    "UnknownRun",
    "UnknownWorkload",
    "UnreadableRun",
    "UsageError",
    "WrongAnswer",
    "did_you_mean",
]


class AlreadyStored(BenchkitError):
    """A file of that name is in the store already; stores never replace one."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name}: already in the store, and a store never replaces a file")


class BadStore(UsageError):
    """The place named as a store is not one, or not one that this benchkit can read."""


class StoreTrouble(BenchkitError):
    """A store could not be written or read: disk full, no permission, index in motion."""


class SiteTrouble(BenchkitError):
    """The published site could not be written: disk full, no permission."""


class UnknownRun(UsageError):
    """No run of that id (or beginning of an id) is in the store."""


class UnreadableRun(BenchkitError):
    """A run file is damaged."""


class BadEnvironment(UsageError):
    """An environment file says something that cannot be meant."""


class EnvironmentTrouble(BenchkitError):
    """An environment could not be built: no network, no tool, a source that does not compile."""


class FailedEnd(BenchkitError):
    """The good or the bad end of a bisection cannot be measured."""


class BadImport(UsageError):
    """A file to import is not what it should be."""


class BadNotebook(UsageError):
    """A notebook has no such parameter, or a value that a notebook cannot be handed."""


class NotEnoughRuns(BenchkitError):
    """An answer needs more runs than there are."""

    exit_code = 4


class MissingExtra(UsageError):
    """A part of benchkit was asked for whose packages are not installed."""

    def __init__(self, extra: str, package: str) -> None:
        self.extra = extra
        super().__init__(
            f"{package} is not installed: pip install 'benchkit[{extra}]' brings what is needed"
        )
