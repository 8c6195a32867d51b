"""Compute the number of runs that detect a change, from noise and effects."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import nctdtr, stdtrit

#: Largest number of runs that is computed; for more runs the result is -1.
MAX_RUNS = 1000


def runs_needed(
    effect: ArrayLike,
    noise: ArrayLike,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
) -> NDArray[np.int64]:
    """Return the number of runs a side that detect a change.

    Notes
    -----
    The smallest n with which the two-sample t test on logarithms has this power, by bisection.

    Examples
    --------
    >>> runs_needed([0.05, 0.10, 0.20], 0.05)
    array([18,  6,  3])
    """
    # effect: relative change, 0.05 is 5 %; noise: coefficient of variation of one run.
    # alpha: in a report of 700 rows Benjamini-Hochberg requires about 0.005.
    # returned: runs a side, at least 2; -1 where `MAX_RUNS` are not enough.
    effect, noise = np.broadcast_arrays(np.asarray(effect, float), np.asarray(noise, float))
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.abs(np.log1p(effect)) / np.sqrt(np.log1p(noise**2))
    size = np.where(np.isnan(size), 0.0, np.minimum(size, 1e3)).ravel()

    def enough(sizes: NDArray[np.float64], runs: NDArray[np.int64]) -> NDArray[np.bool_]:
        df, noncentral = 2.0 * runs - 2, sizes * np.sqrt(runs / 2)
        # A change in the other direction is not detected. SciPy returns NaN in the far tail of a
        # noncentral t: there the power is 1.
        powers: NDArray[np.float64] = 1 - nctdtr(df, noncentral, stdtrit(df, 1 - alpha / 2))
        return np.asarray(~(powers < power))

    # Double, then bisect: 20 steps instead of 1000. The power increases with the number of runs.
    low, high = np.ones(len(size), np.int64), np.full(len(size), 2)
    while (open_rows := (high < MAX_RUNS) & ~enough(size, high)).any():
        low = np.where(open_rows, high, low)
        high = np.where(open_rows, np.minimum(2 * high, MAX_RUNS), high)
    while (high - low > 1).any():
        middle = (low + high + 1) // 2
        detects = enough(size, middle)
        open_rows = high - low > 1
        high = np.where(open_rows & detects, middle, high)
        low = np.where(open_rows & ~detects, middle, low)
    runs = np.where(enough(size, high), high, -1)
    return runs.reshape(effect.shape)


def runs_until_decided(
    spread: NDArray[np.float64],
    prior_df: NDArray[np.float64],
    same: float,
) -> NDArray[np.int64]:
    """Return the number of runs a side that show the absence of a change with 80 % probability.

    Notes
    -----
    Two one-sided tests at 5 % [1]_ both pass with 80 % when ``(t_0.95 + t_0.90) se`` is at most
    log(1 + same); at that n a change as large as `same` is also detected four times in five.

    References
    ----------
    .. [1] D. J. Schuirmann, "A comparison of the two one-sided tests procedure and the power
       approach", J. Pharmacokin. Biopharm. 15 (1987).
    """
    # spread: (tests,), standard deviation of the logarithm of a run.
    # prior_df: (tests,), degrees of freedom of the prior estimate of the spread.
    # returned: (tests,), runs a side, at least 2; -1 where `MAX_RUNS` are not enough.
    runs = np.arange(2, MAX_RUNS + 1)
    df = 2.0 * runs - 2 + prior_df[:, None]
    factor = (stdtrit(df, 0.95) + stdtrit(df, 0.90)) * np.sqrt(2 / runs)
    decided = spread[:, None] * factor <= np.log1p(same)
    return np.where(decided.any(axis=1), runs[decided.argmax(axis=1)], -1)
