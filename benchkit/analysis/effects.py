"""Compare two sets of runs: ratios, intervals, probabilities and verdicts, row by row.

Takes and returns arrays. A row is one metric of one workload. All rows of a report are compared
together, because they share an estimate of the machine's noise and a false-discovery rate. No
random numbers are used: equal arrays give equal results.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit

from benchkit.analysis.options import VERDICTS
from benchkit.analysis.stats.joint_evidence import (
    JointEvidence,
    combine_evidence,
    metric_correlation,
)
from benchkit.analysis.stats.log_scale import LogValues, to_log_scale
from benchkit.analysis.stats.moderated_t import TTestResult, moderated_t, paired_t
from benchkit.analysis.stats.relabelling import relabelled_p
from benchkit.analysis.stats.verdicts import Effects
from benchkit.errors import UsageError

Array = NDArray[np.float64]


def compare(
    baseline: ArrayLike,
    contender: ArrayLike,
    *,
    null: ArrayLike | None = None,
    blocked: bool = False,
    paired: bool = False,
    family: ArrayLike | None = None,
    workload: ArrayLike | None = None,
    level: float = VERDICTS.level,
    same: float = VERDICTS.same,
    labels: tuple[str, str] = ("less", "more"),
) -> Effects:
    """Compare a contender with its baseline, all tests of a report at once.

    Notes
    -----
    The model of a row is ``log y = mean of the arm + block + noise``, with noise of variance σ²
    and block of variance γ σ². For a given γ, generalised least squares gives the difference of
    the means, its leverage c, and s² on N - 2 degrees of freedom. γ is one value for a family,
    from the trimmed mean of the log ratio of variances between and within blocks (the consensus
    of [2]_), not below 0. The variance between blocks adds all its degrees of freedom if γ is 0,
    and fewer the larger γ is: almost none (the paired test) under a drift, which affects rows of
    different noise differently.

    Variances are shrunk towards those of the other rows by empirical Bayes [1]_; see
    `benchkit.analysis.stats.moderated_variance.shrink`. With the shrunk s~² on d degrees of
    freedom, ``t = difference / sqrt(c s~²)`` has Student's t distribution.

    With at most five runs of an arm and a hundred rows or more, p is first corrected for noise of
    two modes, which makes arms that differ by chance and have no spread, if runs with exchanged
    labels show it: see `benchkit.analysis.stats.relabelling.relabelled_p`.

    p values are corrected by Benjamini-Hochberg [3]_; intervals of the R rows listed as changed,
    of m, have level ``1 - (1 - level) R / m`` [4]_, so that the selection does not reduce their
    coverage. If `workload` is given, q is instead the expected share of false discoveries with the
    evidence of all metrics of a workload; see
    `benchkit.analysis.stats.joint_evidence.combine_evidence`. With fewer than ten rows that vary,
    each row is tested with its own variance. Rows with zeros have no logarithm: they are compared
    as differences in units of the baseline's mean.

    A null arm with p < 0.01 shows that arms of this row differ by more than their runs do. The only
    estimate of this difference is d0, that of the null arm and the baseline: if the contender is
    another null arm, ``difference / (sqrt(3 / 4) |d0|)`` has Student's t distribution on one degree
    of freedom. A change inside the interval of this distribution at `level` (up to 11 times d0,
    with 0.95) gets the verdict `noise`.

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
    >>> effects = compare(baseline, contender, labels=("faster", "slower"))
    >>> effects.verdict.tolist(), effects.ratio.round(2).tolist()
    (['slower', 'same'], [1.2, 1.0])
    """
    # baseline, contender: (tests, runs), a metric in one unit for each row; NaN is a missing run.
    # null: the same of the null arm, whose runs are added to the baseline.
    # blocked: column i of each arm ran in block i; a disturbance affects a whole block.
    # paired: column i of each arm is the same draw of a simulation; equal values are `same`.
    # family: (tests,), labels of rows with similar noise, usually the metric.
    # workload: (tests,), labels of the rows from the same runs.
    points = to_log_scale(baseline, contender, null, blocked=blocked)
    n_tests = len(points.contender)
    families = _families(family, n_tests)
    if paired:
        test = paired_t(points)
        q = adjust(test.p)
        return classify_effects(
            points, test, None, q=q, own_q=q, joint=None, n_false=0.0,
            blocked=True, level=level, same=same, labels=labels,
        )  # fmt: skip
    test = moderated_t(points, points.contender, blocked, families)

    null_test = None
    if points.baseline.shape[2] > 1:
        first = replace(points, baseline=points.baseline[:, :, :1])
        null_test = moderated_t(first, points.baseline[:, :, 1], blocked, families)
    listed = adjust(test.p) <= 1 - level
    numbers = None if workload is None else _numbered(workload)
    relabelled = relabelled_p(
        points, test, listed, blocked, families, workload=numbers, level=level
    )
    own_q = adjust(relabelled.p)
    joint = None
    # The evidence of several metrics is computed from the t test: not where that is too certain.
    if workload is not None and family is not None and relabelled.is_exact:
        joint = _joint_evidence(points, test, blocked, workload, family)
    return classify_effects(
        points,
        test,
        null_test,
        q=own_q if joint is None else np.where(np.isnan(joint.q), own_q, joint.q),
        own_q=own_q,
        joint=joint,
        n_false=relabelled.n_false,
        blocked=blocked,
        level=level,
        same=same,
        labels=labels,
    )


def _joint_evidence(
    points: LogValues, test: TTestResult, blocked: bool, workload: ArrayLike, family: ArrayLike
) -> JointEvidence | None:
    """Return the evidence of all metrics of each workload; None if that cannot be estimated."""
    workloads, metrics = _numbered(workload), _numbered(family)
    if not len(workloads) == len(metrics) == len(test.p):
        raise UsageError(f"workload: {len(workloads)} labels for {len(test.p)} tests")
    if not len(workloads):
        return None
    correlation = metric_correlation(points, blocked, workloads, metrics)
    return combine_evidence(test.estimate, test.se, test.df, workloads, correlation)


def _numbered(labels: ArrayLike) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = np.unique(np.asarray(labels), return_inverse=True)[1].ravel()
    return numbers


def adjust(p: Array) -> Array:
    """Return p values corrected by Benjamini-Hochberg; rows with NaN are ignored."""
    q = np.full(len(p), np.nan)
    known = np.flatnonzero(np.isfinite(p))
    if len(known):
        order = known[np.argsort(p[known])]
        corrected = p[order] * len(order) / np.arange(1, len(order) + 1)
        q[order] = np.minimum.accumulate(corrected[::-1])[::-1].clip(max=1.0)
    return q


def _families(family: ArrayLike | None, n_tests: int) -> list[NDArray[np.int64]]:
    if family is None:
        return [np.arange(n_tests)]
    labels = np.asarray(family)
    if labels.shape != (n_tests,):
        raise UsageError(
            f"family: {labels.shape} labels for {n_tests} tests; expected one for each test"
        )
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]


#: Level at which a null arm that differs marks its row; 0.05 would mark one row in twenty.
NULL_LEVEL = 0.01


def classify_effects(
    points: LogValues,
    test: TTestResult,
    null_test: TTestResult | None,
    *,
    q: Array,
    own_q: Array,
    joint: JointEvidence | None,
    n_false: float,
    blocked: bool,
    level: float,
    same: float,
    labels: tuple[str, str],
) -> Effects:
    """Return the intervals and verdicts that follow from tests."""
    # q: (tests,), expected share of false discoveries among the rows with at least the evidence of
    # a row.
    # own_q: (tests,), p values of `test`, corrected for the number of rows.
    estimate, se, df = test.estimate, test.se, test.df
    n_baseline = (~np.isnan(points.baseline)).sum(axis=(1, 2))
    n_contender = (~np.isnan(points.contender)).sum(axis=1)

    largest = np.abs(points.baseline).max(axis=(1, 2), initial=0, where=~np.isnan(points.baseline))
    from_zero = ~points.logarithmic & (largest == 0) & (estimate != 0)
    # A ratio of counts cannot fall below 0, although the linear scale allows it.
    least = np.where(points.positive, 0.0, -np.inf)

    def to_ratio(value: Array) -> Array:
        with np.errstate(over="ignore"):
            ratio = np.where(points.logarithmic, np.exp(value), np.maximum(1 + value, least))
        return np.where(from_zero, np.nan, ratio)

    def ends(tail: Array | float) -> tuple[Array, Array]:
        half = stdtrit(df, 1 - np.broadcast_to(tail, df.shape)) * se
        half = np.where(se == 0, 0.0, half)
        return to_ratio(estimate - half), to_ratio(estimate + half)

    with np.errstate(invalid="ignore", divide="ignore"):
        selected = q <= 1 - level
        null_moved, exceeds_null = np.zeros((2, len(q)), bool)
        if null_test is not None:
            null_moved = null_test.p < NULL_LEVEL
            # Contender minus the mean of two arms has 3/2 of the variance of one arm; null arm
            # minus baseline has 2.
            t = np.abs(estimate / null_test.estimate) / np.sqrt(3 / 4)
            exceeds_null = 2 * stdtr(1, -t) <= 1 - level
        low, high = ends((1 - level) / 2)
        # Benjamini and Yekutieli: R rows selected of m use the error rate (1 - level) R / m each.
        share = selected.sum() / max(int(np.isfinite(q).sum()), 1)
        wide_low, wide_high = ends((1 - level) * max(share, 1e-12) / 2)
        close_low, close_high = ends(1 - level)
        inside = (close_low > 1 - same) & (close_high < 1 + same)
    verdict = np.select(
        [
            (n_baseline == 0) | (n_contender == 0),
            selected & null_moved & ~exceeds_null,
            selected & (estimate < 0),
            selected,
            inside,
        ],
        ["failed", "noise", labels[0], labels[1], "same"],
        "undecided",
    )
    return Effects(
        ratio=np.where(from_zero, np.copysign(np.inf, estimate), to_ratio(estimate)),
        low=low,
        high=high,
        q=q,
        own_q=own_q,
        joint=joint,
        n_false=n_false,
        verdict=verdict,
        selected_low=np.where(selected, wide_low, low),
        selected_high=np.where(selected, wide_high, high),
        **vars(test),
        null_p=None if null_test is None else null_test.p,
        null_moved=null_moved,
        n_baseline=n_baseline,
        n_contender=n_contender,
        level=level,
        same=same,
        labels=labels,
        blocked=blocked,
        points=points,
    )
