"""Scan many nightly series at once for steps, night after night, seeing only the past.

`benchkit.analysis.changepoint.detect` converts dates, marks and missing nights into rows. The
replay is exact: events of a night do not depend on later nights, so more nights only append events.

`benchkit.analysis.changepoint.rule` decides whether the last nights are a change. Then the
change is placed and measured, the reference restarts, and a change too young to have a reference
of its own is watched, because a bug that is mended after five nights is two changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from benchkit.analysis.changepoint.rule import (
    FEWEST,
    REFRESH,
    WINDOWS,
    Alarms,
    find_alarms,
    noise_of,
    quantile,
    reference,
)

__all__ = ["Events", "LatestReference", "scan"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


#: Medians of two to five nights of normal noise are so much more uncertain than means.
MEDIAN = 1.1
#: A change is placed at most so many nights back.
LOOK_BACK = 40
#: Nights in a row that end a change too young to have a reference of its own.
BACK = 3
#: Nights handled at once; any value gives the same events.
CHUNK = 64


@dataclass(frozen=True)
class Events:
    """Changes of level, sorted by row and night; one element of each array per change.

    Attributes
    ----------
    row, index, detected_at : ndarray of int
        The row, the first night of the new level, the night it was seen.
    change : ndarray of float
        Level after minus level before, in logarithms.
    error : ndarray of float
        Standard error of `change`.
    chance : ndarray of float
        Probability that the noise of the reference does this on one night.
    """

    row: Ints
    index: Ints
    detected_at: Ints
    change: Floats
    error: Floats
    chance: Floats


@dataclass(frozen=True)
class LatestReference:
    """Where each row stands after its last night: one element of each array per row.

    Attributes
    ----------
    level, noise : ndarray of float
        Median and robust standard deviation of the reference, in logarithms. NaN while the
        reference is too short.
    start : ndarray of int
        First night of the reference.
    """

    level: Floats
    noise: Floats
    start: Ints


@dataclass
class _State:
    """What the replay carries from one night to the next, per row."""

    start: Ints  # first night of the reference
    judged: Ints  # nights before this one are done
    home: Floats  # level before a young change, NaN if there is none
    away: Floats  # level of the young change
    home_start: Ints  # reference to go back to
    watched: Ints  # until this night the young change can end
    noise: Floats  # noise before the young change


@dataclass
class _Found:
    """Events as they are found."""

    parts: list[tuple[NDArray, ...]] = field(default_factory=list)

    def events(self) -> Events:
        """Return all of them in order."""
        none = (np.zeros(0, int),) * 3 + (np.zeros(0),) * 3
        row, index, seen, change, error, chance = (
            np.concatenate(column) for column in zip(*(self.parts or [none]), strict=True)
        )
        order = np.lexsort((seen, row))
        return Events(*(a[order] for a in (row, index, seen, change, error, chance)))


def scan(y: Floats) -> tuple[Events, LatestReference]:
    """Replay the nights of many series.

    Parameters
    ----------
    y : ndarray, shape (rows, nights)
        Logarithms of the values, without gaps: NaN only after the last night of a row.

    Returns
    -------
    events : Events
    standing : LatestReference
    """
    n_rows, n_nights = y.shape
    n_blocks = n_nights // REFRESH + 1
    zero, nan = np.zeros(n_rows, int), np.full(n_rows, np.nan)
    state = _State(
        zero.copy(), zero.copy(), nan.copy(), nan.copy(), zero.copy(), zero.copy(), nan.copy()
    )
    centre = np.full((n_rows, n_blocks), np.nan)
    found = _Found()
    for first in range(0, n_nights if n_nights > FEWEST else 0, CHUNK):
        last = min(first + CHUNK, n_nights)
        rows = np.arange(n_rows)
        blocks = np.arange(first // REFRESH, (last - 1) // REFRESH + 1)
        while rows.size:
            _refresh(y, centre, rows, blocks, state.start)
            rows = _next_change(y, centre, rows, first, last, state, found)
            # A reference that moved may matter to windows that began in the chunk before.
            blocks = np.arange(max(0, first - max(WINDOWS)) // REFRESH, (last - 1) // REFRESH + 1)
    return found.events(), _standing(y, state)


def _refresh(y: Floats, centre: Floats, rows: Ints, blocks: Ints, start: Ints) -> None:
    """Fill in the level before each block of nights, NaN where the reference is too short."""
    row, end = np.repeat(rows, blocks.size), np.tile(blocks * REFRESH, rows.size)
    # The last night of the reference exists: rows are not equally long.
    known = (end - start[row] >= FEWEST) & ~np.isnan(y[row, end - 1])
    level = np.full(row.size, np.nan)
    at = np.flatnonzero(known)
    nights, n = reference(y, row[at], start[row[at]], end[at])
    level[at] = quantile(nights, n, 0.5)
    centre[np.ix_(rows, blocks)] = level.reshape(rows.size, blocks.size)


def _next_change(
    y: Floats, centre: Floats, rows: Ints, first: int, last: int, state: _State, found: _Found
) -> Ints:
    """Find the next change of each row in the chunk; return the rows that had one."""
    alarms = find_alarms(y, centre, rows, first, last, state.judged, state.start)
    # The first alarm of a row counts; of the windows that gave it, the most surprising.
    order = np.lexsort((alarms.chance, alarms.night, alarms.row))
    alarms = alarms.take(order[np.unique(alarms.row[order], return_index=True)[1]])

    back_row, back_night = _ends_of_recent_changes(y, rows, first, last, state)
    alarm_night = np.full(y.shape[0], last)
    alarm_night[alarms.row] = alarms.night
    sooner = back_night <= alarm_night[back_row]
    back_row, back_night = back_row[sooner], back_night[sooner]
    alarms = alarms.take(~np.isin(alarms.row, back_row))

    if alarms.row.size:
        _record(y, centre, alarms, state, found)
    if back_row.size:
        _record_end(y, back_row, back_night, state, found)
    return np.union1d(alarms.row, back_row)


def _ends_of_recent_changes(
    y: Floats, rows: Ints, first: int, last: int, state: _State
) -> tuple[Ints, Ints]:
    """Return rows whose young change goes back or on, and the night that was seen."""
    rows = rows[np.isfinite(state.home[rows]) & (state.watched[rows] > first)]
    if not rows.size:
        return rows, rows
    begin = max(0, first - BACK + 1)
    moved = y[rows, begin:last] - state.away[rows, None]
    step = np.abs(state.away[rows] - state.home[rows])
    margin = np.maximum(step / 2, 3 * state.noise[rows])
    far = np.sign(moved) * (np.abs(moved) > margin[:, None])
    steady = far[:, BACK - 1 :].copy()
    for j in range(BACK - 1):
        steady[far[:, j : j + steady.shape[1]] != steady] = 0
    night = np.arange(begin + BACK - 1, last)
    steady[(night < state.judged[rows, None]) | (night >= state.watched[rows, None])] = 0
    steady[~np.isfinite(steady)] = 0
    ended = (steady != 0).any(axis=1)
    return rows[ended], night[(steady[ended] != 0).argmax(axis=1)]


def _place(y: Floats, row: Ints, night: Ints, start: Ints, before: Floats, after: Floats) -> Ints:
    """Return the night from which on the nights are nearer to the level after, taken together."""
    at = night[:, None] - np.arange(LOOK_BACK)  # backwards in time
    values = y[row[:, None], np.maximum(at, 0)]
    gain = np.abs(values - before[:, None]) - np.abs(values - after[:, None])
    gain[at <= start[:, None]] = -np.inf
    return night - gain.cumsum(axis=1).argmax(axis=1)


def _level(y: Floats, row: Ints, first: Ints, night: Ints) -> tuple[Floats, Ints]:
    """Return the median of the nights from `first` to `night`, at most 60, and their number."""
    nights, n = reference(y, row, first, night + 1)
    return quantile(nights, n, 0.5), n


def _record(y: Floats, centre: Floats, alarms: Alarms, state: _State, found: _Found) -> None:
    """Place new changes, measure them and restart the references."""
    row, night, m, noise = alarms.row, alarms.night, alarms.m, alarms.noise
    before = centre[row, (night - m + 1) // REFRESH]
    after, _ = _level(y, row, night - m + 1, night)
    index = _place(y, row, night, state.start[row], before, after)
    before, n_before = _level(y, row, state.start[row], index - 1)
    after, n_after = _level(y, row, index, night)
    error = MEDIAN * noise * np.sqrt(1 / n_before + 1 / n_after)
    found.parts.append((row, index, night, after - before, error, alarms.chance))
    state.home[row], state.away[row], state.home_start[row] = before, after, state.start[row]
    state.noise[row] = noise
    state.start[row], state.judged[row] = index, night + 1
    state.watched[row] = index + FEWEST + REFRESH + BACK


def _record_end(y: Floats, row: Ints, night: Ints, state: _State, found: _Found) -> None:
    """Record that young changes went back, to the reference of before, or on."""
    before = state.away[row]
    after, _ = _level(y, row, night - BACK + 1, night)
    index = _place(y, row, night, state.start[row], before, after)
    before, n_before = _level(y, row, state.start[row], index - 1)
    after, n_after = _level(y, row, index, night)
    error = MEDIAN * state.noise[row] * np.sqrt(1 / n_before + 1 / n_after)
    chance = ndtr(-np.abs(after - before) / error)
    found.parts.append((row, index, night, after - before, error, chance))
    back = np.abs(after - state.home[row]) < np.abs(state.away[row] - state.home[row]) / 2
    state.start[row] = np.where(back, state.home_start[row], index)
    state.watched[row] = np.where(back, 0, index + FEWEST + REFRESH + BACK)
    state.home[row] = np.where(back, np.nan, before)
    state.away[row] = after
    state.judged[row] = night + 1


def _standing(y: Floats, state: _State) -> LatestReference:
    """Return the reference that the next night will be held against."""
    end = np.isfinite(y).sum(axis=1)
    start = state.start
    level, noise = np.full((2, end.size), np.nan)
    row = np.flatnonzero(end - start >= FEWEST)
    nights, n = reference(y, row, start[row], end[row])
    level[row] = quantile(nights, n, 0.5)
    noise[row] = noise_of(nights, n, level[row])
    return LatestReference(level, noise, start)
