"""Exceptions and the outcomes of the runs that they end."""

from concurrent.futures import CancelledError

import pytest
from distributed import KilledWorker
from distributed.comm import CommClosedError

from benchkit.measure.errors import (
    ClusterError,
    DatasetError,
    DeadlinePassed,
    MissingPackage,
    WrongAnswer,
)
from benchkit.measure.outcomes import RECORDED_STEP, classify_error


class ClosedClientError(Exception):
    """The class of this name in newer releases of distributed."""


@pytest.mark.parametrize("error", [WrongAnswer("1, expected 2"), AssertionError()])
@pytest.mark.parametrize(
    ("step", "outcome"),
    [
        ("prepare", "failed"),
        ("workload", "failed"),
        ("check", "wrong_answer"),
        ("cleanup", "failed"),
        (RECORDED_STEP, "wrong_answer"),
    ],
)
def test_classify_error_assertion_depends_on_step(error, step, outcome):
    assert classify_error(error, step, lambda: True) == outcome


@pytest.mark.parametrize("step", ["workload", RECORDED_STEP])
@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (DeadlinePassed("the workload"), "timeout"),
        (MissingPackage("zarr"), "skipped"),
        (KilledWorker("task", None, 3), "lost_workers"),
        (ClusterError("no workers"), "infrastructure"),
        (DatasetError("disk full"), "infrastructure"),
        (ValueError("shape"), "failed"),
    ],
)
def test_classify_error_other_types(error, step, outcome):
    assert classify_error(error, step, lambda: True) == outcome


@pytest.mark.parametrize(
    ("error", "with_workload", "with_recorded"),
    [
        (CommClosedError(), "lost_workers", "failed"),
        (CancelledError(), "lost_workers", "failed"),
        (ClosedClientError(), "failed", "failed"),
        (OSError(), "failed", "failed"),
    ],
)
def test_classify_error_lost_connection(error, with_workload, with_recorded):
    assert classify_error(error, "workload", lambda: False) == "infrastructure"
    assert classify_error(error, RECORDED_STEP, lambda: False) == "infrastructure"
    assert classify_error(error, "workload", lambda: True) == with_workload
    assert classify_error(error, RECORDED_STEP, lambda: True) == with_recorded


def test_classify_error_open_step():
    assert classify_error(ValueError(), "open", lambda: True) == "infrastructure"
