"""Scan many nightly series for steps, night after night, using earlier nights only.

`benchkit.analysis.changepoints` converts dates, marks and missing nights into rows. The
replay is exact: events of a night do not depend on later nights, so more nights only append events.

`benchkit.analysis.changepoint.rule` decides whether the last nights are a change. Then the first
night and the size of the change are estimated, and the reference restarts. Until the new level
has a reference, a separate rule detects its end: a bug fixed after five nights is two changes. The
nights of a change that reverted are left out of later references, which are of the level before.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from benchkit.analysis.changepoint.rule import (
    MAX_REFERENCE_NIGHTS,
    MIN_NIGHTS,
    MIN_REFERENCE_NIGHTS,
    REFRESH_NIGHTS,
    SHORT_FACTOR,
    WINDOWS,
    Alarms,
    find_alarms,
    reference_values,
    robust_noise,
    sorted_quantile,
)
from benchkit.analysis.options import DetectionOptions

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: Standard error of a median of two to five nights of normal noise, relative to that of a mean.
MEDIAN_ERROR = 1.1
#: Largest number of nights between the first night of a change and its detection: about twice the
#: longest window of the rule, because a change may begin before the window that shows it.
MAX_NIGHTS_BACK = 40
#: Nights after its first night for which a change is recent: until its level has a reference.
RECENT_NIGHTS = MIN_REFERENCE_NIGHTS + REFRESH_NIGHTS + MIN_NIGHTS
#: Smallest distance from the level of a recent change, in noise units, that ends it.
END_UNITS = 4.0
#: Smallest number of nights of a reverted change that are left out of references. Fewer nights are
#: the tail of the noise, which a reference must contain: with 3, a tenth more alarms in series with
#: modes that last several nights. With 7, of two bugs of five nights the second is not found.
MIN_LEFT_OUT = 5
#: So many reverted changes within a reference are a habit of the series and remain in it; shorter
#: ones than `MIN_LEFT_OUT` count twice. With 2, two bugs that were mended hide all later ones.
HABIT_CHANGES = 3
#: Nights at the end of a series in which a slow change is looked for, and which the reference of a
#: slow change lacks: a CUSUM finds a shift of one unit in about ten nights. See
#: `benchmarks/fit_constants.py --only candidates`.
DRIFT_NIGHTS = 8
#: Nights after which a change within the first ten nights is looked for, once: the nights after it
#: are then a reference.
EARLY_NIGHTS = 2 * MIN_REFERENCE_NIGHTS
#: Nights processed together; any value gives the same events.
CHUNK_NIGHTS = 64


@dataclass(frozen=True)
class Events:
    """Changes of level, sorted by row and night; one element of each array per change."""

    # row, index, detected_at: The row, the first night of the new level, the night of detection.
    row: Ints
    index: Ints
    detected_at: Ints
    change: Floats  # Level after minus level before, in logarithms
    error: Floats  # Standard error of `change`
    chance: Floats  # Probability that noise like that of the reference causes this alarm on a night

    @classmethod
    def joined(cls, parts: Sequence[Events]) -> Events:
        """Return the events of several parts, sorted by row and night."""
        columns = [
            np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(cls)
        ]
        order = np.lexsort((columns[2], columns[0]))
        return cls(*(column[order] for column in columns))


@dataclass(frozen=True)
class LatestReference:
    """The reference of each row after its last night; one element of each array per row."""

    # level, noise: Median and robust standard deviation of the reference, in logarithms. NaN while
    # the reference is too short.
    level: Floats
    noise: Floats
    # earlier_level, earlier_noise: The same of a reference that ends `DRIFT_NIGHTS` earlier, to
    # which the nights since then can be compared; of the whole reference where that is too short.
    earlier_level: Floats
    earlier_noise: Floats


class _Since(NamedTuple):
    """What the references of a row use after a change was detected."""

    night: int  # Night of the detection
    start: int  # First night of the reference
    left_out: Ints  # Nights of changes that reverted


@dataclass
class _State:
    """State of the replay between two nights, one element of each array per row.

    A change is recent until the new level has a reference.
    """

    start: Ints  # First night of the reference
    next_night: Ints  # Earlier nights are judged
    start_before: Ints  # First night of the reference before the recent change
    recent_from: Ints  # First night of the recent change
    recent_until: Ints  # First night on which the change is no longer recent
    level_before: Floats  # Level before the recent change, NaN without a recent change
    level_after: Floats  # Level of the recent change
    noise: Floats  # Noise before the recent change
    # Of each row the reverted changes within a reference: first night, and night after the last.
    reverted: list[list[tuple[int, int]]] = field(default_factory=list)

    @classmethod
    def initial(cls, n_rows: int) -> _State:
        """Return the state before the first night."""
        state = cls(*np.zeros((5, n_rows), int), *np.full((3, n_rows), np.nan))
        state.reverted = [[] for _ in range(n_rows)]
        return state


@dataclass
class Replay:
    """Nights of many series, and the state of their replay."""

    # (rows, nights), logarithms of the values, without gaps: NaN only after the nights of a row.
    y: Floats
    clean: Floats  # (rows, nights), the same without the nights of changes that reverted
    mended: Flags  # (rows, nights), nights of known faults of the code that were mended
    # (rows, blocks), level before each block of `REFRESH_NIGHTS` nights; NaN where it is not known.
    centre: Floats
    state: _State  # Positions and levels of each row
    options: DetectionOptions
    found: list[Events] = field(default_factory=list)  # in order of detection
    # Of each row with changes what holds since each of them, in order of detection.
    since: dict[int, list[_Since]] = field(default_factory=dict)

    @classmethod
    def of(cls, y: Floats, mended: Flags, options: DetectionOptions) -> Replay:
        """Find the changes of level in all nights."""
        n_rows, n_nights = y.shape
        centre = np.full((n_rows, n_nights // REFRESH_NIGHTS + 1), np.nan)
        replay = cls(y, y.copy(), mended, centre, _State.initial(n_rows), options)
        replay._advance()
        return replay

    def _advance(self) -> None:
        n_rows, n_nights = self.y.shape
        if n_nights <= MIN_REFERENCE_NIGHTS:
            return
        begins = [0, *range(EARLY_NIGHTS, n_nights, CHUNK_NIGHTS)]
        for begin, stop in pairwise([*begins, n_nights]):
            rows = np.arange(n_rows)
            blocks = np.arange(begin // REFRESH_NIGHTS, (stop - 1) // REFRESH_NIGHTS + 1)
            while rows.size:
                _refresh(self.y, self.clean, self.centre, rows, blocks, self.state.start)
                rows = self._next_change(rows, begin, stop)
                # A restarted reference affects windows that began in the previous chunk.
                oldest = max(0, begin - max(WINDOWS)) // REFRESH_NIGHTS
                blocks = np.arange(oldest, blocks[-1] + 1)
            if stop == EARLY_NIGHTS:
                self._find_early_changes()

    def _find_early_changes(self) -> None:
        """Record changes whose level before is shorter than a reference: the rule backwards."""
        y, state, n = self.y, self.state, EARLY_NIGHTS
        rows = np.flatnonzero((state.next_night == 0) & ~np.isnan(y[:, n - 1]))
        each, start = np.arange(rows.size), np.zeros(rows.size, int)
        backwards = y[rows, :n][:, ::-1]
        blocks = np.arange(n // REFRESH_NIGHTS + 1)
        centre = np.full((rows.size, blocks.size), np.nan)
        _refresh(backwards, backwards, centre, each, blocks, start)
        alarms = find_alarms(
            backwards, backwards, centre, each, n - 1, n, start, start, self.options
        )
        order = np.lexsort((alarms.chance, alarms.row))
        alarms = alarms.take(order[np.unique(alarms.row[order], return_index=True)[1]])
        alarms = replace(alarms, row=rows[alarms.row])
        if alarms.row.size:
            before, _ = _level(self.clean, alarms.row, start[: alarms.row.size], alarms.m - 1)
            _record(self.clean, alarms, alarms.m, before, state, self.found)
            self._note(alarms.row, alarms.night)
            _refresh(y, self.clean, self.centre, alarms.row, blocks, state.start)

    def _next_change(self, rows: Ints, first: int, last: int) -> Ints:
        """Record the next change of each row in the chunk; return the rows with a change."""
        y, clean, centre, state = self.y, self.clean, self.centre, self.state
        alarms = find_alarms(
            y, clean, centre, rows, first, last, state.next_night, state.start, self.options
        )
        # Keep the first alarm of each row, with its least probable window.
        order = np.lexsort((alarms.chance, alarms.night, alarms.row))
        alarms = alarms.take(order[np.unique(alarms.row[order], return_index=True)[1]])

        end_row, end_night = _ends_of_recent_changes(y, rows, first, last, state, self.options)
        alarm_night = np.full(y.shape[0], last)
        alarm_night[alarms.row] = alarms.night
        earlier = end_night <= alarm_night[end_row]
        end_row, end_night = end_row[earlier], end_night[earlier]
        alarms = alarms.take(~np.isin(alarms.row, end_row))

        if alarms.row.size:
            begin = alarms.night - alarms.m + 1
            level = centre[alarms.row, begin // REFRESH_NIGHTS]
            _record(clean, alarms, begin, level, state, self.found)
            self._note(alarms.row, alarms.night)
        if end_row.size:
            _record_end(y, clean, self.mended, end_row, end_night, state, self.found)
            self._note(end_row, end_night)
        return np.union1d(alarms.row, end_row)

    def _note(self, rows: Ints, nights: Ints) -> None:
        """Note what the references of rows use after changes that were detected on some nights."""
        for row, night in zip(rows.tolist(), nights.tolist(), strict=True):
            left_out = np.flatnonzero(np.isnan(self.clean[row]) & ~np.isnan(self.y[row]))
            now = _Since(night, int(self.state.start[row]), left_out)
            self.since.setdefault(row, []).append(now)

    @property
    def events(self) -> Events:
        """Events of the replayed nights, sorted by row and night."""
        none = np.zeros(0, int)
        return Events.joined([Events(none, none, none, *np.zeros((3, 0))), *self.found])

    def latest_reference(self, end: Ints) -> LatestReference:
        """Return the references that were known before a night, and `DRIFT_NIGHTS` before it."""
        # end: (rows,), the night of each row, before which its reference ends. Changes that are
        # detected on it or later do not move the reference.
        # returned: NaN in rows with too few nights.
        size = MAX_REFERENCE_NIGHTS + DRIFT_NIGHTS
        first = end - size
        at = np.maximum(first[:, None] + np.arange(size), 0)
        nights, start = np.take_along_axis(self.y, at, axis=1), -first
        for row, states in self.since.items():
            place = bisect_left(states, int(end[row]), key=lambda state: state.night)
            if place:
                left_out = states[place - 1].left_out - first[row]
                nights[row, left_out[(left_out >= 0) & (left_out < size)]] = np.nan
                start[row] += states[place - 1].start
        stop = np.full(end.size, size)
        level, noise = _reference(nights, start, stop)
        earlier_level, earlier_noise = _reference(nights, start, stop - DRIFT_NIGHTS)
        short = np.isnan(earlier_level)
        return LatestReference(
            level,
            noise,
            np.where(short, level, earlier_level),
            np.where(short, noise, earlier_noise),
        )


def _refresh(
    y: Floats, clean: Floats, centre: Floats, rows: Ints, blocks: Ints, start: Ints
) -> None:
    """Fill in the level before each block of nights, NaN where the reference is too short."""
    row, end = np.repeat(rows, blocks.size), np.tile(blocks * REFRESH_NIGHTS, rows.size)
    # Rows differ in length: the last night of a reference must exist.
    long_enough = (end - start[row] >= MIN_REFERENCE_NIGHTS) & ~np.isnan(y[row, end - 1])
    level = np.full(row.size, np.nan)
    at = np.flatnonzero(long_enough)
    nights, n = reference_values(clean, row[at], start[row[at]], end[at])
    enough = n >= MIN_REFERENCE_NIGHTS
    level[at[enough]] = sorted_quantile(nights[enough], n[enough], 0.5)
    centre[np.ix_(rows, blocks)] = level.reshape(rows.size, blocks.size)


def _ends_of_recent_changes(
    y: Floats, rows: Ints, first: int, last: int, state: _State, options: DetectionOptions
) -> tuple[Ints, Ints]:
    """Return rows whose recent change reverts or grows, and the night of detection."""
    rows = rows[np.isfinite(state.level_before[rows]) & (state.recent_until[rows] > first)]
    if not rows.size:
        return rows, rows
    begin = max(0, first - MIN_NIGHTS + 1)
    difference = y[rows, begin:last] - state.level_after[rows, None]
    step = np.abs(state.level_after[rows] - state.level_before[rows])
    # Not half of every change: after a jump of 20 times, steps below 4 times would be missed.
    smallest = np.minimum(step / 2, SHORT_FACTOR * options.min_change)
    margin = np.maximum(smallest, END_UNITS * state.noise[rows])
    far = np.sign(difference) * (np.abs(difference) > margin[:, None])
    steady = far[:, MIN_NIGHTS - 1 :].copy()
    for j in range(MIN_NIGHTS - 1):
        steady[far[:, j : j + steady.shape[1]] != steady] = 0
    night = np.arange(begin + MIN_NIGHTS - 1, last)
    steady[(night < state.next_night[rows, None]) | (night >= state.recent_until[rows, None])] = 0
    steady[~np.isfinite(steady)] = 0
    ended = (steady != 0).any(axis=1)
    return rows[ended], night[(steady[ended] != 0).argmax(axis=1)]


def _place(
    clean: Floats, row: Ints, night: Ints, start: Ints, before: Floats, after: Floats
) -> Ints:
    """Return the first night of the new level: the sum of distances to both levels is smallest."""
    at = night[:, None] - np.arange(MAX_NIGHTS_BACK)  # backwards in time
    values = clean[row[:, None], np.maximum(at, 0)]
    gain = np.nan_to_num(np.abs(values - before[:, None]) - np.abs(values - after[:, None]))
    gain[at <= start[:, None]] = -np.inf
    n_back: Ints = gain.cumsum(axis=1).argmax(axis=1)
    return night - n_back


def _level(clean: Floats, row: Ints, first: Ints, night: Ints) -> tuple[Floats, Ints]:
    """Return the median of the nights from `first` to `night`, at most 60, and their number."""
    nights, n = reference_values(clean, row, first, night + 1)
    return sorted_quantile(nights, n, 0.5), n


def _measure(
    clean: Floats, row: Ints, first: Ints, night: Ints, start: Ints, before: Floats
) -> tuple[Ints, Floats, Floats, Floats]:
    """Return first night, both levels and error (in noise units) of changes.

    Nights from `first` to `night` have the new level, and `before` is about the level before.
    """
    after, _ = _level(clean, row, first, night)
    index = _place(clean, row, night, start, before, after)
    before, n_before = _level(clean, row, start, index - 1)
    after, n_after = _level(clean, row, index, night)
    return index, before, after, MEDIAN_ERROR * np.sqrt(1 / n_before + 1 / n_after)


def _record(
    clean: Floats, alarms: Alarms, first: Ints, level: Floats, state: _State, events: list[Events]
) -> None:
    """Record new changes with their first night and size, and restart the references."""
    # first, level: (alarms,), first night that has the new level, and about the level before.
    row, night, noise = alarms.row, alarms.night, alarms.noise
    index, before, after, error = _measure(clean, row, first, night, state.start[row], level)
    events.append(Events(row, index, night, after - before, error * noise, alarms.chance))
    state.level_before[row], state.level_after[row], state.noise[row] = before, after, noise
    state.start_before[row] = state.start[row]
    state.start[row], state.recent_from[row], state.next_night[row] = index, index, night + 1
    state.recent_until[row] = index + RECENT_NIGHTS


def _record_end(
    y: Floats,
    clean: Floats,
    mended: Flags,
    row: Ints,
    night: Ints,
    state: _State,
    events: list[Events],
) -> None:
    """Record that recent changes reverted, which restores the reference, or went on."""
    first, recent_level = night - MIN_NIGHTS + 1, state.level_after[row]
    index, before, after, error = _measure(clean, row, first, night, state.start[row], recent_level)
    error *= state.noise[row]
    chance = ndtr(-np.abs(after - before) / error)
    events.append(Events(row, index, night, after - before, error, chance))
    original = state.level_before[row]
    step = np.abs(recent_level - original)
    reverted = np.abs(after - original) < step / 2
    # A step that is small relative to the change is a part of it: the change may still revert.
    new = ~reverted & (np.abs(after - recent_level) >= step / 2)
    _leave_out(y, clean, mended, row[reverted], index[reverted], state)
    state.start_before[row] = np.where(new, state.start[row], state.start_before[row])
    state.recent_from[row] = np.where(new, index, state.recent_from[row])
    state.level_before[row] = np.where(reverted, np.nan, np.where(new, before, original))
    state.start[row] = np.where(reverted, state.start_before[row], index)
    state.recent_until[row] = np.where(reverted, index, index + RECENT_NIGHTS)
    state.level_after[row] = after
    state.next_night[row] = night + 1


def _leave_out(
    y: Floats, clean: Floats, mended: Flags, row: Ints, end: Ints, state: _State
) -> None:
    """Leave the nights of changes that reverted before night `end` out of the reference."""
    for at, begin, stop in zip(row, state.recent_from[row], end, strict=True):
        if mended[at, begin:stop].mean() > 0.5:
            clean[at, begin:stop] = np.nan
            continue
        recent = [each for each in state.reverted[at] if begin - each[1] <= MAX_REFERENCE_NIGHTS]
        state.reverted[at] = [*recent, (begin, stop)]
        n_nights = np.array([last - first for first, last in state.reverted[at]])
        is_habit = (1 + (n_nights < MIN_LEFT_OUT)).sum() >= HABIT_CHANGES
        for first, last in state.reverted[at]:
            if is_habit:
                clean[at, first:last] = y[at, first:last]
            elif last - first >= MIN_LEFT_OUT:
                clean[at, first:last] = np.nan


def _reference(clean: Floats, start: Ints, end: Ints) -> tuple[Floats, Floats]:
    """Return level and noise of each row before a night; NaN where there are too few nights."""
    level, noise = np.full((2, end.size), np.nan)
    row = np.flatnonzero(end - start >= MIN_REFERENCE_NIGHTS)
    nights, n = reference_values(clean, row, start[row], end[row])
    enough = n >= MIN_REFERENCE_NIGHTS
    row, nights, n = row[enough], nights[enough], n[enough]
    level[row] = sorted_quantile(nights, n, 0.5)
    noise[row] = robust_noise(nights, n, level[row])
    return level, noise
