"""Convert runs to a scale of differences; handles logarithms, zeros, ties and missing values.

Takes arrays of a metric; returns arrays on a scale where noise is additive and a change is a
difference. The tests are in other modules.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benchkit.errors import UsageError

__all__ = ["LogValues", "matrix", "to_log_scale"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LogValues:
    """Runs of one report on the scale of the test.

    Parameters
    ----------
    baseline : ndarray, shape (tests, runs, arms)
        Runs of the baseline, and in a second arm those of the null arm. NaN is missing.
    contender : ndarray, shape (tests, runs)
        Runs of the contender.
    logarithmic : ndarray of bool, shape (tests,)
        Where True the scale is log(value). Where a value is zero or negative there is no
        logarithm, and the scale is value / mean of the baseline: a change of 0.1 is 10 % on both
        scales, but this one assumes the same noise at any level.
    positive : ndarray of bool, shape (tests,)
        Where no value is below zero.
    step_variance : ndarray, shape (tests,)
        Variance that rounding adds: step² / 12, on the same scale.
    n_missing : ndarray of int, shape (tests,)
        Cells given as NaN or infinite, all arms together: runs that are not used. Where columns
        are not blocks, NaN at the end of a row does not count: other rows have more runs.
    """

    baseline: Array
    contender: Array
    logarithmic: NDArray[np.bool_]
    positive: NDArray[np.bool_]
    step_variance: Array
    n_missing: NDArray[np.int64]


def matrix(values: ArrayLike, name: str) -> Array:
    """Return runs as a (tests, runs) array of floats; raise `UsageError` for another shape."""
    array = np.asarray(values, float)
    if array.ndim != 2:
        raise UsageError(
            f"{name}: an array of shape {array.shape}; a comparison needs (tests, runs), "
            "one row for each test"
        )
    return array


def to_log_scale(
    baseline: ArrayLike,
    contender: ArrayLike,
    null: ArrayLike | None = None,
    *,
    blocked: bool = False,
    resolution: ArrayLike | None = None,
) -> LogValues:
    """Return runs on the scale of the test; see `benchkit.analysis.stats.effects.compare`."""
    names = ["baseline", "contender", "null"][: 2 if null is None else 3]
    given = [baseline, contender, null][: len(names)]
    arrays = [matrix(values, name) for values, name in zip(given, names, strict=True)]  # type: ignore[arg-type]
    for name, array in zip(names[1:], arrays[1:], strict=True):
        if len(array) != len(arrays[0]):
            raise UsageError(
                f"{name}: {len(array)} rows, but the baseline has {len(arrays[0])}; "
                "row i of both must be the same test"
            )
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
    of_baseline = np.delete(cube, 1, axis=2).reshape(len(cube), -1)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        centre = np.where(logarithmic, _mean(runs), _mean(of_baseline))
        # If the baseline is zero the ratio is infinite, so that any unit serves.
        unit = np.where(centre > 0, centre, np.maximum(_mean(np.abs(runs)), 1e-300))
        by_unit = cube / unit[:, None, None]
        scale = np.where(logarithmic[:, None, None], np.log(cube), by_unit)
    steps = _tied_steps(runs) if resolution is None else np.asarray(resolution, float)
    return LogValues(
        baseline=np.delete(scale, 1, axis=2),
        contender=scale[:, :, 1],
        logarithmic=logarithmic,
        positive=positive,
        step_variance=np.broadcast_to((steps / unit) ** 2 / 12, (len(cube),)),
        n_missing=np.sum([_n_missing(array, blocked) for array in arrays], axis=0),
    )


def _n_missing(array: Array, blocked: bool) -> NDArray[np.int64]:
    """Return how many cells of each row were given without a value.

    Where columns are not blocks, NaN after the last run of a row only pads it to the longest row.
    """
    missing = ~np.isfinite(array)
    if not blocked:
        given = np.cumsum(~np.isnan(array)[:, ::-1], axis=1)[:, ::-1] > 0
        missing &= given
    return missing.sum(axis=1)


def _mean(runs: Array) -> Array:
    seen = ~np.isnan(runs)
    return np.where(seen, runs, 0).sum(axis=1) / np.maximum(seen.sum(axis=1), 1)


def _tied_steps(runs: Array) -> Array:
    """Return the smallest step between values of rows where values repeat, else 0.

    Values of a fine clock never repeat. Where values repeat the clock is coarse, and the smallest
    step seen is the best estimate of its resolution.
    """
    gaps = np.diff(np.sort(runs, axis=1), axis=1)  # NaN sorts last
    with np.errstate(invalid="ignore"):
        size = np.abs(runs).max(axis=1, initial=0, where=~np.isnan(runs))
        tiny = 1e-9 * size[:, None]
        tied = (gaps <= tiny).any(axis=1)
        smallest = np.where(gaps > tiny, gaps, np.inf).min(axis=1, initial=np.inf)
    return np.where(tied & np.isfinite(smallest), smallest, 0.0)
