"""Weekly seasons of nightly series."""

import numpy as np
import pytest

from benchkit.analysis.changepoint.weekdays import without_weekdays
from benchkit.analysis.changepoints import detect_many
from validation.nightly_series import NIGHTS, SHAPES, lognormal

TIMES = np.datetime64("2026-03-01T02:00", "us") + np.arange(NIGHTS) * np.timedelta64(1, "D")


def busy_weekends(rng, n, ratio=1.08):
    return lognormal(rng, n) * np.where(np.arange(NIGHTS) % 7 < 2, ratio, 1.0)


def found(values, first):
    """Return the share of series with a rise that is found from a night on, and false alarms."""
    changes = detect_many(without_weekdays(values, TIMES))
    rises = [[c for c in each if c.direction == 1 and c.index >= first - 2] for each in changes]
    n_false = sum(len(each) for each in changes) - sum(len(each) for each in rises)
    return np.mean([bool(each) for each in rises]), n_false


def test_without_weekdays_finds_a_step_that_the_season_hides(rng):
    values = busy_weekends(rng, 200)
    values[:, 70:] *= 1.05

    share, n_false = found(values, 70)

    assert share > 0.9  # .035 with the season
    assert n_false <= 2


@pytest.mark.parametrize("ratio", [0.85, 1.15, 1.3])
def test_without_weekdays_has_no_step_where_the_season_becomes_known(ratio, rng):
    adjusted = without_weekdays(busy_weekends(rng, 100, ratio), TIMES)

    assert sum(map(len, detect_many(adjusted))) <= 1


@pytest.mark.parametrize("a_day", [1, 2])
def test_without_weekdays_uses_earlier_nights_only(a_day, rng):
    times = np.repeat(TIMES, a_day)
    values = np.repeat(busy_weekends(rng, 20), a_day, axis=1)
    values *= rng.lognormal(0, 0.01, values.shape)
    values[:, ::5] = np.nan
    adjusted = without_weekdays(values, times)

    assert (adjusted != values)[np.isfinite(values)].sum() > 100
    for stop in (*range(34, 50), 77, 78, 99, 100, 200):
        before = without_weekdays(values[:, :stop], times[:stop])
        np.testing.assert_array_equal(before, adjusted[:, :stop])


def test_without_weekdays_rarely_changes_series_without_a_season(rng):
    n_changed = 0
    for shape in SHAPES:
        values = shape(rng, 50)
        n_changed += (without_weekdays(values, TIMES) != values)[np.isfinite(values)].sum()

    assert n_changed < 0.002 * 50 * NIGHTS * len(SHAPES)


def test_without_weekdays_needs_some_weeks(rng):
    values = busy_weekends(rng, 3)

    np.testing.assert_array_equal(without_weekdays(values[:, :30], TIMES[:30]), values[:, :30])
    assert without_weekdays(values[:, :0], TIMES[:0]).shape == (3, 0)


def test_without_weekdays_accepts_missing_and_repeated_nights(rng):
    values = busy_weekends(rng, 20)
    values[:, ::9] = np.nan
    times = TIMES.copy()
    times[80] = times[79] + np.timedelta64(6, "h")

    changed = without_weekdays(values, times) != values

    assert changed[np.isfinite(values)].mean() > 0.1
