"""Find where a nightly series shifts, for one series or for all series of a store at once.

Values of a metric by night in, changes of level out; what a change means (a regression, an
improvement, a slow machine) is for others to say. Every night is judged by what was known then:
adding nights appends changes and never moves or removes one, so a ledger can be kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from benchkit.analysis.changepoint.scan import Events, LatestReference, scan
from benchkit.errors import UsageError

__all__ = ["ChangePoint", "Marks", "LatestNight", "detect", "detect_many", "latest_night"]

#: Coverage of the interval of a ratio.
LEVEL = 0.95
#: A zero has no logarithm; it is read as the smallest number, so that a metric that was zero
#: and no longer is has changed, by a ratio of infinity.
LOG_OF_ZERO = float(np.log(np.finfo(float).tiny))
#: Noise units, and logarithm of a ratio, that make one night worth measuring again at once.
SUSPECT_UNITS = 6.0
SUSPECT_CHANGE = 0.03


@dataclass(frozen=True)
class ChangePoint:
    """A lasting change of level in one series.

    Attributes
    ----------
    index : int
        First night of the new level, as a position in the series given.
    ratio : float
        Level after / level before: 1.1 is 10 % more. Infinity if the level was zero before.
    low, high : float
        95 % interval of `ratio`, from the nights known when the change was seen. Changes are
        seen when noise helps, so small ones are overstated as everywhere.
    confidence : float
        1 - probability that the noise seen before does this on one night.
    direction : int
        1 if the level rose, -1 if it fell. Which is worse, the metric knows.
    detected_at : int
        Position of the night on which the change was seen.
    """

    index: int
    ratio: float
    low: float
    high: float
    confidence: float
    direction: int
    detected_at: int


@dataclass(frozen=True)
class Marks:
    """Restarts and excluded nights of a series, in the unit of its times.

    Attributes
    ----------
    restarts : sequence
        From each of these times on, earlier nights no longer count as reference: a change that
        was accepted, a new machine, a bankruptcy.
    excluded : sequence
        Nights to leave out.
    """

    restarts: Sequence = ()
    excluded: Sequence = ()


@dataclass(frozen=True)
class LatestNight:
    """How the last night of each series stands against its reference; one element per series.

    Attributes
    ----------
    ratio : ndarray of float
        Last night / level of the reference. NaN if the series was not measured on the last
        night or its reference is too short.
    units : ndarray of float
        The same as a signed number of noise units (robust standard deviations).
    suspect : ndarray of int
        1 or -1 where the last night is six noise units or more (and 3 %) off, which one night
        cannot prove to be a change: measure it again now. 0 elsewhere.
    """

    ratio: NDArray[np.float64]
    units: NDArray[np.float64]
    suspect: NDArray[np.int64]


def detect(times: ArrayLike, values: ArrayLike, *, marks: Marks | None = None) -> list[ChangePoint]:
    """Find the changes of level in one series.

    Parameters
    ----------
    times : array_like, shape (nights,)
        Rising: dates or numbers. Only `marks` refers to them; nights need not be evenly spaced.
    values : array_like, shape (nights,)
        One metric. NaN, infinite and negative values count as missing nights.
    marks : Marks, optional
        Where the reference restarts and which nights are left out.

    Returns
    -------
    list of ChangePoint
        In the order of the nights on which they were seen.

    Raises
    ------
    UsageError
        Times do not rise, or are not as many as the values.

    See Also
    --------
    detect_many : The same for many series, about a hundred times faster per series.

    Notes
    -----
    A step of 5 % needs at least 10 nights before and three nights after it; one night is never
    enough, because on one night an outlier looks the same. The rule is in
    `benchkit.analysis.changepoint.rule`.

    Examples
    --------
    >>> values = [10.0, 10.1, 9.9, 10.0] * 5 + [11.0, 11.1, 10.9, 11.0]
    >>> [change] = detect(range(24), values)
    >>> change.index, change.detected_at, round(change.ratio, 2), change.direction
    (20, 22, 1.1, 1)
    """
    values = np.asarray(values, float)
    if values.ndim != 1:
        raise UsageError(f"values: {values.ndim} dimensions; one series has one (see detect_many)")
    return detect_many(values[None], times=times, marks=[marks])[0]


def detect_many(
    values: ArrayLike,
    *,
    times: ArrayLike | None = None,
    marks: Sequence[Marks | None] | None = None,
) -> list[list[ChangePoint]]:
    """Find the changes of level in many series, in one pass.

    Parameters
    ----------
    values : array_like, shape (series, nights)
        One metric per series. NaN, infinite and negative values count as missing nights.
    times : array_like, shape (nights,), optional
        Rising, shared by all series. By default nights are numbered from 0.
    marks : sequence of Marks or None, one per series, optional
        In the unit of `times`.

    Returns
    -------
    list of list of ChangePoint
        One list per series, equal to what `detect` returns for it.

    Raises
    ------
    UsageError
        The shapes do not agree, or times do not rise.

    Examples
    --------
    >>> quiet = [1.0, 1.01, 0.99, 1.0] * 6
    >>> faster = quiet[:20] + [0.8] * 4
    >>> [[], [change]] = detect_many([quiet, faster])
    >>> change.direction, change.index
    (-1, 20)
    """
    rows = _Rows.of(values, times, marks)
    events, _ = scan(rows.y)
    found: list[list[ChangePoint]] = [[] for _ in range(rows.n_series)]
    for series, change in rows.changes(events):
        found[series].append(change)
    return found


def latest_night(
    values: ArrayLike,
    *,
    times: ArrayLike | None = None,
    marks: Sequence[Marks | None] | None = None,
) -> LatestNight:
    """Return the last night of each series relative to its reference.

    Parameters
    ----------
    values, times, marks
        As in `detect_many`; the last column is the last night.

    Returns
    -------
    LatestNight
        Suspected series, and the noise units that `fleet_step` groups.
    """
    rows = _Rows.of(values, times, marks)
    # The reference of tonight must not know tonight or the night before.
    _, standing = scan(rows.without_last(2))
    return rows.latest_night(standing)


@dataclass(frozen=True)
class _Rows:
    """Series without gaps: one row for each stretch of a series between two restarts."""

    y: NDArray[np.float64]  # (rows, nights) logarithms, NaN after the last
    night: NDArray[np.int64]  # (rows, nights) position in the series
    length: NDArray[np.int64]  # (rows,)
    series: NDArray[np.int64]  # (rows,)
    n_series: int
    n_nights: int

    @classmethod
    def of(
        cls, values: ArrayLike, times: ArrayLike | None, marks: Sequence[Marks | None] | None
    ) -> _Rows:
        """Clean, refuse and pack."""
        values = np.array(values, float, ndmin=2)
        if values.ndim != 2:
            raise UsageError(f"values: {values.ndim} dimensions; expected (series, nights)")
        n_series, n_nights = values.shape
        clock = np.arange(n_nights) if times is None else np.asarray(times)
        if clock.shape != (n_nights,):
            raise UsageError(f"times: shape {clock.shape}; expected ({n_nights},), one per night")
        if (clock[1:] < clock[:-1]).any():
            raise UsageError("times: not rising; sort the nights first")
        if marks is not None and len(marks) != n_series:
            raise UsageError(
                f"marks: {len(marks)} given; expected one for each of {n_series} series"
            )

        there = np.isfinite(values) & (values >= 0)
        piece = np.zeros((n_series, n_nights), int)
        for row, mark in enumerate(marks or ()):
            if mark is None:
                continue
            for time in mark.restarts:
                piece[row] += clock >= time
            if len(mark.excluded):
                there[row] &= ~np.isin(clock, np.asarray(mark.excluded, clock.dtype))
        return cls._packed(values, there, piece)

    @classmethod
    def _packed(
        cls, values: NDArray[np.float64], there: NDArray[np.bool_], piece: NDArray[np.int64]
    ) -> _Rows:
        """Move the nights that are there to the left, each stretch in its own row."""
        n_series, n_nights = values.shape
        series, night = np.nonzero(there)
        value = values[series, night]
        # Stretches are numbered through; nonzero gives the nights of each in order.
        stretch = series * (piece.max(initial=0) + 1) + piece[series, night]
        names, row, length = np.unique(stretch, return_inverse=True, return_counts=True)
        column = np.arange(series.size) - np.repeat(np.cumsum(length) - length, length)
        shape = (names.size, int(length.max(initial=0)))
        y, at = np.full(shape, np.nan), np.zeros(shape, int)
        with np.errstate(divide="ignore"):
            y[row, column] = np.maximum(np.log(value), LOG_OF_ZERO)
        at[row, column] = night
        owner = names // (piece.max(initial=0) + 1)
        return cls(y, at, length, owner, n_series, n_nights)

    def changes(self, events: Events) -> list[tuple[int, ChangePoint]]:
        """Return the events as changes of their series, in the order they were seen."""
        half = -stdtrit(20, (1 - LEVEL) / 2) * events.error
        with np.errstate(over="ignore"):
            ratio, low, high = (
                np.exp(np.where(np.abs(events.change) > 500, np.inf * events.change, change))
                for change in (events.change, events.change - half, events.change + half)
            )
        index = self.night[events.row, events.index]
        seen = self.night[events.row, events.detected_at]
        columns = (index, ratio, low, high, 1 - events.chance, np.sign(events.change), seen)
        return [
            (series, ChangePoint(i, r, lo, hi, c, int(d), s))
            for series, i, r, lo, hi, c, d, s in zip(
                self.series[events.row].tolist(), *(c.tolist() for c in columns), strict=True
            )
        ]

    def without_last(self, n: int) -> NDArray[np.float64]:
        """Return the rows without their last nights."""
        keep = np.arange(self.y.shape[1]) < self.length[:, None] - n
        return np.where(keep, self.y, np.nan)

    def latest_night(self, standing: LatestReference) -> LatestNight:
        """Hold the last night against a reference that ends before it."""
        ratio, units = np.full((2, self.n_series), np.nan)
        suspect = np.zeros(self.n_series, int)
        row = np.flatnonzero(self.length >= 2)
        row = row[self.night[row, self.length[row] - 1] == self.n_nights - 1]
        change = self.y[row, self.length[row] - 1] - standing.level[row]
        series = self.series[row]
        ratio[series], units[series] = np.exp(change), change / standing.noise[row]
        off = (np.abs(units) >= SUSPECT_UNITS) & (np.abs(np.log(ratio)) >= SUSPECT_CHANGE)
        suspect[off] = np.sign(units[off])
        return LatestNight(ratio, units, suspect)
