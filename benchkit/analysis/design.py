"""Decide when to stop running blocks: repeated tests with the error rate of a single test.

Takes the runs up to now and returns a decision for each test. There is no state: earlier decisions
are computed again from the same runs.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from benchkit.analysis.effects import adjust, compare
from benchkit.analysis.options import VERDICTS
from benchkit.analysis.stats.log_scale import matrix
from benchkit.analysis.stats.verdicts import Effects

Array = NDArray[np.float64]

#: Numbers of blocks after which an adaptive experiment tests its data (the looks).
LOOKS = (3, 5, 8, 12, 20)
#: Share of changed tests that the predictive power assumes before a change is detected.
EXPECTED_SHARE = 0.1

CONTINUE, CHANGED, SAME, UNDECIDED = 0, 1, 2, 3


def next_step(
    baseline: ArrayLike,
    contender: ArrayLike,
    *,
    null: ArrayLike | None = None,
    same: float = VERDICTS.same,
    looks: tuple[int, ...] = LOOKS,
    hope: float = VERDICTS.min_power,
) -> NDArray[np.int64]:
    """Return for each test whether to run another block, or its final decision.

    Call it after every block, or only after those in `looks`: between looks no test is decided.
    Keep stopped tests in the arrays, with NaN in later columns: they contribute to the estimate of
    the machine's noise and to the false-discovery rate.

    Notes
    -----
    At each look the p value of a test is the smallest so far, corrected for the number of looks
    (see `sequential_p`), and then for all tests by Benjamini-Hochberg. It never increases, so a
    changed test stays changed; a test that stops for a low probability of detection cannot become
    a false discovery. `hope` is compared with the predictive power: given n blocks, the difference
    at the last look N is normal around the present one with variance ``se² (1 - n / N)`` [1]_.

    `Same` is decided by the interval of two one-sided 5 % tests at each look; a true change of
    exactly `same` is decided as the same in up to 10 % of cases.

    References
    ----------
    .. [1] D. J. Spiegelhalter, L. S. Freedman, P. R. Blackburn, "Monitoring clinical trials:
       conditional or predictive power?", Control. Clin. Trials 7 (1986).

    Examples
    --------
    >>> baseline = [[10.0, 10.2, 9.9, 10.1, 10.0], [9.0, 9.1, 9.0, 8.9, 9.0]]
    >>> contender = [[15.0, 15.3, 14.9, 15.0, 15.2], [9.0, 9.0, 9.1, 9.0, 8.9]]
    >>> next_step(baseline, contender).tolist()
    [1, 2]
    """
    # baseline, contender, null: (tests, blocks), column i from block i; NaN is a run that failed or
    # was skipped.
    # looks: numbers of blocks after which decisions are made; the last is the largest number.
    # hope: a test stops undecided if its probability of a change at the last look is lower.
    # returned: (tests,), 0 another block, 1 changed to more, -1 changed to less, 2 the same, 3
    # undecided: a decision is unlikely, or an arm has no run.
    arms = [matrix(baseline, "baseline"), matrix(contender, "contender")]
    if null is not None:
        arms.append(matrix(null, "null"))
    n_blocks = max(arm.shape[1] for arm in arms)
    any_run = np.zeros((len(arms[0]), n_blocks), bool)
    for arm in arms:
        any_run[:, : arm.shape[1]] |= ~np.isnan(arm)

    decisions = np.zeros(len(any_run), np.int64)
    smallest = np.ones(len(any_run))
    for before, look in zip((0, *looks), looks, strict=False):
        if look > n_blocks:
            break
        effects = compare(
            *(arm[:, :look] for arm in arms[:2]),
            null=arms[2][:, :look] if null is not None else None,
            blocked=True,
            same=same,
        )
        # A test without runs since the last look was stopped at that look: keep its decision.
        running = any_run[:, before:look].any(axis=1) & (np.abs(decisions) != CHANGED)
        smallest = np.where(running, np.fmin(smallest, effects.p), smallest)
        p = np.where(np.isfinite(effects.p), sequential_p(smallest, looks), np.nan)
        changed = adjust(p) <= 1 - VERDICTS.level
        share = max(EXPECTED_SHARE, (changed.sum() + 1) / max(np.isfinite(p).sum(), 1))
        needed = (1 - VERDICTS.level) * min(share, 1.0) / len(looks)
        unlikely = _predictive_power(effects, look, looks[-1], needed) < hope
        inside = (effects.verdict == "same") | equivalence_test(effects, same)
        step = np.select(
            [changed, inside, unlikely | (look == looks[-1])],
            [np.where(effects.estimate < 0, -CHANGED, CHANGED), SAME, UNDECIDED],
            CONTINUE,
        )
        decisions = np.where(running, step, decisions)
    return decisions


def equivalence_test(effects: Effects, same: float) -> NDArray[np.bool_]:
    """Return whether two one-sided tests show that changes are small."""
    # returned: (tests,), true where the change is smaller than `same`.
    less = effects.probability([same], below=True)[:, 0]
    more = effects.probability([-same])[:, 0]
    return np.minimum(less, more) >= VERDICTS.level


def _predictive_power(effects: Effects, n: int, last: int, level: float) -> Array:
    """Return the probability that p at the last look is below `level`; NaN is unknown."""
    if n >= last:
        return np.zeros(len(effects))
    with np.errstate(divide="ignore", invalid="ignore"):
        final = effects.se * np.sqrt(n / last)
        spread = effects.se * np.sqrt(1 - n / last)
        limit = -ndtri(level / 2) * final
        up, down = (effects.estimate - limit) / spread, (-effects.estimate - limit) / spread
        power = np.where(effects.se == 0, 0.0, ndtr(up) + ndtr(down))
    # An arm without any run will hardly have a run later.
    return np.where(effects.verdict == "failed", 0.0, power)


def sequential_p(p: Array, looks: tuple[int, ...]) -> Array:
    """Return the p value of the smallest p over looks, corrected for the number of looks.

    Notes
    -----
    The standardised sums of growing data are a Markov chain, normal with correlation
    sqrt(n_i / n_j). The probability that it stays within ±z at all looks follows from one integral
    per look [1]_, here on a grid of 201 points, for 40 values of p, with log-log interpolation in
    between. t values of few runs are less correlated than normal ones (an overall level of 0.35 %
    needs 0.0007 at each of five looks, where the integral gives 0.0009), so the mean of the
    integral and Bonferroni's bound is returned.

    References
    ----------
    .. [1] P. Armitage, C. K. McPherson, B. C. Rowe, "Repeated significance tests on accumulating
       data", J. R. Stat. Soc. A 132 (1969).

    Examples
    --------
    >>> sequential_p(np.array([0.05, 0.001]), (3, 5, 8, 12, 20)).round(4)
    array([0.2009, 0.0045])
    """
    # p: Smallest two-sided p values up to now; NaN stays NaN.
    grid, corrected = _sequential_table(tuple(looks))
    with np.errstate(divide="ignore"):
        log_p = np.log(np.clip(p, 0, 1))
    inside = np.exp(np.interp(log_p, grid, corrected))
    # Below the table Bonferroni's bound is almost exact.
    return np.where(log_p < grid[0], np.minimum(len(looks) * np.clip(p, 0, 1), 1), inside)


@lru_cache(maxsize=16)
def _sequential_table(looks: tuple[int, ...]) -> tuple[Array, Array]:
    p = np.exp(np.linspace(np.log(1e-6), 0, 40))
    exact = np.array([_crossing_probability(float(-ndtri(value / 2)), looks) for value in p])
    bound = np.minimum(len(looks) * p, 1)
    corrected = (exact + bound) / 2
    return np.log(p), np.log(np.clip(corrected, p, 1))


def _crossing_probability(z: float, looks: tuple[int, ...]) -> float:
    """Return the probability that a standardised sum leaves ±z at any look."""
    if z < 1e-6:
        return 1.0
    points, step = np.linspace(-z, z, 201, retstep=True)
    weights = np.full(len(points), step)
    weights[[0, -1]] /= 2
    density = np.exp(-(points**2) / 2) / np.sqrt(2 * np.pi)
    for before, now in pairwise(looks):
        keep = np.sqrt(before / now)
        new = np.sqrt(1 - keep**2)
        moved = (points[:, None] - keep * points[None, :]) / new
        kernel = np.exp(-(moved**2) / 2) / (np.sqrt(2 * np.pi) * new)
        density = kernel @ (density * weights)
    if len(looks) == 1:
        return float(2 * ndtr(-z))
    return float(np.clip(1 - (density * weights).sum(), 0, 1))
