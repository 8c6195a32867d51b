"""Decide whether re-runs of a suspected change, interleaved with the last good build, confirm it.

Takes the runs of both builds up to a look; returns a decision. The looks and limits are those with
which `benchmarks/detection.py` measures the rates of false and of found changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from benchkit.analysis.options import DETECTION, VERDICTS
from benchkit.analysis.stats.blocked_t import fit_within_blocks
from benchkit.analysis.stats.log_scale import MIN_NOISE

#: Numbers of interleaved blocks after which re-runs are judged; the last is the largest number.
CONFIRMATION_LOOKS = (3, 5, 8, 12)
#: `benchmarks/fit_constants.py --only reruns` prints the rates of neighbouring values.

#: Largest two-sided p value that confirms a change, at each of four looks: together less than .01.
MAX_P = 0.002
#: Re-runs are stopped, and the change dismissed, if the estimate plus this many standard errors is
#: less than `DetectionOptions.min_change`.
STOP_ERRORS = 1.3
#: Probability of a confirmation at the last look below which re-runs are stopped.
MIN_POWER = 0.15


@dataclass(frozen=True)
class Rerun:
    """Result of re-runs at a look; one element of each array per change."""

    # ratio, low, high: Of the build of the night to the last good build, with its 95 % interval.
    ratio: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    p: NDArray[np.float64]  # Two-sided p value of no change
    decision: NDArray[np.int64]  # 1 confirmed, -1 dismissed, 0 undecided
    # Whether more blocks are useless: decided, unlikely to be confirmed, or the last look.
    stopped: NDArray[np.bool_]


def judge_reruns(good: ArrayLike, tonight: ArrayLike, direction: ArrayLike) -> Rerun:
    """Judge the re-runs of suspected changes.

    Notes
    -----
    The t test of an A/B of one row: the build of the night minus the mean of the good runs of its
    block, with the noise of the runs within blocks. A change is confirmed in its direction with
    p < 0.002 at any look and if it is more than 1.5 %. It is dismissed if the estimate plus 1.3
    standard errors is less than 3 %.

    Examples
    --------
    >>> good = [[[10.0, 10.1], [9.9, 10.0], [10.1, 9.9]]]
    >>> rerun = judge_reruns(good, [[11.0, 11.1, 11.0]], [1])
    >>> rerun.decision.tolist(), rerun.ratio.round(2).tolist()
    ([1], [1.1])
    """
    # good: (changes, blocks, 2), runs of the last good build, which runs twice in a block; NaN is
    # missing.
    # tonight: (changes, blocks), runs of the build of the night.
    # direction: (changes,), 1 if the suspected change is an increase, -1 for a decrease.
    sides = [np.asarray(side, float) for side in (good, tonight)]
    n_blocks = sides[1].shape[1]
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = [np.where(side > 0, np.log(side), np.nan) for side in sides]
        fit = fit_within_blocks(*logs)
        n_complete = (np.isfinite(logs[0]).any(axis=2) & np.isfinite(logs[1])).sum(axis=1)
        testable = (n_complete >= 2) & (fit.df >= 1)
        df, estimate = np.maximum(fit.df, 1), fit.difference
        se = np.sqrt(np.maximum(fit.variance, MIN_NOISE**2) * fit.leverage)
        signed = estimate * np.asarray(direction, float)
        p = np.where(testable, 2 * stdtr(df, -np.abs(estimate) / se), np.nan)
        confirmed = testable & (p < MAX_P) & (signed > DETECTION.min_change / 2)
        dismissed = testable & ~confirmed & (signed + STOP_ERRORS * se < DETECTION.min_change)
        half = stdtrit(df, (1 + VERDICTS.level) / 2) * np.where(testable, se, np.nan)
        unlikely = _power(signed, se, n_blocks) < MIN_POWER
    last = n_blocks >= CONFIRMATION_LOOKS[-1]
    return Rerun(
        ratio=np.exp(estimate),
        low=np.exp(estimate - half),
        high=np.exp(estimate + half),
        p=p,
        decision=np.where(confirmed, 1, np.where(dismissed, -1, 0)),
        stopped=confirmed | dismissed | (testable & unlikely) | last,
    )


def _power(
    signed: NDArray[np.float64], se: NDArray[np.float64], n_blocks: int
) -> NDArray[np.float64]:
    """Return the probability that the last look confirms, given the blocks so far."""
    last = CONFIRMATION_LOOKS[-1]
    if n_blocks >= last:
        return np.zeros(len(signed))
    final = se * np.sqrt(n_blocks / last)
    spread = se * np.sqrt(1 - n_blocks / last)
    limit = np.maximum(-ndtri(MAX_P / 2) * final, DETECTION.min_change / 2)
    power: NDArray[np.float64] = ndtr((signed - limit) / spread)
    return power
