"""Correct p values of few runs by runs whose labels are exchanged.

With few runs, noise of two modes makes arms that differ by chance and have no spread: of 700 rows
in which 30 % of the runs are 25 % slower, 13 look like certain changes with three runs a side, two
with a null arm and one in two reports with five runs a side. If the labels of the arms are
exchanged for some runs, such rows are as frequent, but no change of the code remains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from benchkit.analysis.options import VERDICTS
from benchkit.analysis.stats.log_scale import LogValues
from benchkit.analysis.stats.moderated_t import TTestResult, moderated_t
from benchkit.analysis.stats.moderated_variance import MANY_TESTS, MIN_WORKLOADS

#: `benchmarks/fit_constants.py --only verdicts` prints the rates of neighbouring values,
#: `benchmarks/verdicts.py --only rows` the false rows of each kind of noise.

#: Largest number of runs of an arm for which p values are corrected. With ten, the false
#: discoveries of reports with any kind of noise are .04 or less without it.
MAX_RUNS = 5
#: Number of relabellings. With 25, a single row is listed only if no other row reaches its change
#: in any of them.
MAX_RELABELLINGS = 25
#: Rows with exchanged labels are false. p values are corrected if more false rows are certain than
#: the level allows, by this many standard errors; by more if many rows are listed, since metrics of
#: a workload are correlated: with 0.5 an excess by chance would cost many found changes (.46
#: instead of .76 of those in simulated reports of 100 workloads).
EXCESS_ERRORS = 0.5
MANY_EXCESS_ERRORS = 3.0
#: Smallest number of listed rows that are many: as many of 700 rows are listed with three runs a
#: side if nothing changed, and the noise has two modes (see above).
MANY_LISTED = 13
#: Smallest such number per report: with exact p values, it is reached in 4 % of reports in which
#: nothing is listed.
MIN_FALSE = 0.1

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Relabelled:
    """p values of a report, corrected by those of relabelled runs."""

    p: Array  # (tests,), at least the p values of the t test
    # Whether the p values of the t test are valid, as far as relabelled runs show.
    is_exact: bool = True
    # Number of tests that look as certain as those listed if labels are exchanged, where these are
    # too many; else 0.
    n_false: float = 0.0


def relabelled_p(
    points: LogValues,
    test: TTestResult,
    listed: NDArray[np.bool_],
    blocked: bool,
    families: Sequence[NDArray[np.int64]],
    *,
    workload: NDArray[np.int64] | None = None,
    level: float = VERDICTS.level,
) -> Relabelled:
    """Return p values that are valid for the noise of the runs of the report.

    Notes
    -----
    The relabelled rows that are not listed give the number V of rows that look as certain as the R
    that are listed. If V exceeds ``(1 - level) R`` by half a standard error, or by three where many
    rows are listed, each row gets the p value of a permutation test [1]_: the share of relabelled
    rows with as large a difference, in units of the standard error of its family. The t statistic
    itself would not do, because arms of one mode each have no spread. With few relabellings a row
    alone is then not listed: two arms of three runs have nine, or three if runs are exchanged
    within blocks.

    References
    ----------
    .. [1] V. G. Tusher, R. Tibshirani, G. Chu, "Significance analysis of microarrays applied to the
       ionizing radiation response", PNAS 98 (2001).
    """
    # listed: (tests,), rows that are changed by the p values of `test`.
    # workload: (tests,), number of the workload of each row, whose metrics are from the same runs:
    # with exchanged labels they look certain together, which is one event, not one per row.
    n_runs, n_rows = points.contender.shape[1], int(np.isfinite(test.p).sum())
    if n_runs > MAX_RUNS or n_rows < MANY_TESTS:
        return Relabelled(test.p)
    # Rows of one workload look certain together: few workloads need more rows.
    if workload is not None and workload.max() + 1 < MIN_WORKLOADS and n_rows < 2 * MANY_TESTS:
        return Relabelled(test.p)
    rest = np.flatnonzero(np.isfinite(test.p) & ~listed)
    if not rest.size:
        return Relabelled(test.p)
    rest_families = [np.flatnonzero(np.isin(rest, rows)) for rows in families]
    # Of a metric that changed in all workloads no row is left.
    rest_families = [rows for rows in rest_families if rows.size]
    scale = np.ones(len(test.p))
    for rows in families:
        se = test.se[rows]
        scale[rows] = np.median(se[se > 0]) if (se > 0).any() else 1.0
    few = _rows(points, rest)
    n_listed = max(int(listed.sum()), 1)
    certain = max(test.p[listed].max(initial=0), (1 - level) / n_rows)
    counts, sizes = np.zeros(rest.size), []
    for base, other in _relabellings(few, blocked):
        result = moderated_t(replace(few, baseline=base), other, blocked, rest_families)
        counts += result.p <= certain
        sizes.append(np.abs(result.estimate) / scale[rest])
    own = np.arange(rest.size) if workload is None else workload[rest]
    together = np.bincount(own, counts)
    n_false, error = counts.sum() / len(sizes), np.sqrt((together**2).sum()) / len(sizes)
    error *= MANY_EXCESS_ERRORS if n_listed >= MANY_LISTED else EXCESS_ERRORS
    # One workload alone is chance: its metrics are of the same runs, and look certain together.
    # With it, .24 of the changes of one metric are found, without .30 (5 runs, correlation .8).
    others = n_false if workload is None else n_false - together.max() / len(sizes)
    if others - error <= max((1 - level) * n_listed, MIN_FALSE):
        return Relabelled(test.p)
    null = np.sort(np.concatenate(sizes))
    null = null[np.isfinite(null)]
    n_larger = null.size - np.searchsorted(null, np.abs(test.estimate) / scale)
    p = np.maximum(test.p, (n_larger + 1) / (null.size + 1))
    return Relabelled(p, is_exact=False, n_false=float(n_false))


def _rows(points: LogValues, rows: NDArray[np.int64]) -> LogValues:
    return LogValues(*(values[rows] for values in vars(points).values()))


def _relabellings(points: LogValues, blocked: bool) -> Iterator[tuple[Array, Array]]:
    """Return baseline and contender with some runs exchanged, without exchanges of all runs."""
    arms = np.concatenate([points.baseline, points.contender[:, :, None]], axis=2)
    n_tests, n_runs, n_arms = arms.shape
    if blocked:
        # The arm that is the contender in each block; of two arms, mirrored ones are left out.
        ends = [1] if n_arms == 2 else range(n_arms)
        starts = product(range(n_arms), repeat=n_runs - 1)
        choices = [(*start, end) for start in starts for end in ends]
        choices.remove((n_arms - 1,) * n_runs)
        for choice in _spread(choices):
            order = [[*(arm for arm in range(n_arms) if arm != own), own] for own in choice]
            mixed = np.take_along_axis(arms, np.array(order)[None], axis=2)
            yield mixed[:, :, :-1], mixed[:, :, -1]
        return
    runs = arms.transpose(0, 2, 1).reshape(n_tests, -1)
    # Of two arms the first run stays in the baseline: the mirrored splits give the same p values.
    first = int(n_arms == 2)
    splits = list(combinations(range(first, runs.shape[1]), n_runs))[:-1]
    for split in _spread(splits):
        rest = np.setdiff1d(np.arange(runs.shape[1]), split)
        baseline = runs[:, rest].reshape(n_tests, n_arms - 1, n_runs).transpose(0, 2, 1)
        yield baseline, runs[:, list(split)]


def _spread(choices: Sequence[tuple[int, ...]]) -> Sequence[tuple[int, ...]]:
    """Return some of the choices, evenly spaced."""
    return choices[:: max(-(-len(choices) // MAX_RELABELLINGS), 1)]
