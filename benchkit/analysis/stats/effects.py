"""Compare two sets of runs: ratios, intervals, probabilities and verdicts, row by row.

Takes and returns arrays. A row is one metric of one workload. All rows of a report are compared
together, because they share an estimate of the machine's noise and one false-discovery rate. No
random numbers are drawn: equal arrays give equal results.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import binom, stdtr, stdtrit

from benchkit.analysis.stats.blocked_t import fit_means
from benchkit.analysis.stats.bootstrap import compare_bootstrap
from benchkit.analysis.stats.log_scale import LogValues, matrix, to_log_scale
from benchkit.analysis.stats.moderated_variance import shrink, successive_variance
from benchkit.analysis.stats.verdicts import Effects, classify_effects
from benchkit.errors import UsageError

__all__ = ["Effects", "compare", "compare_bootstrap"]

Array = NDArray[np.float64]

#: Logarithms closer than this are taken as equal numbers.
SAME_NUMBER = 1e-7


def compare(
    baseline: ArrayLike,
    contender: ArrayLike,
    *,
    null: ArrayLike | None = None,
    history: ArrayLike | None = None,
    blocked: bool = False,
    family: ArrayLike | None = None,
    correction: str | None = "fdr_bh",
    level: float = 0.95,
    same: float = 0.05,
    resolution: ArrayLike | None = None,
    labels: tuple[str, str] = ("less", "more"),
) -> Effects:
    """Compare a contender with its baseline, all tests of a report at once.

    Parameters
    ----------
    baseline, contender : array_like, shape (tests, runs)
        Values of a metric, in one unit for each row; NaN is a missing run, and the numbers of
        runs may differ.
    null : array_like, shape (tests, runs), optional
        Runs of the null arm: the baseline once more. They are added to the baseline, and tested
        against it to see whether the experiment is calibrated.
    history : array_like, shape (tests, nights), optional
        The same metrics of earlier nights, a prior estimate of the noise of each row. Their level
        and its changes have no effect, because only differences of successive nights are used.
    blocked : bool, default False
        Column i of each arm ran in block i, back to back: a disturbance affects a whole block.
    family : array_like, shape (tests,), optional
        Labels of rows with similar noise, usually the name of the metric. Noise is estimated
        within a family; the correction covers all rows.
    correction : str or None, default "fdr_bh"
        Method of statsmodels' ``multipletests``; None leaves p values unchanged.
    level : float, default 0.95
        Confidence of the intervals; a change is listed when q <= 1 - level.
    same : float, default 0.05
        A row whose ``1 - 2 (1 - level)`` interval (two one-sided tests) is within 1 ± same is
        called `same`.
    resolution : array_like, optional
        Smallest step of the metric's clock or counter, in its unit; a number, or an array with
        an element per row. Default: the smallest step seen, in rows where values repeat.
    labels : tuple of str, default ("less", "more")
        Verdicts of a change to less and to more; ("faster", "slower") for times.

    Returns
    -------
    Effects
        Arrays with one element for each test.

    Raises
    ------
    UsageError
        The shapes do not match, or the correction is unknown.

    See Also
    --------
    compare_bootstrap : The table of the reference, for comparison; not calibrated.
    benchkit.analysis.stats.stopping.next_step : The same test, repeated while runs are added.

    Notes
    -----
    The model of a row is ``log y = mean of the arm + block + noise``, with noise of variance σ²
    and block of variance γ σ². For a given γ, generalised least squares gives the difference of
    the means, its leverage c, and s² on N - 2 degrees of freedom. γ is one value for a family,
    from the trimmed mean of the log ratio of variances between and within blocks (the consensus
    of [2]_), not below 0. The variance between blocks adds all its degrees of freedom if γ is 0,
    and fewer the larger γ is: almost none (the paired test) under a drift, which affects rows of
    different noise differently.

    Variances are shrunk towards those of the other rows, or towards the prediction of a regression
    on the variance of the history, by empirical Bayes [1]_; see
    `benchkit.analysis.stats.moderated_variance.shrink`. With the shrunk s~² on d degrees of
    freedom, ``t = difference / sqrt(c s~²)`` has Student's t distribution.

    p values are corrected by Benjamini-Hochberg [3]_; intervals of the R rows listed as changed,
    of m, have level ``1 - (1 - level) R / m`` [4]_, so that the selection does not reduce their
    coverage. With fewer than ten rows that vary, each row gets a t test of its own. Rows with
    zeros have no logarithm: they are compared as differences in units of the baseline's mean.

    A null arm with p < 0.01 shows that arms of this row differ by more than their runs do. The only
    measure of this difference is d0, that of the null arm and the baseline: if the contender were
    one more such arm, ``difference / (sqrt(3 / 4) |d0|)`` would have Student's t distribution on
    one degree of freedom. A change that this allows at `level` (up to 11 times d0, with 0.95) gets
    the verdict `noise`.

    References
    ----------
    .. [1] G. K. Smyth, "Linear models and empirical Bayes methods for assessing differential
       expression in microarray experiments", Stat. Appl. Genet. Mol. Biol. 3 (2004).
    .. [2] G. K. Smyth, J. Michaud, H. S. Scott, "Use of within-array replicate spots for assessing
       differential expression in microarray experiments", Bioinformatics 21 (2005).
    .. [3] Y. Benjamini, Y. Hochberg, "Controlling the false discovery rate", J. R. Stat. Soc. B 57
       (1995).
    .. [4] Y. Benjamini, D. Yekutieli, "False discovery rate-adjusted multiple confidence intervals
       for selected parameters", J. Am. Stat. Assoc. 100 (2005).

    Examples
    --------
    >>> baseline = [[10.0, 10.2, 9.9, 10.1], [5.0, 5.1, 5.2, 5.1]]
    >>> contender = [[12.0, 12.1, 12.3, 11.9], [5.1, 5.0, 5.1, 5.2]]
    >>> found = compare(baseline, contender, labels=("faster", "slower"))
    >>> found.verdict.tolist(), found.ratio.round(2).tolist()
    (['slower', 'same'], [1.2, 1.0])
    """
    points = to_log_scale(baseline, contender, null, blocked=blocked, resolution=resolution)
    n_tests = len(points.contender)
    families = _families(family, n_tests)
    predictor = _predictor(history, points)
    test = _moderated_t(points, points.contender, blocked, families, predictor)

    arm = None  # the test of the null arm
    if points.baseline.shape[2] > 1:
        first = replace(points, baseline=points.baseline[:, :, :1])
        arm = _moderated_t(first, points.baseline[:, :, 1], blocked, families, predictor)
    return classify_effects(
        points,
        estimate=test.difference,
        se=test.se,
        df=test.df,
        prior_df=test.prior_df,
        zero_variance=test.zero_variance,
        p=test.p,
        q=adjust(test.p, correction),
        null_p=None if arm is None else arm.p,
        null_estimate=None if arm is None else arm.difference,
        blocked=blocked,
        level=level,
        same=same,
        labels=labels,
    )


def adjust(p: Array, correction: str | None) -> Array:
    """Return p values corrected for the number of rows; rows without a p value do not count."""
    q = np.full(len(p), np.nan)
    known = np.isfinite(p)
    if correction is None:
        return p.copy()
    if known.any():
        from statsmodels.stats.multitest import multipletests  # takes 1 s, needed only here

        try:
            q[known] = multipletests(p[known], method=correction)[1]
        except ValueError:
            raise UsageError(
                f"no correction named {correction!r}: 'fdr_bh', or another of statsmodels' "
                "multipletests, or None"
            ) from None
    return q


@dataclass(frozen=True)
class _Test:
    difference: Array
    se: Array
    df: Array
    prior_df: Array
    zero_variance: NDArray[np.bool_]
    p: Array


def _moderated_t(
    points: LogValues,
    contender: Array,
    blocked: bool,
    families: list[NDArray[np.int64]],
    predictor: Array | None,
) -> _Test:
    n_tests = len(contender)
    difference, se, df, prior_df = np.full((4, n_tests), np.nan)
    zero_variance = np.zeros(n_tests, bool)
    for rows in families:
        fit = fit_means(points.baseline[rows], contender[rows], blocked=blocked)
        with np.errstate(invalid="ignore"):
            flat = fit.variance <= SAME_NUMBER**2
        variance = np.where(flat, 0.0, fit.variance) + points.step_variance[rows]
        shares = points.logarithmic[rows] & ~flat
        shrunk, total_df, prior_df[rows] = shrink(
            np.where(shares, variance, np.nan),
            fit.df,
            predictor=None if predictor is None else predictor[rows],
        )
        difference[rows] = fit.difference
        se[rows] = np.sqrt(np.where(shares, shrunk, variance) * fit.leverage)
        df[rows] = np.where(shares, total_df, fit.df)
        zero_variance[rows] = flat

    n_baseline = (~np.isnan(points.baseline)).sum(axis=(1, 2))
    n_contender = (~np.isnan(contender)).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        difference = np.where(np.abs(difference) < SAME_NUMBER, 0.0, difference)
        testable = (n_baseline >= 2) & (n_contender >= 2) & (df > 0)
        # Runs that never differ give no estimate of the noise. Use the permutation bound instead:
        # p cannot be less than 2 / C(n, n_contender).
        chance = np.minimum(2 / binom(n_baseline + n_contender, n_contender), 0.999)
        least = np.abs(difference) / stdtrit(df, 1 - chance / 2)
        se = np.where(zero_variance, np.maximum(se, least), se)
        t = np.where(difference == 0, 0.0, np.abs(difference) / se)
        p = np.where(testable, 2 * stdtr(df, -t), np.nan)
    return _Test(
        np.where((n_baseline > 0) & (n_contender > 0), difference, np.nan),
        np.where(testable, se, np.nan),
        np.where(testable, df, np.nan),
        prior_df,
        zero_variance & testable,
        p,
    )


def _families(family: ArrayLike | None, n_tests: int) -> list[NDArray[np.int64]]:
    if family is None:
        return [np.arange(n_tests)]
    labels = np.asarray(family)
    if labels.shape != (n_tests,):
        raise UsageError(f"family: {labels.shape} labels for {n_tests} tests; one each is needed")
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]


def _predictor(history: ArrayLike | None, points: LogValues) -> Array | None:
    if history is None:
        return None
    nights = matrix(history, "history")
    if len(nights) != len(points.contender):
        raise UsageError(
            f"history: {len(nights)} rows for {len(points.contender)} tests; one each is needed"
        )
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.where(nights > 0, np.log(nights), np.nan)
    return successive_variance(logs)
