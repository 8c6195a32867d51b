"""Test each row of a report with a variance that is shrunk towards that of the other rows.

Combines the fit of means (`blocked_t`) with empirical Bayes (`moderated_variance`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import binom, stdtr, stdtrit

from benchkit.analysis.stats.blocked_t import fit_means
from benchkit.analysis.stats.log_scale import LogValues
from benchkit.analysis.stats.moderated_variance import shrink

Array = NDArray[np.float64]

#: Smallest difference of two logarithms that is not taken as a rounding error.
SAME_NUMBER = 1e-7


@dataclass(frozen=True)
class TTestResult:
    """Result of a t test for each row; all arrays have shape (tests,)."""

    # estimate, se: Contender minus baseline on the scale of the test, and its standard error.
    estimate: Array
    se: Array
    # df, prior_df: Degrees of freedom, and the part of them that comes from the other rows.
    df: Array
    prior_df: Array
    zero_variance: NDArray[np.bool_]  # Where all runs of an arm have equal values, in both arms
    p: Array  # Two-sided p value; NaN with fewer than two runs a side


def paired_t(points: LogValues) -> TTestResult:
    """Test the contender against the baseline by their differences in each block.

    Without other noise, as in simulations: equal values in one block are equal.
    """
    differences = points.contender - points.baseline[:, :, 0]
    known = np.isfinite(differences)
    n = known.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        estimate = np.where(known, differences, 0.0).sum(axis=1) / np.where(n, n, np.nan)
        spread = np.where(known, differences - estimate[:, None], 0.0)
        se = np.sqrt((spread**2).sum(axis=1) / (n - 1) / n)
        equal = (n > 0) & (
            np.where(known, np.abs(differences), 0.0).max(axis=1, initial=0) < SAME_NUMBER
        )
        se = np.where(equal | (se < SAME_NUMBER), 0.0, se)
        df = np.maximum(n - 1.0, 0.0)
        p = np.where(equal, 1.0, 2 * stdtr(df, -np.abs(estimate / se)))
    p = np.where((se == 0) & ~equal, 0.0, p)
    never = np.zeros(len(n), bool)
    return TTestResult(estimate, se, df, np.zeros(len(n)), never, p)


def moderated_t(
    points: LogValues,
    contender: Array,
    blocked: bool,
    families: Sequence[NDArray[np.int64]],
) -> TTestResult:
    """Test the contender against the baseline, each row with the noise of its family."""
    # contender: (tests, runs), runs of the contender on the same scale.
    # returned: NaN in rows that cannot be tested.
    n_tests = len(contender)
    estimate, se, df, prior_df = np.full((4, n_tests), np.nan)
    zero_variance = np.zeros(n_tests, bool)
    for rows in families:
        fit = fit_means(points.baseline[rows], contender[rows], blocked=blocked)
        with np.errstate(invalid="ignore"):
            constant = fit.variance <= SAME_NUMBER**2
        variance = np.where(constant, 0.0, fit.variance) + points.step_variance[rows]
        shared = points.logarithmic[rows] & ~constant
        shrunk, total_df, prior_df[rows] = shrink(np.where(shared, variance, np.nan), fit.df)
        estimate[rows] = fit.difference
        se[rows] = np.sqrt(np.where(shared, shrunk, variance) * fit.leverage)
        df[rows] = np.where(shared, total_df, fit.df)
        zero_variance[rows] = constant

    n_baseline = (~np.isnan(points.baseline)).sum(axis=(1, 2))
    n_contender = (~np.isnan(contender)).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        estimate = np.where(np.abs(estimate) < SAME_NUMBER, 0.0, estimate)
        testable = (n_baseline >= 2) & (n_contender >= 2) & (df > 0)
        # Equal runs give no estimate of the noise. Use the permutation bound instead: p is not
        # less than 2 / C(n, n_contender).
        chance = np.minimum(2 / binom(n_baseline + n_contender, n_contender), 0.999)
        least = np.abs(estimate) / stdtrit(df, 1 - chance / 2)
        se = np.where(zero_variance, np.maximum(se, least), se)
        t = np.where(estimate == 0, 0.0, np.abs(estimate) / se)
        p = np.where(testable, 2 * stdtr(df, -t), np.nan)
    return TTestResult(
        np.where((n_baseline > 0) & (n_contender > 0), estimate, np.nan),
        np.where(testable, se, np.nan),
        np.where(testable, df, np.nan),
        prior_df,
        zero_variance & testable,
        p,
    )
