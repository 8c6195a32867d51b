"""Combine the evidence of a workload's metrics: a change often affects several of them.

Takes the results of tests; returns for each the expected share of false discoveries among the rows
with at least its evidence. The shares of changed workloads and metrics are estimated from the
report itself (empirical Bayes).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ndtri

from benchkit.analysis.stats.log_scale import LogValues
from benchkit.analysis.stats.moderated_variance import EM_STEPS, MANY_TESTS, MIN_WORKLOADS

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Sizes of changes in the mixture, as logarithms of ratios.
SIZES = np.array([0.03, 0.05, 0.07, 0.10, 0.14, 0.20, 0.30, 0.40])
#: A size stands for changes of both signs around it. A distribution around zero would let the
#: unchanged metrics of a changed workload look like small changes (false-discovery rate .08).
_AROUND = 1 + 0.25 * ndtri((np.arange(6) + 0.5) / 6)
AROUND_SIZE = np.concatenate([-_AROUND, _AROUND])
#: Limits of the share of changed workloads.
SHARE_LIMITS = (0.01, 0.99)
#: The mixture takes the metrics as independent, so that the true share of false discoveries is
#: larger than its own estimate: by 1 / (0.9 (1 - C)) with the mean correlation C, at most by 2.
#: With 1 instead of 0.9, .057 instead of .051 are false if the metrics are independent (`python
#: benchmarks/verdicts.py --only workloads`).
TRUE_SHARE = 0.9


@dataclass(frozen=True)
class JointEvidence:
    """Evidence of a report whose rows are metrics of workloads."""

    # (tests,), expected share of false discoveries among the rows with at least this evidence; NaN
    # where a row is not tested.
    q: Array
    # (tests,), logarithm of the likelihood ratio of a change and no change, from the row alone.
    log_evidence: Array
    correlation: float  # Mean correlation between two metrics of a workload, from run to run


def metric_correlation(points: LogValues, blocked: bool, workload: Ints, metric: Ints) -> Array:
    """Return the mean correlation between the metrics of a workload, from run to run."""
    # workload, metric: (tests,), number of the workload and of the metric of each row; a pair
    # occurs once.
    # returned: (metrics, metrics), 1 on the diagonal; 0 where no workload has both metrics.
    residuals = _residuals(points, blocked)
    n_workloads, n_metrics = int(workload.max()) + 1, int(metric.max()) + 1
    cube = np.full((n_workloads, n_metrics, residuals.shape[1]), np.nan)
    cube[workload, metric] = residuals
    cube = np.where(np.isfinite(cube), cube, 0.0)
    scale = np.sqrt((cube**2).sum(axis=2, keepdims=True))
    cube = np.divide(cube, scale, out=np.zeros_like(cube), where=scale > 0)
    has = (scale[:, :, 0] > 0).astype(float)
    n_both = has.T @ has
    products: Array = np.einsum("wir,wjr->ij", cube, cube)
    correlation: Array = products / np.maximum(n_both, 1)
    np.fill_diagonal(correlation, 1.0)
    return correlation


def combine_evidence(
    estimate: Array, se: Array, df: Array, workload: Ints, correlation: Array
) -> JointEvidence | None:
    """Return the evidence of each row together with that of the other metrics of its workload.

    Notes
    -----
    A share of the workloads changes, and in these a share of the metrics, by a size from a mixture.
    The evidence of the other metrics of a workload is weighted by ``K / sum(C) * (1 - c)``, with
    the correlation C of K metrics and its mean c between two of them: 1 for independent, 0 for
    identical metrics. The local false-discovery rate of a row is one minus its probability of a
    change; q is its mean over all rows with at least this evidence [1]_, corrected for the
    correlation.

    References
    ----------
    .. [1] B. Efron, "Large-Scale Inference", Cambridge 2010, chapters 2 and 5.
    """
    # estimate, se, df: (tests,), change as a logarithm, standard error and degrees of freedom of
    # each row; NaN is not tested.
    # workload: (tests,), number of the workload of each row.
    # correlation: (metrics, metrics), as returned by `metric_correlation`.
    tested = np.flatnonzero(np.isfinite(estimate) & (se > 0) & (df > 0))
    names, place = np.unique(workload[tested], return_inverse=True)
    if names.size < MIN_WORKLOADS or tested.size < MANY_TESTS:
        return None
    n_metrics = len(correlation)
    positive = np.maximum(correlation, 0)
    n_pairs = max(n_metrics * (n_metrics - 1), 1)
    mean = float(positive.sum() - n_metrics) / n_pairs
    weight = n_metrics / float(positive.sum()) * (1 - mean)
    unchanged, by_size = _likelihoods(estimate[tested], se[tested], df[tested])
    sizes = np.full(SIZES.size, 1 / SIZES.size)
    share, within = 1 / 4, 2 / 4  # the prior of both, as below
    n_rows = np.bincount(place)[place]
    for _ in range(EM_STEPS):
        changed = by_size @ sizes
        evidence = np.log((1 - within) + within * changed / unchanged)
        others = np.bincount(place, evidence)[place] - evidence
        odds = (1 - share) / share * np.exp(-np.clip(evidence + weight * others, -600, 600))
        in_workload = 1 / (1 + odds)
        own = within * changed / ((1 - within) * unchanged + within * changed)
        probability = in_workload * own
        parts = probability[:, None] * by_size * sizes / changed[:, None]
        sizes = parts.sum(axis=0) + 0.5
        sizes /= sizes.sum()
        within = (probability.sum() + 2) / (in_workload.sum() + 4)
        share = float(np.clip(((in_workload / n_rows).sum() + 1) / (names.size + 4), *SHARE_LIMITS))
    false = 1 - probability
    order = np.argsort(false, kind="stable")
    rate = np.cumsum(false[order]) / np.arange(1, order.size + 1)
    q, log_evidence = np.full((2, estimate.size), np.nan)
    factor = max(TRUE_SHARE * (1 - mean), 1 / 2)
    q[tested[order]] = np.minimum(rate / factor, 1.0)
    log_evidence[tested] = np.log(changed / unchanged)
    return JointEvidence(q, log_evidence, mean)


def _residuals(points: LogValues, blocked: bool) -> Array:
    """Return runs minus the mean of their arm, and in blocks also minus that of their block."""
    arms = np.concatenate([points.baseline, points.contender[:, :, None]], axis=2)
    valid = np.isfinite(arms)
    filled = np.where(valid, arms, 0.0)

    def means(axis: int) -> Array:
        total = filled.sum(axis=axis, keepdims=True)
        result: Array = total / np.maximum(valid.sum(axis=axis, keepdims=True), 1)
        return result

    residuals = np.where(valid, arms - means(1), np.nan)
    if blocked:
        filled = np.where(valid, residuals, 0.0)
        residuals = residuals - means(2)
    flat: Array = residuals.reshape(len(residuals), -1)
    return flat


def _likelihoods(estimate: Array, se: Array, df: Array) -> tuple[Array, Array]:
    """Return the likelihood of no change of each row, and of a change of each size."""

    def density(t: Array) -> Array:
        nu = df.reshape(-1, *[1] * (t.ndim - 1))
        log = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * np.log(nu * np.pi)
        result: Array = np.exp(log - (nu + 1) / 2 * np.log1p(t**2 / nu))
        return np.maximum(result, 1e-300)

    changes = SIZES[:, None] * AROUND_SIZE
    t = (estimate[:, None, None] - changes) / se[:, None, None]
    return density(estimate / se), density(t).mean(axis=2)
