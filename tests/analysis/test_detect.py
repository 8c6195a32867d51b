import dataclasses

import numpy as np
import pytest
from scipy.stats import binomtest

from benchkit.analysis.changepoint import rule as windows
from benchkit.analysis.changepoint import scan
from benchkit.analysis.changepoint.detect import (
    ChangePoint,
    Marks,
    detect,
    detect_many,
    latest_night,
)
from benchkit.errors import UsageError

NIGHTS = 110


def lognormal(rng, n, noise=0.01):
    return 10 * np.exp(rng.normal(0, noise, (n, NIGHTS)))


def heavy_tails(rng, n, noise=0.01):
    return 10 * np.exp(noise * rng.standard_t(2.5, (n, NIGHTS)))


def upward_outliers(rng, n):
    lucky = rng.random((n, NIGHTS)) < 0.08
    return lognormal(rng, n) * np.where(lucky, 1 + rng.exponential(0.4, (n, NIGHTS)), 1)


def bimodal(rng, n, share=0.3):
    return lognormal(rng, n) * np.where(rng.random((n, NIGHTS)) < share, 1.15, 1)


def bursts(rng, n):
    """Every thirty nights or so the machine is busy for one to three nights."""
    values = lognormal(rng, n)
    for row in values:
        for start in np.flatnonzero(rng.random(NIGHTS) < 1 / 30):
            busy = row[start : start + rng.integers(1, 4)]
            busy *= 1 + rng.exponential(0.15, busy.size)
    return values


def drift(rng, n):
    """Four per cent in a hundred nights."""
    return lognormal(rng, n) * np.exp(np.linspace(0, 0.04, NIGHTS))


def autocorrelated(rng, n, memory=0.5):
    shocks = rng.normal(0, 0.01 * np.sqrt(1 - memory**2), (n, NIGHTS))
    for night in range(1, NIGHTS):
        shocks[:, night] += memory * shocks[:, night - 1]
    return 10 * np.exp(shocks)


def sticky(rng, n):
    """Two modes that last for some nights, 12 % apart."""
    high, values = np.zeros(n, bool), lognormal(rng, n)
    for night in range(NIGHTS):
        high ^= rng.random(n) < np.where(high, 0.4, 0.1)
        values[:, night] *= np.where(high, 1.12, 1)
    return values


def wandering(rng, n):
    """Noise of 3 % that half remembers the night before."""
    return 10 * (autocorrelated(rng, n) / 10) ** 3


def rounded(rng, n):
    """A coarse clock: most nights tie."""
    return np.round(lognormal(rng, n), 1)


def gaps(rng, n):
    return np.where(rng.random((n, NIGHTS)) < 0.2, np.nan, lognormal(rng, n))


SHAPES = [
    lognormal,
    heavy_tails,
    upward_outliers,
    bimodal,
    bursts,
    drift,
    autocorrelated,
    wandering,
    sticky,
    rounded,
    gaps,
]
#: Alarms per series-night, both directions, that each shape may raise. Slow noise does look like
#: changes of level, and modes that last are some.
ALLOWED = {bursts: 0.002, bimodal: 0.001, wandering: 0.002, sticky: 0.014}


def with_step(values, start, ratio):
    return values * np.where(np.arange(NIGHTS) >= np.asarray(start)[:, None], ratio, 1)


def first_hits(found, start, *, direction=1, within=20):
    """For each series, the first change near the step, or None."""
    return [
        next(
            (
                change
                for change in changes
                if change.direction == direction
                and abs(change.index - at) <= 5
                and at <= change.detected_at < at + within
            ),
            None,
        )
        for changes, at in zip(found, start, strict=True)
    ]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_false_alarms_are_rare_in_every_shape_of_noise(shape, rng):
    values = shape(rng, 400)

    alarms = [change for changes in detect_many(values) for change in changes]

    n_nights = 400 * (NIGHTS - 30)
    seen = sum(change.detected_at >= 30 for change in alarms)
    assert (
        binomtest(seen, n_nights, ALLOWED.get(shape, 0.0003), alternative="greater").pvalue > 1e-3
    )


@pytest.mark.parametrize("direction", [1, -1])
@pytest.mark.parametrize(
    ("ratio", "noise", "share"),
    [(1.05, 0.01, 0.95), (1.10, 0.02, 0.98), (1.10, 0.01, 0.99), (1.20, 0.04, 0.9), (2, 0.1, 0.95)],
)
def test_steps_are_found_within_twenty_nights_and_placed_within_one(
    ratio, noise, share, direction, rng
):
    start = rng.integers(40, 88, 300)

    found = detect_many(with_step(lognormal(rng, 300, noise), start, ratio**direction))

    hits = first_hits(found, start, direction=direction)
    placed = [h is not None and abs(h.index - at) <= 1 for h, at in zip(hits, start, strict=True)]
    n_hits = sum(hit is not None for hit in hits)
    assert n_hits >= share * 300
    if ratio >= 1.1:
        assert sum(placed) >= 0.95 * n_hits


def test_a_clear_step_is_seen_on_its_third_night(rng):
    start = rng.integers(40, 88, 300)

    found = detect_many(with_step(lognormal(rng, 300, 0.005), start, 1.10))

    delays = [
        hit.detected_at - at + 1
        for hit, at in zip(first_hits(found, start), start, strict=True)
        if hit is not None
    ]
    assert np.mean(np.array(delays) <= 3) >= 0.95


@pytest.mark.parametrize("shape", [upward_outliers, bursts, drift, autocorrelated, gaps, rounded])
def test_a_step_of_a_fifth_is_found_in_rough_series(shape, rng):
    start = rng.integers(40, 88, 200)

    found = detect_many(with_step(shape(rng, 200), start, 1.2))

    assert sum(hit is not None for hit in first_hits(found, start)) >= 0.95 * 200


def test_a_creeping_change_is_told_too(rng):
    values = lognormal(rng, 200) * np.exp(np.linspace(0, 0.15, NIGHTS))

    found = detect_many(values)

    assert all(changes and changes[0].direction == 1 for changes in found)


def test_two_modes_hide_what_lies_between_them_but_not_more(rng):
    start = np.full(200, 70)

    between, beyond = (
        detect_many(with_step(bimodal(rng, 200), start, ratio)) for ratio in (1.05, 1.5)
    )

    assert sum(hit is not None for hit in first_hits(between, start)) < 0.5 * 200
    assert sum(hit is not None for hit in first_hits(beyond, start)) >= 0.95 * 200


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_one_series_alone_gives_what_it_gives_among_many(shape, rng):
    values = with_step(shape(rng, 30), rng.integers(20, 100, 30), 1.15)

    assert [detect(np.arange(NIGHTS), row) for row in values] == detect_many(values)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_more_nights_never_change_what_was_said_before(shape, rng):
    values = with_step(shape(rng, 25), rng.integers(20, 60, 25), 1.2)
    values = with_step(values, rng.integers(60, 100, 25), 0.7)
    whole = detect_many(values)

    assert sum(map(len, whole)) > 25
    for night in range(NIGHTS):
        known = [[c for c in changes if c.detected_at <= night] for changes in whole]
        assert detect_many(values[:, : night + 1]) == known


@pytest.mark.parametrize(("chunk", "look"), [(4, 6), (12, 1), (100, 2), (1000, 1000)])
def test_how_many_nights_are_handled_at_once_does_not_matter(chunk, look, rng, monkeypatch):
    values = with_step(bursts(rng, 50), rng.integers(20, 60, 50), 1.2)
    values = with_step(values, rng.integers(60, 100, 50), 0.7)
    expected = detect_many(values)

    monkeypatch.setattr(scan, "CHUNK", chunk)
    monkeypatch.setattr(windows, "FIRST_LOOK", look)

    assert detect_many(values) == expected


def test_a_series_that_ended_early_gives_what_it_gives_alone(rng):
    values = with_step(lognormal(rng, 1500, 0.03), np.full(1500, 50), 1.06)
    length = rng.integers(56, 75, 1500)
    padded = np.where(np.arange(NIGHTS) < length[:, None], values, np.nan)

    found = detect_many(padded)

    assert sum(map(len, found)) > 100
    for n in np.unique(length):
        alone = detect_many(values[length == n, :n])
        assert [found[row] for row in np.flatnonzero(length == n)] == alone


def test_a_ratio_of_scale_changes_nothing(rng):
    values = with_step(lognormal(rng, 20), np.full(20, 60), 1.1)

    plain, scaled = detect_many(values), detect_many(values * 2.0**40)

    assert [[c.index for c in row] for row in plain] == [[c.index for c in row] for row in scaled]


def test_the_interval_covers_the_true_ratio(rng):
    values = with_step(lognormal(rng, 1000, 0.02), np.full(1000, 60), 1.3)

    hits = [hit for hit in first_hits(detect_many(values), np.full(1000, 60)) if hit is not None]

    assert len(hits) >= 990
    covered = sum(hit.low <= 1.3 <= hit.high for hit in hits)
    assert 0.90 <= covered / len(hits) <= 0.99


def test_a_bug_that_is_mended_at_once_is_two_changes_and_the_old_level_is_known_again(rng):
    values = lognormal(rng, 100)
    values[:, 60:66] *= 1.5
    values[:, 75:] *= 1.5

    found = detect_many(values)

    assert sum([c.direction for c in changes] == [1, -1, 1] for changes in found) >= 95
    assert all(abs(c.index - at) <= 1 for c, at in zip(found[0], (60, 66, 75), strict=True))


def test_a_young_change_that_grows_is_a_second_change(rng):
    values = lognormal(rng, 100)
    values[:, 60:] *= 1.2
    values[:, 66:] *= 1.3

    found = detect_many(values)

    assert sum([c.index for c in changes] == [60, 66] for changes in found) >= 90


def test_a_bankruptcy_ends_the_reference(rng):
    values = lognormal(rng, 1)[0]
    values[50:] *= 2
    times = np.datetime64("2026-01-01") + np.arange(NIGHTS)

    marked = detect(times, values, marks=Marks(restarts=[times[50]]))

    assert [change.index for change in detect(times, values)] == [50]
    assert marked == []


def test_changes_after_a_restart_are_found_and_counted_from_the_first_night(rng):
    values = lognormal(rng, 1)[0]
    values[30:] *= 2
    values[80:] *= 1.2

    [change] = detect(np.arange(NIGHTS), values, marks=Marks(restarts=[30]))

    assert (change.index, change.detected_at) == (80, 82)
    assert change.ratio == pytest.approx(1.2, rel=0.03)


def test_excluded_nights_are_as_if_they_had_not_been_measured(rng):
    values = lognormal(rng, 1)[0]
    values[70:76] *= 3
    missing = values.copy()
    missing[70:76] = np.nan

    excluded = detect(np.arange(NIGHTS), values, marks=Marks(excluded=range(70, 76)))

    assert detect(np.arange(NIGHTS), values) != []
    assert excluded == detect(np.arange(NIGHTS), missing) == []


def test_marks_belong_to_their_series(rng):
    values = with_step(lognormal(rng, 3), np.full(3, 50), 2)

    found = detect_many(values, marks=[None, Marks(restarts=[50]), None])

    assert [len(changes) for changes in found] == [1, 0, 1]


def test_positions_count_the_missing_nights(rng):
    values = lognormal(rng, 1)[0]
    values[60:] *= 1.5
    values[[5, 6, 30, 61]] = np.nan

    [change] = detect(np.arange(NIGHTS), values)

    assert (change.index, change.detected_at) == (60, 63)


@pytest.mark.parametrize("n", [0, 1, 2, 11, 13])
def test_short_series_are_silent(n):
    values = np.r_[np.ones(n), 5, 5][: max(n, 0)]

    assert detect(np.arange(values.size), values) == []


def test_series_without_noise_or_without_values_are_silent():
    values = np.stack([np.full(50, 3.0), np.full(50, np.nan), np.zeros(50), np.full(50, np.inf)])

    assert detect_many(values) == [[], [], [], []]


def test_a_step_without_noise_is_found():
    values = np.r_[np.full(30, 3.0), np.full(30, 3.3)]

    [change] = detect(np.arange(60), values)

    assert (change.index, change.detected_at) == (30, 32)
    assert change.low < 1.1 < change.high


def test_a_level_that_leaves_zero_is_an_infinite_ratio_and_back_is_zero():
    values = np.r_[np.zeros(30), np.full(30, 5e9), np.zeros(30)]

    up, down = detect(np.arange(90), values)

    assert (up.index, up.ratio, up.direction) == (30, np.inf, 1)
    assert (down.index, down.ratio, down.direction) == (60, 0.0, -1)


def test_negative_values_count_as_missing(rng):
    values = lognormal(rng, 1)[0]
    holes, negative = values.copy(), values.copy()
    holes[40:50], negative[40:50] = np.nan, -1.0

    assert detect(np.arange(NIGHTS), negative) == detect(np.arange(NIGHTS), holes)


def test_inputs_are_left_as_they_were(rng):
    values = with_step(lognormal(rng, 3), np.full(3, 50), 2)
    before = values.copy()

    detect_many(values)

    np.testing.assert_array_equal(values, before)


def test_a_change_cannot_be_edited_afterwards():
    change = ChangePoint(3, 1.1, 1.0, 1.2, 0.99, 1, 5)

    with pytest.raises(dataclasses.FrozenInstanceError):
        change.index = 4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: detect(np.arange(3), np.ones((2, 3))), "2 dimensions"),
        (lambda: detect(np.arange(4), np.ones(3)), r"times: shape \(4,\).*\(3,\)"),
        (lambda: detect([0, 2, 1], np.ones(3)), "not rising"),
        (
            lambda: detect_many(np.ones((2, 3)), marks=[None]),
            "1 given; expected one for each of 2 series",
        ),
        (lambda: detect_many(np.ones((2, 3, 4))), "3 dimensions"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(call, message):
    with pytest.raises(UsageError, match=message):
        call()


def test_tonight_names_the_series_that_should_be_measured_again(rng):
    values = lognormal(rng, 5)
    values[1, -1] *= 1.3
    values[2, -1] *= 0.7
    values[3, -1] = np.nan
    values[4, 5:] = np.nan

    standing = latest_night(values)

    assert standing.suspect.tolist() == [0, 1, -1, 0, 0]
    assert standing.ratio[1] == pytest.approx(1.3, rel=0.05)
    assert np.isnan(standing.units[3:]).all()


def test_few_quiet_nights_are_suspect(rng):
    standing = latest_night(lognormal(rng, 3000))

    assert np.mean(standing.suspect != 0) < 0.002
    assert np.nanstd(standing.units) == pytest.approx(1, rel=0.2)
