"""Estimate the cause of alarms from all series of a night where there is no control environment.

A busy machine, a full disk or a new kernel affects many workloads of a machine. With a control,
whose software never changes, the control shows the machine: see
`benchkit.analysis.regression.level_events.NightLevels.control_causes`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benchkit.errors import UsageError

#: If this share of a group's series deviate on one night, the cause is unclear. So it is on a tenth
#: of the nights of 301 real series, with 15 of the 27 false alarms.
COMMON_SHARE = 0.10
#: Smallest number of such series: one or two may be a change of one workload.
COMMON_SERIES = 3
#: A series has moved if its last night deviates by this many noise units or more: normal noise does
#: on one night in 370.
MOVED_UNITS = 3.0


class Cause(NamedTuple):
    """Probable cause of an alarm."""

    cause: str  # `code`, `infrastructure` or `unclear`
    reason: str  # The cause in a sentence with its numbers
    # shift, error: Change of the machine that is subtracted from that of the series, and its
    # standard error, as logarithms of a ratio.
    shift: float = 0.0
    error: float = 0.0


def fleet_step(
    alarm: ArrayLike,
    units: ArrayLike,
    *,
    machine: ArrayLike,
    environment: ArrayLike,
    metric: ArrayLike,
    workload: ArrayLike,
    recent: ArrayLike,
    since: ArrayLike,
) -> dict[int, Cause]:
    """Return the cause of each alarm of a night by its series.

    Notes
    -----
    ``unclear`` if a tenth of the series of the same machine, environment and metric, and at least
    three, moved in the same direction on the last night, or a twentieth on average over the nights
    of the change; else ``code``. If the workload moved on all other machines that measured it,
    too, ``code``. On real series, a ninth of the alarms of inserted steps and more than half of
    the false alarms are unclear: confirm these by an interleaved measurement.

    Examples
    --------
    >>> causes = fleet_step(
    ...     [1, 1, 0, 0], [7.0, 5.5, 0.3, -0.2],
    ...     machine=["ci"] * 4, environment=["main"] * 4, metric=["duration"] * 4,
    ...     workload=["a", "b", "c", "d"], recent=[[7.0], [5.5], [0.3], [-0.2]], since=[0] * 4,
    ... )
    >>> causes[0].cause, causes[0].reason
    ('code', '2 of 4 series rose; no control was measured')
    """
    # alarm: (series,), 1 or -1 for a change of level detected on this night, 0 for none.
    # units: (series,), `LatestNight.units`: change of the last night in noise units; NaN if not
    # measured.
    # machine, environment, metric, workload: (series,), fields of each series.
    # recent: (series, nights), `LatestNight.recent_units`: the same for the last nights.
    # since: (series,), position of the first night of each alarm's change in `recent`.
    alarm, units = np.asarray(alarm, int), np.asarray(units, float)
    recent, since = np.asarray(recent, float), np.asarray(since, int)
    labels = [np.asarray(label, str) for label in (machine, environment, metric, workload)]
    for name, array in zip(
        ("units", "machine", "environment", "metric", "workload", "since"),
        (units, *labels, since),
        strict=True,
    ):
        if array.shape != alarm.shape:
            raise UsageError(f"{name}: shape {array.shape}; expected {alarm.shape}, like alarm")

    measured = np.isfinite(units) | (alarm != 0)
    causes: dict[int, Cause] = {}
    for host, tested, name, direction in _groups(alarm, labels[:3]):
        comparable = measured & (labels[1] == tested) & (labels[2] == name)
        series, elsewhere = comparable & (labels[0] == host), comparable & (labels[0] != host)
        moved = (alarm == direction) | (direction * units >= MOVED_UNITS)
        members = np.flatnonzero(series & (alarm == direction))
        n_measured, n_moved = int(series.sum()), int((series & moved).sum())
        word = "rose" if direction > 0 else "fell"
        summary = f"{members.size} of {n_measured} series {word}"
        if n_moved >= max(COMMON_SERIES, COMMON_SHARE * n_measured):
            unclear = ~_moved_elsewhere(members, elsewhere, moved, labels[0], labels[3])
            summary += f", {n_moved} series moved, and no control was measured"
            code = f"{summary}; the workload {word} on all other machines"
        else:
            shares = _mean_shares(members, series, direction, recent, since)
            # A series of busy nights is not always at its worst on the last one.
            unclear = shares >= COMMON_SHARE / 2
            code = summary = f"{summary}; no control was measured"
        for member, is_unclear in zip(members.tolist(), unclear.tolist(), strict=True):
            causes[member] = Cause("unclear", summary) if is_unclear else Cause("code", code)
    return causes


def _moved_elsewhere(
    members: NDArray[np.int64],
    elsewhere: NDArray[np.bool_],
    moved: NDArray[np.bool_],
    machine: NDArray[np.str_],
    workload: NDArray[np.str_],
) -> NDArray[np.bool_]:
    """Return which alarms all other machines with the workload share, none of them all over.

    Machines are busy independently, and code is the same on all of them. A machine on which more
    than half of the series moved changed itself.
    """
    calm = [
        host
        for host in np.unique(machine[elsewhere])
        if moved[elsewhere & (machine == host)].mean() <= 1 / 2
    ]
    others = elsewhere & np.isin(machine, calm)
    agree = np.zeros(members.size, bool)
    for place, member in enumerate(members.tolist()):
        same = others & (workload == workload[member])
        agree[place] = bool(same.any() and moved[same].all())
    return agree


def _mean_shares(
    members: NDArray[np.int64],
    series: NDArray[np.bool_],
    direction: int,
    recent: NDArray[np.float64],
    since: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return the mean share of the other series that moved, over the nights of each change.

    0 where fewer than `COMMON_SERIES` series moved on any of these nights, the alarm's included.
    """
    shares = np.zeros(members.size)
    for place, member in enumerate(members.tolist()):
        others = np.flatnonzero(series & (np.arange(series.size) != member))
        nights = direction * recent[others, since[member] :]
        measured = np.isfinite(nights).any(axis=0)
        moved = nights[:, measured] >= MOVED_UNITS
        if moved.any(axis=1).sum() + 1 >= COMMON_SERIES:
            n_measured = np.isfinite(nights[:, measured]).sum(axis=0)
            shares[place] = (moved.sum(axis=0) / n_measured).mean()
    return shares


def _groups(
    alarm: NDArray[np.int64], labels: Iterable[NDArray[np.str_]]
) -> list[tuple[str, str, str, int]]:
    """Return machine, environment, metric and direction of the groups that have an alarm."""
    alarms = np.flatnonzero(alarm)
    columns = (*(label[alarms].tolist() for label in labels), np.sign(alarm[alarms]).tolist())
    return sorted(set(zip(*columns, strict=True)))
