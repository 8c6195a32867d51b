"""Result of a comparison as arrays, one per column of the report, verdicts included.

Takes standard errors; returns intervals, probabilities, verdicts and sentences. The formulas of
the tests are in other modules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, bdtrc, stdtr, stdtrit

from benchkit.analysis.stats.bootstrap import THRESHOLDS, ConfidenceTable
from benchkit.analysis.stats.log_scale import LogValues
from benchkit.analysis.stats.moderated_variance import FEWEST_TESTS
from benchkit.analysis.stats.power import runs_until_decided

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Effects", "classify_effects"]

Array = NDArray[np.float64]

#: Level at which a null arm that differs marks its row; 0.05 would mark one row in twenty.
NULL_LEVEL = 0.01
#: Lowest and highest share of null rows with p < 0.05 in a calibrated experiment.
CALIBRATED = (0.02, 0.10)
ROWS_SHOWN = 20
#: Most runs a side at which two modes can look like a change. If 30 % of the runs are 25 % slower,
#: each arm is in a mode of its own in 2 % of rows at three runs a side, in 0.1 % at five.
MODES_HIDE = 3


@dataclass(frozen=True, repr=False)
class Effects:
    """The effects of one contender; every array has one element for each test.

    Parameters
    ----------
    ratio : ndarray of float
        Contender / baseline, of geometric means: 1.1 is 10 % more. NaN when an arm has no runs.
    low, high : ndarray of float
        Confidence interval of `ratio` at `level`. NaN with fewer than two runs a side.
    p, q : ndarray of float
        Two-sided p value of "nothing changed", and the same corrected for the size of the report.
    verdict : ndarray of str
        ``labels[0]`` or ``labels[1]`` (a change), ``same``, ``undecided``, ``noise`` (the null arm
        changed too, and not by far less), ``failed`` (an arm has no runs).
    selected_low, selected_high : ndarray of float
        For rows listed as changed, wider intervals that keep their coverage although the rows
        were selected for their size; for other rows `low` and `high`.
    estimate, se, df : ndarray of float
        The change on the scale of the test (a difference of logarithms), its standard error and
        degrees of freedom, prior included.
    prior_df : ndarray of float
        Degrees of freedom added by the other tests; 0 where a test uses only its own runs.
    zero_variance : ndarray of bool
        Where all runs of an arm have equal values, in both arms.
    null_p : ndarray of float or None
        p values of the null arm against the baseline; None without a null arm.
    null_moved : ndarray of bool
        Where ``null_p`` is below 0.01.
    n_baseline, n_contender : ndarray of int
        Runs used; runs of the null arm count for the baseline.
    level, same : float
        Confidence level; largest change that counts as no change.
    labels : tuple of str
        Verdicts for less and for more.
    blocked : bool
        Whether runs were compared within blocks.
    points : LogValues
        The runs on the scale of the test.
    """

    ratio: Array
    low: Array
    high: Array
    p: Array
    q: Array
    verdict: NDArray[np.str_]
    selected_low: Array
    selected_high: Array
    estimate: Array
    se: Array
    df: Array
    prior_df: Array
    zero_variance: NDArray[np.bool_]
    null_p: Array | None
    null_moved: NDArray[np.bool_]
    n_baseline: NDArray[np.int64]
    n_contender: NDArray[np.int64]
    level: float
    same: float
    labels: tuple[str, str]
    blocked: bool
    points: LogValues = field(repr=False)

    def __len__(self) -> int:
        return len(self.ratio)

    @property
    def changed(self) -> NDArray[np.bool_]:
        """Mask of the tests whose verdict is a change."""
        return np.isin(self.verdict, self.labels)

    @cached_property
    def hodges_lehmann(self) -> Array:
        """Median of all ratios of a contender run to a baseline run; robust against an outlier.

        With blocks, the level of the block (the mean of its baseline runs) is first subtracted
        from each run.

        References
        ----------
        .. [1] J. L. Hodges and E. L. Lehmann, "Estimates of location based on rank tests",
           Ann. Math. Statist. 34 (1963).
        """
        base, cont = self.points.baseline, self.points.contender
        if self.blocked:
            seen = ~np.isnan(base)
            level = np.where(seen, base, 0).sum(axis=2) / np.where(seen.any(2), seen.sum(2), np.nan)
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
        Where the spread is unknown, the runs missing to two a side; -1 where 1000 are not enough.
        """
        result = np.zeros(len(self), np.int64)
        open_rows = self.verdict == "undecided"
        n_now = np.minimum(self.n_baseline, self.n_contender)
        parts = 1 / np.maximum(self.n_baseline, 1) + 1 / np.maximum(self.n_contender, 1)
        spread = self.se / np.sqrt(parts)
        total = runs_until_decided(spread[open_rows], self.prior_df[open_rows], self.same)
        known = np.isfinite(spread[open_rows])
        more = np.where(total < 0, -1, np.maximum(total - n_now[open_rows], 1))
        result[open_rows] = np.where(known, more, np.maximum(2 - n_now[open_rows], 1))
        return result

    @property
    def calibrated(self) -> bool | None:
        """Whether the null arm changed as rarely as expected; None without tests of a null arm."""
        if self.null_p is None:
            return None
        known = self.null_p[np.isfinite(self.null_p)]
        if not len(known):
            return None
        moved, share = int((known < 0.05).sum()), float((known < 0.05).mean())
        # A share outside the limits counts only if chance gives it in less than 5 % of reports.
        many = share > CALIBRATED[1] and bdtrc(moved - 1, len(known), 0.05) < 0.05
        few = share < CALIBRATED[0] and bdtr(moved, len(known), 0.05) < 0.05
        return not (many or few)

    @property
    def banner(self) -> str:
        """A sentence if the experiment is not calibrated, else an empty string."""
        if self.calibrated is not False or self.null_p is None:
            return ""
        known = self.null_p[np.isfinite(self.null_p)]
        moved = int((known < 0.05).sum())
        return (
            f"this experiment is not calibrated: the baseline differs from itself at p < 0.05 in "
            f"{moved} of {len(known)} tests, {0.05 * len(known):.0f} would be right"
        )

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the whole report, one sentence each."""
        found = [self.banner] if self.banner else []
        testable = np.isfinite(self.p)
        alone = int((testable & (self.prior_df == 0)).sum())
        if alone:
            found.append(
                f"{alone} of {len(self)} tests judge their noise by their own runs alone: "
                f"it takes {FEWEST_TESTS} tests that vary to learn it from one another"
            )
        few = int((testable & (np.minimum(self.n_baseline, self.n_contender) == 2)).sum())
        if few:
            found.append(f"{few} of {len(self)} tests have two runs a side: a weak verdict")
        single = int(((~testable) & (self.verdict != "failed")).sum())
        if single:
            found.append(f"{single} of {len(self)} tests have one run a side: a ratio, no verdict")
        if self.null_p is None and self.changed.any() and self.n_contender.max() <= MODES_HIDE:
            found.append(
                f"with {self.n_contender.max()} runs a side and no null arm, a workload with two "
                "modes can look like a change: a null arm or two more blocks would tell"
            )
        missing = int(self.points.n_missing.sum())
        if missing:
            found.append(f"{missing} runs have no value and were left out")
        return tuple(found)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Warnings about each test; an empty string where there are none."""
        with np.errstate(invalid="ignore"):
            # One far outlier changes the mean by about one standard error; with normal noise the
            # two estimates differ by less than 0.5 standard errors in 99 rows of 100.
            both = np.log(np.where(self.points.logarithmic, [self.hodges_lehmann, self.ratio], 1))
            apart = np.abs(both[0] - both[1])
            disagree = (apart > 0.7 * self.se) & (apart > 0.005)
        said: list[list[str]] = [[] for _ in range(len(self))]
        for rows, sentence in (
            (self.verdict == "failed", "an arm has no run that counts"),
            (self.null_moved & ~self.changed, "the null arm moved too"),
            (self.null_moved & self.changed, "the null arm moved too, by far less"),
            (disagree, "an outlier or two modes: the median of ratios disagrees"),
            (
                ~self.points.logarithmic & ~np.isposinf(self.ratio) & (self.estimate != 0),
                "zeros: compared as differences, not as ratios",
            ),
            (np.isposinf(self.ratio), "none of it in the baseline: no ratio"),
            (
                self.zero_variance & (self.estimate != 0),
                "runs of an arm never differ: no spread to judge by",
            ),
            (self.points.n_missing > 0, "runs without a value were left out"),
        ):
            for i in np.flatnonzero(rows):
                said[i].append(sentence)
        return tuple("; ".join(sentences) for sentences in said)

    def probability(self, x: ArrayLike, *, below: bool = False) -> Array:
        """Return p(contender / baseline - 1 > x), or < x, shape (tests, thresholds).

        Tail of the t distribution at (log(1 + x) - estimate) / se: the confidence at which a
        one-sided interval would just exclude x. Over many reports, 5 % of the cells with a value
        of 95 % are wrong. NaN without a standard error.

        Parameters
        ----------
        x : array_like, shape (thresholds,)
            Relative changes, above -1.
        below : bool, default False
            Return p(... < x) instead of p(... > x).
        """
        x = np.asarray(x, float)
        place = np.where(self.points.logarithmic[:, None], np.log1p(x), x)
        with np.errstate(invalid="ignore", divide="ignore"):
            t = (self.estimate[:, None] - place) / self.se[:, None]
        # Without spread and without a difference t is 0 / 0: use 0, neither more nor less.
        t = np.where(np.isnan(t) & np.isfinite(self.p)[:, None], 0.0, t)
        return stdtr(self.df[:, None], -t if below else t)

    def table(self) -> ConfidenceTable:
        """Return the reference's table, calibrated: p of more than 0, 5, ..., 80 % either way."""
        return ConfidenceTable(
            thresholds=THRESHOLDS,
            less=self.probability(-THRESHOLDS, below=True),
            more=self.probability(THRESHOLDS),
        )

    def to_frame(self) -> pd.DataFrame:
        """Return the columns of a report as a pandas DataFrame, one row for each test."""
        import pandas as pd

        names = (
            *("ratio", "low", "high", "p", "q", "verdict", "needed", "selected_low"),
            *("selected_high", "hodges_lehmann", "se", "df", "n_baseline", "n_contender"),
        )
        columns = {name: getattr(self, name) for name in names}
        columns["null_moved"] = self.null_moved
        return pd.DataFrame({**columns, "note": self.notes})

    def __repr__(self) -> str:
        labels, counts = np.unique(self.verdict, return_counts=True)
        summary = ", ".join(f"{count} {word}" for word, count in zip(labels, counts, strict=True))
        lines = [f"<Comparison of {len(self)} tests: {summary}>", *self.warnings]
        order = np.argsort(np.where(self.changed, self.p, 2 + np.arange(len(self))))
        lines.append(f"{'test':>5} {'ratio':>7} {'interval':>16} {'q':>8}  verdict")
        for i in order[:ROWS_SHOWN]:
            interval = f"{self.selected_low[i]:.3f} to {self.selected_high[i]:.3f}"
            needed = f": {self.needed[i]} more runs would tell" if self.needed[i] > 0 else ""
            lines.append(
                f"{i:>5} {self.ratio[i]:>7.3f} {interval:>16} {self.q[i]:>8.2g}  "
                f"{self.verdict[i]}{needed}"
            )
        if len(self) > ROWS_SHOWN:
            lines.append(f"... and {len(self) - ROWS_SHOWN} more")
        return "\n".join(lines)


def classify_effects(
    points: LogValues,
    *,
    estimate: Array,
    se: Array,
    df: Array,
    prior_df: Array,
    zero_variance: NDArray[np.bool_],
    p: Array,
    q: Array,
    null_p: Array | None,
    null_estimate: Array | None,
    blocked: bool,
    level: float,
    same: float,
    labels: tuple[str, str],
) -> Effects:
    """Return the intervals and verdicts that follow from estimates and standard errors."""
    n_baseline = (~np.isnan(points.baseline)).sum(axis=(1, 2))
    n_contender = (~np.isnan(points.contender)).sum(axis=1)

    of_baseline = np.abs(points.baseline).max(
        axis=(1, 2), initial=0, where=~np.isnan(points.baseline)
    )
    from_nothing = ~points.logarithmic & (of_baseline == 0) & (estimate != 0)
    # A ratio of counts cannot fall below 0, although the linear scale allows it.
    least = np.where(points.positive, 0.0, -np.inf)

    def back(value: Array) -> Array:
        with np.errstate(over="ignore"):
            ratio = np.where(points.logarithmic, np.exp(value), np.maximum(1 + value, least))
        return np.where(from_nothing, np.nan, ratio)

    def ends(tail: Array | float) -> tuple[Array, Array]:
        half = stdtrit(df, 1 - np.broadcast_to(tail, df.shape)) * se
        half = np.where(se == 0, 0.0, half)
        return back(estimate - half), back(estimate + half)

    with np.errstate(invalid="ignore", divide="ignore"):
        picked = q <= 1 - level
        null_moved, outdone = np.zeros((2, len(p)), bool)
        if null_p is not None and null_estimate is not None:
            null_moved = null_p < NULL_LEVEL
            # Contender minus the mean of two arms has 3/2 of the variance of one arm; null arm
            # minus baseline has 2.
            outdone = 2 * stdtr(1, -np.abs(estimate / null_estimate) / np.sqrt(3 / 4)) <= 1 - level
        low, high = ends((1 - level) / 2)
        # Benjamini and Yekutieli: R rows selected of m use the error rate (1 - level) R / m each.
        share = picked.sum() / max(int(np.isfinite(q).sum()), 1)
        wide_low, wide_high = ends((1 - level) * max(share, 1e-12) / 2)
        close_low, close_high = ends(1 - level)
        inside = (close_low > 1 - same) & (close_high < 1 + same)
    verdict = np.select(
        [
            (n_baseline == 0) | (n_contender == 0),
            picked & null_moved & ~outdone,
            picked & (estimate < 0),
            picked,
            inside,
        ],
        ["failed", "noise", labels[0], labels[1], "same"],
        "undecided",
    )
    return Effects(
        ratio=np.where(from_nothing, np.copysign(np.inf, estimate), back(estimate)),
        low=low,
        high=high,
        p=p,
        q=q,
        verdict=verdict,
        selected_low=np.where(picked, wide_low, low),
        selected_high=np.where(picked, wide_high, high),
        estimate=estimate,
        se=se,
        df=df,
        prior_df=prior_df,
        zero_variance=zero_variance,
        null_p=null_p,
        null_moved=null_moved,
        n_baseline=n_baseline,
        n_contender=n_contender,
        level=level,
        same=same,
        labels=labels,
        blocked=blocked,
        points=points,
    )


def _median(rows: Array) -> Array:
    """Return the median of each row without its NaN; NaN for a row of only NaN."""
    ordered = np.sort(rows, axis=1)
    count = (~np.isnan(rows)).sum(axis=1)
    if not rows.shape[1]:
        return np.full(len(rows), np.nan)
    index = np.stack([np.maximum(count - 1, 0) // 2, count // 2], axis=1)
    index = np.minimum(index, rows.shape[1] - 1)
    return np.take_along_axis(ordered, index, axis=1).mean(axis=1)
