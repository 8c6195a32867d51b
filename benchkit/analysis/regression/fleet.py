"""Distinguish slow machines from slow code with all alarms of a night.

A busy machine, a full disk or a new kernel affects many workloads and also the control environment,
whose software never changes; a change in Dask does not affect the control. This module groups
alarms and estimates their cause; it removes none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtrc

from benchkit.errors import UsageError

__all__ = ["FleetGroup", "FleetNight", "fleet_step"]

#: Share of the series of a group from which on a common deviation of one night makes the cause
#: unclear. True on a tenth of the nights of 301 real series, with 15 of the 27 false alarms.
COMMON_SHARE = 0.10
#: The same share on average over all nights of a change: a series of busy nights is not always at
#: its worst on the last one.
COMMON_MEAN_SHARE = 0.05
#: Largest share of moved series of a machine that can show that code changed, not this machine too.
MAX_SHARE = 0.5
#: Smallest number of such series.
COMMON_SERIES = 3
#: Deviation of the last night, in noise units, from which on a series counts as moved.
MOVED_UNITS = 3.0
#: Share of series that deviate so far on ordinary nights (tails are heavier than normal).
MOVED_BY_CHANCE = 0.01
#: Largest probability, by chance, of the number of moved series that shows a moved control.
CONTROL_LEVEL = 0.02


@dataclass(frozen=True)
class FleetGroup:
    """Alarms of one night that share machine, environment, metric and direction."""

    machine: str  # machine, environment, metric: Shared by the series of the group
    environment: str
    metric: str
    direction: int  # 1 for levels that rose, -1 for levels that fell
    members: NDArray[np.int64]  # Positions of the series with an alarm
    # n_measured, n_moved: Series of that machine, environment and metric with a value on the last
    # night, and how many of them moved in that direction: by an alarm, or by three noise units.
    n_measured: int
    n_moved: int
    # n_control, n_control_moved: The same numbers for the control environment on that machine and
    # metric.
    n_control: int
    n_control_moved: int
    cause: str  # `code`, `infrastructure` or `unclear`
    reason: str  # The cause in a sentence with its numbers


@dataclass(frozen=True)
class FleetNight:
    """Causes of the alarms of a night."""

    # (series,), `code`, `infrastructure` or `unclear`; empty where there is no alarm.
    cause: NDArray[np.str_]
    groups: tuple[FleetGroup, ...]  # The largest group first


def fleet_step(
    alarm: ArrayLike,
    units: ArrayLike,
    *,
    machine: ArrayLike,
    environment: ArrayLike,
    metric: ArrayLike,
    workload: ArrayLike | None = None,
    control: str | None = None,
    recent: ArrayLike | None = None,
    since: ArrayLike | None = None,
) -> FleetNight:
    """Group the alarms of a night and estimate the cause of each.

    Notes
    -----
    With a measured control: ``infrastructure`` if the control moved in the same direction (more of
    its series than chance explains, or the same workload), else ``code``. Without a control:
    ``unclear`` if a tenth of the group's series, and at least three, moved, or a twentieth on
    average over the nights of the change (if `recent` and `since` are given), else ``code``; if
    the workload moved on all other machines that measured it, too, ``code``. Alarms
    of the control itself are always ``infrastructure``. On real series without a control, a ninth
    of the alarms of inserted steps and more than half of the false alarms are unclear: confirm
    these by an interleaved measurement.

    Examples
    --------
    >>> night = fleet_step(
    ...     [1, 1, 0, 0], [7.0, 5.5, 0.3, -0.2],
    ...     machine=["ci"] * 4, environment=["main", "main", "pinned", "pinned"],
    ...     metric=["duration"] * 4, control="pinned",
    ... )
    >>> night.cause.tolist()
    ['code', 'code', '', '']
    >>> print(night.groups[0].reason)
    2 of 2 series rose and none of 2 of the control 'pinned'
    """
    # alarm: (series,), 1 or -1 for a change of level detected on this night, 0 for none.
    # units: (series,), `LatestNight.units`: change of the last night in noise units; NaN if not
    # measured.
    # machine, environment, metric: (series,), fields of each series.
    # workload: (series,), workload of each series. Alarms are also compared with the same workload
    # in the control environment, which detects causes that affect few workloads, such as a busy
    # disk.
    # recent: (series, nights), `LatestNight.recent_units`: the same for the last nights.
    # since: (series,), position of the first night of each alarm's change in `recent`.
    alarm, units = np.asarray(alarm, int), np.asarray(units, float)
    labels = [np.asarray(label, str) for label in (machine, environment, metric)]
    same_workload = None if workload is None else np.asarray(workload, str)
    for name, array in zip(
        ("units", "machine", "environment", "metric", "workload"),
        (units, *labels, same_workload),
        strict=True,
    ):
        if array is not None and array.shape != alarm.shape:
            raise UsageError(f"{name}: shape {array.shape}; expected {alarm.shape}, like alarm")

    measured = np.isfinite(units) | (alarm != 0)
    cause = np.full(alarm.shape, "", dtype="<U14")
    groups = []
    for key in sorted(_keys(alarm, labels)):
        host, tested, name, direction = key
        here = measured & (labels[0] == host) & (labels[2] == name)
        series, pinned = here & (labels[1] == tested), here & (labels[1] == control)
        moved = here & ((alarm == direction) | (direction * units >= MOVED_UNITS))
        counts = tuple(int(part.sum()) for part in (series, series & moved, pinned, pinned & moved))
        group = _group(np.flatnonzero(series & (alarm == direction)), key, control, counts)
        groups.append(group)
        cause[group.members] = group.cause
        if (
            recent is not None
            and since is not None
            and group.cause == "code"
            and not group.n_control
        ):
            shares = _mean_shares(group.members, series, direction, recent, since)
            cause[group.members[shares >= COMMON_MEAN_SHARE]] = "unclear"
        if same_workload is not None and group.cause == "unclear":
            elsewhere = measured & (labels[0] != host) & (labels[1] == tested)
            elsewhere &= labels[2] == name
            up = (alarm == direction) | (direction * units >= MOVED_UNITS)
            agree = _moved_elsewhere(group.members, elsewhere, up, labels[0], same_workload)
            cause[group.members[agree]] = "code"
            if agree.any():
                text = f"{group.reason}; {agree.sum()} of the workloads rose on all other machines"
                text = text if direction > 0 else text.replace("workloads rose", "workloads fell")
                groups[-1] = replace(group, reason=text)
        if same_workload is not None and tested != control:
            # The machine may affect few workloads: compare each alarm with its own control.
            affected = np.isin(same_workload[group.members], same_workload[pinned & moved])
            cause[group.members[affected]] = "infrastructure"
    groups.sort(key=lambda group: -group.members.size)
    return FleetNight(cause, tuple(groups))


def _moved_elsewhere(
    members: NDArray[np.int64],
    elsewhere: NDArray[np.bool_],
    moved: NDArray[np.bool_],
    machine: NDArray[np.str_],
    workload: NDArray[np.str_],
) -> NDArray[np.bool_]:
    """Return which alarms all other machines with the workload share, none of them all over.

    Machines are busy independently, and code is the same on all of them.
    """
    calm = [
        host
        for host in np.unique(machine[elsewhere])
        if moved[elsewhere & (machine == host)].mean() <= MAX_SHARE
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
    recent: ArrayLike,
    since: ArrayLike,
) -> NDArray[np.float64]:
    """Return the mean share of the other series that moved, over the nights of each change.

    0 where fewer than `COMMON_SERIES` series moved on any of these nights, the alarm's included.
    """
    units, first = np.asarray(recent, float), np.asarray(since, int)
    shares = np.zeros(members.size)
    for place, member in enumerate(members.tolist()):
        others = np.flatnonzero(series & (np.arange(series.size) != member))
        nights = direction * units[others, first[member] :]
        measured = np.isfinite(nights).any(axis=0)
        moved = nights[:, measured] >= MOVED_UNITS
        if moved.any(axis=1).sum() + 1 >= COMMON_SERIES:
            n_measured = np.isfinite(nights[:, measured]).sum(axis=0)
            shares[place] = (moved.sum(axis=0) / n_measured).mean()
    return shares


def _keys(
    alarm: NDArray[np.int64], labels: Iterable[NDArray[np.str_]]
) -> set[tuple[str, str, str, int]]:
    """Return machine, environment, metric and direction of the groups that have an alarm."""
    alarms = np.flatnonzero(alarm)
    columns = (*(label[alarms].tolist() for label in labels), np.sign(alarm[alarms]).tolist())
    return set(zip(*columns, strict=True))


def _group(
    members: NDArray[np.int64],
    key: tuple[str, str, str, int],
    control: str | None,
    counts: tuple[int, ...],
) -> FleetGroup:
    """Return a group of alarms with its cause and reason."""
    _, environment, _, direction = key
    n_measured, n_moved, n_control, n_control_moved = counts
    summary = f"{members.size} of {n_measured} series {'rose' if direction > 0 else 'fell'}"
    if environment == control:
        cause = "infrastructure"
        reason = f"{summary} in the control {control!r}, whose software never changes"
    elif n_control:
        chance = float(bdtrc(n_control_moved - 1, n_control, MOVED_BY_CHANCE))
        cause = "infrastructure" if n_control_moved and chance <= CONTROL_LEVEL else "code"
        reason = f"{summary} and {n_control_moved or 'none'} of {n_control} of the control"
        reason += f" {control!r}"
    elif n_moved >= max(COMMON_SERIES, COMMON_SHARE * n_measured):
        cause = "unclear"
        reason = f"{summary}, {n_moved} series moved, and no control was measured"
    else:
        cause, reason = "code", f"{summary}; no control was measured"
    return FleetGroup(*key, members, n_measured, n_moved, n_control, n_control_moved, cause, reason)
