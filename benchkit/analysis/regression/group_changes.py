"""Find task groups whose share of a run, or whose number of tasks, changed, for the last night.

The share of a group does not depend on the speed of the machine, so that a change of one group is
found although the duration says nothing. Where the processor time of tasks is recorded, its shares
are searched too: with noise as in an A/B on a busy machine, 10 % of thread-seconds and 4 % of
processor time, .65 of simulated changes of 10 % are found within 20 nights, without it .03. Takes
a history and totals of task groups by run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchkit.analysis.compare.composition import SHARES
from benchkit.analysis.compare.group_cells import LEAST_SHARE
from benchkit.analysis.compare.group_totals import (
    GroupTotals,
    describe_group_change,
    renamed_groups,
)
from benchkit.analysis.compare.run_groups import Load, frame_row, read_frames
from benchkit.analysis.regression.count_changes import find_count_changes, new_build
from benchkit.analysis.regression.history import History, night_name
from benchkit.analysis.regression.share_changes import ShareChange, find_share_changes

__all__ = ["GROUP_NIGHTS", "find_group_changes", "runs_of_groups"]

#: Fewest nights that are searched: the reference of the detector, and the longest change that it
#: awaits. Their number does not grow with the history.
GROUP_NIGHTS = 64
#: The first searched night moves by so many nights at once: with the same first night a search
#: finds the changes of the night before, so that a change is reported once.
NIGHTS_MOVED = 32
#: Nights on each side of a change whose call stacks are compared.
RUN_NIGHTS = 10

Array = NDArray[np.float64]
Totals = Mapping[str, GroupTotals]


def runs_of_groups(history: History) -> dict[int, list[list[str]]]:
    """Return the runs whose task groups are compared.

    Parameters
    ----------
    history : History
        Ends with the night to judge.

    Returns
    -------
    dict of int to list
        Key of each workload that was measured on the last night -> ids of its valid runs by night,
        of the last nights of its current segment.
    """
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
    """Return the changes of task groups that the last night shows.

    Parameters
    ----------
    history : History
        Ends with the night to judge.
    totals : mapping of str to mapping
        Id of a run -> totals of its task groups by name; runs of `runs_of_groups` that it lacks are
        left out.
    load : callable, optional
        `Store.load` of the store with the runs: reads the call stacks of groups that changed.
    amounts : mapping of str to mapping, optional
        Id of a run -> its `benchkit.analysis.compare.group_totals.run_amounts`.

    Returns
    -------
    list of dict
        For each workload the group whose share changed most, if the change has lasted for ten
        nights now, and numbers that were the same on five nights and are others now: tasks and
        bytes per task of a group, submitted tasks and bytes. ``sentence`` describes it, ``night``
        is the first night of the change; ``workload``, ``environment`` and ``host`` name the
        series. After a share a row of the function in the group that changed, if there is one,
        from the runs of ten nights on each side.
    """
    keys, nights, tables, counts = [], [], [], []
    by_night, amounts = runs_of_groups(history), amounts or {}
    for key, ids in by_night.items():
        measured = [[totals[run_id] for run_id in of if totals.get(run_id)] for of in ids]
        if measured and measured[-1]:
            keys.append(key)
            nights.append(len(measured))
            tables.append(_same_names(measured))
            of_runs = [[amounts.get(i, {}) for i in of if totals.get(i)] for of in ids]
            pairs = zip(tables[-1], of_runs, strict=True)
            counts.append([list(zip(*night, strict=True)) for night in pairs])
    if not keys:
        return []
    width = max(nights)
    about = history.runs.drop_duplicates("key").set_index("key")
    names, shares = [], []
    for nights_of, table in zip(nights, tables, strict=True):
        of_groups = _shares(table)
        names.append(list(of_groups))
        measured_shares = np.array(list(of_groups.values())).reshape(len(of_groups), nights_of)
        missing = ((0, 0), (width - nights_of, 0))
        shares.append(np.pad(measured_shares, missing, constant_values=np.nan))
    found = [
        [change for change in changes if change.night == width - 1]
        for changes in find_share_changes(shares)
    ]
    results = []
    for place, key in enumerate(keys):
        fields = {n: str(about.loc[key, n]) for n in ("workload", "environment", "host")}
        rows = []
        for each in found[place]:
            row = _share_row(names[place][each.group], each, shares[place][each.group], history)
            rows.append(row)
            if load is not None:
                first = each.change.index - (width - nights[place])
                frame = frame_row(row, read_frames(_runs_beside(by_night[key], first), load))
                rows += [{**row, **frame}] if frame else []
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
    sides = by_night[max(first - RUN_NIGHTS, 0) : first], by_night[first : first + RUN_NIGHTS]
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


def _shares(table: Sequence[Sequence[Mapping[str, GroupTotals]]]) -> dict[tuple[str, str], Array]:
    """Return the shares of each group by night, by name and measure, if they are large enough."""
    names = sorted({name for run in table[-1] for name in run})
    result = {}
    for metric, field in SHARES.items():
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
            if known.size and LEAST_SHARE <= np.median(known) < 1:
                result[name, metric] = share
    return result


def _share_row(
    name: tuple[str, str], found: ShareChange, share: Array, history: History
) -> dict[str, Any]:
    """Return a change of odds as a change of the share."""
    change = found.change
    base = float(np.nanmedian(share[: change.index]))

    def ratio(odds_ratio: float) -> float:
        return odds_ratio / (1 - base + base * odds_ratio)

    first = len(history.times) - share.size + change.index
    return {
        "group": name[0],
        "metric": name[1],
        "unit": "1",
        "baseline": base,
        "contender_value": base * ratio(change.ratio),
        "ratio": ratio(change.ratio),
        "low": ratio(change.low),
        "high": ratio(change.high),
        "exact": False,
        "night": night_name(history.times[first]),
    }
