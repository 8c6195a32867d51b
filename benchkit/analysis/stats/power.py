"""Compute the number of runs that detect a change, from noise and effects."""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray
from scipy.special import nctdtr, stdtrit

#: Largest number of runs that is computed; for more runs the result is -1.
MAX_RUNS = 1000


def runs_needed(effect: float, noise: float) -> int:
    """Return the number of runs a side that detect a change.

    Notes
    -----
    The smallest n with which the two-sample t test on logarithms at 5 % has a power of 80 %.

    Examples
    --------
    >>> [runs_needed(effect, 0.05) for effect in (0.05, 0.10, 0.20)]
    [18, 6, 3]
    """
    # effect: relative change, 0.05 is 5 %; noise: coefficient of variation of one run.
    # returned: runs a side, at least 2; -1 where `MAX_RUNS` are not enough.
    spread = max(math.sqrt(math.log1p(noise * noise)), 1e-9)
    size = min(abs(math.log1p(effect)) / spread, 1e3)

    def detects(runs: int) -> bool:
        df, noncentral = 2 * runs - 2, size * math.sqrt(runs / 2)
        # A change in the other direction is not detected. SciPy returns NaN in the far tail of a
        # noncentral t: there the power is 1.
        return not 1 - nctdtr(df, noncentral, stdtrit(df, 0.975)) < 0.8

    runs = 2 + bisect_left(range(2, MAX_RUNS + 1), True, key=detects)
    return runs if runs <= MAX_RUNS else -1


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
