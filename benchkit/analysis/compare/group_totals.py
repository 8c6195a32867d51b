"""Totals of the task groups of a run by name of group, and changes of them as text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

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


#: What totals and amounts are read from.
READ = (
    *(f"task_groups/{name}" for name in ("seconds", "n_tasks", "nbytes", "task_group", "action")),
    *("fine/value", "fine/context", "fine/activity", "fine/prefix"),
    *("submissions/n_nodes", "submissions/nbytes"),
    *("transfers/count", "transfers/bytes", "transfers/incomplete"),
)
#: Arrays by group and name: a result of `Store.values`, or of `tree_values`.
Values: TypeAlias = Mapping[str, np.ndarray]


def tree_values(tree: xr.DataTree) -> dict[str, np.ndarray]:
    """Return the arrays of `READ` that an opened run has."""
    values = {}
    for name in READ:
        group, _, key = name.partition("/")
        if group in tree.children and key in tree.children[group].variables:
            variable = tree.children[group].variables[key]
            is_table = name == "task_groups/seconds"
            values[name] = (variable.transpose("task_group", ...) if is_table else variable).values
    return values


def group_totals(values: Values) -> dict[str, GroupTotals]:
    """Return the totals of the task groups of a run."""
    if not {"task_groups/seconds", "task_groups/n_tasks"} <= set(values):
        return {}
    is_busy = ~np.isin(values["task_groups/action"].astype(str), _NOT_BUSY)
    busy = values["task_groups/seconds"][:, is_busy]
    seconds = np.nan_to_num(busy.astype(float)).sum(axis=1)
    names = values["task_groups/task_group"].astype(str)
    n_tasks = values["task_groups/n_tasks"].astype(float)
    nbytes = values.get("task_groups/nbytes", np.full(names.size, np.nan)).astype(float)
    totals: dict[str, GroupTotals] = {}
    for name, *own in zip(names, seconds, np.nan_to_num(n_tasks), nbytes, strict=True):
        key = short_group(str(name))
        before = totals.get(key, GroupTotals(0.0, 0, 0.0))
        totals[key] = GroupTotals(
            before.seconds + float(own[0]),
            before.n_tasks + int(own[1]),
            before.nbytes + float(own[2]),
        )
    cpu = _cpu_seconds(values)
    # Processor time is recorded by prefix: it is known where the name of a group is a prefix.
    return {
        name: total._replace(cpu=cpu.get(name, math.nan)) if total.n_tasks else total
        for name, total in totals.items()
    }


def _cpu_seconds(values: Values) -> dict[str, float]:
    """Return the processor time of the tasks by prefix; empty if it was not recorded."""
    if "fine/value" not in values:
        return {}
    names = ("context", "activity", "prefix", "value")
    seconds: dict[str, float] = {}
    for row in zip(*(values[f"fine/{name}"].tolist() for name in names), strict=True):
        if row[:2] == ("execute", "thread-cpu") and not math.isnan(row[3]):
            seconds[row[2]] = seconds.get(row[2], 0.0) + row[3]
    return seconds


def run_amounts(values: Values, totals: Mapping[str, GroupTotals]) -> dict[str, float]:
    """Return amounts of a whole run; `totals` are those of `group_totals`."""
    amounts = {}
    if "submissions/n_nodes" in values and values["submissions/n_nodes"].size:
        amounts["graph_tasks"] = float(values["submissions/n_nodes"].sum())
        n_bytes = values.get("submissions/nbytes", np.array([-1]))
        if (n_bytes >= 0).all():
            amounts["graph_bytes"] = float(n_bytes.sum())
    n_tasks = sum(total.n_tasks for total in totals.values())
    if n_tasks and not values.get("transfers/incomplete", np.zeros(0)).size:
        for name, variable in (("run_transfers", "count"), ("run_transfer_bytes", "bytes")):
            if f"transfers/{variable}" in values:
                amounts[name] = float(np.nansum(values[f"transfers/{variable}"])) / n_tasks
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
