"""Decide whether the last nights of a series are a change: the rule alone, without state.

Takes logarithms of values and the reference level of each night; returns alarms, for all rows and
nights at once. The last 3 to 18 nights are a change if (1) all of them, but one in five, are far
enough from the reference, (2) far enough relative to its noise, (3) few nights of the reference
were as far from its level, and (4) the nights agree with one another. Condition 3 replaces an
assumption about the noise: it suppresses alarms in series that were bimodal or bursty before.
Condition 4 separates a new level from a burst.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

__all__ = [
    "FEWEST",
    "REFRESH",
    "WINDOWS",
    "Alarms",
    "find_alarms",
    "noise_of",
    "quantile",
    "reference",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Most and fewest nights of the reference.
REFERENCE, FEWEST = 60, 10
#: Nights between updates of the reference: saves half to three quarters of the sorting, and on the
#: development series false alarms and recall change by less than their sampling error.
REFRESH = 4


class Window(NamedTuple):
    """Limits that the last m nights must exceed to be a change; changes are logs of ratios."""

    dropped: int  # most extreme nights left out of the mean, so that an outlier raises no alarm
    low: float  # least distance of all nights but one in five
    middle: float  # least distance of their median
    units: float  # least distance of their mean, in noise units


#: Number of nights -> limits. Few nights need 4.5 %: most false alarms are three busy nights of a
#: machine, and most of those are smaller. With 13 to 18 nights 3 % is enough. Two nights are never
#: enough: on the development series they add a third to the false alarms and find 1 % of the steps
#: earlier.
WINDOWS = {
    3: Window(1, 0.035, 0.045, 2.7),
    4: Window(1, 0.035, 0.045, 2.5),
    5: Window(1, 0.035, 0.045, 2.4),
    7: Window(2, 0.040, 0.030, 2.1),
    9: Window(3, 0.040, 0.030, 1.8),
    13: Window(4, 0.020, 0.030, 1.35),
    18: Window(6, 0.016, 0.030, 1.08),
}
#: A night of the reference is as far from its level as PART of the change (0.6 in short windows,
#: 0.5 in long ones) with probability p, and the next night too with probability p^1.4, or with its
#: observed share if that is larger. All m nights must be rarer than 3e-4: three nights are enough
#: if 6 of 60 were as far, four if 12 were. If more than a share of 0.35 were, there is no alarm.
PART, RARE, AGAIN_POWER, COMMON = (0.6, 0.5), 3e-4, 1.4, 0.35
#: Autocorrelated noise averages out slowly. Autocorrelation counts beyond its standard error, and
#: its effect to the power 0.7: the full effect costs 1 % of the real steps, which also look
#: autocorrelated.
MEMORY_POWER, CLIP = 0.7, 2.5
#: Windows of up to five nights must agree within 5 noise units or 0.4 of the change; busy nights
#: of a machine do not.
SHORT, AGREE_UNITS, AGREE_SHARE = 5, 5.0, 0.4
#: Nights after the first candidate that are judged first; affects only the speed.
FIRST_LOOK = 6
#: Lowest noise assumed: clocks and caches cause at least this much.
LEAST_NOISE = 0.006


@dataclass(frozen=True)
class Alarms:
    """Windows that differ from their reference; one element of each array per window.

    Attributes
    ----------
    row, night, m, sign : ndarray of int
        Row, last night, number of nights, direction.
    chance : ndarray of float
        Probability that noise like that of the reference causes such a window.
    noise : ndarray of float
        Robust standard deviation of the reference.
    """

    row: Ints
    night: Ints
    m: Ints
    sign: Ints
    chance: Floats
    noise: Floats

    def take(self, at: NDArray) -> Alarms:
        """Return the alarms at some positions, or where a mask is true."""
        return Alarms(
            self.row[at], self.night[at], self.m[at], self.sign[at], self.chance[at], self.noise[at]
        )


def find_alarms(
    y: Floats, centre: Floats, rows: Ints, first: int, last: int, judged: Ints, start: Ints
) -> Alarms:
    """Judge all windows of some rows that end on some nights.

    Parameters
    ----------
    y : ndarray, shape (rows, nights)
    centre : ndarray, shape (rows, blocks)
        Level before each block of `REFRESH` nights; NaN where no reference is long enough.
    rows : ndarray of int
        Rows to judge.
    first, last : int
        Windows end on a night of ``range(first, last)``.
    judged, start : ndarray of int, shape (rows,)
        For every row of `y` the first night to judge and the first night of the reference.

    Returns
    -------
    Alarms
        For each row at least the alarms that end on the night of its first alarm.
    """
    waiting = _candidates(y, centre, rows, first, last, judged)
    found = []
    span = FIRST_LOOK
    while waiting.row.size:
        # After a step all nights differ, but only the first alarm of a row counts: judge it first.
        begin = np.full(y.shape[0], last)
        np.minimum.at(begin, waiting.row, waiting.night)
        soon = waiting.night < begin[waiting.row] + span
        found.append(_judge(y, centre, waiting.take(soon), start))
        waiting = waiting.take(~soon & ~np.isin(waiting.row, found[-1].row))
        span *= 3
    return _together(found) if found else waiting


def _together(parts: list[Alarms]) -> Alarms:
    """Return the concatenation of several `Alarms`."""
    columns = (field.name for field in fields(Alarms))
    return Alarms(*(np.concatenate([getattr(part, name) for part in parts]) for name in columns))


def _candidates(
    y: Floats, centre: Floats, rows: Ints, first: int, last: int, judged: Ints
) -> Alarms:
    """Return the windows in which all nights but a fifth are far enough from the reference."""
    begin = max(0, first - max(WINDOWS))
    part = y if rows.size == y.shape[0] else y[rows]
    level = np.repeat(centre[rows, begin // REFRESH :], REFRESH, axis=1)
    level = level[:, begin % REFRESH :]
    hits: list[tuple[Ints, Ints, Ints, Ints]] = []
    for m, window in WINDOWS.items():
        if last - m < 0:
            continue
        opening = max(first - m + 1, 0)  # first night of the first window
        n = last - m + 1 - opening
        reference = level[:, opening - begin : opening - begin + n]
        for sign in (1, -1):
            bar = reference + sign * window.low
            away = np.zeros(bar.shape, np.int8)
            for j in range(opening, opening + m):
                nights = part[:, j : j + n]
                away += (nights >= bar) if sign > 0 else (nights <= bar)
            row, at = np.nonzero(away >= m - _left_out(m))
            night = at + opening + m - 1
            row = rows[row]
            # Skip windows past the end of a row: a fifth of a window may be NaN, but not the last.
            fresh = (night >= judged[row]) & ~np.isnan(y[row, night])
            row, night = row[fresh], night[fresh]
            hits.append((row, night, np.full(row.size, m), np.full(row.size, sign)))
    row, night, size, direction = (np.concatenate(c) for c in zip(*hits, strict=True))
    nothing = np.zeros(row.size)
    return Alarms(row, night, size, direction, nothing, nothing)


def _by_size(values: list[float]) -> Floats:
    """Return an array of values, indexed by the size of a window."""
    table = np.full(max(WINDOWS) + 1, np.nan)
    table[list(WINDOWS)] = values
    return table


def _left_out(m: int) -> int:
    """Return how many nights of a window need not be far away: one in five, none of three."""
    return (m + 4) // 5 - 1 if m > 3 else 0


def _judge(y: Floats, centre: Floats, windows: Alarms, start: Ints) -> Alarms:
    """Keep the windows that are alarms, with their chance and their noise."""
    middle, mean, spread = _shape(y, centre, windows)
    least = _by_size([window.middle for window in WINDOWS.values()])
    large = np.flatnonzero(middle >= least[windows.m])
    middle, mean, spread = middle[large], mean[large], spread[large]
    windows = windows.take(large)
    row, m = windows.row, windows.m

    end = (windows.night - m + 1) // REFRESH * REFRESH
    level = centre[row, end // REFRESH]
    _, here, which = np.unique(row * y.shape[1] + end, return_index=True, return_inverse=True)
    nights, n = reference(y, row[here], start[row[here]], end[here])
    noise = noise_of(nights, n, level[here])[which]
    far = mean / noise
    agreed = (m > SHORT) | (spread <= np.maximum(AGREE_UNITS * noise, AGREE_SHARE * middle))
    enough = _by_size([window.units for window in WINDOWS.values()])[m]
    left = np.flatnonzero((far >= enough) & agreed)
    windows = replace(windows, noise=noise).take(left)
    past = _past(y, windows, start, end[left], level[left])
    part = np.where(windows.m <= SHORT, PART[0], PART[1]) * middle[left]
    share, again = _how_often(past, part)
    rare = share * np.maximum(share**AGAIN_POWER, again) ** (windows.m - 1)
    far = far[left] / _slowness(past / windows.noise[:, None], windows.m)
    alarm = (rare <= RARE) & (share <= COMMON) & (far >= enough[left])
    chance = np.maximum(rare, ndtr(-far * np.sqrt(windows.m)))
    return replace(windows, chance=chance).take(alarm)


def _past(y: Floats, windows: Alarms, start: Ints, end: Ints, level: Floats) -> Floats:
    """Return the reference in the order of the nights, as distance towards each window."""
    back = end[:, None] + np.arange(-REFERENCE, 0)
    past = windows.sign[:, None] * (y[windows.row[:, None], np.maximum(back, 0)] - level[:, None])
    past[back < start[windows.row, None]] = np.nan
    return past


def _how_often(past: Floats, far: Floats) -> tuple[Floats, Floats]:
    """Return the share of nights that were so far away, and of those whose next night was too."""
    beyond = past >= far[:, None]
    n_beyond = beyond.sum(axis=1)
    n_again = (beyond[:, 1:] & beyond[:, :-1]).sum(axis=1)
    share = (n_beyond + 1) / (np.isfinite(past).sum(axis=1) + 2)
    # One repetition may be chance: counting it costs a tenth of the steps found on night three.
    return share, np.maximum(n_again - 1, 0) / (n_beyond + 2)


def _slowness(units: Floats, m: Ints) -> Floats:
    """Return how much more a mean of m nights varies than without autocorrelation, as a factor."""
    n = np.isfinite(units).sum(axis=1)
    units = np.where(np.isfinite(units), np.clip(units, -CLIP, CLIP), 0)
    together = (units[:, 1:] * units[:, :-1]).sum(axis=1)
    memory = together / np.maximum((units**2).sum(axis=1), 1e-9) - 1 / np.sqrt(n)
    lag = np.arange(1, max(WINDOWS))
    weight = np.maximum(1 - lag / m[:, None], 0)
    variance = 1 + 2 * (weight * np.clip(memory, 0, 0.95)[:, None] ** lag).sum(axis=1)
    return np.sqrt(variance) ** MEMORY_POWER


def _shape(y: Floats, centre: Floats, windows: Alarms) -> tuple[Floats, Floats, Floats]:
    """Return the median, the mean without the extremes and the spread of each window."""
    middle, mean, spread = (np.empty(windows.row.size) for _ in range(3))
    for size, window in WINDOWS.items():
        at = np.flatnonzero(windows.m == size)
        row, night = windows.row[at, None], windows.night[at, None]
        nights = y[row, night + np.arange(1 - size, 1)]
        nights = windows.sign[at, None] * (nights - centre[row, (night - size + 1) // REFRESH])
        nights.sort(axis=1)
        middle[at] = (nights[:, (size - 1) // 2] + nights[:, size // 2]) / 2
        mean[at] = nights[:, : size - window.dropped].mean(axis=1)
        spread[at] = nights[:, -1] - nights[:, _left_out(size)]
    return middle, mean, spread


def reference(y: Floats, row: Ints, start: Ints, end: Ints) -> tuple[Floats, Ints]:
    """Return the values of the nights of each reference, sorted.

    Parameters
    ----------
    y : ndarray, shape (rows, nights)
    row, start, end : ndarray of int, shape (n,)
        For each reference its row, the first night that may count, and the night after the last.

    Returns
    -------
    nights : ndarray, shape (n, 60)
        Rising; infinity after the last where there are fewer than 60.
    n_nights : ndarray of int, shape (n,)
    """
    back = end[:, None] + np.arange(-REFERENCE, 0)
    nights = y[row[:, None], np.maximum(back, 0)]
    if (end - start < REFERENCE).any():
        nights[back < start[:, None]] = np.inf
    nights.sort(axis=1)
    return nights, np.minimum(end - start, REFERENCE)


def quantile(rising: Floats, n: Ints, share: float) -> Floats:
    """Return a quantile of the first n columns of each row, interpolated."""
    place = (n - 1) * share
    low = place.astype(int)
    high = np.minimum(low + 1, n - 1)
    at = np.arange(n.size)
    return rising[at, low] + (place - low) * (rising[at, high] - rising[at, low])


def noise_of(nights: Floats, n: Ints, centre: Floats) -> Floats:
    """Return the robust standard deviation of each reference.

    The larger of the scaled median deviation and the scaled 85 % quantile: the first alone is too
    small for a bimodal series, and one past excursion determines a higher quantile.
    """
    away = np.abs(nights - centre[:, None])
    away.sort(axis=1)
    return np.maximum(
        np.maximum(1.4826 * quantile(away, n, 0.5), quantile(away, n, 0.85) / 1.44), LEAST_NOISE
    )
