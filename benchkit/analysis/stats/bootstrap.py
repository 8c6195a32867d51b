"""Exact bootstrap of means: all possible resamples with their weights, without random numbers.

Takes runs; returns probabilities, for comparison with the table of coiled/benchmarks, which
approximates them by 10 000 random resamples. The intervals are too narrow for few runs (five a
side: 88 % instead of 95 %); `benchkit.analysis.effects.compare` gives verdicts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from math import factorial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benchkit.analysis.stats.log_scale import check_rows, matrix
from benchkit.errors import UsageError

Array = NDArray[np.float64]

#: Relative changes in the heat map of coiled/benchmarks: 0, 5, ..., 80 %.
THRESHOLDS = np.linspace(0, 0.8, 17)
#: Largest number of runs for which all resamples are enumerated: 1716 of seven runs, 6435 of eight.
MAX_ENUMERATED = 7
#: Number of grid steps on which sums of more runs are convolved.
GRID_STEPS = 512
#: Largest relative rounding difference between two sums of the same runs.
ROUNDING = 1e-12


@dataclass(frozen=True)
class ConfidenceTable:
    """Probability that a contender differs by more than each threshold."""

    thresholds: Array  # (thresholds,), relative changes x, at least 0
    less: Array  # (tests, thresholds), p(contender / baseline - 1 < -x)
    more: Array  # (tests, thresholds), p(contender / baseline - 1 > x)


def compare_bootstrap(
    baseline: ArrayLike, contender: ArrayLike, *, thresholds: ArrayLike = THRESHOLDS
) -> ConfidenceTable:
    """Return the share of bootstrap resamples whose means differ by more than each threshold.

    Parameters
    ----------
    baseline, contender : array_like, shape (tests, runs)
        Runs; NaN is missing, the numbers of runs may differ.
    thresholds : array_like, shape (thresholds,)
        Relative changes, at least 0; default 0, 5, ..., 80 %.

    Returns
    -------
    ConfidenceTable
        NaN in rows where an arm has no run.

    Raises
    ------
    UsageError
        The arms have different numbers of rows, or a threshold is negative.

    Notes
    -----
    A resample of n runs is a multiset; there are C(2n - 1, n) of them (126 at n = 5), each with a
    multinomial weight. The sorted means of all resamples of both arms are compared, without Monte
    Carlo error and random state. Above seven runs the distribution of the mean is the n-fold
    convolution of the runs on a grid of 512 steps a run (a step of the mean is at most 0.02 % of
    the range of the runs).

    References
    ----------
    .. [1] N. I. Fisher and P. Hall, "Bootstrap algorithms for small samples",
       J. Stat. Plan. Inference 27 (1991): exact enumeration.

    Examples
    --------
    >>> table = compare_bootstrap([[10.0, 11.0]], [[11.0, 12.0]], thresholds=[0.0, 0.1])
    >>> table.more
    array([[0.9375, 0.3125]])
    """
    base, cont = matrix(baseline, "baseline"), matrix(contender, "contender")
    x = np.atleast_1d(np.asarray(thresholds, float))
    check_rows("contender", cont, base)
    if (x < 0).any():
        raise UsageError("thresholds: negative; use positive values, they apply to both directions")
    table = ConfidenceTable(x, *np.full((2, len(base), len(x)), np.nan))
    for i, (a, b) in enumerate(zip(base, cont, strict=True)):
        a, b = a[np.isfinite(a)], b[np.isfinite(b)]
        if len(a) and len(b):
            table.less[i], table.more[i] = _row(a, b, x)
    return table


def _row(a: Array, b: Array, x: Array) -> tuple[Array, Array]:
    """Return p(B < (1 - x) A) and p(B > (1 + x) A) for the resampled means A and B."""
    mean_a, weight_a = _means(a)
    mean_b, weight_b = _means(b)
    below = np.concatenate([[0.0], np.cumsum(weight_b)])
    slack = ROUNDING * np.abs(mean_a)
    # Most thresholds exceed the difference of every pair of means: skip them.
    low, high = mean_a[0], mean_a[-1]
    less, more = np.zeros(len(x)), np.zeros(len(x))
    reached = (1 - x) * np.where(x < 1, high, low) > mean_b[0]
    under = np.searchsorted(mean_b, np.outer(1 - x[reached], mean_a) - slack, side="left")
    less[reached] = below[under] @ weight_a
    reached = (1 + x) * low < mean_b[-1]
    over = np.searchsorted(mean_b, np.outer(1 + x[reached], mean_a) + slack, side="right")
    more[reached] = np.maximum((1 - below[over]) @ weight_a, 0)
    return np.minimum(less, 1), np.minimum(more, 1)


def _means(runs: Array) -> tuple[Array, Array]:
    if len(runs) <= MAX_ENUMERATED:
        counts, weights = _resamples(len(runs))
        means = counts @ runs
        order = np.argsort(means)
        return means[order], weights[order]
    return _convolved(runs)


@lru_cache(maxsize=MAX_ENUMERATED)
def _resamples(n: int) -> tuple[Array, Array]:
    """Return all multisets of n of n runs, as shares (resamples, n), and their probabilities."""
    chosen = np.array(list(combinations_with_replacement(range(n), n)))
    counts = (chosen[:, :, None] == np.arange(n)).sum(axis=1)
    factorials = np.array([factorial(k) for k in range(n + 1)])
    weights = factorial(n) / factorials[counts].prod(axis=1) / n**n
    return counts / n, weights


def _convolved(runs: Array) -> tuple[Array, Array]:
    """Return the distribution of the mean of a resample, on a grid."""
    n, start, width = len(runs), runs.min(), np.ptp(runs)
    if width <= ROUNDING * abs(start):
        return np.array([runs.mean()]), np.ones(1)
    place = (runs - start) / width * (GRID_STEPS - 1)
    left = np.minimum(place.astype(int), GRID_STEPS - 2)
    length = n * (GRID_STEPS - 1) + 1
    mass = np.zeros(length)
    # Split each run between two grid points so that the mean of the runs stays the same.
    np.add.at(mass, left, 1 - (place - left))
    np.add.at(mass, left + 1, place - left)
    total = np.fft.irfft(np.fft.rfft(mass / n, 2 * length) ** n, 2 * length)[:length]
    weights = np.maximum(total, 0)
    kept = weights > 1e-15
    means = start + width * np.flatnonzero(kept) / (n * (GRID_STEPS - 1))
    return means, weights[kept] / weights[kept].sum()
