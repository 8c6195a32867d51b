"""Totals of the task groups of a run by name of group, and changes of them as text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from benchkit.formatting import format_factor, format_quantity, short_group

#: Measures of the work of a task group; one group has several.
GROUP_TIMES = ("group_share", "group_cpu_share", "group_task_time", "group_task_cpu")
#: Measures of task groups and their functions that follow from wall time.
WALL_TIMES = ("group_share", "group_task_time", "frame_share")
#: Amounts of a whole run -> words in a headline.
COUNTS = {
    "graph_tasks": "submitted tasks",
    "group_tasks": "tasks",
    "graph_bytes": "bytes of graphs",
    "run_transfers": "transfers per task",
    "run_transfer_bytes": "bytes transferred per task",
}
#: Largest relative difference of amounts that is neither worse nor better: random names and the
#: order of events change them by so much.
SAME_COUNT = 0.01
#: Activities that overlap with the tasks of a thread, or in which no thread is busy.
_NOT_BUSY = ("transfer", "seceded")


class GroupTotals(NamedTuple):
    """Totals of the task groups of a run that have the same name."""

    seconds: float  # Thread-seconds of computing, serialization and disk
    n_tasks: int  # Number of tasks
    nbytes: float  # Bytes of the results; NaN if not recorded
    # Seconds of processor time of the threads that computed; NaN if not recorded.
    cpu: float = math.nan


def group_totals(tree: xr.DataTree) -> dict[str, GroupTotals]:
    """Return the totals of the task groups of a run."""
    node = tree.children.get("task_groups")
    if node is None or not {"seconds", "n_tasks"} <= set(node.data_vars):
        return {}
    data = node.to_dataset()
    busy = data["seconds"].transpose("task_group", "action")
    busy = busy.isel(action=~np.isin(busy["action"].values.astype(str), _NOT_BUSY))
    seconds = np.nan_to_num(busy.values.astype(float)).sum(axis=1)
    names = data["task_group"].values.astype(str)
    n_tasks, nbytes = (
        data[name].values.astype(float) if name in data else np.full(names.size, np.nan)
        for name in ("n_tasks", "nbytes")
    )
    totals: dict[str, GroupTotals] = {}
    for name, *values in zip(names, seconds, np.nan_to_num(n_tasks), nbytes, strict=True):
        key = short_group(str(name))
        before = totals.get(key, GroupTotals(0.0, 0, 0.0))
        totals[key] = GroupTotals(
            before.seconds + float(values[0]),
            before.n_tasks + int(values[1]),
            before.nbytes + float(values[2]),
        )
    cpu = _cpu_seconds(tree)
    # Processor time is recorded by prefix: it is known where the name of a group is a prefix.
    return {
        name: total._replace(cpu=cpu.get(name, math.nan)) if total.n_tasks else total
        for name, total in totals.items()
    }


def _cpu_seconds(tree: xr.DataTree) -> dict[str, float]:
    """Return the processor time of the tasks by prefix; empty if it was not recorded."""
    node = tree.children.get("fine")
    if node is None or "value" not in node.data_vars:
        return {}
    fine = node.to_dataset()
    context, activity, prefixes, values = (
        fine[name].values.tolist() for name in ("context", "activity", "prefix", "value")
    )
    seconds: dict[str, float] = {}
    for row in zip(context, activity, prefixes, values, strict=True):
        if row[:2] == ("execute", "thread-cpu") and not math.isnan(row[3]):
            seconds[row[2]] = seconds.get(row[2], 0.0) + row[3]
    return seconds


def run_amounts(tree: xr.DataTree, totals: Mapping[str, GroupTotals]) -> dict[str, float]:
    """Return amounts of a whole run; `totals` are those of `group_totals`."""
    # Sums of arrays: the first sum of xarray imports all of dask.array, which takes 0.3 s.
    amounts = {}
    submissions, transfers = (
        tree.children[name].to_dataset() if name in tree.children else xr.Dataset()
        for name in ("submissions", "transfers")
    )
    if submissions.sizes.get("submission"):
        amounts["graph_tasks"] = float(submissions["n_nodes"].values.sum())
        n_bytes = submissions["nbytes"].values if "nbytes" in submissions else np.array([-1])
        if (n_bytes >= 0).all():
            amounts["graph_bytes"] = float(n_bytes.sum())
    n_tasks = sum(total.n_tasks for total in totals.values())
    if n_tasks and not transfers.sizes.get("incomplete_report"):
        for name, variable in (("run_transfers", "count"), ("run_transfer_bytes", "bytes")):
            if variable in transfers:
                amounts[name] = float(np.nansum(transfers[variable].values)) / n_tasks
    return amounts


def renamed_groups(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, str]:
    """Return the joined name of each group that has another name in the other arm."""
    only = [
        {name: count for name, count in one.items() if name not in other}
        for one, other in ((before, after), (after, before))
    ]
    frequency = [Counter(side.values()) for side in only]
    pairs = [
        (old, new)
        for old, count in only[0].items()
        for new, count_of_new in only[1].items()
        if count == count_of_new and all(side[count] == 1 for side in frequency)
    ]
    return {name: f"{old} → {new}" for old, new in pairs for name in (old, new)}


def changed_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the changed rows of a table of task groups, one share for each group.

    Columns ``worse`` and ``better``: of the time of a group, and of amounts of a whole run. A share
    counts if the seconds of the group moved in its direction: else the other groups moved. Those
    are wall seconds, or CPU seconds in a table without wall times.
    """
    changed = table[table["verdict"].isin(["more", "less"])]
    is_share = changed["metric"].isin(["group_share", "group_cpu_share"])
    changed = changed[~(is_share & changed[["contender", "workload", "group"]].duplicated())]
    known = set(table["metric"])
    time = "group_task_time" if "group_task_time" in known else "group_task_cpu"
    times = table[table["metric"] == time]
    seconds = {(row.contender, row.workload, row.group): row.ratio for row in times.itertuples()}
    rows = []
    for row in changed.to_dict("records"):
        own = seconds.get((row["contender"], row["workload"], row["group"]), row["ratio"])
        is_time = row["metric"] in GROUP_TIMES
        is_amount = row["metric"] in COUNTS and not row["group"]
        up = row["ratio"] > 1 + SAME_COUNT * is_amount
        down = row["ratio"] < 1 / (1 + SAME_COUNT * is_amount)
        row["worse"] = bool((is_time and up and own > 1) or (is_amount and up))
        row["better"] = bool((is_time and down and own < 1) or (is_amount and down))
        rows.append({str(key): value for key, value in row.items()})
    return rows


def short_name(row: Mapping[str, Any]) -> str:
    """Return what a changed row of the task groups is about, for a headline."""
    return f"group {row['group']}" if row["group"] else COUNTS[row["metric"]]


def describe_group_change(row: Mapping[str, Any]) -> str:
    """Return a changed measure of a task group as a sentence."""
    group = f"group {row['group']}" if row["group"] else "the run"
    if row["metric"] == "frame_share":
        return _describe_frame(row)
    if row["group"] and not min(row["baseline"], row["contender_value"]):
        return f"{row['workload']}: {group} is {'new' if row['contender_value'] else 'gone'}"
    is_time = row["metric"] in GROUP_TIMES  # the others are counted
    is_more = row["contender_value"] > row["baseline"]
    direction = "more" if is_more else "less" if is_time else "fewer"
    size = f"{abs(100 * (row['ratio'] - 1)):.1f} % {direction}" if row["baseline"] else direction
    factor = format_factor(row["ratio"])
    if factor:  # "149990 % more" is hard to read
        as_many = "as much" if is_time else "as many"
        size = f"{factor} {as_many if is_more else direction}"
    texts = {
        "group_share": f"{group} takes {size} of the run",
        "group_cpu_share": f"{group} takes {size} of the CPU time",
        "group_task_time": f"{group} takes {size} time per task",
        "group_task_cpu": f"{group} takes {size} CPU time per task",
        "group_task_bytes": f"{group} has {size} bytes per task",
        "group_tasks": f"{group} has {size} tasks",
        "graph_tasks": f"{group} submits {size} tasks",
        "graph_bytes": f"{group} submits {size} bytes of graphs",
        "run_transfers": f"{group} has {size} transfers per task",
        "run_transfer_bytes": f"{group} transfers {size} bytes per task",
    }
    interval = ""
    if row["exact"]:
        interval = ", the same in all runs"
    elif factor and all(map(format_factor, (row["low"], row["high"]))):
        ends = sorted(max(end, 1 / end) for end in (row["low"], row["high"]))
        interval = f" ({ends[0]:.0f} to {ends[1]:.0f} times)"
    elif math.isfinite(row["low"]):
        interval = f" ({100 * (row['low'] - 1):+.1f} to {100 * (row['high'] - 1):+.1f})"
    values = (row["baseline"], row["contender_value"])
    if row["metric"] in ("group_share", "group_cpu_share"):
        levels = [f"{100 * value:.1f} %" for value in values]
    else:
        levels = [format_quantity(value, row["unit"]) for value in values]
    return f"{row['workload']}: {texts[row['metric']]}{interval}: {levels[0]} -> {levels[1]}"


def _describe_frame(row: Mapping[str, Any]) -> str:
    """Return a changed share of a function in the call stacks of a group as a sentence."""
    low, high = (100 * row["baseline"] * row[name] for name in ("low", "high"))
    return (
        f"{row['workload']}: in group {row['group']}, {row['function']} ({row['file']}) is in "
        f"{100 * row['contender_value']:.1f} % of the samples ({low:.1f} to {high:.1f}), "
        f"before in {100 * row['baseline']:.1f} %"
    )
