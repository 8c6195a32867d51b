"""Decide whether the last nights of a series are a change: the rule, and nothing of its history.

Logarithms of values and the level that each night is held against in, alarms out, for all rows
and nights at once. The last 3 to 18 nights are a change if all of them (but one in five) are far
enough from the reference, far enough for its noise, if few nights of the reference ever went so
far, and if they agree with one another. The third condition takes the place of an assumption about
the noise: it silences bimodal and bursty series by what they did before. The fourth tells a level
from a burst.
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

#: Nights of the reference, at most and at least.
REFERENCE, FEWEST = 60, 10
#: The reference is taken anew every so many nights: half or a quarter of the sorting, and on the
#: development series false alarms and recall move by less than their sampling error.
REFRESH = 4


class Window(NamedTuple):
    """What the last m nights must be to be a change; changes are logarithms of ratios."""

    dropped: int  # most extreme nights left out of the mean: an outlier raises no alarm
    low: float  # all nights but one in five are at least so far away
    middle: float  # and their median is
    units: float  # and their mean is, in noise units


#: Quick answers need 4.5 %: most false alarms are three busy nights of a machine, and most of
#: those are smaller. Between 13 and 18 nights 3 % will do. Two nights are never enough: on the
#: development series they add a third to the false alarms and find 1 % of the steps earlier.
WINDOWS = {
    3: Window(1, 0.035, 0.045, 2.7),
    4: Window(1, 0.035, 0.045, 2.5),
    5: Window(1, 0.035, 0.045, 2.4),
    7: Window(2, 0.040, 0.030, 2.1),
    9: Window(3, 0.040, 0.030, 1.8),
    13: Window(4, 0.020, 0.030, 1.35),
    18: Window(6, 0.016, 0.030, 1.08),
}
#: A night of the reference goes so far (short windows 0.6 of the change, long ones half) with
#: probability p, and the next one as well with p^1.4, or as often as it did more than once. All m
#: nights must be rarer than 3e-4: three are enough if 6 of 60 nights went as far, four if 12 did.
#: Where more than 0.35 of the nights did, no number of nights will do.
PART, RARE, AGAIN_POWER, COMMON = (0.6, 0.5), 3e-4, 1.4, 0.35
#: Noise that remembers averages out slowly. Memory is believed beyond its standard error, and its
#: effect to the power 0.7: in full it costs 1 % of the real steps, which look like memory too.
MEMORY_POWER, CLIP = 0.7, 2.5
#: Up to five nights must agree within 5 noise units or 0.4 of the change; busy nights do not.
SHORT, AGREE_UNITS, AGREE_SHARE = 5, 5.0, 0.4
#: Nights after the first suspicious one that are judged first; the speed depends on it, no more.
FIRST_LOOK = 6
#: Below this, noise is not believed: clocks and caches make more.
LEAST_NOISE = 0.006


@dataclass(frozen=True)
class Alarms:
    """Windows that differ from their reference; one element of each array per window.

    Attributes
    ----------
    row, night, m, sign : ndarray of int
        Row, last night, number of nights, direction.
    chance : ndarray of float
        Probability that noise like that of the reference does this.
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
        """Return those at some positions, or where a mask is true."""
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
        Rows to look at.
    first, last : int
        Windows end on a night of ``range(first, last)``.
    judged, start : ndarray of int, shape (rows,)
        Of every row of `y` the first night to judge and the first night of the reference.

    Returns
    -------
    Alarms
        Of each row at least those that end on the night of its first alarm.
    """
    waiting = _candidates(y, centre, rows, first, last, judged)
    found = []
    span = FIRST_LOOK
    while waiting.row.size:
        # After a step all nights differ, but only the first alarm of a row counts: look there.
        begin = np.full(y.shape[0], last)
        np.minimum.at(begin, waiting.row, waiting.night)
        soon = waiting.night < begin[waiting.row] + span
        found.append(_judge(y, centre, waiting.take(soon), start))
        waiting = waiting.take(~soon & ~np.isin(waiting.row, found[-1].row))
        span *= 3
    return _together(found) if found else waiting


def _together(parts: list[Alarms]) -> Alarms:
    """Return all alarms in one."""
    columns = (field.name for field in fields(Alarms))
    return Alarms(*(np.concatenate([getattr(part, name) for part in parts]) for name in columns))


def _candidates(
    y: Floats, centre: Floats, rows: Ints, first: int, last: int, judged: Ints
) -> Alarms:
    """Return the windows of which all nights but a fifth are away."""
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
            # Past the end of a row is nothing to judge, though a fifth of a window may be NaN.
            fresh = (night >= judged[row]) & ~np.isnan(y[row, night])
            row, night = row[fresh], night[fresh]
            hits.append((row, night, np.full(row.size, m), np.full(row.size, sign)))
    row, night, size, direction = (np.concatenate(c) for c in zip(*hits, strict=True))
    nothing = np.zeros(row.size)
    return Alarms(row, night, size, direction, nothing, nothing)


def _by_size(values: list[float]) -> Floats:
    """Return an array that gives each size of window its value."""
    table = np.full(max(WINDOWS) + 1, np.nan)
    table[list(WINDOWS)] = values
    return table


def _left_out(m: int) -> int:
    """Return how many nights of a window may be anywhere: one in five, none of three."""
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
    """Return the share of nights that went so far, and how often the next one did as well."""
    beyond = past >= far[:, None]
    n_beyond = beyond.sum(axis=1)
    n_again = (beyond[:, 1:] & beyond[:, :-1]).sum(axis=1)
    share = (n_beyond + 1) / (np.isfinite(past).sum(axis=1) + 2)
    # Once may be chance; believing it costs a tenth of the steps seen on their third night.
    return share, np.maximum(n_again - 1, 0) / (n_beyond + 2)


def _slowness(units: Floats, m: Ints) -> Floats:
    """Return how much more a mean of m nights varies than without memory from night to night."""
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
    """Return the nights before others, sorted.

    Parameters
    ----------
    y : ndarray, shape (rows, nights)
    row, start, end : ndarray of int, shape (n,)
        Of each reference the row, the first night that may count, and the night after the last.

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

    The larger of the scaled median deviation and the scaled 85 % quantile: the first alone calls
    a series quiet that is bimodal, and a higher quantile is set by one past excursion.
    """
    away = np.abs(nights - centre[:, None])
    away.sort(axis=1)
    return np.maximum(
        np.maximum(1.4826 * quantile(away, n, 0.5), quantile(away, n, 0.85) / 1.44), LEAST_NOISE
    )
