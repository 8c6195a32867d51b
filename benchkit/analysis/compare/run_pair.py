"""Compare two runs: thread-seconds by task group, and their differences.

There is no verdict: a single run a side cannot distinguish a change from noise.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.formatting import short_group

__all__ = ["PER", "group_differences"]

#: Unit that thread-seconds can be divided by -> its size in tasks or bytes.
PER = {"task": 1.0, "GiB": 2.0**30}


def group_differences(
    a: TaskTimeline, b: TaskTimeline, window: tuple[float, float] | None = None, per: str = ""
) -> pd.DataFrame:
    """Return thread-seconds by task group of two runs."""
    # returned: A row per group, the largest difference first: `a`, `b` and `difference` = b - a in
    # thread-seconds, `tasks_a` and `tasks_b`. Groups are matched by name without Dask's hash, and
    # those of equal names are added. A missing group is 0, or NaN with `per`.
    sides = []
    for timeline in (a, b):
        table = timeline.group_seconds(window)[["total", "tasks"]]
        table = table.join(timeline.group_bytes(window))
        names = pd.Index([short_group(str(name)) for name in table.index], name="group")
        sides.append(table.set_axis(names).groupby(level=0).sum())
    seconds = pd.concat([side["total"] for side in sides], axis=1, keys=["a", "b"]).fillna(0.0)
    tasks = pd.concat([side["tasks"] for side in sides], axis=1, keys=["tasks_a", "tasks_b"])
    if per:
        column = {"task": "tasks", "GiB": "bytes"}[per]
        for name, side in zip("ab", sides, strict=True):
            amount = side[column].where(side[column] > 0) / PER[per]
            seconds[name] = side["total"] / amount
    table = seconds.assign(difference=seconds["b"] - seconds["a"])
    table = table.join(tasks.fillna(0).astype(int))
    table = table.sort_values("difference", key=np.abs, ascending=False, kind="stable")
    return table.rename_axis("group")
