"""Derive intervals and verdicts from the results of tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from benchkit.analysis.stats.joint_evidence import JointEvidence
from benchkit.analysis.stats.log_scale import LogValues
from benchkit.analysis.stats.moderated_t import TTestResult
from benchkit.analysis.stats.verdicts import Effects

Array = NDArray[np.float64]

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
