import numpy as np
import pytest
from scipy.stats import binomtest

from benchkit.analysis.changepoints import detect_many
from validation.nightly_series import (
    NIGHTS,
    SHAPES,
    autocorrelated,
    bimodal,
    bursts,
    drift,
    first_hits,
    gaps,
    lognormal,
    rounded,
    sticky,
    upward_outliers,
    wandering,
    with_step,
)

#: Kind of noise -> largest rate of alarms per series-night, both directions; 0.0003 for the others.
#: Autocorrelated noise resembles changes of level, and long-lasting modes are changes of level: two
#: of five nights or more may also be two mended bugs.
ALLOWED = {bursts: 0.002, bimodal: 0.001, wandering: 0.002, sticky: 0.018}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_rule_rarely_alarms_on_noise(shape, rng):
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
def test_rule_detects_and_places_steps(ratio, noise, share, direction, rng):
    start = rng.integers(40, 88, 300)

    found = detect_many(with_step(lognormal(rng, 300, noise), start, ratio**direction))

    hits = first_hits(found, start, direction=direction)
    placed = [h is not None and abs(h.index - at) <= 1 for h, at in zip(hits, start, strict=True)]
    n_hits = sum(hit is not None for hit in hits)
    assert n_hits >= share * 300
    if ratio >= 1.1:
        assert sum(placed) >= 0.95 * n_hits


def test_rule_detects_clear_step_on_third_night(rng):
    start = rng.integers(40, 88, 300)

    found = detect_many(with_step(lognormal(rng, 300, 0.005), start, 1.10))

    delays = [
        hit.detected_at - at + 1
        for hit, at in zip(first_hits(found, start), start, strict=True)
        if hit is not None
    ]
    assert np.mean(np.array(delays) <= 3) >= 0.95


@pytest.mark.parametrize("shape", [upward_outliers, bursts, drift, autocorrelated, gaps, rounded])
def test_rule_detects_20_percent_step_in_rough_noise(shape, rng):
    start = rng.integers(40, 88, 200)

    found = detect_many(with_step(shape(rng, 200), start, 1.2))

    assert sum(hit is not None for hit in first_hits(found, start)) >= 0.95 * 200


def test_rule_detects_slow_drift(rng):
    values = lognormal(rng, 200) * np.exp(np.linspace(0, 0.15, NIGHTS))

    found = detect_many(values)

    assert all(changes and changes[0].direction == 1 for changes in found)


def test_rule_rarely_takes_more_noise_for_a_level(rng):
    noise = np.where(np.arange(NIGHTS) < 60, 0.02, 0.06)
    values = np.exp(noise * np.log(lognormal(rng, 800, 1.0) / 10))

    found = detect_many(values)

    n_alarms = sum(change.detected_at >= 60 for changes in found for change in changes)
    assert n_alarms < 0.007 * 800 * (NIGHTS - 60)


def test_rule_ignores_steps_between_two_modes(rng):
    start = np.full(200, 70)

    between, beyond = (
        detect_many(with_step(bimodal(rng, 200), start, ratio)) for ratio in (1.05, 1.5)
    )

    assert sum(hit is not None for hit in first_hits(between, start)) < 0.5 * 200
    assert sum(hit is not None for hit in first_hits(beyond, start)) >= 0.95 * 200
