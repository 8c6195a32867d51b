"""Empirical Bayes for variances: estimate a workload's noise with that of the other workloads.

Takes and returns variances and degrees of freedom.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, zeta

Array = NDArray[np.float64]

#: `benchmarks/fit_constants.py --only verdicts` prints the rates of neighbouring values.

#: Smallest number of rows for a prior; with fewer rows each uses its own runs only.
MIN_TESTS = 10
#: Smallest number of rows from which the share of changed or false rows can be estimated. With 30,
#: the prior of that share decides: the false-discovery rate is .01 instead of .05.
MANY_TESTS = 100
#: Smallest number of workloads, in addition, where the rows are their metrics: `MANY_TESTS` rows of
#: three metrics (duration, mean and peak of memory), with which the limits were chosen, have as
#: many. With 20 workloads of six metrics, .41 instead of .64 of changed durations are found (python
#: benchmarks/verdicts.py --only work): few workloads change, and the prior decides here, too.
MIN_WORKLOADS = -(-MANY_TESTS // 3)
#: Largest step of the grid of log σ²: half of the standard deviation that log s² still has on 20
#: degrees of freedom (.32).
GRID_STEP = 0.15
#: Steps of expectation maximisation that fit a prior to the rows; more change the verdicts little.
EM_STEPS = 20
#: Weight, in rows, of the inverse gamma distribution from which the fit of the prior starts: less
#: than the `MIN_TESTS` rows of the smallest family.
START_WEIGHT = 8.0
#: Smallest variance of log σ² between rows: a standard deviation of 5 % in σ.
MIN_SPREAD = 0.01


def log_bias(df: Array | float) -> Array:
    """Return the bias of the logarithm of an estimated variance: E[log s²] - log σ²."""
    half = np.asarray(df, float) / 2
    bias: Array = digamma(half) - np.log(half)
    return bias


def trigamma(x: Array | float) -> Array:
    """Return the second derivative of log gamma; SciPy's polygamma takes four times as long."""
    value: Array = zeta(2, x)
    return value


def inverse_trigamma(value: Array | float) -> Array:
    """Solve ``trigamma(x) = value`` by Newton's method on 1 / trigamma, which is nearly linear.

    References
    ----------
    .. [1] G. K. Smyth, "Linear models and empirical Bayes methods for assessing differential
       expression in microarray experiments", Stat. Appl. Genet. Mol. Biol. 3 (2004), appendix.
    """
    target: Array = np.clip(np.asarray(value, float), 1e-7, 1e9)
    x: Array = 0.5 + 1 / target
    for _ in range(30):
        slope = trigamma(x)
        step = slope * (slope / target - 1) / (2 * zeta(3, x))
        x = x + step
        if (np.abs(step) < 1e-7 * x).all():  # the next step would be its square
            break
    return x


def _fit_centre(log_variance: Array, noise: Array) -> tuple[float, float]:
    """Return the centre of true log variances, and their spread around it."""
    centre = spread = 0.0
    n_rows = len(log_variance)
    for _ in range(5):
        weight = 1 / (noise + spread)
        centre = float(np.average(log_variance, weights=weight))
        excess = (log_variance - centre) ** 2 * n_rows / (n_rows - 1) - noise
        spread = max(float(np.average(excess, weights=weight**2)), 0.0)
    return centre, spread


def _posterior(log_variance: Array, df: Array, centre: float, spread: float) -> tuple[Array, Array]:
    """Return mean and variance of log σ² of each row, given the s² of all rows.

    The prior of log σ² - centre is a distribution on a grid. It starts as the inverse gamma
    distribution of that spread, and is fitted to the rows by `EM_STEPS` steps of expectation
    maximisation.
    """
    rest = log_variance - centre
    width = np.sqrt(spread)
    low = min(rest.min(), -4 * width) - 0.5
    high = max(rest.max(), 4 * width) + 0.5
    n_points = int(np.clip((high - low) / min(GRID_STEP, width / 2), 20, 400))
    grid = np.linspace(low, high, n_points)

    d0 = 2 * float(inverse_trigamma(spread))
    excess = float(log_bias(d0)) - grid
    start = np.exp(d0 / 2 * (excess - np.expm1(excess)))
    start /= start.sum()
    excess = rest[:, None] - grid
    likelihood = np.exp(df[:, None] / 2 * (excess - np.expm1(excess)))
    prior = start
    for _ in range(EM_STEPS):
        responsible = (1 / (likelihood @ prior)) @ likelihood * prior
        prior = (responsible + START_WEIGHT * start) / (len(rest) + START_WEIGHT)
    weights = likelihood * prior
    weights /= weights.sum(axis=1, keepdims=True)
    mean = weights @ grid
    return centre + mean, weights @ grid**2 - mean**2


def shrink(variance: Array, df: Array) -> tuple[Array, Array, Array]:
    """Shrink variances towards the value that the other rows of the family predict.

    Notes
    -----
    Prior of log σ²: a centre and a distribution around it, both fitted by moments of log s²
    (digamma, trigamma) [1]_. The distribution starts
    as inverse gamma, for which the result is ``(d0 s0² + d s²) / (d0 + d)`` on d0 + d, and is then
    fitted to the rows on a grid [2]_ [3]_: a gamma distribution does not describe rows of several
    kinds of noise. With an outlier in ten runs, intervals of the closed form cover 98 %, and those
    of the grid 96-97 %. The posterior of a row is returned as the scaled inverse chi-square with
    the same mean and variance of log σ², so that the test is a t test for any prior.

    References
    ----------
    .. [1] G. K. Smyth, "Linear models and empirical Bayes methods for assessing differential
       expression in microarray experiments", Stat. Appl. Genet. Mol. Biol. 3 (2004).
    .. [2] M. Lu and M. Stephens, "Variance adaptive shrinkage (vash): flexible empirical Bayes
       estimation of variances", Bioinformatics 32 (2016).
    .. [3] N. Ignatiadis and B. Sen, "Empirical partially Bayes multiple testing and compound
       chi-square decisions", Ann. Statist. 53 (2025).
    """
    # variance: (tests,), variances s²; zero, NaN and variances without degrees of freedom are
    # returned unchanged.
    # df: (tests,), their degrees of freedom d.
    # variance: (tests,), shrunk variances.
    # df: (tests,), degrees of freedom of the shrunk variances, at most the sum over all rows.
    # prior_df: (tests,), the part of them that comes from the other rows; 0 where a row uses its
    # own runs only.
    variance, total = variance.copy(), df.copy()
    prior_df = np.zeros(len(variance))
    rows = np.isfinite(variance) & (variance > 0) & (df > 0)
    if rows.sum() >= MIN_TESTS:
        log_variance, noise = np.log(variance[rows]), trigamma(df[rows] / 2)
        centre, spread = _fit_centre(log_variance - log_bias(df[rows]), noise)
        # The spread is an estimate: add half its standard error.
        error = np.sqrt(2 / rows.sum()) * (spread + noise.mean())
        spread = max(spread + error / 2, MIN_SPREAD)
        mean, uncertainty = _posterior(log_variance, df[rows], centre, spread)
        shrunk_df = np.minimum(2 * inverse_trigamma(uncertainty), df[rows].sum())
        variance[rows] = np.exp(mean + log_bias(shrunk_df))
        total[rows] = shrunk_df
        prior_df[rows] = np.maximum(shrunk_df - df[rows], MIN_SPREAD)
    return variance, total, prior_df
