"""Least-squares fits of two means with blocks that share a disturbance, on arrays.

One formula covers every design. With correlation 0 it is the pooled t test of two samples, with
correlation 1 the paired t test, in between a weighted mean of the two; any run may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchkit.analysis.stats.log_scale import row_means
from benchkit.analysis.stats.moderated_variance import (
    MIN_TESTS,
    inverse_trigamma,
    log_bias,
    trigamma,
)

Array = NDArray[np.float64]

#: `benchmarks/fit_constants.py --only verdicts` prints the rates of neighbouring values.

#: Share of rows excluded at either end from the trimmed mean that gives the common log ratio. Rows
#: that the disturbance does not reach are outliers; without outliers, trimming adds a tenth to the
#: variance of the mean.
TRIM = 0.15
#: Assumed standard deviation of a row's log ratio around the common one, in units of the latter.
#: With 0 intervals cover up to 97-98 % when a neighbour or a drift affects rows of unequal noise,
#: with 8 they cover 95-96 %. Where blocks share no disturbance it has no effect: at five blocks
#: 0.40 of the changes are found with either value, and 0.33 by the paired test.
RATIO_SPREAD = 8.0


@dataclass(frozen=True)
class Fit:
    """Difference of two means for each row, with the variance of that row alone."""

    difference: Array  # (tests,), mean of the contender minus mean of the baseline
    # (tests,), variance of a run, without the disturbance that its block shares with the other
    # arms.
    variance: Array
    df: Array  # (tests,), degrees of freedom of `variance`; not always an integer
    leverage: Array  # (tests,), the squared standard error of `difference` is `leverage * variance`


@dataclass(frozen=True)
class _Sums:
    """Counts and sums for each block of each row, shape (tests, blocks)."""

    n_baseline: Array
    n_contender: Array
    sum_baseline: Array
    sum_contender: Array
    squares: Array  # shape (tests,)


def _sums(baseline: Array, contender: Array) -> _Sums:
    """Return the sums that the fit needs."""
    # Centre each row: sums of squares of numbers near log(1e9) would lose eight digits.
    centre = row_means(np.concatenate([baseline.reshape(len(baseline), -1), contender], axis=1))
    first, second = baseline - centre[:, None, None], (contender - centre[:, None])[:, :, None]
    squares = np.nansum(first**2, axis=(1, 2)) + np.nansum(second**2, axis=(1, 2))
    return _Sums(
        (~np.isnan(first)).sum(axis=2).astype(float),
        (~np.isnan(second)).sum(axis=2).astype(float),
        np.nansum(first, axis=2),
        np.nansum(second, axis=2),
        squares,
    )


def _solve(sums: _Sums, kappa: Array) -> tuple[Array, Array, Array]:
    """Return difference, leverage and residual sum of squares.

    `kappa` is the weight of block means: 0 ignores blocks, 1 / size compares within blocks only.
    """
    total = sums.sum_baseline + sums.sum_contender
    aa = (sums.n_baseline - kappa * sums.n_baseline**2).sum(axis=1)
    bb = (sums.n_contender - kappa * sums.n_contender**2).sum(axis=1)
    ab = (-kappa * sums.n_baseline * sums.n_contender).sum(axis=1)
    a = (sums.sum_baseline - kappa * sums.n_baseline * total).sum(axis=1)
    b = (sums.sum_contender - kappa * sums.n_contender * total).sum(axis=1)
    quadratic = sums.squares - (kappa * total**2).sum(axis=1)
    determinant = aa * bb - ab**2
    # With kappa = 1 / size only the difference can be estimated: the matrix is singular.
    singular = determinant <= 1e-9 * np.maximum(aa * bb, 1e-300)
    with np.errstate(divide="ignore", invalid="ignore"):
        difference = np.where(singular, b / bb, (aa * b - ab * a - bb * a + ab * b) / determinant)
        leverage = np.where(singular, 1 / bb, (aa + bb + 2 * ab) / determinant)
        explained = np.where(
            singular, b**2 / bb, (bb * a**2 - 2 * ab * a * b + aa * b**2) / determinant
        )
    return difference, leverage, np.maximum(quadratic - explained, 0.0)


@dataclass(frozen=True)
class _BlockVariance:
    """Sums of squares within and between blocks with their degrees of freedom, shape (tests,)."""

    within: Array
    between: Array
    df_within: Array
    df_between: Array


def _block_variance(sums: _Sums) -> _BlockVariance:
    """Return the analysis of variance of each row."""
    sizes = sums.n_baseline + sums.n_contender
    _, _, pooled = _solve(sums, np.zeros_like(sizes))
    kappa = 1 / np.maximum(sizes, 1)
    difference, _, within = _solve(sums, kappa)
    n_runs = sizes.sum(axis=1)
    df_within = n_runs - (sizes > 0).sum(axis=1) - np.isfinite(difference)
    df_between = np.maximum(n_runs - 2 - df_within, 0.0)
    between = np.maximum(pooled - within, 0.0)
    return _BlockVariance(within, between, np.maximum(df_within, 0.0), df_between)


def _block_variance_ratio(parts: _BlockVariance) -> tuple[Array, Array]:
    """Return theta, the ratio of the variance between blocks to that within, and its uncertainty.

    Theta is the same for all rows and at least 1. The uncertainty is the variance of a row's
    ``log(theta)`` around the common one: rows differ, and the common value is an estimate. Infinite
    if there are too few rows for a common value.
    """
    n_tests = len(parts.within)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_ratio = np.log(parts.between / parts.df_between) - np.log(
            parts.within / parts.df_within
        )
        log_ratio -= log_bias(parts.df_between) - log_bias(parts.df_within)
        noise = trigamma(parts.df_between / 2) + trigamma(parts.df_within / 2)
    usable = np.isfinite(log_ratio) & (parts.df_between > 0) & (parts.df_within > 0)
    count = int(usable.sum())
    if count < MIN_TESTS:
        return np.ones(n_tests), np.full(n_tests, np.inf)
    values, noise = np.sort(log_ratio[usable]), noise[usable]
    cut = int(TRIM * count)
    centre = values[cut : count - cut].mean()
    # The disturbance of a block differs between rows. The variance of the rows underestimates this:
    # a steady drift makes it smaller than chance.
    differ = max(values.var(ddof=1) - noise.mean(), (RATIO_SPREAD * max(centre, 0.0)) ** 2)
    error = (noise.mean() + differ) / count * 1.1  # the tenth of `TRIM`
    # Use half the logarithm: a small ratio costs power, a large one causes false changes. With the
    # full logarithm, 7-9 % of unchanged rows changed at three blocks of a 10-20 % drift.
    theta = np.exp(max(centre, 0.0) / 2)
    return np.full(n_tests, theta), np.full(n_tests, differ + error)


def fit_within_blocks(baseline: Array, contender: Array) -> Fit:
    """Fit the difference of two means by comparisons within blocks only, each row alone."""
    # The arrays are those of `fit_means`, which does the same for a report of one row.
    sums = _sums(baseline, contender)
    kappa = 1 / np.maximum(sums.n_baseline + sums.n_contender, 1)
    difference, leverage, rest = _solve(sums, kappa)
    df = _block_variance(sums).df_within
    with np.errstate(invalid="ignore", divide="ignore"):
        return Fit(difference, rest / df, df, leverage)


def fit_means(baseline: Array, contender: Array, *, blocked: bool) -> Fit:
    """Fit the difference of two means for each row."""
    # baseline: (tests, blocks, arms), runs of the baseline and of its null arm, or of the baseline
    # alone; NaN is missing.
    # contender: (tests, blocks), runs of the contender. If not blocked, the position along `blocks`
    # has no meaning.
    sums = _sums(baseline, contender)
    sizes = sums.n_baseline + sums.n_contender
    if not blocked:
        difference, leverage, rest = _solve(sums, np.zeros_like(sizes))
        df = np.maximum(sizes.sum(axis=1) - 2, 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            return Fit(difference, rest / df, df, leverage)

    parts = _block_variance(sums)
    theta, log_variance = _block_variance_ratio(parts)
    # Rows differ in correlation, so the variance between blocks is a weaker estimate of the one
    # within: use the degrees of freedom of a variance with that uncertainty.
    with np.errstate(invalid="ignore", divide="ignore"):
        effective_df = 2 * inverse_trigamma(trigamma(parts.df_between / 2) + log_variance)
    effective_df = np.where(np.isfinite(log_variance) & (parts.df_between > 0), effective_df, 0.0)
    # theta = (1 + (m - 1) rho) / (1 - rho) for blocks of m runs
    size = np.maximum(sizes.max(axis=1), 2)
    rho = np.where(np.isfinite(log_variance), (theta - 1) / (theta + size - 1), 1.0)
    kappa = rho[:, None] / (1 + (np.maximum(sizes, 1) - 1) * rho[:, None])
    difference, leverage, rest = _solve(sums, kappa)
    between = np.maximum(rest - parts.within, 0.0)
    df = parts.df_within + effective_df
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(parts.df_between > 0, effective_df / parts.df_between, 0.0)
        variance = (parts.within + share * between) / df
    return Fit(difference, variance, df, leverage)
