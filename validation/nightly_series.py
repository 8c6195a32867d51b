"""Nightly series of values with the kinds of noise that real benchmarks show."""

import numpy as np

#: Nights of each series.
NIGHTS = 110


def lognormal(rng, n, noise=0.01):
    return 10 * np.exp(rng.normal(0, noise, (n, NIGHTS)))


def heavy_tails(rng, n, noise=0.01):
    return 10 * np.exp(noise * rng.standard_t(2.5, (n, NIGHTS)))


def upward_outliers(rng, n):
    outlier = rng.random((n, NIGHTS)) < 0.08
    return lognormal(rng, n) * np.where(outlier, 1 + rng.exponential(0.4, (n, NIGHTS)), 1)


def bimodal(rng, n, share=0.3):
    return lognormal(rng, n) * np.where(rng.random((n, NIGHTS)) < share, 1.15, 1)


def bursts(rng, n):
    """One to three busy nights of the machine, on average every thirty nights."""
    values = lognormal(rng, n)
    for row in values:
        for start in np.flatnonzero(rng.random(NIGHTS) < 1 / 30):
            busy = row[start : start + rng.integers(1, 4)]
            busy *= 1 + rng.exponential(0.15, busy.size)
    return values


def drift(rng, n):
    """Lognormal noise with a drift of 4 % over all nights."""
    return lognormal(rng, n) * np.exp(np.linspace(0, 0.04, NIGHTS))


def autocorrelated(rng, n, memory=0.5):
    shocks = rng.normal(0, 0.01 * np.sqrt(1 - memory**2), (n, NIGHTS))
    for night in range(1, NIGHTS):
        shocks[:, night] += memory * shocks[:, night - 1]
    return 10 * np.exp(shocks)


def sticky(rng, n):
    """Two modes 12 % apart, each lasting several nights."""
    high, values = np.zeros(n, bool), lognormal(rng, n)
    for night in range(NIGHTS):
        high ^= rng.random(n) < np.where(high, 0.4, 0.1)
        values[:, night] *= np.where(high, 1.12, 1)
    return values


def wandering(rng, n):
    """Autocorrelated noise of 3 %."""
    return 10 * (autocorrelated(rng, n) / 10) ** 3


def rounded(rng, n):
    """Values of a coarse clock: most nights have equal values."""
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


def with_step(values, start, ratio):
    return values * np.where(np.arange(NIGHTS) >= np.asarray(start)[:, None], ratio, 1)


def first_hits(found, start, *, direction=1, within=20):
    """Return for each series the first change near the step, or None."""
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
