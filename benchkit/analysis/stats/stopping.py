"""Decide when to stop running blocks: repeated tests that keep the error rate of a single test.

Takes the runs so far and returns a decision for each test. No state is kept: earlier decisions
are computed again from the same runs.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from benchkit.analysis.stats.effects import adjust, compare
from benchkit.analysis.stats.log_scale import matrix
from benchkit.analysis.stats.power import power_table, runs_needed
from benchkit.analysis.stats.verdicts import Effects

__all__ = [
    "LOOKS",
    "equivalence_test",
    "next_step",
    "power_table",
    "runs_needed",
    "sequential_p",
]

Array = NDArray[np.float64]

#: Numbers of blocks after which an adaptive experiment tests its data (the looks).
LOOKS = (3, 5, 8, 12, 20)
#: Probability of finding a change by the last look below which a test stops.
HOPE = 0.35
#: Share of changed tests that the predictive power assumes before any change is found.
EXPECTED_SHARE = 0.1

GO_ON, CHANGED, SAME, UNDECIDED = 0, 1, 2, 3


def next_step(
    baseline: ArrayLike,
    contender: ArrayLike,
    *,
    null: ArrayLike | None = None,
    history: ArrayLike | None = None,
    family: ArrayLike | None = None,
    blocked: bool = True,
    level: float = 0.95,
    same: float = 0.05,
    looks: tuple[int, ...] = LOOKS,
    hope: float = HOPE,
) -> NDArray[np.int64]:
    """Return for each test whether to run another block, or its final decision.

    Call it after every block, or only after those in `looks`: between looks nothing is decided.
    Tests that were stopped stay in the arrays with NaN in later columns; they still contribute to
    the estimate of the machine's noise, and count for the false-discovery rate.

    Parameters
    ----------
    baseline, contender : array_like, shape (tests, blocks)
        Runs so far, column i of both from block i; NaN is a run that failed or was not made.
    null : array_like, shape (tests, blocks), optional
        Runs of the null arm.
    history, family, same
        As in `benchkit.analysis.stats.effects.compare`.
    blocked : bool, default True
        Whether a block shares a disturbance.
    level : float, default 0.95
        1 - level is the false-discovery rate of the tests called changed, over all looks.
    looks : tuple of int, default (3, 5, 8, 12, 20)
        Numbers of blocks after which decisions are made; the last is the largest number of blocks.
    hope : float, default 0.35
        A test stops undecided when its chance of being called changed at the last look is lower.

    Returns
    -------
    ndarray of int, shape (tests,)
        0 run another block, 1 changed to more, -1 changed to less, 2 the same, 3 undecided: a
        decision is unlikely, or an arm has no run at all.

    See Also
    --------
    benchkit.analysis.stats.effects.compare : Ratios and intervals of what was run. Its p values are
        valid for a single look: use this function to decide whether something changed.

    Notes
    -----
    At each look the p value of a test is the smallest so far, corrected for the number of looks
    (see `sequential_p`), and then for all tests by Benjamini-Hochberg. It can only fall, so a test
    once called changed stays changed; stopping for low `hope` cannot add a false discovery, for
    any rule. `hope` is compared with the predictive power: the difference at the last look N of n
    blocks is normal around today's with variance ``se² (1 - n / N)`` [1]_.

    `Same` is decided by the interval of two one-sided 5 % tests at each look; a true change of
    exactly `same` is called so in up to 10 % of cases.

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
        found = compare(
            *(arm[:, :look] for arm in arms[:2]),
            null=arms[2][:, :look] if null is not None else None,
            history=history,
            family=family,
            blocked=blocked,
            same=same,
        )
        # A test without runs since the last look was stopped at that look: keep its decision.
        fresh = any_run[:, before:look].any(axis=1) & (np.abs(decisions) != CHANGED)
        smallest = np.where(fresh, np.fmin(smallest, found.p), smallest)
        known = np.where(np.isfinite(found.p), sequential_p(smallest, looks), np.nan)
        changed = adjust(known, "fdr_bh") <= 1 - level
        share = max(EXPECTED_SHARE, (changed.sum() + 1) / max(np.isfinite(known).sum(), 1))
        needed = (1 - level) * min(share, 1.0) / len(looks)
        hopeless = _predictive_power(found, look, looks[-1], needed) < hope
        inside = (found.verdict == "same") | equivalence_test(found, same, level=level)
        step = np.select(
            [changed, inside, hopeless | (look == looks[-1])],
            [np.where(found.estimate < 0, -CHANGED, CHANGED), SAME, UNDECIDED],
            GO_ON,
        )
        decisions = np.where(fresh, step, decisions)
    return decisions


def equivalence_test(found: Effects, same: float, *, level: float = 0.95) -> NDArray[np.bool_]:
    """Return where two one-sided tests show a change smaller than `same`, shape (tests,)."""
    less = found.probability([same], below=True)[:, 0]
    more = found.probability([-same])[:, 0]
    return np.minimum(less, more) >= level


def _predictive_power(found: Effects, n: int, last: int, level: float) -> Array:
    """Return the probability that p at the last look is below `level`; NaN is unknown."""
    if n >= last:
        return np.zeros(len(found))
    with np.errstate(divide="ignore", invalid="ignore"):
        final = found.se * np.sqrt(n / last)
        spread = found.se * np.sqrt(1 - n / last)
        bar = -ndtri(level / 2) * final
        up, down = (found.estimate - bar) / spread, (-found.estimate - bar) / spread
        power = np.where(found.se == 0, 0.0, ndtr(up) + ndtr(down))
    # An arm without any run will hardly have one later.
    return np.where(found.verdict == "failed", 0.0, power)


def sequential_p(p: Array, looks: tuple[int, ...]) -> Array:
    """Return the p value of a smallest p over looks: the probability of it by chance alone.

    Parameters
    ----------
    p : ndarray
        Smallest two-sided p values up to now; NaN stays NaN.
    looks : tuple of int
        Numbers of blocks at which there is a look, future looks included.

    Returns
    -------
    ndarray
        Between p and p times the number of looks.

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
    grid, corrected = _sequential_table(tuple(looks))
    with np.errstate(divide="ignore"):
        log_p = np.log(np.clip(p, 0, 1))
    inside = np.exp(np.interp(log_p, grid, corrected))
    # Below the table the looks hardly overlap: Bonferroni's bound is almost exact.
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
