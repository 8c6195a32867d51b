"""Compare what the runs of two arms consist of, from their files: task groups, then functions.

`benchkit.analysis.compare.composition` compares totals of task groups; in the groups that changed,
`benchkit.analysis.compare.frames` looks for the function that changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

import pandas as pd

from benchkit.analysis.compare.comparison import Comparison
from benchkit.analysis.compare.composition import SHARES, compare_groups
from benchkit.analysis.compare.frames import FrameSamples, find_frame, frame_samples
from benchkit.analysis.compare.group_cells import GroupRuns
from benchkit.analysis.compare.group_totals import group_totals, run_amounts
from benchkit.errors import BenchkitError
from benchkit.store.run import Run

__all__ = ["Load", "compare_run_groups", "frame_row", "read_frames", "with_composition"]

#: Groups of a run that totals and amounts are read from.
READ = ("task_groups", "fine", "submissions", "transfers")
#: `Store.load` of a store.
Load: TypeAlias = Callable[[Iterable[str], Sequence[str]], Sequence[Run]]
#: Ids of runs by arm, "" where a run is missing.
Arms: TypeAlias = Mapping[str, Sequence[str]]


def with_composition(comparison: Comparison, load: Load) -> Comparison:
    """Return a comparison with the changes of the task groups of its workloads."""
    by_workload = comparison.frame.groupby(["contender", "workload"], sort=True)["row"]
    chosen: dict[tuple[str, str], Arms] = {}
    for (contender, workload), rows in by_workload:
        # A run without a value of one metric has one of another: take the row with most runs.
        candidates = [comparison.run_ids(row) for row in rows]
        ids = max(candidates, key=lambda ids: sum((x != "").sum() for x in ids.values()))
        texts = {arm: column.astype(str).tolist() for arm, column in ids.items()}
        chosen[str(contender), str(workload)] = texts
    table = compare_run_groups(chosen, load, blocked=comparison.blocked, level=comparison.level)
    return replace(comparison, composition=table)


def compare_run_groups(
    runs: Mapping[tuple[str, str], Arms], load: Load, *, blocked: bool, level: float = 0.95
) -> pd.DataFrame:
    """Compare the task groups of runs, and the functions of those that changed."""
    every = {run_id for arms in runs.values() for ids in arms.values() for run_id in ids if run_id}
    valid = [run for run in _readable(load, sorted(every), READ) if run.outcome == "ok"]
    totals = {run.id: group_totals(run.tree) for run in valid}
    amounts = {run.id: run_amounts(run.tree) for run in valid}
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
        frame = frame_row(row, read_frames(ids, load), level=level)
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
