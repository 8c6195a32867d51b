import dataclasses

import numpy as np
import pytest

from benchkit.analysis.changepoints import ChangePoint, Detector, Marks, detect_many
from benchkit.errors import UsageError
from validation.nightly_series import NIGHTS, SHAPES, first_hits, lognormal, with_step


def detect(times, values, marks=None):
    return detect_many(np.asarray(values, float)[None], times=times, marks=[marks])[0]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_detect_many_judges_each_series_alone(shape, rng):
    values = with_step(shape(rng, 30), rng.integers(20, 100, 30), 1.15)

    assert [detect(np.arange(NIGHTS), row) for row in values] == detect_many(values)


def test_detect_many_is_independent_of_unit(rng):
    values = with_step(lognormal(rng, 20), np.full(20, 60), 1.1)

    plain, scaled = detect_many(values), detect_many(values * 2.0**40)

    assert [[c.index for c in row] for row in plain] == [[c.index for c in row] for row in scaled]


def test_detect_interval_covers_true_ratio(rng):
    values = with_step(lognormal(rng, 1000, 0.02), np.full(1000, 60), 1.3)

    hits = [hit for hit in first_hits(detect_many(values), np.full(1000, 60)) if hit is not None]

    assert len(hits) >= 990
    covered = sum(hit.low <= 1.3 <= hit.high for hit in hits)
    assert 0.90 <= covered / len(hits) <= 0.99


def test_marks_restart_hides_step_at_restart(rng):
    values = lognormal(rng, 1)[0]
    values[50:] *= 2
    times = np.datetime64("2026-01-01") + np.arange(NIGHTS)

    marked = detect(times, values, marks=Marks(restarts=[times[50]]))

    assert [change.index for change in detect(times, values)] == [50]
    assert marked == []


def test_marks_restart_keeps_positions_of_later_changes(rng):
    values = lognormal(rng, 1)[0]
    values[30:] *= 2
    values[80:] *= 1.2

    [change] = detect(np.arange(NIGHTS), values, marks=Marks(restarts=[30]))

    assert (change.index, change.detected_at) == (80, 82)
    assert change.ratio == pytest.approx(1.2, rel=0.03)


def test_marks_excluded_nights_equal_missing_nights(rng):
    values = lognormal(rng, 1)[0]
    values[70:76] *= 3
    missing = values.copy()
    missing[70:76] = np.nan

    excluded = detect(np.arange(NIGHTS), values, marks=Marks(excluded=range(70, 76)))

    assert detect(np.arange(NIGHTS), values) != []
    assert excluded == detect(np.arange(NIGHTS), missing) == []


def test_marks_apply_to_their_series_only(rng):
    values = with_step(lognormal(rng, 3), np.full(3, 50), 2)

    found = detect_many(values, marks=[None, Marks(restarts=[50]), None])

    assert [len(changes) for changes in found] == [1, 0, 1]


def test_detect_positions_count_missing_nights(rng):
    values = lognormal(rng, 1)[0]
    values[60:] *= 1.5
    values[[5, 6, 30, 61]] = np.nan

    [change] = detect(np.arange(NIGHTS), values)

    assert (change.index, change.detected_at) == (60, 63)


@pytest.mark.parametrize("n", [0, 1, 2, 11, 13])
def test_detect_returns_nothing_for_short_series(n):
    values = np.r_[np.ones(n), 5, 5][: max(n, 0)]

    assert detect(np.arange(values.size), values) == []


def test_detect_many_returns_nothing_for_constant_series():
    values = np.stack([np.full(50, 3.0), np.full(50, np.nan), np.zeros(50), np.full(50, np.inf)])

    assert detect_many(values) == [[], [], [], []]


def test_detect_finds_step_without_noise():
    values = np.r_[np.full(30, 3.0), np.full(30, 3.3)]

    [change] = detect(np.arange(60), values)

    assert (change.index, change.detected_at) == (30, 32)
    assert change.low < 1.1 < change.high


def test_detect_ratio_is_infinite_from_zero_level():
    values = np.r_[np.zeros(30), np.full(30, 5e9), np.zeros(30)]

    up, down = detect(np.arange(90), values)

    assert (up.index, up.ratio, up.direction) == (30, np.inf, 1)
    assert (down.index, down.ratio, down.direction) == (60, 0.0, -1)


def test_detect_treats_negative_values_as_missing(rng):
    values = lognormal(rng, 1)[0]
    holes, negative = values.copy(), values.copy()
    holes[40:50], negative[40:50] = np.nan, -1.0

    assert detect(np.arange(NIGHTS), negative) == detect(np.arange(NIGHTS), holes)


def test_detect_many_does_not_modify_input(rng):
    values = with_step(lognormal(rng, 3), np.full(3, 50), 2)
    before = values.copy()

    detect_many(values)

    np.testing.assert_array_equal(values, before)


def test_change_point_is_immutable():
    change = ChangePoint(3, 1.1, 1.0, 1.2, 0.99, 1, 5)

    with pytest.raises(dataclasses.FrozenInstanceError):
        change.index = 4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: detect(np.arange(4), np.ones(3)), r"times: shape \(4,\).*\(3,\)"),
        (lambda: detect([0, 2, 1], np.ones(3)), "not ascending"),
        (
            lambda: detect_many(np.ones((2, 3)), marks=[None]),
            "1 given; expected one for each of 2 series",
        ),
        (lambda: detect_many(np.ones((2, 3, 4))), "3 dimensions"),
    ],
)
def test_detect_rejects_mismatched_shapes(call, message):
    with pytest.raises(UsageError, match=message):
        call()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_detector_uses_on_each_night_the_nights_until_then(shape, rng):
    values = with_step(shape(rng, 12), rng.integers(20, 60, 12), 1.2)
    values = with_step(values, rng.integers(60, 100, 12), 0.8)
    values[:3, 70:74] *= 3.0  # the reference of some nights ends in a change
    values[3, 40:] = np.nan
    marks = [Marks(restarts=[50]), None, Marks(mended=[(70, 74)]), *[None] * 9]
    detector = Detector(values, marks=marks)

    for night in (*range(0, 30, 3), *range(66, 80), NIGHTS - 1):
        known = Detector(values[:, : night + 1], marks=marks).on()
        found = detector.on(night)
        assert found.changes == known.changes
        for field in dataclasses.fields(known.latest):
            both = (getattr(each.latest, field.name) for each in (found, known))
            np.testing.assert_array_equal(*both, err_msg=field.name)
