"""Estimate which build of an ordered sequence is the first after a step of a metric.

Takes differences and failure counts; returns probabilities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln, gammaln, logsumexp

Array = NDArray[np.float64]

#: Degrees of freedom of the t distribution assumed for differences: some runs are disturbed, and
#: under a normal distribution one such run would determine the position of the step.
DF = 4
#: Possible sizes of the step, as shares of the size measured at the two ends.
SIZES = np.linspace(0.4, 1.6, 61)
#: Possible spreads of a difference (logarithm of a ratio).
SPREADS = np.geomspace(0.003, 1.0, 20)
#: Smallest spread, as a share of the step: the resolution of `SIZES`.
MIN_SPREAD_SHARE = 0.05
#: Lasting differences of two builds without a step between them (placement, memory layout, a small
#: change of another cause), which do not average out over blocks.
OFFSETS = np.array([0.002, 0.01, 0.03])
#: Prior weights of the offsets.
_OFFSET_WEIGHTS = np.array([0.3, 0.5, 0.2])
_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(7)
#: Beta prior of the share of runs that time out or fail before the step: small.
BEFORE = (1.0, 19.0)
#: Beta prior of that share after the step: uniform.
AFTER = (1.0, 1.0)


def chances_of_place(
    n_builds: int,
    pairs: Mapping[tuple[int, int], ArrayLike],
    events: ArrayLike | None = None,
    *,
    size: float = np.nan,
) -> Array:
    """Return the probability of each build to be the first after the step.

    Notes
    -----
    The model is a step of unknown size between the ends, with equal prior probability of each
    position. Differences of two builds on the same side are distributed around 0, of two builds on
    different sides around the size of the step. Spread, size and the lasting offset of each pair
    are integrated out on a grid, so that later measurements can correct a wrong early result.

    Examples
    --------
    >>> pairs = {(0, 4): [0.20, 0.21, 0.19], (0, 2): [0.01, -0.01], (0, 3): [0.20, 0.19]}
    >>> chances_of_place(5, pairs, size=0.2).round(2)
    array([0., 0., 0., 1., 0.])
    """
    # pairs: Differences of blocks: value of the second build minus that of the first, which is the
    # earlier build. Logarithms, so that a step is a ratio.
    # events: (n_builds, 2), number of runs of each build with the event (timed out, failed), and
    # without it.
    # returned: (n_builds,), probabilities with sum 1; the first is 0.
    weights = np.zeros(n_builds - 1)
    measured = {
        pair: tuple(np.asarray(values, float).tolist())
        for pair, values in pairs.items()
        if np.size(values)
    }
    if np.isfinite(size) and size != 0 and measured:
        between = np.array([[i < c <= j for i, j in measured] for c in range(1, n_builds)])
        patterns, which = np.unique(between, axis=0, return_inverse=True)
        evidence = [_evidence(values, float(size)) for values in measured.values()]
        totals = np.array([_total(evidence, pattern) for pattern in patterns])
        weights += totals[which.ravel()]
    if events is not None:
        counts = np.asarray(events, float)
        before = np.cumsum(counts, axis=0)[:-1]
        weights += _beta(before, BEFORE) + _beta(counts.sum(axis=0) - before, AFTER)
    chances = np.exp(weights - logsumexp(weights))
    return np.concatenate([[0.0], chances])


def weight_of_events(before: Sequence[int], after: Sequence[int]) -> float:
    """Return the Bayes factor of events for a step between two builds.

    Examples
    --------
    >>> round(weight_of_events((0, 3), (3, 0)))
    30
    """
    first, second = np.array([before], float), np.array([after], float)
    with_step = _beta(first, BEFORE) + _beta(second, AFTER)
    return float(np.exp(with_step - _beta(first + second, AFTER))[0])


def _beta(counts: Array, prior: tuple[float, float]) -> Array:
    """Return the log probability of counts with a beta prior."""
    a, b = prior
    evidence: Array = betaln(a + counts[:, 0], b + counts[:, 1]) - betaln(a, b)
    return evidence


def _total(evidence: Sequence[tuple[Array, Array]], pattern: NDArray[np.bool_]) -> float:
    """Return the log evidence of a position, summed over sizes, offsets and spreads."""
    parts = [pair[int(stepped)] for pair, stepped in zip(evidence, pattern, strict=True)]
    joint = sum(parts) + np.log(_OFFSET_WEIGHTS)[:, None]
    return float(logsumexp(np.broadcast_to(joint, (len(SIZES), *joint.shape[-2:]))))


@lru_cache(maxsize=4096)
def _evidence(values: tuple[float, ...], size: float) -> tuple[Array, Array]:
    """Return the log likelihood of the differences of a pair without and with the step.

    Shapes (offsets, spreads) and (sizes, offsets, spreads).
    """
    spreads = SPREADS[SPREADS >= MIN_SPREAD_SHARE * abs(size)]
    spreads = spreads if len(spreads) else np.array([MIN_SPREAD_SHARE * abs(size)])
    centres = np.concatenate([[0.0], SIZES * size])
    means = centres[:, None, None] + OFFSETS[:, None] * _NODES
    logs = np.zeros((*means.shape, len(spreads)))
    for value in values:
        logs -= (DF + 1) / 2 * np.log1p(((value - means)[..., None] / spreads) ** 2 / DF)
    constant = gammaln((DF + 1) / 2) - gammaln(DF / 2) - 0.5 * np.log(DF * np.pi)
    logs += len(values) * (constant - np.log(spreads))
    weights = _NODE_WEIGHTS / _NODE_WEIGHTS.sum()
    mixed = logsumexp(logs, axis=2, b=weights[:, None])
    return mixed[0], mixed[1:]
