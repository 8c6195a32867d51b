"""Every exception of benchkit, with the exit code of the command that meets it.

The ones raised on the measured side are defined in `benchkit.measure.errors`, because that folder
is copied alone into the environment under test; here they are all together.
"""

from __future__ import annotations

from benchkit.measure.errors import (
    BenchkitError,
    ClusterError,
    DatasetError,
    DeadlinePassed,
    InvalidClusterError,
    InvalidParameterError,
    InvalidSelectionError,
    InvalidWorkloadError,
    MissingPackage,
    UnknownWorkload,
    UsageError,
    WrongAnswer,
    did_you_mean,
)

__all__ = [
    "AlreadyStored",
    "InvalidClusterError",
    "InvalidEnvironmentError",
    "InvalidImportError",
    "InvalidNotebookError",
    "InvalidParameterError",
    "InvalidSelectionError",
    "InvalidStoreError",
    "InvalidWorkloadError",
    "BenchkitError",
    "ClusterError",
    "DatasetError",
    "DeadlinePassed",
    "EnvironmentBuildError",
    "BisectionEndError",
    "MissingExtra",
    "MissingPackage",
    "NotEnoughRuns",
    "SiteError",
    "StoreError",
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


class InvalidStoreError(UsageError):
    """The place named as a store is not one, or not one that this benchkit can read."""


class StoreError(BenchkitError):
    """A store could not be written or read: disk full, no permission, index in motion."""


class SiteError(BenchkitError):
    """The published site could not be written: disk full, no permission."""


class UnknownRun(UsageError):
    """No run of that id (or beginning of an id) is in the store."""


class UnreadableRun(BenchkitError):
    """A run file is damaged."""


class InvalidEnvironmentError(UsageError):
    """An environment file says something that cannot be meant."""


class EnvironmentBuildError(BenchkitError):
    """An environment could not be built: no network, no tool, a source that does not compile."""


class BisectionEndError(BenchkitError):
    """The good or the bad end of a bisection cannot be measured."""


class InvalidImportError(UsageError):
    """A file to import is not what it should be."""


class InvalidNotebookError(UsageError):
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
