"""Find changes of level in nightly series: one series, or all series of a store at once.

Takes values of a metric by night; returns changes of level. Other modules classify a change as a
regression, an improvement or a slow machine. Each night is judged with earlier nights only: more
nights append changes and never move or remove a change, so that events can be kept in a ledger.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from benchkit.analysis.changepoint.candidates import (
    LatestNight,
    find_candidates,
    find_short_candidates,
    recent_distances,
)
from benchkit.analysis.changepoint.rule import MIN_REFERENCE_NIGHTS
from benchkit.analysis.changepoint.scan import Events, LatestReference, Replay
from benchkit.analysis.options import DETECTION, VERDICTS, DetectionOptions
from benchkit.errors import UsageError

Floats = NDArray[np.float64]

#: Logarithm that stands for a zero, that of the smallest number: a metric that leaves zero has
#: changed by a ratio of infinity.
LOG_OF_ZERO = float(np.log(np.finfo(float).tiny))
#: Size of a change (logarithm of a ratio) above which one of the levels is zero.
INFINITE_CHANGE = abs(LOG_OF_ZERO) / 2


@dataclass(frozen=True)
class ChangePoint:
    """A lasting change of level in one series."""

    index: int  # First night of the new level, as a position in the series
    # Ratio of the level after to the level before, infinity if that was zero; and its 95 % interval
    # from the nights up to the detection. Noise in the direction of a change helps its detection,
    # so that small changes are overestimated.
    ratio: float
    low: float
    high: float
    confidence: float  # 1 - probability that noise like the reference's causes the alarm on a night
    direction: int  # 1: the level rose, -1: it fell
    detected_at: int  # Position of the night on which the change was detected


@dataclass(frozen=True)
class Marks:
    """Restarts and excluded nights of a series, in the unit of its times."""

    # Times before which no night is a reference: an accepted change, a new machine, a new version
    # of the workload.
    restarts: Sequence[Any] = ()
    excluded: Sequence[Any] = ()  # Times of nights to ignore
    # First time, and time after the last, of confirmed faults of the code that were mended. Their
    # nights are in no later reference: they are no habit of the machine.
    mended: Sequence[tuple[Any, Any]] = ()


@dataclass(frozen=True)
class Detection:
    """What is known on one night."""

    changes: list[list[ChangePoint]]  # Changes of each series, in order of detection
    latest: LatestNight  # The night of each series relative to its reference


def detect_many(
    values: ArrayLike,
    *,
    times: ArrayLike | None = None,
    marks: Sequence[Marks | None] | None = None,
    options: DetectionOptions = DETECTION,
) -> list[list[ChangePoint]]:
    """Return the changes of level of each series, in order of detection.

    A step of 5 % needs at least 10 nights before and three nights after it. One night is not
    enough, because it cannot be distinguished from an outlier. The rule is in
    `benchkit.analysis.changepoint.rule`.

    Examples
    --------
    >>> quiet = [1.0, 1.01, 0.99, 1.0] * 6
    >>> [(change.direction, change.index) for change in detect_many([quiet[:20] + [0.8] * 4])[0]]
    [(-1, 20)]
    """
    # values: (series, nights); NaN, infinite and negative values count as missing nights.
    # times: (nights,), ascending, in the unit of the marks; by default nights are numbered from 0.
    rows = _Rows.of(values, times, marks)
    return rows.changes(Replay.of(rows.y, rows.mended, options).events)


class Detector:
    """The nights of many series, read once: what is known on each of them."""

    # values, times, marks: as in `detect_many`.
    def __init__(
        self,
        values: ArrayLike,
        *,
        times: ArrayLike | None = None,
        marks: Sequence[Marks | None] | None = None,
        options: DetectionOptions = DETECTION,
    ) -> None:
        self.options = options
        self.rows = _Rows.of(values, times, marks)
        self.replay = Replay.of(self.rows.y, self.rows.mended, options)
        self.changes = self.rows.changes(self.replay.events)

    def on(self, night: int | None = None) -> Detection:
        """Return the changes that were detected up to a night, and the series on that night."""
        # night: Position; None: the last one.
        night = self.rows.n_nights - 1 if night is None else night
        known = [
            changes[: bisect_right(changes, night, key=lambda change: change.detected_at)]
            for changes in self.changes
        ]
        length = self.rows.lengths[:, night] if night >= 0 else self.rows.length
        # Without the last night, and without that before it if enough remain.
        stop = length - np.where(length > MIN_REFERENCE_NIGHTS + 1, 2, 1)
        reference = self.replay.latest_reference(stop)
        return Detection(known, self.rows.latest_night(night, length, reference, self.options))


def latest_night(values: ArrayLike) -> LatestNight:
    """Return the last night of each series relative to its reference."""
    return Detector(values).on().latest


@dataclass(frozen=True)
class _Rows:
    """Series without gaps: one row for each segment of a series between two restarts."""

    y: NDArray[np.float64]  # (rows, nights) logarithms, NaN after the last
    night: NDArray[np.int64]  # (rows, nights) position in the series
    mended: NDArray[np.bool_]  # (rows, nights) whether a mark calls the night a mended fault
    length: NDArray[np.int64]  # (rows,)
    series: NDArray[np.int64]  # (rows,)
    n_series: int
    n_nights: int

    @classmethod
    def of(
        cls, values: ArrayLike, times: ArrayLike | None, marks: Sequence[Marks | None] | None
    ) -> _Rows:
        """Return the rows of series; raise `UsageError` where the shapes do not match."""
        values = np.array(values, float, ndmin=2)
        if values.ndim != 2:
            raise UsageError(f"values: {values.ndim} dimensions; expected (series, nights)")
        n_series, n_nights = values.shape
        nights = np.arange(n_nights) if times is None else np.asarray(times)
        if nights.shape != (n_nights,):
            raise UsageError(f"times: shape {nights.shape}; expected ({n_nights},), one per night")
        if (nights[1:] < nights[:-1]).any():
            raise UsageError("times: not ascending; sort the nights first")
        if marks is not None and len(marks) != n_series:
            raise UsageError(
                f"marks: {len(marks)} given; expected one for each of {n_series} series"
            )

        valid = np.isfinite(values) & (values >= 0)
        segment = np.zeros((n_series, n_nights), int)
        mended = np.zeros((n_series, n_nights), bool)
        for row, mark in enumerate(marks or ()):
            if mark is None:
                continue
            for time in mark.restarts:
                segment[row] += nights >= time
            if len(mark.excluded):
                valid[row] &= ~np.isin(nights, np.asarray(mark.excluded, nights.dtype))
            for first, stop in mark.mended:
                mended[row] |= (nights >= first) & (nights < stop)
        return cls._packed(values, valid, segment, mended)

    @classmethod
    def _packed(
        cls,
        values: NDArray[np.float64],
        valid: NDArray[np.bool_],
        segment: NDArray[np.int64],
        mended: NDArray[np.bool_],
    ) -> _Rows:
        """Move the valid nights to the left, each segment in its own row."""
        n_series, n_nights = values.shape
        n_segments = int(segment.max(initial=0)) + 1
        counts = valid.sum(axis=1)
        if n_segments > 1:
            number = np.arange(n_series)[:, None] * n_segments + segment
            counts = np.bincount(number[valid], minlength=n_series * n_segments)
        rows = np.flatnonzero(counts)
        length = counts[rows]
        # Valid nights are in order of series, segments (these have ascending times) and nights.
        inside = np.arange(length.max(initial=0)) < length[:, None]
        y, night = np.full(inside.shape, np.nan), np.zeros(inside.shape, int)
        known = np.zeros(inside.shape, bool)
        with np.errstate(divide="ignore"):
            y[inside] = np.maximum(np.log(values[valid]), LOG_OF_ZERO)
        night[inside] = np.broadcast_to(np.arange(n_nights), valid.shape)[valid]
        known[inside] = mended[valid]
        return cls(y, night, known, length, rows // n_segments, n_series, n_nights)

    def changes(self, events: Events) -> list[list[ChangePoint]]:
        """Return the changes of each series, in order of detection."""
        half = -stdtrit(20, (1 - VERDICTS.level) / 2) * events.error
        infinite = np.abs(events.change) > INFINITE_CHANGE
        with np.errstate(over="ignore"):
            ratio, low, high = (
                np.exp(np.where(infinite, np.inf * events.change, change))
                for change in (events.change, events.change - half, events.change + half)
            )
        index = self.night[events.row, events.index]
        seen = self.night[events.row, events.detected_at]
        columns = (index, ratio, low, high, 1 - events.chance, np.sign(events.change), seen)
        changes: list[list[ChangePoint]] = [[] for _ in range(self.n_series)]
        for series, i, r, lo, hi, c, d, s in zip(
            self.series[events.row].tolist(), *(c.tolist() for c in columns), strict=True
        ):
            changes[series].append(ChangePoint(i, r, lo, hi, c, int(d), s))
        return changes

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Number of nights of each row up to each night of the series, shape (rows, nights)."""
        known = np.zeros((len(self.length), self.n_nights), np.int64)
        row, place = np.nonzero(np.arange(self.y.shape[1]) < self.length[:, None])
        known[row, self.night[row, place]] = 1
        return known.cumsum(axis=1)

    def latest_night(
        self,
        night: int,
        length: NDArray[np.int64],
        reference: LatestReference,
        options: DetectionOptions,
    ) -> LatestNight:
        """Return a night relative to a reference that ends before it."""
        # length: (rows,), number of nights of each row up to it.
        ratio, units = np.full((2, self.n_series), np.nan)
        suspect, candidate, n_before = np.zeros((3, self.n_series), int)
        since = np.full(self.n_series, night)
        row = np.flatnonzero(length >= 2)
        row = row[self.night[row, length[row] - 1] == night]
        change = self.y[row, length[row] - 1] - reference.level[row]
        series = self.series[row]
        n_before[series] = length[row] - 1
        ratio[series], units[series] = np.exp(change), change / reference.noise[row]
        with np.errstate(invalid="ignore"):
            far = np.abs(units) >= options.suspect_units
            far &= np.abs(np.log(ratio)) >= options.min_change
        suspect[far] = np.sign(units[far])
        distance, at = recent_distances(self.y, length, row, reference)
        candidate[series], first = find_candidates(distance, at, row, change, reference)
        since[series] = self.night[row, first]
        recent = np.full((self.n_series, night + 1), np.nan)
        recent_units = distance / reference.earlier_noise[row, None]
        recent[series[:, None], self.night[row[:, None], at]] = recent_units
        short = np.isnan(change) & (n_before[series] < MIN_REFERENCE_NIGHTS)
        sign, short_ratio = find_short_candidates(self.y, length, row[short])
        candidate[series[short]] = sign
        # The build of the first night is the reference of a short series.
        since[series[short]] = self.night[row[short]][:, 1:2].ravel()
        ratio[series[short]] = np.where(sign != 0, short_ratio, np.nan)
        return LatestNight(ratio, units, suspect, candidate, since, n_before, recent)
