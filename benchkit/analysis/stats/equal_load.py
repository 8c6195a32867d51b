"""Take out of CPU seconds what follows the load of the machine, on arrays.

A run that other programs slow takes more CPU seconds for the same work: event loops, heartbeats and
the profiler take some in each second, and caches are shared.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Array = NDArray[np.float64]

#: Smallest number of blocks with a run of each arm: with fewer, the slope is not known.
MIN_BLOCKS = 4
#: Smallest share of the variance of CPU seconds within blocks that the load must explain.
MIN_EXPLAINED = 0.5
#: Chance of a difference in load below which it is the contender's own: more threads than before
#: wait for each other. Then nothing is taken out, which would be a part of the change.
MIN_CHANCE = 0.001


def at_equal_load(
    work: Mapping[str, Array], wait_share: Mapping[str, Array]
) -> Mapping[str, Array]:
    """Return CPU seconds as if threads had waited equally long in all runs of a block.

    Notes
    -----
    Analysis of covariance of logarithms within blocks. The covariate is by how much longer threads
    took because they waited for a processor. The duration would hide a part of a change: more
    work takes longer, too, and the waits of each second of work stay the same. Runs are moved
    away from the mean of their arm by as much as the slope is uncertain, so that a test that does
    not know of the slope has the right error.
    """
    # work, wait_share: Arm -> (blocks,), with the arm `contender`; NaN is missing.
    arms = list(work)
    with np.errstate(invalid="ignore", divide="ignore"):
        y = np.log(np.stack([work[arm] for arm in arms], 1))
        x = -np.log1p(-np.stack([wait_share[arm] for arm in arms], 1))
    whole = np.flatnonzero(np.isfinite(x).all(axis=1) & np.isfinite(y).all(axis=1))
    n_blocks, n_arms = len(whole), len(arms)
    if n_blocks < MIN_BLOCKS:
        return work
    x, y = (side[whole] - side[whole].mean(axis=1, keepdims=True) for side in (x, y))
    rest_x, rest_y = x - x.mean(axis=0), y - y.mean(axis=0)
    xx, xy, yy = (rest_x**2).sum(), (rest_x * rest_y).sum(), (rest_y**2).sum()
    # The contender's mean load relative to that of the other arms, and its leverage.
    step = x.mean(axis=0)[arms.index("contender")] * n_arms / (n_arms - 1)
    leverage = n_arms / (n_arms - 1) / n_blocks
    df = (n_blocks - 1) * (n_arms - 1)
    largest = stdtrit(df, 1 - MIN_CHANCE / 2) * np.sqrt(xx / df * leverage)
    if not (xy**2 > MIN_EXPLAINED * xx * yy and abs(step) <= largest):
        return work
    slope = np.clip(xy / xx, 0, 1)
    wider = np.sqrt(df / (df - 1) * (1 + step**2 / xx / leverage))
    added = (wider - 1) * (rest_y - slope * rest_x) - slope * x
    return {
        arm: _times(values, whole, np.exp(added[:, column]))
        for column, (arm, values) in enumerate(work.items())
    }


def _times(values: Array, at: NDArray[np.int64], factors: Array) -> Array:
    result = values.copy()
    result[at] *= factors
    return result
