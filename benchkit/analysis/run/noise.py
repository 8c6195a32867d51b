"""Estimate the noise of workloads, and the changes that can be detected with it.

Successive comparable runs differ by noise only, except where the level changed in between; a
median of the differences ignores these few. Neither nights nor null arms are needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import pandas as pd

from benchkit.analysis.run.baseline import AGREE
from benchkit.analysis.stats.power import runs_needed

__all__ = ["EFFECTS", "FEWEST_RUNS", "run_noise", "describe_detectable_changes"]

#: Relative changes for which the number of runs needed is computed.
EFFECTS = (0.02, 0.05, 0.10)
#: Coefficient of variation above which an experiment of a few runs detects little.
LARGE_NOISE = 0.15
#: Fewest runs for an estimate: four differences.
FEWEST_RUNS = 5
#: Standard deviation / median absolute value, of normal noise.
_SCALE = 1.4826
#: Steps of noise per e-fold: within a step the runs needed hardly change; power is slow to compute.
_STEPS = 50


def run_noise(runs: pd.DataFrame, metric: str = "duration") -> pd.DataFrame:
    """Return the noise of each set of comparable runs, and how many runs detect a change in it.

    Parameters
    ----------
    runs : DataFrame
        As returned by `Store.runs`.
    metric : str, default "duration"
        Name of the metric.

    Returns
    -------
    DataFrame
        A row per set of runs that agree in `benchkit.analysis.run.baseline.AGREE`, the set with the
        newest run first: those columns, ``n_runs`` that ended ok, ``newest`` (when the last one
        started), ``level`` (their median, in the unit of the metric), ``noise`` (coefficient of
        variation of one run: 0.03 is 3 %; NaN with fewer than five runs) and, for each of
        `EFFECTS`, runs a side that detect such a change four times in five: ``needed_2``,
        ``needed_5``, ``needed_10`` (0 where the noise is unknown, -1 where 1000 are not enough).

    Notes
    -----
    The noise is 1.4826 times the median absolute difference of successive logarithms, divided by
    the square root of two. It uses differences of successive runs, because a slow drift or a new
    level is no noise [1]_, and a median, because one run in twenty is an outlier. Four times in
    five, the estimate from five runs is between half and twice the true noise, from twenty runs
    within 40 % of it.

    References
    ----------
    .. [1] J. von Neumann et al., "The mean square successive difference", Ann. Math. Statist. 12
       (1941).
    """
    agree = [name for name in AGREE if name in runs]
    columns = [*agree, "n_runs", "newest", "level", "noise"]
    needed = [f"needed_{effect * 100:.0f}" for effect in EFFECTS]
    keep = _counting(runs, metric)
    if not keep.any():
        return pd.DataFrame(columns=[*columns, *needed])
    ok = runs.loc[keep, [*agree, "started", metric]].sort_values("started", kind="stable")
    sets = ok.groupby(agree, dropna=False, sort=False).ngroup()
    steps = np.log(ok[metric].astype(float)).groupby(sets).diff().abs()
    by_set = ok.groupby(sets, sort=False)
    found = by_set[agree].first()
    found["n_runs"] = by_set.size()
    found["newest"] = by_set["started"].max()
    found["level"] = by_set[metric].median()
    spread = steps.groupby(sets).median() * _SCALE / np.sqrt(2)
    known = found["n_runs"] >= FEWEST_RUNS
    found["noise"] = np.sqrt(np.expm1(spread**2)).where(known)
    found[needed] = _needed(found["noise"].to_numpy(float))
    return found.sort_values("newest", ascending=False, kind="stable").reset_index(drop=True)


def describe_detectable_changes(noise: Mapping[str, float], n_runs: int) -> str:
    """Return a sentence on the changes that `n_runs` a side probably detect, by known noise.

    Parameters
    ----------
    noise : mapping of str to float
        Coefficient of variation of one run, by workload.
    n_runs : int
        Runs a side.

    Returns
    -------
    str
        Empty if no noise is known.
    """
    if not noise:
        return ""
    needed = dict(zip(noise, _needed(np.asarray([*noise.values()])), strict=True))
    counts = [sum(0 < runs[i] <= n_runs for runs in needed.values()) for i in range(len(EFFECTS))]
    parts = [f"{c:.0%} in {n}" for c, n in zip(EFFECTS, counts, strict=True)]
    text = f"{n_runs} runs a side see a change of {', of '.join(parts)} of {len(noise)} "
    text += "workloads whose noise is known"
    noisy = [name for name in noise if noise[name] > LARGE_NOISE]
    noisy = sorted(noisy, key=noise.__getitem__)[::-1]
    if noisy:
        few = ", ".join(f"{name} {noise[name]:.0%}" for name in noisy[:3])
        text += f"; noise of one run above {LARGE_NOISE:.0%}: {few}" + ", ..." * (len(noisy) > 3)
    return text


def _counting(runs: pd.DataFrame, metric: str) -> pd.Series:
    """Return a mask of the runs that ended ok, are excluded by no mark, and have the metric."""
    if runs.empty or metric not in runs:
        return pd.Series(False, index=runs.index)
    keep = (runs["outcome"] == "ok") & (runs[metric].astype(float) > 0) & runs["started"].notna()
    if "comparable" in runs:
        keep &= runs["comparable"].astype(bool)
    return keep.fillna(False)


def _needed(noise: np.ndarray) -> np.ndarray:
    """Return runs a side, shape (sets, effects)."""
    needed = np.zeros((noise.size, len(EFFECTS)), np.int64)
    known = np.isfinite(noise)
    steps = np.ceil(np.log(np.maximum(noise[known], 1e-4)) * _STEPS).astype(int)
    if steps.size:
        needed[known] = [_needed_at(step) for step in steps.tolist()]
    return needed


# Cached: a store has some hundred sets of runs, each takes 13 ms, and most share a step.
@lru_cache(maxsize=4096)
def _needed_at(step: int) -> tuple[int, ...]:
    noise = math.exp(step / _STEPS)
    return tuple(int(runs) for runs in runs_needed(EFFECTS, noise))
