"""Split a difference into parts: seconds by task group and by cause, bytes by kind of memory.

Takes runs of two arms; returns tables whose sum is the whole difference. `with_causes` adds the
sentences to the changed rows of a comparison; verdicts are in
`benchkit.analysis.compare.compare_runs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import xarray as xr

from benchkit.analysis.compare.compare_runs import EXPLAINED_METRICS
from benchkit.analysis.compare.comparison import Comparison
from benchkit.analysis.compare.group_totals import group_totals, renamed_groups, tree_values
from benchkit.analysis.insight.limits import CAUSES_SHORT, Limits, run_limits
from benchkit.analysis.insight.memory import memory_difference
from benchkit.analysis.stats.welch import mean_difference
from benchkit.errors import BenchkitError, NotEnoughRuns, NotRecorded
from benchkit.formatting import (
    PARTS_NAMED,
    counted,
    format_bytes,
    format_quantity,
    short_group,
    signed_parts,
)
from benchkit.measure.arguments import check_count
from benchkit.measure.engines import ran_in_dask
from benchkit.store.run import Run

#: Groups of a run that `explain` reads, in addition to the root.
GROUPS_READ = (
    "task_groups",
    "scheduler",
    # For the causes, which need the task graph:
    "tasks",
    "task_events",
    "submissions",
    "workers",
    "events",
    # For the bytes of results:
    "held",
)

IDLE, UNEXPLAINED = "idle", "unexplained"
_KINDS = ("managed", "unmanaged_old", "unmanaged_recent", "spilled")
#: Smallest share of the whole difference for a part, a cause or a bound in the sentence: smaller
#: ones explain no more than the noise of the difference.
MIN_SHARE = 0.05
#: Newest runs of each side that are opened; more take longer and change the result little.
MAX_RUNS = 5


@dataclass(frozen=True, repr=False)
class CauseChanges:
    """The difference in duration of two arms by cause, and the lower bounds of both."""

    # A row per cause of `benchkit.analysis.insight.blame.CAUSES`, the largest difference first:
    # `seconds`, contender minus baseline, with the interval `low` to `high` over the repeats,
    # `baseline_s`, `contender_s`, and `group`: the task group with most of the difference, or "".
    # The sum of `seconds` is the difference of the durations of a comparison: of geometric
    # means.
    causes: pd.DataFrame
    # Lower bounds of the duration in s by name, means of each arm: `baseline_s`, `contender_s`.
    bounds: pd.DataFrame

    @property
    def total_s(self) -> float:
        """Difference of the durations in s."""
        return float(self.causes["seconds"].sum())

    @property
    def sentence(self) -> str:
        """The causes that moved, and the lower bound that moved, as one sentence."""
        large = self.causes["seconds"].abs() > MIN_SHARE * abs(self.total_s)
        named = [
            (row.seconds, CAUSES_SHORT[row.cause] + (f" ({row.group})" if row.group else ""))
            for row in self.causes[large].head(PARTS_NAMED).itertuples()
        ]
        _, parts = signed_parts(self.total_s, named, "other causes")
        text = ", ".join(f"{seconds} {name}" for seconds, name in parts)
        return f"{text}{self._moved_bound()}."

    def _moved_bound(self) -> str:
        before, after = (self.bounds[name].idxmax() for name in ("baseline_s", "contender_s"))
        old = format_quantity(float(self.bounds["baseline_s"].max()), "s")
        new = format_quantity(float(self.bounds["contender_s"].max()), "s")
        if before != after:
            return f"; the largest lower bound is {after} ({new}), it was {before} ({old})"
        change = float(self.bounds.loc[after, "contender_s"] - self.bounds.loc[after, "baseline_s"])
        if abs(change) <= MIN_SHARE * abs(self.total_s) or old == new:
            return ""
        return f"; the largest lower bound, {after}, went from {old} to {new}"

    def __repr__(self) -> str:
        return f"{self.sentence}\n{self.causes.round(3).to_string(index=False)}"


@dataclass(frozen=True, repr=False)
class Explanation:
    """The difference between two arms, in parts."""

    # A row per task group and activity, the largest first: `seconds` of wall time (thread- seconds
    # / number of threads), contender minus baseline, with the interval `low` to `high` over the
    # repeats, the values of both arms, and the share of the whole. The last rows are `idle`
    # (threads without tasks; before, between and after them if the tasks are recorded) and
    # `unexplained`; the sum is `total_s`.
    parts: pd.DataFrame
    # A row per kind of memory at the cluster's peak: `bytes`, contender minus baseline, with
    # interval.
    memory: pd.DataFrame
    total_s: float  # Difference of the geometric mean durations, in s
    n_baseline: int  # n_baseline, n_contender: Number of runs used
    n_contender: int
    # As `memory`, of the mean over time.
    mean_memory: pd.DataFrame = field(default_factory=pd.DataFrame)
    causes: CauseChanges | None = None  # The difference by cause; None if a run has no task graph
    # Return value of `benchkit.analysis.insight.memory.memory_difference`; empty if a run
    # has no bytes by task group.
    memory_groups: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def sentence(self) -> str:
        """The largest parts, of either sign, and the causes; either sums to the total."""
        rest = self.parts["group"].isin([IDLE, UNEXPLAINED])
        large = self.parts["seconds"].abs() > MIN_SHARE * abs(self.total_s)
        shown = pd.concat([self.parts[large & ~rest].head(PARTS_NAMED), self.parts[large & rest]])
        named = [(row.seconds, _part_name(row.group, row.activity)) for row in shown.itertuples()]
        total, parts = signed_parts(self.total_s, named, "all other parts")
        text = f"Of {total}, {', '.join(f'{seconds} is {name}' for seconds, name in parts)}."
        return f"{text} By cause: {self.causes.sentence}" if self.causes else text

    @property
    def memory_sentence(self) -> str:
        """The kinds of memory and the task groups that changed most; empty if unknown."""
        text = _kinds_sentence("At the peak", self.memory)
        if len(self.memory_groups):
            size = self.memory_groups["difference (B)"]
            groups = [
                f"{_signed_bytes(value)} in results of {name}"
                for name, value in size.items()
                if abs(value) > MIN_SHARE * size.abs().max()
            ]
            text += f" {', '.join(groups[:PARTS_NAMED])}." if groups else ""
        return text.strip()

    @property
    def mean_memory_sentence(self) -> str:
        """The kinds of memory whose mean over time changed most; empty if unknown."""
        return _kinds_sentence("On average over time", self.mean_memory)

    def __repr__(self) -> str:
        return f"{self.sentence}\n{self.parts.round(3).to_string(index=False)}"


def explain(
    baseline: Sequence[Run | xr.DataTree],
    contender: Sequence[Run | xr.DataTree],
    levels: tuple[float, float] | None = None,
    *,
    blocked: bool = False,
) -> Explanation:
    """Split the difference in duration of two arms by task group and activity.

    Notes
    -----
    Seconds are scaled so that their sum is the difference of `levels`, the durations of both arms
    in a comparison; None: of the geometric means, which a slow run moves less than the others.

    A run of T seconds on n threads has n T thread-seconds. Those of task groups are recorded by
    activity; the rest is idle, before, between and after the tasks. A part is thread-seconds / n,
    so that the sum of parts and idle is the duration. Workers fetch data while threads compute, so
    that the sum over groups can exceed the time of the threads; minus the excess is the part
    `unexplained`, at most 0. Intervals are Welch's t, or the paired t in blocks; NaN with a single
    run a side.

    Groups are matched by name without Dask's hash; groups of equal names are a single part. A group
    of one arm is joined with a group of the other arm, as ``old → new``, if only these two among
    the groups without a match have this number of tasks: releases of Dask rename groups.
    """
    runs = [
        [run if isinstance(run, Run) else Run(run) for run in side]
        for side in (baseline, contender)
    ]
    if not all(runs):
        which = "baseline" if not runs[0] else "contender"
        raise NotEnoughRuns(f"explanation: the {which} has no run with outcome ok")
    trees = [[run.tree for run in side] for side in runs]
    last = [group_totals(tree_values(side[-1])) for side in trees]
    renamed = renamed_groups(
        *({name: t.n_tasks for name, t in groups.items() if t.n_tasks} for groups in last)
    )
    sides = [[_seconds_by_part(tree, renamed) for tree in side] for side in trees]
    keys = sorted({key for side in sides for parts, _ in side for key in parts})
    values = [
        np.array([[parts.get(key, 0.0) for key in keys] for parts, _ in side]) for side in sides
    ]
    factors = _factors([[duration for _, duration in side] for side in sides], levels)
    values = [side * factor for side, factor in zip(values, factors, strict=True)]
    total = float(values[1].sum(axis=1).mean() - values[0].sum(axis=1).mean())
    frame = difference_table(values, blocked=blocked)
    frame.insert(0, "group", [group for group, _ in keys])
    frame.insert(1, "activity", [activity for _, activity in keys])
    frame["share"] = frame["seconds"] / total if total else np.nan
    frame = frame[(frame["baseline_s"] != 0) | (frame["contender_s"] != 0)]
    last = frame["group"].isin([IDLE, UNEXPLAINED])
    order = frame["seconds"].abs().mul(-1).where(~last | (frame["group"] == IDLE), np.inf)
    frame = frame.loc[order.sort_values(kind="stable").index].reset_index(drop=True)
    causes: CauseChanges | None = None
    memory_groups = pd.DataFrame()
    with suppress(NotRecorded):  # a run without a task graph
        causes = cause_changes(runs[0], runs[1], levels, blocked=blocked)
    with suppress(NotRecorded):
        memory_groups = memory_difference(runs[0], runs[1])
    return Explanation(
        parts=frame,
        memory=_memory(trees, _memory_at_peak, blocked),
        mean_memory=_memory(trees, _mean_memory, blocked),
        total_s=total,
        n_baseline=len(sides[0]),
        n_contender=len(sides[1]),
        causes=causes,
        memory_groups=memory_groups,
    )


def _seconds_by_part(
    tree: xr.DataTree, renamed: dict[str, str]
) -> tuple[dict[tuple[str, str], float], float]:
    """Return the wall seconds of each part by group and activity, and the duration."""
    duration = float(tree["duration"])
    n_threads = max(int(tree.attrs.get("n_threads") or 1), 1)
    parts: dict[tuple[str, str], float] = {}
    if "task_groups" in tree.children:
        data = tree.children["task_groups"].to_dataset()
        seconds = np.nan_to_num(data["seconds"].transpose("task_group", "action").values)
        for row, group in zip(seconds, data["task_group"].values, strict=True):
            name = short_group(str(group))
            name = renamed.get(name, name)
            for value, action in zip(row, data["action"].values, strict=True):
                if value:
                    key = name, str(action)
                    parts[key] = parts.get(key, 0.0) + float(value) / n_threads
    rest = duration - sum(parts.values())
    idle = _idle(tree, duration, max(rest, 0.0))
    parts |= {(IDLE, name): seconds for name, seconds in idle.items()}
    parts[UNEXPLAINED, UNEXPLAINED] = min(rest, 0.0)
    return parts, duration


def _idle(tree: xr.DataTree, duration: float, idle: float) -> dict[str, float]:
    """Return the wall seconds without tasks: before the first, between, and after the last."""
    tasks = tree.children.get("tasks")
    if tasks is None or not tasks.sizes.get("task"):
        return {IDLE: idle}
    table = tasks.to_dataset()
    start, stop = table["start"].values, (table["start"] + table["duration"]).values
    before = min(max(float(np.nanmin(start)), 0.0), idle)
    after = min(max(duration - float(np.nanmax(stop)), 0.0), idle - before)
    names = ("idle before the first task", "idle between tasks", "idle after the last task")
    return dict(zip(names, (before, idle - before - after, after), strict=True))


def _kinds_sentence(when: str, memory: pd.DataFrame) -> str:
    kinds = [f"{_signed_bytes(row.bytes)} {row.kind}" for row in memory.itertuples()]
    return f"{when}: {', '.join(kinds[:PARTS_NAMED])}." if kinds else ""


def _memory(
    sides: list[list[xr.DataTree]],
    by_kind: Callable[[xr.DataTree], list[float] | None],
    blocked: bool,
) -> pd.DataFrame:
    """Return the differences in memory by kind, the largest first."""
    columns = ["kind", "bytes", "low", "high", "baseline", "contender"]
    found = [[by_kind(tree) for tree in side] for side in sides]
    values = [np.array([row for row in side if row is not None]) for side in found]
    if not all(len(side) for side in values):
        return pd.DataFrame(columns=columns)
    frame = difference_table(values, blocked=blocked, value="bytes")
    frame.insert(0, "kind", _KINDS)
    return frame.sort_values("bytes", key=np.abs, ascending=False, kind="stable", ignore_index=True)


def _memory_over_time(tree: xr.DataTree) -> xr.DataTree | None:
    """Return the samples of memory by kind, which only Dask knows: other engines hold results."""
    node = tree.children.get("scheduler")
    is_known = node is not None and node.sizes.get("time")
    return node if is_known and ran_in_dask(tree.attrs) else None


def _memory_at_peak(tree: xr.DataTree) -> list[float] | None:
    """Return memory by kind in B, at the peak of the cluster's process memory."""
    node = _memory_over_time(tree)
    if node is None:
        return None
    data = node.to_dataset()
    peak = int(np.nanargmax(np.nan_to_num(data["process"].values)))
    return [float(np.nan_to_num(data[kind].values[peak])) for kind in _KINDS]


def _mean_memory(tree: xr.DataTree) -> list[float] | None:
    """Return memory by kind in B, as means over time."""
    node = _memory_over_time(tree)
    if node is None:
        return None
    data = node.to_dataset()
    time = data["time"].values.astype(float)
    # A sample counts for half of the time to its neighbours, as in the trapezoidal rule.
    weights = np.gradient(time) if time.size > 1 and np.ptp(time) else np.ones(time.size)
    return [float(np.average(np.nan_to_num(data[kind].values), weights=weights)) for kind in _KINDS]


def _signed_bytes(size: float) -> str:
    return f"{'+' if size >= 0 else '−'}{format_bytes(abs(size))}"


def _part_name(group: str, activity: str) -> str:
    return activity if group in (IDLE, UNEXPLAINED) else f"{activity} in {group}"


def cause_changes(
    baseline: Sequence[Run],
    contender: Sequence[Run],
    levels: tuple[float, float] | None = None,
    *,
    blocked: bool = False,
) -> CauseChanges:
    """Split the difference in duration of two arms by cause; `levels` as for `explain`."""
    sides = [[run_limits(run) for run in side] for side in (baseline, contender)]
    return _limit_changes(sides, levels, blocked=blocked)


def _limit_changes(
    sides: Sequence[Sequence[Limits]], levels: tuple[float, float] | None, *, blocked: bool
) -> CauseChanges:
    names = list(CAUSES_SHORT)
    values = [np.array([_seconds(limits, names) for limits in side]) for side in sides]
    factors = _factors([side.sum(axis=1) for side in values], levels)
    values = [side * factor for side, factor in zip(values, factors, strict=True)]
    causes = difference_table(values, blocked=blocked)
    causes.insert(0, "cause", names)
    causes["group"] = _main_groups(sides, causes)
    causes = causes[(causes["baseline_s"] != 0) | (causes["contender_s"] != 0)]
    bounds = [
        pd.DataFrame([limits.bounds for limits in side]).mean() * factor
        for side, factor in zip(sides, factors, strict=True)
    ]
    return CauseChanges(
        causes=causes.sort_values(
            "seconds", key=np.abs, ascending=False, kind="stable", ignore_index=True
        ),
        bounds=pd.DataFrame({"baseline_s": bounds[0], "contender_s": bounds[1]}),
    )


def _factors(
    durations: Sequence[Sequence[float] | np.ndarray], levels: tuple[float, float] | None
) -> list[float]:
    """Return for each side the level of its durations relative to their arithmetic mean."""
    means = [float(np.mean(side)) for side in durations]
    wanted = levels or [float(np.exp(np.mean(np.log(side)))) for side in durations]
    return [level / mean for level, mean in zip(wanted, means, strict=True)]


def difference_table(
    values: Sequence[np.ndarray], *, blocked: bool, value: str = "seconds"
) -> pd.DataFrame:
    """Return the mean difference of each column of two arrays with its interval, and both means."""
    # values: (runs, columns), of the baseline and of the contender.
    baseline, contender = values
    difference, half = mean_difference(baseline, contender, paired=blocked)
    suffix = "_s" if value == "seconds" else ""
    return pd.DataFrame(
        {
            value: difference,
            "low": difference - half,
            "high": difference + half,
            f"baseline{suffix}": baseline.mean(axis=0),
            f"contender{suffix}": contender.mean(axis=0),
        }
    )


def _seconds(limits: Limits, names: Sequence[str]) -> list[float]:
    seconds = limits.causes["seconds"]
    return [float(seconds.get(name, 0.0)) for name in names]


def _main_groups(sides: Sequence[Sequence[Limits]], causes: pd.DataFrame) -> list[str]:
    """Return for each cause the task group with most of its difference, or ""."""
    means = [_by_group(side) for side in sides]
    difference = means[1].sub(means[0], fill_value=0.0)
    names = []
    for row in causes.itertuples():
        name = ""
        if row.cause in difference.index and row.seconds:
            share = difference[row.cause] / row.seconds
            if share.idxmax() and share.max() >= 1 / 2:
                name = str(share.idxmax())
        names.append(name)
    return names


def _by_group(side: Sequence[Limits]) -> pd.Series:
    """Return the mean seconds by cause and name of task group without Dask's hash."""
    tables = [limits.groups["seconds"].reset_index() for limits in side]
    frame = pd.concat(tables, ignore_index=True)
    frame["group"] = frame["group"].map(short_group)
    return frame.groupby(["cause", "group"])["seconds"].sum() / len(side)


#: Opens a run by its id, with these groups.
OpenRun: TypeAlias = Callable[[str, Sequence[str]], Run]


def with_causes(comparison: Comparison, open_run: OpenRun) -> Comparison:
    """Return a comparison whose rows with a changed duration or memory say what moved."""
    frame = comparison.frame.copy()
    unknown = []
    changed = frame["changed"] & frame["metric"].isin(EXPLAINED_METRICS)
    for index, row in frame[changed].iterrows():
        try:
            frame.loc[index, "cause"] = _cause(comparison, row, open_run)
        except BenchkitError as error:
            unknown.append(str(error))
    if unknown:
        text = f"cause unknown for {counted(len(unknown), 'changed row')}: {unknown[0]}"
        return replace(comparison, frame=frame, warnings=(*comparison.warnings, text))
    return replace(comparison, frame=frame)


class ExplainedChange(NamedTuple):
    """A workload with a changed duration, and the explanation of the change."""

    workload: str  # workload, contender: The row of the comparison
    contender: str
    explanation: Explanation


def explain_changes(
    comparison: Comparison, open_run: OpenRun, *, most: int = 3
) -> Iterator[ExplainedChange]:
    """Open the runs of the workloads with a changed duration and explain each change."""
    rows = comparison.frame
    rows = rows[rows["changed"] & (rows["metric"] == "duration")]
    for row in rows.head(check_count(most, "explain", least=0)).itertuples():
        names = str(row.workload), str(row.contender)
        yield ExplainedChange(*names, explain_change(comparison, *names, open_run))


def explain_change(
    comparison: Comparison, workload: str, contender: str, open_run: OpenRun
) -> Explanation:
    """Open the newest runs of a workload in both arms, and explain the difference in duration."""
    rows = comparison.frame
    rows = rows[(rows["workload"] == workload) & (rows["contender"] == contender)]
    times = rows[rows["metric"] == "duration"].dropna(subset=["baseline", "contender_value"])
    levels = None
    for row in times.to_dict("records"):
        levels = float(row["baseline"]), float(row["contender_value"])
    row = (times if len(times) else rows).iloc[0]
    sides = [list(side) for side in _newest_runs(comparison, row, open_run)]
    blocked = comparison.blocked and len(sides[0]) == len(sides[1])
    return explain(sides[0], sides[1], levels, blocked=blocked)


def _newest_runs(comparison: Comparison, row: pd.Series, open_run: OpenRun) -> list[Iterator[Run]]:
    """Return the newest ok runs of a row in the baseline and in the contender, opened when used."""
    ids = comparison.run_ids(row)
    opened = [
        (open_run(str(run_id), GROUPS_READ) for run_id in ids[arm][-MAX_RUNS:] if run_id)
        for arm in ("baseline", "contender")
    ]
    return [filter(lambda run: run.outcome == "ok", side) for side in opened]


def _cause(comparison: Comparison, row: pd.Series, open_run: OpenRun) -> str:
    is_duration = row["metric"] == "duration"
    # One run after the other: the first without a task graph ends the search.
    sides: list[list[Any]] = [
        [run_limits(run) if is_duration else run for run in side]
        for side in _newest_runs(comparison, row, open_run)
    ]
    if not all(sides):  # the others reached their deadline
        return ""
    blocked = comparison.blocked and len(sides[0]) == len(sides[1])
    if is_duration:
        levels = float(row["baseline"]), float(row["contender_value"])
        return _limit_changes(sides, levels, blocked=blocked).sentence
    explanation = explain(sides[0], sides[1], blocked=blocked)
    if row["metric"] == "memory_mean":
        return explanation.mean_memory_sentence
    return explanation.memory_sentence
