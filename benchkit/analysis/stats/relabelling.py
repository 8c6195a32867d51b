"""Correct p values of few runs by the p values of relabelled runs.

With three runs a side, noise of two modes makes arms that differ by chance and have no spread: of
700 rows in which 30 % of the runs are 25 % slower, 13 look like certain changes. If the labels of
the arms are exchanged for some runs, such rows are as frequent, but no change of the code remains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from benchkit.analysis.stats.log_scale import LogValues
from benchkit.analysis.stats.moderated_t import moderated_t

__all__ = ["relabelled_p"]

#: Largest number of runs of an arm for which p values are corrected. With four runs the false
#: discoveries of reports with several kinds of noise are .03 without it, and it would cost a third
#: of the changes found.
MOST_RUNS = 3
#: Smallest number of rows from which the tail can be estimated.
FEWEST_ROWS = 100
#: Largest number of relabellings that are tested.
MOST_RELABELLINGS = 9
#: Probability below which the tail of the p values is corrected.
TAIL = 0.01

Array = NDArray[np.float64]


def relabelled_p(
    points: LogValues, p: Array, blocked: bool, families: Sequence[NDArray[np.int64]]
) -> tuple[Array, bool]:
    """Return p values that are valid for the noise of the runs of the report.

    Parameters
    ----------
    points : LogValues
        Runs of both arms.
    p : ndarray, shape (tests,)
        p values of `moderated_t`.
    blocked : bool
        Whether a block shares a disturbance: then only runs of the same block are exchanged.
    families : sequence of ndarray of int
        Positions of the rows of each family.

    Returns
    -------
    p : ndarray, shape (tests,)
        At least `p`; `p` itself with a null arm, with more than three runs of an arm, and in
        reports of fewer than a hundred rows.
    is_exact : bool
        Whether `p` is valid, except for the sampling error of the estimate of the tail.

    Notes
    -----
    The p values of all rows and relabellings below 0.01 are taken as a power of uniform numbers,
    ``P(p < x) = r 0.01 (x / 0.01)^s``. r is their number relative to that expected, and s
    the Hill estimate of the tail [1]_: 1 for exact p values, less if small p values are too
    frequent. Of r only what exceeds two standard errors counts, and neither raises the
    significance.

    References
    ----------
    .. [1] B. M. Hill, "A simple general approach to inference about the tail of a distribution",
       Ann. Statist. 3 (1975).
    """
    n_runs = points.contender.shape[1]
    tested = np.isfinite(p)
    if points.baseline.shape[2] > 1 or n_runs > MOST_RUNS or tested.sum() < FEWEST_ROWS:
        return p, True
    baseline, contender = points.baseline[:, :, 0], points.contender
    null = np.concatenate(
        [
            moderated_t(replace(points, baseline=a[:, :, None]), b, blocked, families, None).p
            for a, b in _relabellings(baseline, contender, blocked)
        ]
        or [np.zeros(0)]
    )
    null = null[np.isfinite(null)]
    tail = null[null <= TAIL]
    if not tail.size:
        return p, True
    excess = max((tail.size - 2 * np.sqrt(tail.size)) / (null.size * TAIL), 1.0)
    smallest = np.finfo(float).tiny
    # One more value at its expected place keeps the estimate of few values near 1.
    sum_of_logs = np.log(TAIL / np.maximum(tail, smallest)).sum()
    power = min((tail.size + 1) / (sum_of_logs + 1), 1.0)
    with np.errstate(invalid="ignore"):
        of_tail = TAIL * (np.maximum(p, smallest) / TAIL) ** power
        corrected: Array = np.minimum(excess * np.where(p < TAIL, of_tail, p), 1.0)
    is_exact = excess == 1 and power * (1 + 2 / np.sqrt(tail.size)) >= 1
    return corrected, is_exact


def _relabellings(
    baseline: Array, contender: Array, blocked: bool
) -> Iterator[tuple[Array, Array]]:
    """Return arms with some runs exchanged, without exchanges of all runs."""
    n_runs = baseline.shape[1]
    if blocked:
        for number in range(1, min(2 ** (n_runs - 1), MOST_RELABELLINGS + 1)):
            exchanged = (number >> np.arange(n_runs)) & 1 == 1
            yield np.where(exchanged, contender, baseline), np.where(exchanged, baseline, contender)
        return
    runs = np.concatenate([baseline, contender], axis=1)
    # The first run stays in the baseline: the mirrored splits give the same p values.
    splits = [(0, *rest) for rest in combinations(range(1, 2 * n_runs), n_runs - 1)][1:]
    step = max(-(-len(splits) // MOST_RELABELLINGS), 1)
    for split in splits[::step]:
        rest = np.setdiff1d(np.arange(2 * n_runs), split)
        yield runs[:, list(split)], runs[:, rest]
