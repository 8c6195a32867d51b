"""Empirical Bayes for variances: what the noise of the other workloads says about this one's.

Variances and degrees of freedom in, variances and degrees of freedom out. Knows nothing of means,
blocks or tests.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, polygamma

__all__ = ["FEWEST_TESTS", "inverse_trigamma", "log_bias", "shrink", "successive_variance"]

Array = NDArray[np.float64]

#: With fewer rows a prior is a guess: each row then stands on its own runs.
FEWEST_TESTS = 10


def log_bias(df: Array | float) -> Array:
    """Return E[log s²] - log σ² of a variance on `df` degrees of freedom: digamma, not zero."""
    half = np.asarray(df, float) / 2
    return digamma(half) - np.log(half)


def inverse_trigamma(value: Array | float) -> Array:
    """Solve ``trigamma(x) = value`` by Newton's method on 1 / trigamma, which is nearly straight.

    References
    ----------
    .. [1] G. K. Smyth, "Linear models and empirical Bayes methods for assessing differential
       expression in microarray experiments", Stat. Appl. Genet. Mol. Biol. 3 (2004), appendix.
    """
    target = np.clip(np.asarray(value, float), 1e-7, 1e9)
    x = 0.5 + 1 / target
    for _ in range(30):
        slope = polygamma(1, x)
        step = slope * (1 - slope / target) / polygamma(2, x)
        x = x + step
        if np.all(np.abs(step) < 1e-9 * x):
            break
    return x


def successive_variance(history: Array) -> Array:
    """Return the variance of each series of nights, shape (tests,), from successive differences.

    Half the mean squared difference of consecutive nights: a level that shifts once spoils one
    difference, not the variance. Logarithms in, NaN nights are skipped. NaN below three nights.
    """
    result = np.full(len(history), np.nan)
    for i, nights in enumerate(history):
        steps = np.diff(nights[np.isfinite(nights)])
        if len(steps) >= 2 and np.any(steps != 0):
            result[i] = np.mean(steps**2) / 2
    return result


def _fit_group(log_variance: Array, noise: Array, design: Array) -> tuple[Array, float]:
    """Return coefficients of the centre, and the spread of true log variances around it."""
    spread = 0.0
    n_rows, n_columns = design.shape
    coefficients = np.zeros(n_columns)
    for _ in range(5):
        weight = 1 / (noise + spread)
        root = np.sqrt(weight)[:, None]
        answer = np.linalg.lstsq(design * root, log_variance * root[:, 0], rcond=None)
        coefficients = np.asarray(answer[0], float)
        rest = (log_variance - design @ coefficients) ** 2
        excess = rest * n_rows / (n_rows - n_columns) - noise
        spread = max(float(np.average(excess, weights=weight**2)), 0.0)
    return coefficients, spread


def shrink(
    variance: Array, df: Array, *, predictor: Array | None = None
) -> tuple[Array, Array, Array]:
    """Shrink variances towards what the other rows of the family predict.

    Parameters
    ----------
    variance : ndarray, shape (tests,)
        Variances s²; zero, NaN and those without degrees of freedom are passed through.
    df : ndarray, shape (tests,)
        Their degrees of freedom d.
    predictor : ndarray, shape (tests,), optional
        A variance of the same row from another time, such as its nights; NaN where unknown.

    Returns
    -------
    variance : ndarray, shape (tests,)
        (d0 s0² + d s²) / (d0 + d).
    df : ndarray, shape (tests,)
        d0 + d, but never more than all rows have together.
    prior_df : ndarray, shape (tests,)
        d0; 0 where the row stands alone.
    """
    usable = np.isfinite(variance) & (variance > 0) & (df > 0)
    prior_df = np.zeros(len(variance))
    centre = np.zeros(len(variance))
    with np.errstate(divide="ignore", invalid="ignore"):
        log_variance = np.log(variance) - log_bias(df)
        noise = polygamma(1, df / 2)
        known = np.full(len(variance), np.nan) if predictor is None else np.log(predictor)

    groups = [(usable, np.ones((len(variance), 1)))]
    informed = usable & np.isfinite(known)
    if informed.sum() >= 2 * FEWEST_TESTS:
        slope = np.where(informed, known, 0.0)
        groups.append((informed, np.stack([np.ones(len(variance)), slope], axis=1)))
    for rows, design in groups:
        if rows.sum() < FEWEST_TESTS:
            continue
        coefficients, spread = _fit_group(log_variance[rows], noise[rows], design[rows])
        d0 = 2 * float(inverse_trigamma(spread)) if spread > 0 else np.inf
        d0 = min(d0, float(df[rows].sum()))
        prior_df[rows] = d0
        centre[rows] = np.exp(design[rows] @ coefficients + log_bias(d0))

    with np.errstate(divide="ignore", invalid="ignore"):
        shrunk = (prior_df * centre + df * variance) / (prior_df + df)
    total = np.minimum(df + prior_df, max(float(df[usable].sum()), 1.0))
    return np.where(prior_df > 0, shrunk, variance), np.where(prior_df > 0, total, df), prior_df
