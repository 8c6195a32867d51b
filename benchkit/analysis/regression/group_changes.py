"""Find task groups whose share of a run, bytes or number of tasks changed, for the last night.

The share of a group does not depend on the speed of the machine, so that a change of one group is
found although the duration does not change. Shares of the processor time of tasks are searched too,
if it is recorded: it has less noise. In simulated nights of a busy machine (noise of 10 % in
thread-seconds, of 4 % in processor time) .87 of changes of 10 % are found within 20 nights with it,
and .01 without. Seconds per task depend on the speed of the machine, so they are only searched in a
group that was found. Takes a history and totals of task groups by run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchkit.analysis.changepoint.rule import MAX_REFERENCE_NIGHTS
from benchkit.analysis.changepoints import ChangePoint, detect_many
from benchkit.analysis.compare.composition import MIN_SHARE, SAME, SHARES, UNITS
from benchkit.analysis.compare.group_totals import (
    GroupTotals,
    describe_group_change,
    renamed_groups,
)
from benchkit.analysis.compare.run_groups import Load, frame_row, read_frames
from benchkit.analysis.regression.count_changes import find_count_changes, new_build
from benchkit.analysis.regression.history import History, night_name
from benchkit.analysis.regression.lasting_changes import LASTING_NIGHTS, find_lasting_changes

#: Fewest nights that are searched, as in a reference: their number does not grow with the history.
GROUP_NIGHTS = MAX_REFERENCE_NIGHTS
#: The first searched night stays the same for half as many nights: a search that begins on the same
#: night finds the same changes, so that each is reported once.
NIGHTS_MOVED = GROUP_NIGHTS // 2
#: Measures of a task, by the total that they are a part of. Bytes do not depend on the speed of the
#: machine, and are searched in addition to the shares.
PER_TASK = {"group_task_bytes": "nbytes", "group_task_time": "seconds"}
#: Largest number of nights on which a number that is exact differs from that of the night before;
#: `find_count_changes` reports those at once.
MAX_STEPS = 2

Array = NDArray[np.float64]
Totals = Mapping[str, GroupTotals]


def runs_of_groups(history: History) -> dict[int, list[list[str]]]:
    """Return the runs whose task groups are compared."""
    runs = history.runs
    runs = runs[(runs["outcome"] == "ok") & runs["comparable"].astype(bool)]
    last = len(history.times) - 1
    common = history.segments[history.segments["metric"] == ""]
    starts = common.groupby("key")["night"].max().to_dict()
    chosen = {}
    oldest = last // NIGHTS_MOVED * NIGHTS_MOVED - GROUP_NIGHTS
    for key in sorted(set(runs.loc[runs["night"] == last, "key"].tolist())):
        own = runs[(runs["key"] == key) & (runs["night"] > oldest)]
        own = own[own["night"] >= starts.get(key, 0)]
        first = int(own["night"].min())
        by_night: list[list[str]] = [[] for _ in range(first, last + 1)]
        for night, run_id in zip(own["night"].tolist(), own["id"].tolist(), strict=True):
            by_night[night - first].append(run_id)
        chosen[int(key)] = by_night
    return chosen


def find_group_changes(
    history: History,
    totals: Mapping[str, Totals],
    load: Load | None = None,
    amounts: Mapping[str, Mapping[str, float]] | None = None,
) -> list[dict[str, Any]]:
    """Return the changes of task groups that the last night shows."""
    keys, nights, tables, counts = [], [], [], []
    by_night, amounts = runs_of_groups(history), amounts or {}
    for key, ids in by_night.items():
        measured = [[totals[run_id] for run_id in night if totals.get(run_id)] for night in ids]
        if measured and measured[-1]:
            keys.append(key)
            nights.append(len(measured))
            tables.append(_same_names(measured))
            loads = [[amounts.get(i, {}) for i in night if totals.get(i)] for night in ids]
            pairs = zip(tables[-1], loads, strict=True)
            counts.append([list(zip(*night, strict=True)) for night in pairs])
    if not keys:
        return []
    width = max(nights)
    about = history.runs.drop_duplicates("key").set_index("key")
    series = [_series(table) for table in tables]
    levels = [[_level(name, values, width) for name, values in own.items()] for own in series]
    found = find_lasting_changes([np.array(own).reshape(-1, width) for own in levels])
    results = []
    for place, key in enumerate(keys):
        fields = {n: str(about.loc[key, n]) for n in ("workload", "environment", "host")}
        rows = []
        for each in found[place]:
            if each.night < width - 1:
                continue
            name, values = list(series[place].items())[each.row]
            first = each.change.index - (width - nights[place])
            rows.append(_row(name, each.change, first, values, history))
            if load is not None and name[1] in SHARES:
                frame = frame_row(rows[-1], read_frames(_runs_beside(by_night[key], first), load))
                rows += [{**rows[-1], **frame}] if frame else []
            rows += _rows_of_tasks(name, first, tables[place], history)
        night = night_name(history.times[-1])
        rows += [{**row, "night": night} for row in find_count_changes(counts[place])]
        own = history.runs[history.runs["key"] == key]
        for row in rows:
            row = {**fields, **row}
            more = row.pop("n_more", 0)
            since = np.searchsorted(history.times, np.datetime64(row["night"]))
            build = new_build(own, int(since))
            sentence = describe_group_change(row) + (f", since {build}" if build else "")
            sentence += f"; and {more} more numbers" if more else ""
            results.append({**row, "sentence": sentence})
    return results


def _runs_beside(by_night: Sequence[Sequence[str]], first: int) -> dict[str, list[str]]:
    """Return the ids of the runs of the nights before and from the first night of a change."""
    sides = (
        by_night[max(first - LASTING_NIGHTS, 0) : first],
        by_night[first : first + LASTING_NIGHTS],
    )
    return {
        arm: [run_id for ids in nights for run_id in ids]
        for arm, nights in zip(("baseline", "contender"), sides, strict=True)
    }


def _same_names(nights: Sequence[Sequence[Totals]]) -> list[list[dict[str, GroupTotals]]]:
    """Return the totals by the names of the last night: releases of Dask rename groups."""
    result: list[list[dict[str, GroupTotals]]] = []
    after: dict[str, int] = {}
    for runs in reversed(nights):
        renamed: list[dict[str, GroupTotals]] = []
        for run in runs:
            counts = {name: total.n_tasks for name, total in run.items() if total.n_tasks}
            joined = renamed_groups(counts, after) if after else {}
            names = {old: joined[old].split(" → ")[1] for old in counts if old in joined}
            renamed.append({names.get(name, name): total for name, total in run.items()})
        if renamed:
            after = {name: t.n_tasks for name, t in renamed[-1].items() if t.n_tasks}
        result.append(renamed)
    return result[::-1]


def _series(table: Sequence[Sequence[Mapping[str, GroupTotals]]]) -> dict[tuple[str, str], Array]:
    """Return values by night of the groups that are large enough, by name and measure."""
    names = sorted({name for run in table[-1] for name in run})
    result = {}
    for metric, field in {**SHARES, "group_task_bytes": "nbytes"}.items():
        shares = np.full((len(names), len(table)), np.nan)
        for night, runs in enumerate(table):
            parts = []
            for run in runs:
                values = {n: float(getattr(each, field)) for n, each in run.items() if each.n_tasks}
                total = sum(values.values())  # NaN if the time of a group is unknown
                if total > 0:
                    parts.append([values.get(name, np.nan) / total for name in names])
            if parts:
                shares[:, night] = np.median(parts, axis=0)
        for name, share in zip(names, shares, strict=True):
            known = share[np.isfinite(share)]
            if (
                known.size
                and MIN_SHARE <= np.median(known)
                and (metric not in SHARES or np.median(known) < 1)
            ):
                result[name, metric] = share if metric in SHARES else _per_task(table, name, metric)
    return {name: values for name, values in result.items() if not _is_exact(name[1], values)}


def _per_task(
    table: Sequence[Sequence[Mapping[str, GroupTotals]]], name: str, metric: str
) -> Array:
    """Return seconds or bytes per task of a group by night."""
    values = np.full(len(table), np.nan)
    for night, runs in enumerate(table):
        found = [run[name] for run in runs if name in run and run[name].n_tasks]
        if found:
            values[night] = np.median([getattr(t, PER_TASK[metric]) / t.n_tasks for t in found])
    return np.where(values > 0, values, np.nan)


def _is_exact(metric: str, values: Array) -> bool:
    """Return whether a number is the same on most nights."""
    known = values[np.isfinite(values)]
    steps = np.abs(np.diff(known)) > SAME.get(metric, -1.0) * known[1:]
    return metric in SAME and int(steps.sum()) <= MAX_STEPS


def _level(name: tuple[str, str], values: Array, width: int) -> Array:
    """Return the level in which a change is searched: odds of a share; with nights before it."""
    with np.errstate(divide="ignore", invalid="ignore"):
        level = values / (1 - values) if name[1] in SHARES else values
    return np.pad(level, (width - values.size, 0), constant_values=np.nan)


def _rows_of_tasks(
    name: tuple[str, str],
    first: int,
    table: Sequence[Sequence[Mapping[str, GroupTotals]]],
    history: History,
) -> list[dict[str, Any]]:
    """Return the changes of seconds and bytes per task that belong to the change of a group."""
    rows = []
    for metric in PER_TASK:
        values = _per_task(table, name[0], metric)
        if metric == name[1] or _is_exact(metric, values):
            continue
        changes = detect_many(values[None])[0]
        near = [change for change in changes if abs(change.index - first) <= LASTING_NIGHTS]
        rows += [_row((name[0], metric), c, c.index, values, history) for c in near[-1:]]
    return rows


def _row(
    name: tuple[str, str], change: ChangePoint, first: int, values: Array, history: History
) -> dict[str, Any]:
    """Return a change of level as a change of its value: of odds as one of the share."""
    base = float(np.nanmedian(values[:first]))

    def ratio(odds: float) -> float:
        return odds / (1 - base + base * odds) if name[1] in SHARES else odds

    return {
        "group": name[0],
        "metric": name[1],
        "unit": UNITS[name[1]],
        "baseline": base,
        "contender_value": base * ratio(change.ratio),
        "ratio": ratio(change.ratio),
        "low": ratio(change.low),
        "high": ratio(change.high),
        "exact": False,
        "night": night_name(history.times[len(history.times) - values.size + first]),
    }
