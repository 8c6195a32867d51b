"""Effects of a comparison as arrays, one per column of the report, with sentences about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, bdtrc, stdtr

from benchkit.analysis.stats.joint_evidence import JointEvidence
from benchkit.analysis.stats.log_scale import LogValues
from benchkit.analysis.stats.moderated_variance import MIN_TESTS
from benchkit.analysis.stats.power import runs_until_decided
from benchkit.formatting import counted

Array = NDArray[np.float64]

#: Relative changes in the heat map of coiled/benchmarks: 0, 5, ..., 80 %.
THRESHOLDS = np.linspace(0, 0.8, 17)
#: Shares of null rows with p < 0.05 in a calibrated experiment, from less than half of the expected
#: share to twice as much: other shares change verdicts.
CALIBRATED = (0.02, 0.10)
#: Largest number of runs a side at which two modes can look like a change. If 30 % of the runs are
#: 25 % slower, all runs of an arm have one mode and those of the other arm the other mode in 2 % of
#: rows at three runs a side, in 0.1 % at five.
MODES_HIDE = 3


@dataclass(frozen=True)
class ConfidenceTable:
    """Probability that a contender differs by more than each threshold."""

    thresholds: Array  # (thresholds,), relative changes x, at least 0
    less: Array  # (tests, thresholds), p(contender / baseline - 1 < -x)
    more: Array  # (tests, thresholds), p(contender / baseline - 1 > x)


@dataclass(frozen=True, repr=False)
class Effects:
    """The effects of one contender; every array has one element for each test."""

    # Ratio of contender to baseline, of geometric means: 1.1 is 10 % more. NaN if an arm has no
    # runs.
    ratio: Array
    low: Array  # low, high: Interval of `ratio` at `level`; NaN with fewer than two runs a side
    high: Array
    p: Array  # Two-sided p value of no change
    # Expected share of false discoveries among the rows with at least this evidence: of the row
    # and the other metrics of its workload, or of the row alone.
    q: Array
    own_q: Array  # p value corrected for the number of rows: q of the row alone
    joint: JointEvidence | None  # Of the metrics of each workload together
    # Number of tests that would look like changes with exchanged labels of the runs, if these are
    # too many for the t test, so that `own_q` is from a permutation test; else 0.
    n_false: float
    # `labels[0]` or `labels[1]` (a change), `same`, `undecided`, `noise` (the null arm changed too,
    # by a comparable amount), `failed` (an arm has no runs).
    verdict: NDArray[np.str_]
    # Of changed rows, wider intervals that keep their coverage although the rows were selected for
    # their size; of other rows `low` and `high`.
    selected_low: Array
    selected_high: Array
    # The change on the scale of the test (a difference of logarithms), its standard error and
    # degrees of freedom, prior included.
    estimate: Array
    se: Array
    df: Array
    prior_df: Array  # Those that come from other tests; 0 if a test uses its own runs only
    zero_variance: NDArray[np.bool_]  # Whether all runs of an arm have equal values, in both arms
    null_p: Array | None  # p values of the null arm against the baseline
    null_moved: NDArray[np.bool_]  # Whether `null_p` is below 0.01
    n_baseline: NDArray[np.int64]  # Runs of the null arm count for the baseline
    n_contender: NDArray[np.int64]
    level: float
    same: float
    labels: tuple[str, str]  # Verdicts of a decrease and of an increase
    blocked: bool
    points: LogValues = field(repr=False)

    def __len__(self) -> int:
        return len(self.ratio)

    @property
    def changed(self) -> NDArray[np.bool_]:
        """Mask of the tests whose verdict is a decrease or an increase."""
        return np.isin(self.verdict, self.labels)

    @cached_property
    def hodges_lehmann(self) -> Array:
        """Median of the ratios of all pairs of a contender and a baseline run; a robust estimate.

        With blocks, the mean of the baseline runs of a block is first subtracted from its runs.

        References
        ----------
        .. [1] J. L. Hodges and E. L. Lehmann, "Estimates of location based on rank tests",
           Ann. Math. Statist. 34 (1963).
        """
        base, cont = self.points.baseline, self.points.contender
        if self.blocked:
            valid = ~np.isnan(base)
            level = np.where(valid, base, 0).sum(axis=2) / np.where(
                valid.any(axis=2), valid.sum(axis=2), np.nan
            )
            steps = cont - level
            first, second = np.triu_indices(steps.shape[1])
            pairs = (steps[:, first] + steps[:, second]) / 2
        else:
            flat = base.reshape(len(base), -1)
            pairs = (cont[:, None, :] - flat[:, :, None]).reshape(len(base), -1)
        middle = _median(pairs)
        with np.errstate(over="ignore"):
            return np.where(self.points.logarithmic, np.exp(middle), 1 + middle)

    @cached_property
    def needed(self) -> NDArray[np.int64]:
        """Further runs a side needed for a verdict; 0 where there is a verdict.

        With these runs a test that did not change gets the verdict `same` with 80 % probability.
        Where the noise is unknown, the runs missing to two a side; -1 where 1000 are not enough.
        """
        result = np.zeros(len(self), np.int64)
        undecided = self.verdict == "undecided"
        n_runs = np.minimum(self.n_baseline, self.n_contender)[undecided]
        parts = 1 / np.maximum(self.n_baseline, 1) + 1 / np.maximum(self.n_contender, 1)
        spread = (self.se / np.sqrt(parts))[undecided]
        total = runs_until_decided(spread, self.prior_df[undecided], self.same)
        more = np.where(total < 0, -1, np.maximum(total - n_runs, 1))
        result[undecided] = np.where(np.isfinite(spread), more, np.maximum(2 - n_runs, 1))
        return result

    @property
    def calibrated(self) -> bool | None:
        """Whether the null arm changed as rarely as expected; None without tests of a null arm."""
        n_changed, n_tests = self._null_counts
        if not n_tests:
            return None
        share = n_changed / n_tests
        # A share outside the limits counts only if chance gives it in less than 5 % of reports.
        many = share > CALIBRATED[1] and bdtrc(n_changed - 1, n_tests, 0.05) < 0.05
        few = share < CALIBRATED[0] and bdtr(n_changed, n_tests, 0.05) < 0.05
        return not (many or few)

    @property
    def _null_counts(self) -> tuple[int, int]:
        """Number of tests of the null arm with p < 0.05, and number of tests with a p value."""
        p = np.zeros(0) if self.null_p is None else self.null_p[np.isfinite(self.null_p)]
        return int((p < 0.05).sum()), len(p)

    @property
    def banner(self) -> str:
        """A sentence if the experiment is not calibrated, else an empty string."""
        if self.calibrated is not False:
            return ""
        n_changed, n_tests = self._null_counts
        return (
            "this experiment is not calibrated, do not trust its verdicts: the null arm differs "
            f"from the baseline at p < 0.05 in {n_changed} of {n_tests} tests, expected: "
            f"{0.05 * n_tests:.0f}"
        )

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the whole report, a sentence each."""
        warnings = [self.banner] if self.banner else []
        testable = np.isfinite(self.p)
        alone = int((testable & (self.prior_df == 0)).sum())
        if alone:
            warnings.append(
                f"{alone} of {len(self)} tests estimate their noise from their own runs only, "
                f"since fewer than {MIN_TESTS} tests vary: intervals may be too wide or narrow"
            )
        few = int((testable & (np.minimum(self.n_baseline, self.n_contender) == 2)).sum())
        if few:
            warnings.append(f"{few} of {len(self)} tests have two runs a side: a weak verdict")
        single = int(((~testable) & (self.verdict != "failed")).sum())
        if single:
            warnings.append(
                f"{single} of {len(self)} tests have one run a side: a ratio, no verdict"
            )
        if self.null_p is None and self.changed.any() and self.n_contender.max() <= MODES_HIDE:
            warnings.append(
                f"with {self.n_contender.max()} runs a side and no null arm, a workload with two "
                "modes can look like a change: add a null arm or two blocks to exclude this"
            )
        if self.n_false:
            warnings.append(
                f"with the labels of the runs exchanged, {self.n_false:.1f} tests would look like "
                "changes: noise has modes or outliers; only changes larger than these are listed"
            )
        missing = int(self.points.n_missing.sum())
        if missing:
            warnings.append(f"{counted(missing, 'run')} without a value left out")
        return tuple(warnings)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Warnings about each test; an empty string where there are none."""
        with np.errstate(invalid="ignore"):
            # A far outlier changes the mean by about a standard error; with normal noise the two
            # estimates differ by less than 0.5 standard errors in 99 of 100 rows.
            both = np.log(np.where(self.points.logarithmic, [self.hodges_lehmann, self.ratio], 1))
            distance = np.abs(both[0] - both[1])
            disagree = (distance > 0.7 * self.se) & (distance > 0.005)
        notes: list[list[str]] = [[] for _ in range(len(self))]
        for rows, sentence in (
            (self.verdict == "failed", "an arm has no valid run"),
            (self.null_moved & ~self.changed, "the null arm moved too"),
            (self.null_moved & self.changed, "the null arm moved too, by far less"),
            (disagree, "an outlier or two modes: the median of ratios disagrees"),
            (
                ~self.points.logarithmic & ~np.isposinf(self.ratio) & (self.estimate != 0),
                "zeros: compared as differences, not as ratios",
            ),
            (np.isposinf(self.ratio), "zero in the baseline: no ratio"),
            (
                self.zero_variance & (self.estimate != 0),
                "all runs of an arm are equal: no estimate of the noise",
            ),
            (self.points.n_missing > 0, "runs without a value were left out"),
        ):
            for i in np.flatnonzero(rows):
                notes[i].append(sentence)
        return tuple("; ".join(sentences) for sentences in notes)

    def probability(self, x: ArrayLike, *, below: bool = False) -> Array:
        """Return the probability that a change is larger, or smaller, than thresholds.

        Notes
        -----
        The tail of the t distribution at (log(1 + x) - estimate) / se: the largest confidence with
        which a one-sided interval excludes x. Over many reports, 5 % of the cells with a value of
        95 % are wrong.
        """
        # x: (thresholds,), above -1; returned: (tests, thresholds), NaN without a standard error.
        x = np.asarray(x, float)
        place = np.where(self.points.logarithmic[:, None], np.log1p(x), x)
        with np.errstate(invalid="ignore", divide="ignore"):
            t = (self.estimate[:, None] - place) / self.se[:, None]
        # Without noise and without a difference t is 0 / 0: use 0, neither more nor less.
        t = np.where(np.isnan(t) & np.isfinite(self.p)[:, None], 0.0, t)
        probability: Array = stdtr(self.df[:, None], -t if below else t)
        return probability

    def table(self) -> ConfidenceTable:
        """Return the table of coiled/benchmarks with calibrated probabilities."""
        return ConfidenceTable(
            thresholds=THRESHOLDS,
            less=self.probability(-THRESHOLDS, below=True),
            more=self.probability(THRESHOLDS),
        )


def _median(rows: Array) -> Array:
    """Return the median of each row without its NaN; NaN for a row of only NaN."""
    ordered = np.sort(rows, axis=1)
    count = (~np.isnan(rows)).sum(axis=1)
    if not rows.shape[1]:
        return np.full(len(rows), np.nan)
    index = np.stack([np.maximum(count - 1, 0) // 2, count // 2], axis=1)
    index = np.minimum(index, rows.shape[1] - 1)
    median: Array = np.take_along_axis(ordered, index, axis=1).mean(axis=1)
    return median
