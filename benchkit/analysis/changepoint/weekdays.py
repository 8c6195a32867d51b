"""Take weekly seasons out of nightly series: a machine that is busy on Sundays, a job on Mondays.

A season makes the noise of a series so large that the detector finds no change of its size. The
season of a night comes from earlier nights only: more nights never change it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchkit.analysis.stats.log_scale import SD_OF_MAD

Floats = NDArray[np.float64]

#: Days of a week, and the smallest number of them with a value.
DAYS, MIN_DAYS = 7, 5
#: Weeks whose median is the season of a day, and the smallest number of them with a value.
WEEKS, MIN_WEEKS = 6, 4
#: Smallest distance of a day from the usual day that is a season, as logarithm of a ratio: smaller
#: ones do not hide a change that the detector reports.
MIN_SEASON = 0.02
#: The days of a week differ if their mean square is so many times that of their errors: with 5,
#: .9 % of the nights of series without a season get one.
MIN_F = 10.0


def without_weekdays(values: Floats, times: NDArray[np.datetime64]) -> Floats:
    """Return values divided by the season of their day of the week, where they have one."""
    # values: (series, nights), NaN is missing; times: (nights,), ascending.
    # returned: `values` itself where no series has a season. Of several nights on a day the first
    # with a value counts: later ones do not change it.
    day = times.astype("datetime64[D]").astype(int)
    n_days = int(day[-1] - day[0]) + 1 if len(day) else 0
    if n_days < DAYS * (MIN_WEEKS + 1):
        return values
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.where(values > 0, np.log(values), np.nan)
    rows = np.flatnonzero(np.isfinite(logs).sum(axis=1) >= MIN_DAYS * MIN_WEEKS)
    by_day = np.full((rows.size, n_days), np.nan)
    row, back = np.nonzero(np.isfinite(logs[rows, ::-1]))  # of repeated places the last is kept
    night = logs.shape[1] - 1 - back
    by_day[row, day[night] - day[0]] = logs[rows[row], night]
    season = _season(by_day)[:, day - day[0]]
    if not season.any():
        return values
    adjusted = values.copy()
    adjusted[rows] = values[rows] * np.exp(-season)
    return adjusted


def _season(logs: Floats) -> Floats:
    """Return the season of each day, 0 without one."""
    # Relative to the mean of the week that ends with the day: each day of the week is once in it.
    last_days = _past(logs, range(DAYS))
    n_known = np.isfinite(last_days).sum(axis=0)
    mean = np.nansum(last_days, axis=0) / np.maximum(n_known, 1)
    relative = np.where(n_known >= MIN_DAYS, logs - mean, np.nan)
    weeks = _past(relative, range(DAYS, DAYS * (WEEKS + 1), DAYS))
    middle, n = _median(weeks)
    spread, _ = _median(np.abs(weeks - middle))
    error = SD_OF_MAD * spread / np.sqrt(np.maximum(n, 1))
    middle[n < MIN_WEEKS] = np.nan
    usual, n_known = _median(_past(middle, range(DAYS)))
    squares, errors = (np.nansum(_past(side, range(DAYS)) ** 2, axis=0) for side in (middle, error))
    season = middle - usual
    has = (n_known >= MIN_DAYS) & (squares > MIN_F * errors) & (np.abs(season) >= MIN_SEASON)
    result: Floats = np.where(has, season, 0.0)
    return result


def _past(logs: Floats, lags: range) -> Floats:
    """Return the values of some days before each day, shape (lags, series, days)."""
    past = np.full((len(lags), *logs.shape), np.nan)
    for place, lag in enumerate(lags):
        past[place, :, lag:] = logs[:, : max(logs.shape[1] - lag, 0)]
    return past


def _median(values: Floats) -> tuple[Floats, Floats]:
    """Return the median of the first axis without its NaN, and the number of values."""
    ordered = np.sort(values, axis=0)  # NaN last; numpy.nanmedian takes ten times as long
    n = np.isfinite(values).sum(axis=0)
    places = np.stack([np.maximum(n - 1, 0) // 2, np.minimum(n // 2, len(values) - 1)])
    median: Floats = np.take_along_axis(ordered, places, axis=0).mean(axis=0)
    return median, n
