"""Find series whose last nights differ enough that re-runs should decide.

More sensitive than the detector, because a re-run is cheap and a false candidate opens nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchkit.analysis.changepoint.rule import MIN_REFERENCE_NIGHTS, SHORT_WINDOW
from benchkit.analysis.changepoint.scan import DRIFT_NIGHTS, LatestReference
from benchkit.analysis.options import VERDICTS
from benchkit.analysis.stats.log_scale import SD_OF_MAD

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: `benchmarks/fit_constants.py --only candidates` prints the shares of series for neighbouring
#: values, `benchmarks/detection.py --only reruns` which changes candidates and re-runs find.

#: A series is a candidate for re-runs if one night is this many noise units away or more: of normal
#: noise 1 % of the nights, which re-runs dismiss.
CANDIDATE_UNITS = 2.5
#: Smallest change of such a night, as logarithm of a ratio: a little less than the smallest change
#: that is reported (3 %), because the noise of the night may hide a part of it.
CANDIDATE_CHANGE = 0.025
#: Slow changes: a series is a candidate if the sum of its distances, in noise units, less
#: `SUM_ALLOWANCE` a night, is this large or larger. Both are the usual ones of a CUSUM for a shift
#: of one unit (D. C. Montgomery, Introduction to Statistical Quality Control, chapter 9).
SUM_UNITS = 5.0
SUM_ALLOWANCE = 0.5
#: Distances that count in the sum: one outlier makes no candidate, and ends none.
SUM_CLIP = (-3.0, 4.0)
#: Smallest median change of the last `SHORT_WINDOW` nights of a slow change, as logarithm of a
#: ratio: less than `CANDIDATE_CHANGE`, since several nights hide less of a change than one.
SLOW_CHANGE = 0.02
#: Lowest noise assumed for a series without a reference, whose few nights may agree by chance.
SHORT_NOISE = 0.02


@dataclass(frozen=True)
class LatestNight:
    """The last night of each series relative to its reference; one element per series."""

    # Ratio of the last night to the level of the reference. NaN if the series was not measured on
    # the last night or its reference is too short.
    ratio: NDArray[np.float64]
    # The same change in noise units (robust standard deviations), signed.
    units: NDArray[np.float64]
    # 1 or -1 where the last night differs by six noise units or more, and by 3 %; else 0. One night
    # does not prove a change: measure a suspect series again.
    suspect: NDArray[np.int64]
    # 1 or -1 where re-runs should decide: the last night differs by 2.5 noise units and 2.5 %, or
    # the last nights together differ, or there are too few nights for a reference and the last
    # night differs by 5 % and by 2.5 deviations of the nights before; else 0.
    candidate: NDArray[np.int64]
    # First night of a candidate that differs, as a position in the series: runs before it are of
    # the last good build.
    since: NDArray[np.int64]
    n_before: NDArray[np.int64]  # Number of nights before the last one, since the last restart
    # (series, nights), distances of the last ten nights from a reference that ends before them, in
    # noise units; NaN on other nights.
    recent_units: NDArray[np.float64]

    @property
    def is_short(self) -> NDArray[np.bool_]:
        """Where a series has too few nights for a reference, shape (series,)."""
        return np.isnan(self.units) & (self.n_before < MIN_REFERENCE_NIGHTS)

    @property
    def is_jump(self) -> NDArray[np.bool_]:
        """Where the last night alone makes the series a candidate, shape (series,)."""
        with np.errstate(invalid="ignore"):
            large = np.abs(np.log(self.ratio)) >= CANDIDATE_CHANGE
            far = np.abs(self.units) >= CANDIDATE_UNITS
        jump: NDArray[np.bool_] = (large & far) | (self.is_short & (self.candidate != 0))
        return jump


def recent_distances(
    y: Floats, length: Ints, row: Ints, reference: LatestReference
) -> tuple[Floats, Ints]:
    """Return the distances of the last nights of rows from a reference that ends before them."""
    # y: (rows, nights), logarithms of the values; NaN after the last night of a row.
    # length: (rows,), number of nights of each row.
    # row: (n,), rows to examine.
    # distance: (n, nights), logarithms of ratios; NaN without a reference.
    # at: (n, nights), positions of the nights in the row, the last night last.
    size = max(1, min(DRIFT_NIGHTS + 2, y.shape[1]))  # also without any night
    at = np.maximum(length[row, None] - size + np.arange(size), 0)
    return y[row[:, None], at] - reference.earlier_level[row, None], at


def find_candidates(
    distance: Floats, at: Ints, row: Ints, change: Floats, reference: LatestReference
) -> tuple[Ints, Ints]:
    """Return direction and first night of suspected changes of rows that have a reference."""
    # distance, at: (n, nights), as returned by `recent_distances` for the same `row`.
    # change: (n,), last night minus level of the reference.
    # direction: (n,), 1 or -1 for a candidate, else 0.
    # first: (n,), position in the row of the first night that may have the change; else of the last
    # night.
    size = at.shape[1]
    units = distance / reference.earlier_noise[row, None]
    direction, first = np.zeros(row.size, int), at[:, -1].copy()
    with np.errstate(invalid="ignore"):
        jump = change / reference.noise[row]
        middle = np.median(distance[:, -SHORT_WINDOW:], axis=1)
        for sign in (1, -1):
            total, begin = np.zeros(row.size), np.full(row.size, size - 1)
            for night in range(size):
                begin = np.where(total > 0, begin, night)
                step = np.clip(sign * units[:, night], *SUM_CLIP) - SUM_ALLOWANCE
                total = np.maximum(total + step, 0)
            slow = (total >= SUM_UNITS) & (sign * middle >= SLOW_CHANGE)
            fast = (sign * jump >= CANDIDATE_UNITS) & (sign * change >= CANDIDATE_CHANGE)
            found = slow | fast
            direction[found] = sign
            first[found] = at[found, begin[found]]
    return direction, first


def find_short_candidates(y: Floats, length: Ints, row: Ints) -> tuple[Ints, Floats]:
    """Return direction and ratio of the last night of rows with too few nights for a reference."""
    # Arguments and `direction` as above; a row has two nights or more.
    # ratio: (n,), of the last night to the median of those before; NaN without a candidate.
    direction, ratio = np.zeros(row.size, int), np.full(row.size, np.nan)
    for place, at in enumerate(row.tolist()):
        before = y[at, : length[at] - 1]
        middle = np.median(before)
        noise = max(SD_OF_MAD * np.median(np.abs(before - middle)), SHORT_NOISE)
        change = y[at, length[at] - 1] - middle
        limit = max(VERDICTS.same, CANDIDATE_UNITS * noise * np.sqrt(1 + 1 / before.size))
        if abs(change) >= limit:
            direction[place], ratio[place] = np.sign(change), np.exp(change)
    return direction, ratio
