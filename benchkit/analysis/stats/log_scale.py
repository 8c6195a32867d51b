"""Convert runs to a scale on which noise is additive and a change is a difference.

Handles zeros, ties and missing values.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benchkit.errors import UsageError

Array = NDArray[np.float64]

#: Lowest noise of a run or night that is assumed (logarithm of a ratio): clocks and caches cause at
#: least this much. `benchmarks/fit_constants.py` prints the rates with .003 and .01.
MIN_NOISE = 0.006
#: Standard deviation of normal noise relative to its median absolute deviation.
SD_OF_MAD = 1 / NormalDist().inv_cdf(0.75)


@dataclass(frozen=True)
class LogValues:
    """Runs of a report on the scale of the test."""

    # (tests, runs, arms), runs of the baseline, and in a second arm those of the null arm. NaN is
    # missing.
    baseline: Array
    contender: Array  # (tests, runs), runs of the contender
    # (tests,), where True the scale is log(value). Where a value is zero or negative there is no
    # logarithm, and values are divided by the mean of the baseline: a change of 0.1 is 10 % on both
    # scales, but this one assumes the same noise at any level.
    logarithmic: NDArray[np.bool_]
    positive: NDArray[np.bool_]  # (tests,), where no value is below zero
    step_variance: Array  # (tests,), variance caused by rounding: step² / 12, on the same scale
    # (tests,), number of unused cells of all arms, NaN or infinite. If columns are not blocks, NaN
    # at the end of a row is padding and does not count.
    n_missing: NDArray[np.int64]


def matrix(values: ArrayLike, name: str) -> Array:
    """Return runs as an array of floats."""
    # values: (tests, runs), values of a metric.
    # returned: (tests, runs), a view if possible.
    array = np.asarray(values, float)
    if array.ndim != 2:
        raise UsageError(
            f"{name}: an array of shape {array.shape}; expected (tests, runs), "
            "one row for each test"
        )
    return array


def to_log_scale(
    baseline: ArrayLike,
    contender: ArrayLike,
    null: ArrayLike | None = None,
    *,
    blocked: bool = False,
) -> LogValues:
    """Return runs on the scale of the test."""
    arrays = [matrix(baseline, "baseline"), matrix(contender, "contender")]
    if null is not None:
        arrays.append(matrix(null, "null"))
    for name, array in zip(("contender", "null"), arrays[1:], strict=False):
        check_rows(name, array, arrays[0])
        if blocked and array.shape[1] != arrays[0].shape[1]:
            raise UsageError(
                f"{name}: {array.shape[1]} blocks, but the baseline has {arrays[0].shape[1]}; "
                "with blocked=True column i of each is block i, NaN where a run is missing"
            )
    width = max(array.shape[1] for array in arrays)
    cube = np.full((len(arrays[0]), width, len(arrays)), np.nan)
    for i, array in enumerate(arrays):
        cube[:, : array.shape[1], i] = array
    cube[np.isinf(cube)] = np.nan
    runs = cube.reshape(len(cube), -1)
    with np.errstate(invalid="ignore"):
        logarithmic = np.asarray(~(runs <= 0).any(axis=1))
        positive = np.asarray(~(runs < 0).any(axis=1))
    baseline_runs = np.delete(cube, 1, axis=2).reshape(len(cube), -1)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        centre = np.where(logarithmic, row_means(runs), row_means(baseline_runs))
        # If the baseline is zero the ratio is infinite, so that any unit is right.
        unit = np.where(centre > 0, centre, np.maximum(row_means(np.abs(runs)), 1e-300))
        by_unit = cube / unit[:, None, None]
        scale = np.where(logarithmic[:, None, None], np.log(cube), by_unit)
    steps = _tied_steps(runs)
    return LogValues(
        baseline=np.delete(scale, 1, axis=2),
        contender=scale[:, :, 1],
        logarithmic=logarithmic,
        positive=positive,
        step_variance=np.broadcast_to((steps / unit) ** 2 / 12, (len(cube),)),
        n_missing=np.sum([_n_missing(array, blocked) for array in arrays], axis=0),
    )


def _n_missing(array: Array, blocked: bool) -> NDArray[np.int64]:
    """Return the number of cells of each row without a value, padding excluded."""
    missing = ~np.isfinite(array)
    if not blocked:
        has_later_run = np.cumsum(~np.isnan(array)[:, ::-1], axis=1)[:, ::-1] > 0
        missing &= has_later_run
    return np.asarray(missing.sum(axis=1), np.int64)


def check_rows(name: str, array: Array, baseline: Array) -> None:
    """Raise `UsageError` if an array and the baseline differ in their number of rows."""
    if len(array) != len(baseline):
        raise UsageError(
            f"{name}: {len(array)} rows, but the baseline has {len(baseline)}; "
            "row i of both must be the same test"
        )


def row_means(runs: Array) -> Array:
    """Return the mean of each row without its NaN."""
    # runs: (rows, columns), NaN is missing.
    # returned: (rows,), 0 for a row of only NaN.
    valid = ~np.isnan(runs)
    means: Array = np.where(valid, runs, 0).sum(axis=1) / np.maximum(valid.sum(axis=1), 1)
    return means


def _tied_steps(runs: Array) -> Array:
    """Return the smallest step between values of rows where values repeat, else 0.

    Values of a fine clock do not repeat. Where values repeat the clock is coarse, and the smallest
    observed step is the best estimate of its resolution.
    """
    gaps = np.diff(np.sort(runs, axis=1), axis=1)  # NaN sorts last
    with np.errstate(invalid="ignore"):
        size = np.abs(runs).max(axis=1, initial=0, where=~np.isnan(runs))
        tiny = 1e-9 * size[:, None]
        tied = (gaps <= tiny).any(axis=1)
        smallest = np.where(gaps > tiny, gaps, np.inf).min(axis=1, initial=np.inf)
    return np.where(tied & np.isfinite(smallest), smallest, 0.0)
