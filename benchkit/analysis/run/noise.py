"""Estimate the noise of workloads, and the number of runs that detect a change in it.

Successive comparable runs differ by noise only, except where the level changed in between; a
median of the differences ignores these few changes. Any runs can be used, also without nights and
null arms.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import pandas as pd

from benchkit.analysis.metric_limits import newest_definitions
from benchkit.analysis.run.baseline import COMPARABLE_FIELDS, SAME_MEMORY, as_requested
from benchkit.analysis.stats.log_scale import SD_OF_MAD
from benchkit.analysis.stats.power import runs_needed
from benchkit.formatting import PARTS_NAMED
from benchkit.store.schema import SERIES_FIELDS

#: Relative changes for which the number of runs needed is computed.
EFFECTS = (0.02, 0.05, 0.10)
#: Coefficient of variation above which a few runs detect little: changes of 20 % need twelve runs a
#: side, those of 10 % forty (`runs_needed`).
LARGE_NOISE = 0.15
#: Smallest number of runs for an estimate, which gives four differences.
MIN_RUNS = 5


def run_noise(runs: pd.DataFrame, metric: str = "duration") -> pd.DataFrame:
    """Return the noise of each set of comparable runs, and the runs that detect a change in it.

    Notes
    -----
    The noise is 1.4826 times the median absolute difference of successive logarithms, divided by
    the square root of two. It uses differences of successive runs, because a slow drift or a new
    level is not noise [1]_, and a median, because a run in twenty is an outlier. Four times in
    five, the estimate from five runs is between half and twice the true noise, from twenty runs
    within 40 % of it.

    References
    ----------
    .. [1] J. von Neumann et al., "The mean square successive difference", Ann. Math. Statist. 12
       (1941).
    """
    # returned: A row per set of comparable runs, the set with the newest run first: the fields that
    # they share (see `benchkit.analysis.run.baseline`), `n_runs` with outcome ok, `newest` (start
    # of the last run), `level` (median, in the unit of the metric), `noise` (coefficient of
    # variation of a run: 0.03 is 3 %; NaN with fewer than five runs) and, for each of `EFFECTS`,
    # runs a side that detect such a change four times in five: `needed_2`, `needed_5`, `needed_10`
    # (0 where the noise is unknown, -1 where 1000 are not enough).
    fields = [name for name in (*SERIES_FIELDS, *COMPARABLE_FIELDS) if name in runs]
    columns = [*fields, "n_runs", "newest", "level", "noise"]
    needed = [f"needed_{effect * 100:.0f}" for effect in EFFECTS]
    (runs,), _ = newest_definitions([runs], [metric], by=fields)
    keep = _valid(runs, metric)
    if not keep.any():
        return pd.DataFrame(columns=[*columns, *needed])
    ok = runs.loc[keep, [*fields, "started", metric]].sort_values("started", kind="stable")
    keys = as_requested(ok[fields])
    if "memory_limit" in keys:  # limits that differ a little are the same
        keys["memory_limit"] = (np.log(keys["memory_limit"].astype(float)) / SAME_MEMORY).round()
    sets = keys.groupby(fields, dropna=False, sort=False).ngroup()
    steps = np.log(ok[metric].astype(float)).groupby(sets).diff().abs()
    by_set = ok.groupby(sets, sort=False)
    table = by_set[fields].first()
    table["n_runs"] = by_set.size()
    table["newest"] = by_set["started"].max()
    table["level"] = by_set[metric].median()
    spread = steps.groupby(sets).median() * SD_OF_MAD / np.sqrt(2)
    table["noise"] = np.sqrt(np.expm1(spread**2)).where(table["n_runs"] >= MIN_RUNS)
    table[needed] = _needed(table["noise"].to_numpy(float))
    return table.sort_values("newest", ascending=False, kind="stable").reset_index(drop=True)


def describe_detectable_changes(noise: Mapping[str, float], n_runs: int) -> str:
    """Return a sentence about the changes that a number of runs detects four times in five."""
    if not noise:
        return ""
    needed = dict(zip(noise, _needed(np.asarray([*noise.values()])), strict=True))
    counts = [sum(0 < runs[i] <= n_runs for runs in needed.values()) for i in range(len(EFFECTS))]
    parts = [f"{c:.0%} in {n}" for c, n in zip(EFFECTS, counts, strict=True)]
    text = f"{n_runs} runs a side detect a change of {', of '.join(parts)} of {len(noise)} "
    text += "workloads with known noise"
    noisy = [name for name in noise if noise[name] > LARGE_NOISE]
    noisy = sorted(noisy, key=noise.__getitem__)[::-1]
    if noisy:
        few = ", ".join(f"{name} {noise[name]:.0%}" for name in noisy[:PARTS_NAMED])
        text += f"; noise of one run above {LARGE_NOISE:.0%}: {few}" + ", ..." * (
            len(noisy) > PARTS_NAMED
        )
    return text


def _valid(runs: pd.DataFrame, metric: str) -> pd.Series:
    """Return a mask of the runs with outcome ok and a value that no mark excludes."""
    if runs.empty or metric not in runs:
        return pd.Series(False, index=runs.index)
    keep = (runs["outcome"] == "ok") & (runs[metric].astype(float) > 0) & runs["started"].notna()
    if "comparable" in runs:
        keep &= runs["comparable"].astype(bool)
    return keep.fillna(False)


def _needed(noise: np.ndarray) -> np.ndarray:
    """Return runs a side for each noise and effect, shape (sets, effects)."""
    needed = np.zeros((noise.size, len(EFFECTS)), np.int64)
    known = np.isfinite(noise)
    if known.any():  # as printed, with two digits
        needed[known] = [_needed_at(float(f"{value:.2g}")) for value in noise[known].tolist()]
    return needed


# Cached: a store has some hundred sets of runs, each takes 13 ms, and most share two digits.
@lru_cache(maxsize=4096)
def _needed_at(noise: float) -> tuple[int, ...]:
    return tuple(runs_needed(effect, noise) for effect in EFFECTS)
