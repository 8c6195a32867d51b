"""Score the causes of alarms where several machines measure the same workloads."""

from __future__ import annotations

import numpy as np

from benchkit.analysis.changepoints import detect_many, latest_night
from benchkit.analysis.regression.fleet import fleet_step

MACHINES, WORKLOADS = 3, 20
#: Nights on which one machine is slow, and the share of workloads that a change of code affects.
BUSY_NIGHTS, CHANGED_SHARE = 6, 0.15


def several_machines(quiet: np.ndarray, history: int, n_reports: int = 40) -> None:
    """Print how alarms are called: of a slow machine, of changed code, and of neither."""
    print(f"several machines: {n_reports} x {MACHINES} machines x {WORKLOADS} workloads")
    for title, size, machine, code in (
        ("nothing changes", 1.0, False, False),
        ("one machine is 15 % slower for some nights", 1.15, True, False),
        ("code is 10 % slower in some workloads on all machines", 1.10, False, True),
        ("both", 1.10, True, True),
    ):
        rng = np.random.default_rng(11)
        counts = {"code": 0, "unclear": 0, "infrastructure": 0}
        found = planted = right = n_nights = 0
        for _ in range(n_reports):
            values, affected, start = _report(rng, quiet, size, machine, code)
            causes = _causes(values, history)
            n_nights += values.shape[0] * (values.shape[1] - history)
            seen = set()
            for row, index, cause in causes:
                is_hit = affected[row] and index >= start - 5
                if is_hit:
                    right += cause == "code" and row not in seen
                    seen.add(row)
                else:
                    counts[cause] += 1
            found += len(seen)
            planted += int(affected.sum())
        text = ", ".join(f"{cause} {100 * n / n_nights:.3f}" for cause, n in counts.items())
        print(f"  {title}: other alarms / 100 series-nights by cause: {text}")
        if planted:
            print(f"    of {planted} changed series {found} found, {right} of them called code")


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
    for row, changes in enumerate(detect_many(values)):
        for change in changes:
            if change.direction > 0 and change.detected_at >= history:
                by_night.setdefault(change.detected_at, []).append((row, change.index))
    host = [f"machine {row // WORKLOADS}" for row in range(len(values))]
    workload = [f"workload {row % WORKLOADS}" for row in range(len(values))]
    causes = []
    for night, alarms in by_night.items():
        latest = latest_night(values[:, : night + 1])
        alarm, since = np.zeros((2, len(values)), int)
        for row, index in alarms:
            alarm[row], since[row] = 1, index
        fleet = fleet_step(
            alarm,
            latest.units,
            machine=host,
            environment=["main"] * len(values),
            metric=["duration"] * len(values),
            workload=workload,
            recent=latest.recent_units,
            since=since,
        )
        causes += [(row, index, str(fleet.cause[row])) for row, index in alarms]
    return causes
