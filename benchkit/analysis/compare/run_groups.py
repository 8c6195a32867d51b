"""Compare what the runs of two arms consist of, from their files: task groups, then functions.

`benchkit.analysis.compare.composition` compares totals of task groups; in the groups that changed,
this module looks for the function that changed. Samples of a run are not independent of each other:
the unit of the test is the run, and samples give each run's shares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, stdtr, stdtrit

from benchkit.analysis.compare.comparison import Comparison
from benchkit.analysis.compare.composition import SHARES, GroupRuns, compare_groups
from benchkit.analysis.compare.group_totals import READ, group_totals, run_amounts
from benchkit.errors import BenchkitError
from benchkit.formatting import package_path
from benchkit.store.run import Run
from benchkit.store.store import Store

#: A function is tested if a run has this many samples inside it, and as many outside, on average:
#: five samples vary by 45 % from run to run.
MIN_SAMPLES = 5.0
#: A function is named instead of its callers if its change is this share of the largest or more; a
#: caller has the change of what it calls, and its noise. `benchmarks/verdicts.py --only functions`
#: prints which function is named.
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


#: `Store.load` of a store.
Load: TypeAlias = Callable[[Iterable[str], Sequence[str]], Sequence[Run]]
#: Ids of runs by arm, "" where a run is missing.
Arms: TypeAlias = Mapping[str, Sequence[str]]


def with_composition(comparison: Comparison, store: Store) -> Comparison:
    """Return a comparison with the changes of the task groups of its workloads."""
    by_workload = comparison.frame.groupby(["contender", "workload"], sort=True)["row"]
    chosen: dict[tuple[str, str], Arms] = {}
    for (contender, workload), rows in by_workload:
        # A run without a value of one metric has one of another: take the row with most runs.
        candidates = [comparison.run_ids(row) for row in rows]
        ids = max(candidates, key=lambda ids: sum((x != "").sum() for x in ids.values()))
        texts = {arm: column.astype(str).tolist() for arm, column in ids.items()}
        chosen[str(contender), str(workload)] = texts
    table = compare_run_groups(chosen, store, blocked=comparison.blocked, level=comparison.level)
    return replace(comparison, composition=table)


def compare_run_groups(
    runs: Mapping[tuple[str, str], Arms], store: Store, *, blocked: bool, level: float = 0.95
) -> pd.DataFrame:
    """Compare the task groups of runs, and the functions of those that changed."""
    every = {run_id for arms in runs.values() for ids in arms.values() for run_id in ids if run_id}
    read = dict(store.values(sorted(every), READ))
    valid = {run_id: values for run_id, values in read.items() if values["outcome"] == "ok"}
    totals = {run_id: group_totals(values) for run_id, values in valid.items()}
    amounts = {run_id: run_amounts(values, totals[run_id]) for run_id, values in valid.items()}
    groups = [
        GroupRuns(
            workload,
            contender,
            {arm: [totals.get(run_id) or None for run_id in ids] for arm, ids in arms.items()},
            {arm: [amounts.get(run_id, {}) for run_id in ids] for arm, ids in arms.items()},
        )
        for (contender, workload), arms in runs.items()
    ]
    table = compare_groups(groups, blocked=blocked, level=level)
    found = table[table["metric"].isin(SHARES) & table["verdict"].isin(["more", "less"])]
    found = found.drop_duplicates(["contender", "workload", "group"])
    rows = table.to_dict("records")
    for place in found.index[::-1]:  # later rows first: positions of the others stay
        row = rows[place]
        arms = runs[row["contender"], row["workload"]]
        ids = {arm: [i if i in totals else "" for i in arm_ids] for arm, arm_ids in arms.items()}
        frame = frame_row(row, read_frames(ids, store.load), level=level)
        rows[place + 1 : place + 1] = [frame] if frame else []
    return pd.DataFrame(rows, columns=[*table.columns, "function", "file"])


def read_frames(arms: Arms, load: Load) -> dict[str, list[dict[str, FrameSamples]]]:
    """Return the samples of the call stacks of runs."""
    ids = sorted({run_id for arm_ids in arms.values() for run_id in arm_ids if run_id})
    samples = {run.id: frame_samples(run.profile()) for run in _readable(load, ids, ("profile",))}
    return {arm: [samples.get(run_id, {}) for run_id in arm_ids] for arm, arm_ids in arms.items()}


def frame_row(
    found: Mapping[str, Any],
    frames: Mapping[str, Sequence[Mapping[str, FrameSamples]]],
    *,
    level: float = 0.95,
) -> dict[str, Any] | None:
    """Return the row about the function that changed in a group that changed."""
    names = str(found["group"]).split(" → ")  # a group that has another name in each arm
    arms = {
        arm: [next((run[name] for name in names if name in run), None) for run in runs]
        for arm, runs in frames.items()
    }
    frame = find_frame(arms, 1 if found["ratio"] > 1 else -1, level=level)
    if frame is None:
        return None
    about = {name: found[name] for name in ("contender", "workload", "group") if name in found}
    verdict = "more" if frame["ratio"] > 1 else "less"
    return {**about, "metric": "frame_share", "unit": "1", "exact": False, "verdict": verdict,
            **frame}  # fmt: skip


def _readable(load: Load, ids: Sequence[str], groups: Sequence[str]) -> list[Run]:
    """Return the runs whose files can be read; the index also lists runs without a file."""
    try:
        return list(load(ids, groups))
    except BenchkitError:
        runs: list[Run] = []
        for run_id in ids:
            with suppress(BenchkitError):
                runs += load([run_id], groups)
        return runs
