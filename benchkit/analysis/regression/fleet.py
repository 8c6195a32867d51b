"""Separate slow machines from slow code with all alarms of one night.

A busy
machine, a full disk or a new kernel moves many workloads at once, and moves a pinned environment
as well; a change in Dask may move as many workloads, but never that environment.
Alarms are grouped and explained here, not dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtrc

from benchkit.errors import UsageError

__all__ = ["FleetGroup", "FleetNight", "fleet_step"]

#: A group is hot if this share of its series moved, and three of them: a tenth of the nights of
#: 301 real series are, and 15 of the 27 false alarms of the detector fell on those.
HOT_SHARE = 0.10
HOT_AT_LEAST = 3
#: A series has moved if it has an alarm or is so many noise units off, which happens on this
#: share of ordinary nights (tails are heavier than normal).
MOVED_UNITS = 3.0
MOVED_BY_CHANCE = 0.01
#: The control has moved if so many series of it moving by chance is rarer than this.
CONTROL_LEVEL = 0.02


@dataclass(frozen=True)
class FleetGroup:
    """Alarms of one night that share machine, environment, metric and direction.

    Parameters
    ----------
    machine, environment, metric : str
    direction : int
        1 for levels that rose, -1 for levels that fell.
    members : ndarray of int
        Positions of the series with an alarm.
    n_measured, n_moved : int
        Series of that machine, environment and metric measured tonight, and how many of them
        moved in that direction: those with an alarm, and those three noise units off.
    n_control, n_control_moved : int
        The same for the control environment on that machine and metric.
    cause : str
        ``code``, ``infrastructure`` or ``unclear``.
    reason : str
        The cause in one sentence with its numbers.
    """

    machine: str
    environment: str
    metric: str
    direction: int
    members: NDArray[np.int64]
    n_measured: int
    n_moved: int
    n_control: int
    n_control_moved: int
    cause: str
    reason: str


@dataclass(frozen=True)
class FleetNight:
    """What a night's alarms have in common.

    Parameters
    ----------
    cause : ndarray of str, shape (series,)
        ``code``, ``infrastructure`` or ``unclear``; empty where there is no alarm.
    groups : tuple of FleetGroup
        Largest first.
    """

    cause: NDArray[np.str_]
    groups: tuple[FleetGroup, ...]


def fleet_step(
    alarm: ArrayLike,
    units: ArrayLike,
    *,
    machine: ArrayLike,
    environment: ArrayLike,
    metric: ArrayLike,
    workload: ArrayLike | None = None,
    control: str | None = None,
) -> FleetNight:
    """Group a night's alarms and name the probable cause of each.

    Parameters
    ----------
    alarm : array_like of int, shape (series,)
        1 or -1 for a change of level seen tonight, 0 for none.
    units : array_like of float, shape (series,)
        `LatestNight.units`: change of the last night in noise units; NaN if not measured.
    machine, environment, metric : array_like of str, shape (series,)
        What each series is about.
    workload : array_like of str, shape (series,), optional
        Lets an alarm be held against the same workload in the control environment, which tells
        a busy disk that hits two workloads only.
    control : str, optional
        The control environment, whose software never changes: only the machine can move it.

    Returns
    -------
    FleetNight

    Raises
    ------
    UsageError
        The arrays are not equally long.

    Notes
    -----
    With a control measured tonight: ``infrastructure`` if the control moved the same way (more of
    its series than chance explains, or the same workload), else ``code``. Without: ``unclear`` if
    a tenth of the group's series, and three at least, moved together, else ``code``. Alarms of
    the control itself are always ``infrastructure``. On real series without a control, a ninth
    of the alarms of planted steps is unclear and more than half of the false ones: unclear
    alarms want the interleaved re-run that confirms them.

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
    for place, env, what, direction in sorted(_keys(alarm, labels)):
        here = measured & (labels[0] == place) & (labels[2] == what)
        ours, pinned = here & (labels[1] == env), here & (labels[1] == control)
        moved = here & ((alarm == direction) | (direction * units >= MOVED_UNITS))
        counts = [int(part.sum()) for part in (ours, ours & moved, pinned, pinned & moved)]
        group = _explain(
            np.flatnonzero(ours & (alarm == direction)),
            (place, env, what, direction, control),
            counts,
        )
        groups.append(group)
        cause[group.members] = group.cause
        if same_workload is not None and env != control:
            # The machine may hit few workloads: each alarm is held against its own control.
            hit = np.isin(same_workload[group.members], same_workload[pinned & moved])
            cause[group.members[hit]] = "infrastructure"
    groups.sort(key=lambda group: -group.members.size)
    return FleetNight(cause, tuple(groups))


def _keys(alarm: NDArray[np.int64], labels: Iterable[NDArray]) -> set[tuple[str, str, str, int]]:
    """Return machine, environment, metric and direction of the groups that have an alarm."""
    hot = np.flatnonzero(alarm)
    columns = (*(label[hot].tolist() for label in labels), np.sign(alarm[hot]).tolist())
    return set(zip(*columns, strict=True))


def _explain(
    members: NDArray[np.int64],
    key: tuple[str, str, str, int, str | None],
    counts: list[int],
) -> FleetGroup:
    """Name the cause of a group and say why."""
    machine, environment, metric, direction, control = key
    n_measured, n_moved, n_control, n_pinned = counts
    went = f"{members.size} of {n_measured} series {'rose' if direction > 0 else 'fell'}"
    if environment == control:
        cause, reason = "infrastructure", f"{went} in the control {control!r}, which nobody changes"
    elif n_control:
        by_chance = float(bdtrc(n_pinned - 1, n_control, MOVED_BY_CHANCE))
        cause = "infrastructure" if n_pinned and by_chance <= CONTROL_LEVEL else "code"
        reason = f"{went} and {n_pinned or 'none'} of {n_control} of the control {control!r}"
    elif n_moved >= max(HOT_AT_LEAST, HOT_SHARE * n_measured):
        cause = "unclear"
        reason = f"{went} when {n_moved} of them moved, and no control was measured"
    else:
        cause, reason = "code", f"{went}; no control was measured"
    return FleetGroup(
        machine, environment, metric, direction, members, n_measured, n_moved, n_control, n_pinned,
        cause, reason,
    )  # fmt: skip
