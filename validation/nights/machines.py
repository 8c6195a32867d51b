"""Nights of several machines that measure the same workloads, and the causes of their alarms."""

from collections.abc import Iterator

import numpy as np

from benchkit.analysis.changepoints import Detector
from benchkit.analysis.regression.fleet import fleet_step

MACHINES, WORKLOADS = 3, 20
#: Nights on which one machine is slow, and the share of workloads that a change of code affects.
BUSY_NIGHTS, CHANGED_SHARE = 6, 0.15


#: Title of a situation, size of the change, and whether the machine or the code changes.
SITUATIONS = (
    ("nothing changes", 1.0, False, False),
    ("one machine is 15 % slower for some nights", 1.15, True, False),
    ("code is 10 % slower in some workloads on all machines", 1.10, False, True),
    ("both", 1.10, True, True),
)


def causes_of_reports(
    quiet: np.ndarray, history: int, n_reports: int
) -> Iterator[tuple[str, list[tuple[np.ndarray, int, list[tuple[int, int, str]]]]]]:
    """Yield each situation with its reports: changed series, first night, and causes of alarms."""
    for title, size, machine, code in SITUATIONS:
        rng = np.random.default_rng(11)
        reports = []
        for _ in range(n_reports):
            values, affected, start = _report(rng, quiet, size, machine, code)
            reports.append((affected, start, _causes(values, history)))
        yield title, reports


def _report(
    rng: np.random.Generator, quiet: np.ndarray, size: float, machine: bool, code: bool
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return values of all series, which of them the code changes, and from which night on."""
    values = quiet[rng.choice(len(quiet), MACHINES * WORKLOADS, replace=False)].copy()
    values /= np.median(values, axis=1, keepdims=True)
    start = int(rng.integers(40, values.shape[1] - 20))
    host = np.arange(len(values)) // WORKLOADS
    affected = np.zeros(len(values), bool)
    if machine:
        values[host == 0, start : start + BUSY_NIGHTS] *= size
    if code:
        changed = rng.random(WORKLOADS) < CHANGED_SHARE
        affected = np.tile(changed, MACHINES)
        values[affected, start:] *= size
    return values, affected, start


def _causes(values: np.ndarray, history: int) -> list[tuple[int, int, str]]:
    """Return series, first night and cause of each alarm for a rise."""
    by_night: dict[int, list[tuple[int, int]]] = {}
    detector = Detector(values)
    for row, changes in enumerate(detector.changes):
        for change in changes:
            if change.direction > 0 and change.detected_at >= history:
                by_night.setdefault(change.detected_at, []).append((row, change.index))
    host = [f"machine {row // WORKLOADS}" for row in range(len(values))]
    workload = [f"workload {row % WORKLOADS}" for row in range(len(values))]
    causes = []
    for night, alarms in by_night.items():
        latest = detector.on(night).latest
        alarm, since = np.zeros((2, len(values)), int)
        for row, index in alarms:
            alarm[row], since[row] = 1, index
        by_row = fleet_step(
            alarm,
            latest.units,
            machine=host,
            environment=["main"] * len(values),
            metric=["duration"] * len(values),
            workload=workload,
            recent=latest.recent_units,
            since=since,
        )
        causes += [(row, index, by_row[row].cause) for row, index in alarms]
    return causes
