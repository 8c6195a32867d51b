"""Decide whether the last nights of a series are a change: the rule alone, without state.

Takes logarithms of values and the reference level of each night; returns alarms, for all rows and
nights at once. The last 3 to 18 nights are a change if (1) all of them, but one in five, are far
enough from the reference, (2) far enough relative to its noise, (3) few nights of the reference
were as far from its level, and (4) the nights are close to each other. Condition 3 replaces an
assumption about the noise: it suppresses alarms in series that were bimodal or bursty before.
Condition 4 separates a new level from a burst.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from benchkit.analysis.options import DetectionOptions
from benchkit.analysis.stats.log_scale import MIN_NOISE

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: `benchmarks/fit_constants.py` prints false alarms and found steps for neighbouring values.

#: Largest number of nights in a reference: two months. Older nights had other packages.
MAX_REFERENCE_NIGHTS = 60
#: Smallest number of nights in a reference. `robust_noise` of ten nights of normal noise is between
#: half and twice the true noise in 98 % of references, that of five in 88 %.
MIN_REFERENCE_NIGHTS = 10
#: Nights between updates of the reference: saves half to three quarters of the sorting, and on the
#: development series false alarms and recall change by less than their sampling error.
REFRESH_NIGHTS = 4


class Window(NamedTuple):
    """Limits that the last m nights must exceed to be a change, in logarithms of ratios."""

    low: float  # smallest distance of all nights but a fifth
    units: float  # smallest distance of their mean, in noise units, without the farthest third


#: The median of a short window must exceed `DetectionOptions.min_change` times this: most false
#: alarms are three busy nights of a machine, and most of those are smaller. With 5 % instead of
#: 4.5 %, half of the steps of 5 % are found later.
SHORT_FACTOR = 1.5
#: Number of nights -> limits. The means are about five standard errors of a mean of independent
#: nights (4.6 to 5.6); with 5 for all windows 1 % fewer steps of 5 % are found, and with 1.1 for 18
#: nights .982 instead of .988 of the real falls. A window of two nights adds a third to the false
#: alarms and finds 1 % of the steps earlier.
WINDOWS = {
    3: Window(0.035, 2.7),
    4: Window(0.035, 2.5),
    5: Window(0.035, 2.4),
    7: Window(0.04, 2.1),
    9: Window(0.04, 1.8),
    13: Window(0.02, 1.35),
    18: Window(0.02, 1.08),
}
#: Nights in a row that show a level: fewer may be busy nights or outliers.
MIN_NIGHTS = min(WINDOWS)
#: Largest number of nights in a short window.
SHORT_WINDOW = 5
#: Share of the change, in short windows, at which a night of the reference counts as far away.
FAR_SHARE_SHORT = 0.6
#: The same share in longer windows.
FAR_SHARE_LONG = 0.5
#: A night is far with probability p, the next night too with the larger of p^1.4 and its observed
#: share: between far nights that come together (0) and rarer ones. With 1, 9 % of the steps of 5 %
#: are found later; with 1.5, series with modes that last several nights have 1.5 % more alarms.
REPEAT_POWER = 1.4
#: Largest share of far nights in the reference: with more, it has a second level. With 0.3, .976
#: instead of .988 of the real falls are found.
MAX_FAR_SHARE = 0.4
#: Exponent of the effect of autocorrelation, which makes means converge slowly. The full effect
#: (1.0) costs 1 % of the real steps, because these look autocorrelated too.
AUTOCORRELATION_POWER = 0.7
#: Largest range of the nights of a short window, in noise units; exceeded by busy nights. A range
#: of 1 - `FAR_SHARE_SHORT` of the change is allowed, too.
MAX_RANGE_UNITS = 5.0
#: Nights before a short window, and how far one of them may be in the other direction, in noise
#: units: if it is farther, the series became noisier, and few nights show no level. With 3, alarms
#: after noise of 2 % became 6 % fall by two fifths instead of a third, and on real series 1 % fewer
#: steps are found on the third night.
NIGHTS_BEFORE, MAX_OPPOSITE_UNITS = 8, 4.0
#: Nights after the first candidate that are judged first; affects only the speed.
FIRST_NIGHTS_JUDGED = 6


@dataclass(frozen=True)
class Alarms:
    """Windows that differ from their reference; one element of each array per window."""

    row: Ints  # row, night, m, sign: Row, last night, number of nights, direction
    night: Ints
    m: Ints
    sign: Ints
    chance: Floats  # Probability that noise like that of the reference causes such a window
    noise: Floats  # Robust standard deviation of the reference

    def take(self, at: Ints | NDArray[np.bool_]) -> Alarms:
        """Return a selection of the alarms, in the order of `at`."""
        return Alarms(
            self.row[at], self.night[at], self.m[at], self.sign[at], self.chance[at], self.noise[at]
        )


def find_alarms(
    y: Floats,
    clean: Floats,
    centre: Floats,
    rows: Ints,
    first: int,
    last: int,
    judged: Ints,
    start: Ints,
    options: DetectionOptions,
) -> Alarms:
    """Find the windows of some rows that are a change."""
    # y: (rows, nights), logarithms of the values; NaN after the last night of a row.
    # clean: (rows, nights), the same without the nights of changes that reverted: the nights that a
    # reference may use.
    # centre: (rows, blocks), level before each block of `REFRESH_NIGHTS` nights; NaN where no
    # reference is long enough.
    # judged, start: (rows,), for every row of `y` the first night to judge and the first night of
    # the reference.
    waiting = _candidates(y, centre, rows, first, last, judged)
    parts = []
    span = FIRST_NIGHTS_JUDGED
    while waiting.row.size:
        # After a step all nights differ, but only the first alarm of a row counts: judge it first.
        begin = np.full(y.shape[0], last)
        np.minimum.at(begin, waiting.row, waiting.night)
        soon = waiting.night < begin[waiting.row] + span
        parts.append(_select_alarms(y, clean, centre, waiting.take(soon), start, options))
        waiting = waiting.take(~soon & ~np.isin(waiting.row, parts[-1].row))
        span *= 3
    return _concatenate(parts) if parts else waiting


def _concatenate(parts: list[Alarms]) -> Alarms:
    """Return the concatenation of several `Alarms`."""
    columns = (field.name for field in fields(Alarms))
    return Alarms(*(np.concatenate([getattr(part, name) for part in parts]) for name in columns))


def _candidates(
    y: Floats, centre: Floats, rows: Ints, first: int, last: int, judged: Ints
) -> Alarms:
    """Return the windows in which enough nights are far from the reference; see `_n_exempt`."""
    begin = max(0, first - max(WINDOWS))
    part = y if rows.size == y.shape[0] else y[rows]
    level = np.repeat(centre[rows, begin // REFRESH_NIGHTS :], REFRESH_NIGHTS, axis=1)
    level = level[:, begin % REFRESH_NIGHTS :]
    windows: list[tuple[Ints, Ints, Ints, Ints]] = []
    for m, window in WINDOWS.items():
        if last - m < 0:
            continue
        opening = max(first - m + 1, 0)  # first night of the first window
        n = last - m + 1 - opening
        reference = level[:, opening - begin : opening - begin + n]
        for sign in (1, -1):
            limit = reference + sign * window.low
            n_far = np.zeros(limit.shape, np.int8)
            for j in range(opening, opening + m):
                nights = part[:, j : j + n]
                n_far += (nights >= limit) if sign > 0 else (nights <= limit)
            row, at = np.nonzero(n_far >= m - _n_exempt(m))
            night = at + opening + m - 1
            row = rows[row]
            # Skip windows past the end of a row: a fifth of a window may be NaN, but not the last.
            fresh = (night >= judged[row]) & ~np.isnan(y[row, night])
            row, night = row[fresh], night[fresh]
            windows.append((row, night, np.full(row.size, m), np.full(row.size, sign)))
    row, night, size, direction = (np.concatenate(c) for c in zip(*windows, strict=True))
    zeros = np.zeros(row.size)  # chance and noise are not computed yet
    return Alarms(row, night, size, direction, zeros, zeros)


def _by_size(values: list[float]) -> Floats:
    """Return an array of values, indexed by the size of a window."""
    table = np.full(max(WINDOWS) + 1, np.nan)
    table[list(WINDOWS)] = values
    return table


def _n_exempt(m: int) -> int:
    """Return the number of nights of a window that may be near: a fifth, and none of three."""
    return (m + 4) // 5 - 1 if m > 3 else 0


def _select_alarms(
    y: Floats,
    clean: Floats,
    centre: Floats,
    windows: Alarms,
    start: Ints,
    options: DetectionOptions,
) -> Alarms:
    """Return the windows that are alarms, with their chance and noise."""
    middle, mean, spread = _window_statistics(y, centre, windows)
    limit = options.min_change * np.where(windows.m <= SHORT_WINDOW, SHORT_FACTOR, 1.0)
    large = np.flatnonzero(middle >= limit)
    middle, mean, spread = middle[large], mean[large], spread[large]
    windows = windows.take(large)
    row, m = windows.row, windows.m
    end = (windows.night - m + 1) // REFRESH_NIGHTS * REFRESH_NIGHTS
    level = centre[row, end // REFRESH_NIGHTS]
    _, first, which = np.unique(row * y.shape[1] + end, return_index=True, return_inverse=True)
    nights, n = reference_values(clean, row[first], start[row[first]], end[first])
    noise = robust_noise(nights, n, level[first])[which]
    units = mean / noise
    narrow = spread <= np.maximum(MAX_RANGE_UNITS * noise, (1 - FAR_SHARE_SHORT) * middle)
    needed = _by_size([window.units for window in WINDOWS.values()])[m]
    steady = ~(_farthest_opposite(clean, windows, start, level) > MAX_OPPOSITE_UNITS * noise)
    kept = np.flatnonzero((units >= needed) & ((narrow & steady) | (m > SHORT_WINDOW)))
    windows = replace(windows, noise=noise).take(kept)
    past = _reference_distances(clean, windows, start, end[kept], level[kept])
    far_share = np.where(windows.m <= SHORT_WINDOW, FAR_SHARE_SHORT, FAR_SHARE_LONG)
    share, repeated = _far_shares(past, far_share * middle[kept])
    rate = share * np.maximum(share**REPEAT_POWER, repeated) ** (windows.m - 1)
    units = units[kept] / autocorrelation_factor(past / windows.noise[:, None], windows.m)
    alarm = (rate <= options.max_chance) & (share <= MAX_FAR_SHARE) & (units >= needed[kept])
    chance = np.maximum(rate, ndtr(-units * np.sqrt(windows.m)))
    return replace(windows, chance=chance).take(alarm)


def _farthest_opposite(clean: Floats, windows: Alarms, start: Ints, level: Floats) -> Floats:
    """Return how far a reference night shortly before each window is in the other direction."""
    back = (windows.night - windows.m + 1)[:, None] + np.arange(-NIGHTS_BEFORE, 0)
    nights = clean[windows.row[:, None], np.maximum(back, 0)]
    distance = -windows.sign[:, None] * (nights - level[:, None])
    distance[back < start[windows.row, None]] = np.nan
    farthest: Floats = np.fmax.reduce(distance, axis=1)
    return farthest


def _reference_distances(
    clean: Floats, windows: Alarms, start: Ints, end: Ints, level: Floats
) -> Floats:
    """Return the distances of reference nights from their level, in the window's direction."""
    back = end[:, None] + np.arange(-MAX_REFERENCE_NIGHTS, 0)
    values = clean[windows.row[:, None], np.maximum(back, 0)]
    past: Floats = windows.sign[:, None] * (values - level[:, None])
    past[back < start[windows.row, None]] = np.nan
    return past


def _far_shares(past: Floats, far: Floats) -> tuple[Floats, Floats]:
    """Return the share of reference nights that are far, and of those followed by a far night."""
    beyond = past >= far[:, None]
    n_beyond = beyond.sum(axis=1)
    n_again = (beyond[:, 1:] & beyond[:, :-1]).sum(axis=1)
    share = (n_beyond + 1) / (np.isfinite(past).sum(axis=1) + 2)
    # One repetition may be chance: counting it costs a tenth of the steps found on night three.
    return share, np.maximum(n_again - 1, 0) / (n_beyond + 2)


def autocorrelation_factor(units: Floats, m: Ints) -> Floats:
    """Return the standard error of a mean of m nights relative to that of independent nights."""
    n = np.isfinite(units).sum(axis=1)
    units = np.nan_to_num(units)
    products = (units[:, 1:] * units[:, :-1]).sum(axis=1)
    # Subtract the standard error of the autocorrelation: only what exceeds chance counts.
    correlation = products / np.maximum((units**2).sum(axis=1), 1e-9) - 1 / np.sqrt(n)
    lag = np.arange(1, max(WINDOWS))
    weight = np.maximum(1 - lag / m[:, None], 0)
    variance: Floats = 1 + 2 * (weight * np.clip(correlation, 0, 0.95)[:, None] ** lag).sum(axis=1)
    return np.sqrt(variance) ** AUTOCORRELATION_POWER


def _window_statistics(y: Floats, centre: Floats, windows: Alarms) -> tuple[Floats, Floats, Floats]:
    """Return the median, the mean without the extremes and the range of each window."""
    middle, mean, spread = (np.empty(windows.row.size) for _ in range(3))
    for size in WINDOWS:
        at = np.flatnonzero(windows.m == size)
        row, night = windows.row[at, None], windows.night[at, None]
        nights = y[row, night + np.arange(1 - size, 1)]
        level = centre[row, (night - size + 1) // REFRESH_NIGHTS]
        nights = windows.sign[at, None] * (nights - level)
        nights.sort(axis=1)
        middle[at] = (nights[:, (size - 1) // 2] + nights[:, size // 2]) / 2
        # Without the farthest third, so that an outlier raises no alarm.
        mean[at] = nights[:, : size - size // 3].mean(axis=1)
        spread[at] = nights[:, -1] - nights[:, _n_exempt(size)]
    return middle, mean, spread


def reference_values(y: Floats, row: Ints, start: Ints, end: Ints) -> tuple[Floats, Ints]:
    """Return the values of the nights of each reference, sorted."""
    # y: (rows, nights), logarithms of the values; NaN is a night that does not count.
    # row, start, end: (n,), for each reference its row, the first night that may count, and the
    # night after the last.
    # nights: (n, 60), ascending; infinity after the last where there are fewer than 60.
    # n_nights: (n,), number of nights of each reference, at most 60.
    back = end[:, None] + np.arange(-MAX_REFERENCE_NIGHTS, 0)
    nights = y[row[:, None], np.maximum(back, 0)]
    if (end - start < MAX_REFERENCE_NIGHTS).any():
        nights[back < start[:, None]] = np.inf
    nights[np.isnan(nights)] = np.inf
    nights.sort(axis=1)
    return nights, np.isfinite(nights).sum(axis=1)


def sorted_quantile(values: Floats, n: Ints, share: float) -> Floats:
    """Return an interpolated quantile of the first elements of each row."""
    # values: (rows, columns), each row ascending.
    # n: (rows,), number of elements of each row that count, at least 1.
    place = (n - 1) * share
    low = place.astype(int)
    high = np.minimum(low + 1, n - 1)
    at = np.arange(n.size)
    result: Floats = values[at, low] + (place - low) * (values[at, high] - values[at, low])
    return result


def robust_noise(nights: Floats, n: Ints, centre: Floats) -> Floats:
    """Return the robust standard deviation of each reference.

    Notes
    -----
    The larger of the scaled median deviation and the scaled 85 % quantile: the first alone is too
    small for a bimodal series, and a single excursion determines a higher quantile.
    """
    # nights: (rows, 60), values of each reference, as `reference_values` returns them.
    # n: (rows,), number of nights of each reference.
    # centre: (rows,), median of each reference.
    # returned: (rows,), in logarithms of a ratio, at least 0.006.
    deviation = np.abs(nights - centre[:, None])
    deviation.sort(axis=1)
    spread: Floats = np.maximum(
        1.4826 * sorted_quantile(deviation, n, 0.5), sorted_quantile(deviation, n, 0.85) / 1.44
    )
    return np.maximum(spread, MIN_NOISE)
