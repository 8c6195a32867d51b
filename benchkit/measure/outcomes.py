"""Classify the exception that ended a run as one of the stored outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import CancelledError

from distributed import KilledWorker
from distributed.comm.core import CommClosedError

from benchkit.measure.errors import (
    ClusterError,
    DatasetError,
    DeadlinePassed,
    MissingPackage,
    WrongAnswer,
)

#: The step of code under `benchkit.record`: computation and checks are not separate there.
RECORDED_STEP = "recorded"


def classify_error(error: BaseException, step: str, scheduler_alive: Callable[[], bool]) -> str:
    """Return the outcome of a run that ended with an exception.

    A failed assertion is a wrong answer in the check of a workload and in recorded code; in every
    other step of a workload it is a failure.

    Examples
    --------
    >>> classify_error(AssertionError("sum"), "check", lambda: True)
    'wrong_answer'
    >>> classify_error(AssertionError("sum"), "workload", lambda: True)
    'failed'
    """
    if isinstance(error, DeadlinePassed):
        return "timeout"
    # The second: exceptions of pytest.skip and unittest, in a test that is recorded.
    if isinstance(error, MissingPackage) or type(error).__name__ in ("Skipped", "SkipTest"):
        return "skipped"
    if isinstance(error, KilledWorker):
        return "lost_workers"
    if step in ("check", RECORDED_STEP) and isinstance(error, (WrongAnswer, AssertionError)):
        return "wrong_answer"
    if step == "open" or isinstance(error, (ClusterError, DatasetError)):
        return "infrastructure"
    cancelled = isinstance(error, (CommClosedError, CancelledError, asyncio.CancelledError))
    # Newer releases of distributed raise ClosedClientError, which older ones do not have.
    disconnected = isinstance(error, OSError) or type(error).__name__ == "ClosedClientError"
    if (cancelled or disconnected) and not scheduler_alive():
        return "infrastructure"
    # distributed cancels the futures of a workload when all workers are gone; recorded code may
    # have cancelled its own futures.
    return "lost_workers" if cancelled and step != RECORDED_STEP else "failed"
