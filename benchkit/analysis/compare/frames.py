"""Find the function in which a task group takes a larger or smaller share of its time.

Takes the call stacks of the runs of two arms, for a group that changed. Samples of a run are not
independent of each other: the unit of the test is the run, and samples give each run's shares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, stdtr, stdtrit

from benchkit.formatting import package_path

__all__ = ["FrameSamples", "find_frame", "frame_samples"]

#: A function is tested if a run has this many samples inside it, and as many outside, on average.
MIN_SAMPLES = 5.0
#: A function is named instead of its callers if its change is this share of the largest or more.
INNER_SHARE = 0.8

Array = NDArray[np.float64]
#: Function and file.
Frame: TypeAlias = tuple[str, str]


class FrameSamples(NamedTuple):
    """Samples of the call stacks of a task group in one run."""

    total: int  # Number of samples
    counts: dict[Frame, int]  # Function and file -> samples in which it was on the call stack
    depths: dict[Frame, float]  # Function and file -> mean number of its callers


def frame_samples(profile: pd.DataFrame) -> dict[str, FrameSamples]:
    """Return the samples of each function by prefix of the tasks."""
    result: dict[str, FrameSamples] = {}
    if profile.empty:
        return result
    columns = ("parent", "prefix", "function", "file", "count")
    rows = list(zip(*(profile[name].tolist() for name in columns), strict=True))
    frames = [(str(row[2]), package_path(str(row[3]))) for row in rows]
    depth: list[int] = []
    for place, (parent, prefix, _, _, count) in enumerate(rows):
        depth.append(depth[parent] + 1 if parent >= 0 else 0)
        if parent < 0:
            known = result.get(prefix, FrameSamples(0, {}, {}))
            result[prefix] = known._replace(total=known.total + count)
            continue
        frame, above = frames[place], parent
        while rows[above][0] >= 0 and frames[above] != frame:
            above = rows[above][0]
        if rows[above][0] >= 0:  # a caller is the same function
            continue
        samples = result[prefix]
        before = samples.counts.get(frame, 0)
        total = before + count
        if total:
            share = count / total
            earlier_depth = samples.depths.get(frame, 0.0)
            samples.depths[frame] = (1 - share) * earlier_depth + share * depth[place]
        samples.counts[frame] = total
    return result


def find_frame(
    arms: Mapping[str, Sequence[FrameSamples | None]], direction: int, *, level: float = 0.95
) -> dict[str, Any] | None:
    """Find the function whose share of the samples of a group changed with the group.

    Notes
    -----
    One-sided t tests of the log-odds of the share, run by run, with the variance of a function
    between its runs, and at least that of independent samples. The largest of n functions is found
    if n p <= 1 - level. Functions that are on the same stacks in every run are one test. Callers
    contain the functions that they call: of the found functions, the innermost with 80 % of the
    largest change is named.
    """
    sides = [
        [run for arm in names for run in arms.get(arm, ()) if run is not None and run.total]
        for names in (("baseline", "null"), ("contender",))
    ]
    if min(map(len, sides)) < 2:
        return None
    frames, inside, totals = _tested(sides)
    if not frames:
        return None
    n_runs = [len(side) for side in sides]
    outside = totals - inside
    odds = np.split(np.log((inside + 0.5) / (outside + 0.5)), n_runs[:1], axis=1)
    mean, difference = odds[0].mean(axis=1), odds[1].mean(axis=1) - odds[0].mean(axis=1)
    df = sum(n_runs) - 2
    variance = sum(side.var(axis=1) * n for side, n in zip(odds, n_runs, strict=True)) / df
    sampling = (1 / (inside + 0.5) + 1 / (outside + 0.5)).mean(axis=1)
    se = np.sqrt(np.maximum(variance, sampling) * sum(1 / n for n in n_runs))
    p = stdtr(df, -direction * difference / se)
    q = np.minimum(p * len(frames), 1.0)
    found = np.flatnonzero(q <= 1 - level)
    if not found.size:
        return None
    base = expit(mean)
    change = direction * (expit(mean + difference) - base)
    depth = np.array([_depth(frame, [*sides[0], *sides[1]]) for frame in frames])
    inner = found[change[found] >= INNER_SHARE * change[found].max()]
    at = int(inner[np.argmax(depth[inner])])
    half = float(-stdtrit(df, (1 - level) / len(frames) / 2) * se[at])
    ratio, low, high = (
        float(expit(mean[at] + difference[at] + step) / base[at]) for step in (0.0, -half, half)
    )
    return {
        "function": frames[at][0],
        "file": frames[at][1],
        "baseline": float(base[at]),
        "contender_value": float(base[at]) * ratio,
        "ratio": ratio,
        "low": low,
        "high": high,
        "p": float(p[at]),
        "q": float(q[at]),
    }


def _tested(sides: Sequence[Sequence[FrameSamples]]) -> tuple[list[Frame], Array, Array]:
    """Return the functions with enough samples, their samples and the totals of the runs."""
    runs = [run for side in sides for run in side]
    totals = np.array([run.total for run in runs], float)
    chosen: dict[tuple[int, ...], Frame] = {}
    for frame in sorted({frame for run in runs for frame in run.counts}):
        counts = tuple(run.counts.get(frame, 0) for run in runs)
        mean = math.fsum(counts) / len(runs)
        if min(mean, totals.mean() - mean) < MIN_SAMPLES:
            continue
        same = chosen.get(counts)
        if same is None or _depth(frame, runs) > _depth(same, runs):
            chosen[counts] = frame
    return list(chosen.values()), np.array(list(chosen), float).reshape(-1, len(runs)), totals


def _depth(frame: Frame, runs: Sequence[FrameSamples]) -> float:
    return float(np.mean([run.depths[frame] for run in runs if frame in run.depths]))
