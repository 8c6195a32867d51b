"""Differences of means with intervals: Welch's t test, or the paired t test."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from benchkit.analysis.options import VERDICTS

Array = NDArray[np.float64]


def mean_difference(
    baseline: Array, contender: Array, *, paired: bool = False
) -> tuple[Array, Array]:
    """Return the difference of two means for each column, and half the width of its interval.

    Examples
    --------
    >>> difference, half = mean_difference(np.array([[1.0], [2.0]]), np.array([[4.0], [5.0]]))
    >>> difference.round(2), half.round(2)
    (array([3.]), array([3.04]))
    """
    # baseline, contender: (runs, columns), values without NaN; the numbers of runs may differ.
    # difference: (columns,), contender minus baseline.
    # half: (columns,), NaN with fewer than two runs a side.
    tail = (1 + VERDICTS.level) / 2
    difference: Array = contender.mean(axis=0) - baseline.mean(axis=0)
    n, m = len(baseline), len(contender)
    if min(n, m) < 2:
        return difference, np.full(difference.shape, np.nan)
    if paired and n == m:
        return difference, stdtrit(n - 1, tail) * (
            (contender - baseline).std(axis=0, ddof=1) / np.sqrt(n)
        )
    a, b = baseline.var(axis=0, ddof=1) / n, contender.var(axis=0, ddof=1) / m
    with np.errstate(invalid="ignore", divide="ignore"):
        df = (a + b) ** 2 / (a**2 / (n - 1) + b**2 / (m - 1))
    return difference, stdtrit(np.where(np.isfinite(df), df, 1), tail) * np.sqrt(a + b)
