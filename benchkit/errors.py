"""All exceptions of benchkit and the exit codes of commands that end with them.

Exceptions of `benchkit.measure` are defined in `benchkit.measure.errors`, because that folder is
copied alone into the environment under test; they are re-exported here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

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
    error_summary,
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
    "MissingParts",
    "MissingPackage",
    "NotEnoughRuns",
    "NotRecorded",
    "SiteError",
    "StoreAccessError",
    "StoreError",
    "UnlistableFolder",
    "UnknownRun",
    "UnknownWorkload",
    "UnreadableRun",
    "UsageError",
    "WrongAnswer",
    "describe_error",
    "did_you_mean",
    "install_command",
    "needs_extra",
]


def describe_error(error: Exception) -> str:
    """Return the message of an error in one line without secrets; an error of the system's file."""
    from benchkit.measure.secrets import redact_text  # takes 10 ms

    if isinstance(error, BenchkitError):
        return redact_text(str(error))
    if not isinstance(error, OSError):
        return redact_text(error_summary(error))
    reason = error.strerror or str(error)
    return redact_text(f"{error.filename}: not accessible: {reason}" if error.filename else reason)


def install_command(extra: str) -> str:
    """Return the shell command that installs an extra of benchkit."""
    return f"pip install 'dask-benchkit[{extra}]'"


class AlreadyStored(BenchkitError):
    """A file of this name is already in the store; a store never replaces a file."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name}: already in the store, and a store never replaces a file")


class InvalidStoreError(UsageError):
    """The given location is not a store, or has a format that this benchkit cannot read."""


class StoreError(BenchkitError):
    """A store could not be written or read: disk full, no permission, index being replaced."""


class UnlistableFolder(StoreError):
    """A folder of a bucket at Google or Azure holds names that the client refuses to list."""


class StoreAccessError(StoreError):
    """The bucket of a store refuses the credentials, or there are none."""

    exit_code = 2


class SiteError(BenchkitError):
    """The published site could not be written: disk full, no permission."""


class MissingParts(BenchkitError):
    """A page or site was written without the parts that errors prevent."""

    def __init__(self, page: Path, lines: Sequence[str]) -> None:
        self.page, self.lines = page, lines
        super().__init__(f"{page}: written, but {'; '.join(lines)}")


class UnknownRun(UsageError):
    """No run in the store has this id or id prefix."""


class NotRecorded(UsageError):
    """A run does not contain the data that an analysis needs."""


class UnreadableRun(BenchkitError):
    """A run file is damaged."""


class InvalidEnvironmentError(UsageError):
    """An environment file is invalid."""


class EnvironmentBuildError(BenchkitError):
    """An environment could not be built: no network, no tool, a source that does not compile."""


class BisectionEndError(BenchkitError):
    """The good or the bad end of a bisection cannot be measured."""


class InvalidImportError(UsageError):
    """A file to import does not have the expected format."""


class InvalidNotebookError(UsageError):
    """A notebook does not have this parameter, or cannot receive its value."""


class NotEnoughRuns(BenchkitError):
    """An analysis needs more runs than are stored."""

    exit_code = 4


class MissingExtra(UsageError):
    """A feature of benchkit needs packages that are not installed."""

    def __init__(self, extra: str, package: str) -> None:
        self.extra = extra
        super().__init__(f"{package} is not installed: run {install_command(extra)}")


@contextmanager
def needs_extra(extra: str, package: str = "") -> Iterator[None]:
    """Report an import that fails in the body of a `with` as a missing extra."""
    try:
        yield
    except ImportError as error:
        raise MissingExtra(extra, package or str(error.name)) from error
