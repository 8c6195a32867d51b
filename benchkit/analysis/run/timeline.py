"""Summarise a time interval of a run: busy threads, seconds by task group and activity.

Create a `TaskTimeline` once per run and query it for any number of intervals; a query takes some
10 ms with a million tasks. All sums are exact in time: of a task that begins before an interval,
only the part inside counts.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import xarray as xr

from benchkit.formatting import short_group

COMPUTE, TRANSFER = "compute", "transfer"
#: Points of a curve of busy threads, for the width of a plot on a screen.
BINS = 300
#: Unit that thread-seconds can be divided by -> column of the amounts, and its size.
PER = {"task": ("tasks", 1.0), "GiB": ("bytes", 2.0**30)}


class _Spans:
    """Time spans of one activity, sorted by start, with cumulative sums for fast integrals."""

    def __init__(self, start: np.ndarray, stop: np.ndarray, group: np.ndarray) -> None:
        self.start, self.stop, self.group = start, stop, group
        self.longest = float((stop - start).max(initial=0.0))
        self.stops = np.sort(stop)
        self.start_sums = np.concatenate([[0.0], np.cumsum(start)])
        self.stop_sums = np.concatenate([[0.0], np.cumsum(self.stops)])

    def inside(self, left: float, right: float) -> np.ndarray:
        first = np.searchsorted(self.start, left - self.longest)
        last = np.searchsorted(self.start, right)
        index = np.arange(first, last)
        return index[self.stop[first:last] > left]

    def seconds_until(self, moments: np.ndarray) -> np.ndarray:
        """Return the total seconds of all spans before each moment."""
        begun = np.searchsorted(self.start, moments)
        ended = np.searchsorted(self.stops, moments)
        started = begun * moments - self.start_sums[begun]
        seconds: np.ndarray = started - (ended * moments - self.stop_sums[ended])
        return seconds


class TaskTimeline:
    """The tasks of a run, for queries of time intervals."""

    def __init__(self, tree: xr.DataTree) -> None:
        # start, stop: (n_tasks,), start and end of each task's computation, in s after clock on,
        # sorted by start.
        # group, lane: (n_tasks,), indices into `groups` and `threads`.
        # row: (n_tasks,), index of each task in the group `tasks` of the run.
        self._whole = _dataset(tree, "task_groups", "task_group")
        self.groups = _texts(self._whole, "task_group")
        self.prefixes = _texts(self._whole, "prefix")
        tasks = _dataset(tree, "tasks", "task")
        if not tasks.sizes:
            tasks = xr.Dataset(
                {name: ("task", np.zeros(0)) for name in ("start", "duration")}
                | {name: ("task", np.zeros(0, "i4")) for name in ("thread", "group", "worker")}
            )
        start, duration = tasks["start"].values, tasks["duration"].values
        known = np.flatnonzero(np.isfinite(start) & np.isfinite(duration))
        known = known[np.argsort(start[known], kind="stable")]
        self.row = known
        self.n_unseen = int(tasks.attrs.get("n_dropped") or 0)
        self.start = start[known]
        self.stop = self.start + duration[known]
        self.threads, self.lane = np.unique(tasks["thread"].values[known], return_inverse=True)
        self.group = tasks["group"].values[known]
        nbytes = tasks["nbytes"].values[known] if "nbytes" in tasks else np.zeros(len(known))
        self._nbytes = np.maximum(nbytes, 0)  # -1 is unknown
        self._spans = {COMPUTE: _Spans(self.start, self.stop, self.group)}
        events = _dataset(tree, "task_events", "event")
        if events.sizes and len(start):
            self._add_events(events, tasks)

    def _add_events(self, events: xr.Dataset, tasks: xr.Dataset) -> None:
        actions = json.loads(events.attrs.get("actions") or "[]")
        task, action = events["task"].values, events["action"].values
        start, stop = events["start"].values, events["stop"].values
        usable = (task >= 0) & (task < tasks.sizes["task"]) & (stop > start)
        for code, name in enumerate(actions):
            at = np.flatnonzero(usable & (action == code))
            at = at[np.argsort(start[at], kind="stable")]
            if len(at) and name != COMPUTE:
                group = tasks["group"].values[task[at]]
                self._spans[name] = _Spans(start[at], stop[at], group)
        fetch = usable & (action == actions.index(TRANSFER)) if TRANSFER in actions else usable[:0]
        at = np.flatnonzero(fetch)
        if "worker" in tasks and "source" in events:
            self._fetches = pd.DataFrame(
                {
                    "group": tasks["group"].values[task[at]],
                    "source": events["source"].values[at],
                    "destination": tasks["worker"].values[task[at]],
                    "start": start[at],
                    "seconds": stop[at] - start[at],
                }
            )

    _fetches = pd.DataFrame(columns=["group", "source", "destination", "start", "seconds"])

    @property
    def n_tasks(self) -> int:
        """Number of tasks with a recorded time of computation."""
        return len(self.start)

    @property
    def has_transfers(self) -> bool:
        """Whether the time of a transfer is recorded."""
        return not self._fetches.empty

    @property
    def activities(self) -> list[str]:
        """Names of the activities of threads with recorded times."""
        return [name for name, spans in self._spans.items() if len(spans.start)]

    @property
    def whole(self) -> tuple[float, float]:
        """First start and last end of a task, in s; 0 and 1 without tasks."""
        if not self.n_tasks:
            return 0.0, 1.0
        return float(self.start[0]), float(self.stop.max())

    def inside(self, left: float, right: float) -> np.ndarray:
        """Return the tasks that computed in a time interval."""
        # returned: Indices into `start`, ascending.
        return self._spans[COMPUTE].inside(left, right)

    def group_seconds(self, window: tuple[float, float] | None = None) -> pd.DataFrame:
        """Return thread-seconds by activity for each task group."""
        size = len(self.groups)
        index = pd.Index(self.groups, name="task_group")
        if window is None:
            if "seconds" not in self._whole:
                return pd.DataFrame({"tasks": 0, "total": 0.0}, index=index[:0])
            data = self._whole["seconds"].transpose("task_group", "action")
            columns = [str(action) for action in data["action"].values]
            table = pd.DataFrame(np.nan_to_num(data.values), index=index, columns=columns)
            tasks = self._whole["n_tasks"].values
        else:
            left, right = window
            parts = {}
            tasks = np.zeros(size, int)
            for name, spans in self._spans.items():
                chosen = spans.inside(left, right)
                seconds = np.minimum(spans.stop[chosen], right)
                seconds -= np.maximum(spans.start[chosen], left)
                group = spans.group[chosen]
                parts[name] = np.bincount(group, weights=seconds, minlength=size)[:size]
                if name == COMPUTE:
                    tasks = np.bincount(group, minlength=size)[:size]
            table = pd.DataFrame(parts, index=index)
        table.insert(0, "total", table.sum(axis=1))
        table.insert(0, "tasks", np.asarray(tasks))
        table = table[(table["total"] > 0) | (table["tasks"] > 0)]
        return table.sort_values("total", ascending=False, kind="stable")

    def group_bytes(self, window: tuple[float, float] | None = None) -> pd.Series:
        """Return the size of the results of each task group."""
        index = pd.Index(self.groups, name="task_group")
        if window is None:
            nbytes = self._whole["nbytes"].values if "nbytes" in self._whole else 0
            return pd.Series(nbytes, index=index, name="bytes", dtype=float)
        chosen = self.inside(*window)
        size = len(self.groups)
        sums = np.bincount(self.group[chosen], weights=self._nbytes[chosen], minlength=size)[:size]
        return pd.Series(sums, index=index, name="bytes")

    def busy_threads(
        self, window: tuple[float, float] | None = None, bins: int = BINS
    ) -> pd.DataFrame:
        """Return the number of busy threads over time, by activity."""
        left, right = window or self.whole
        edges = np.linspace(left, right, bins + 1)
        width = (right - left) / bins
        columns = {
            name: np.maximum(np.diff(self._spans[name].seconds_until(edges)) / width, 0.0)
            for name in self.activities
        }
        middle = pd.Index((edges[:-1] + edges[1:]) / 2, name="time")
        return pd.DataFrame(columns, index=middle)

    def transfers_of(self, group: str, window: tuple[float, float] | None = None) -> pd.DataFrame:
        """Return the transfers of inputs of the tasks of a group, by pair of workers."""
        index = self.groups.index(group) if group in self.groups else -1
        return _pairs(self._fetches[self._fetches["group"] == index], window)

    def transfers(self, window: tuple[float, float] | None = None) -> pd.DataFrame:
        """Return the transfers of inputs of all tasks, by pair of workers."""
        return _pairs(self._fetches, window)


def _pairs(fetches: pd.DataFrame, window: tuple[float, float] | None) -> pd.DataFrame:
    """Return a row per pair of workers, of the transfers that overlap a time interval."""
    if window is not None:
        left, right = window
        stop = fetches["start"] + fetches["seconds"]
        fetches = fetches[(fetches["start"] < right) & (stop > left)]
    pairs = fetches.groupby(["source", "destination"])["seconds"].agg(["size", "sum"])
    pairs = pairs.reset_index().set_axis(["source", "destination", "count", "seconds"], axis=1)
    return pairs.sort_values("seconds", ascending=False, kind="stable").reset_index(drop=True)


def _texts(data: xr.Dataset, name: str) -> list[str]:
    return [str(value) for value in data[name].values] if name in data else []


def _dataset(tree: xr.DataTree, group: str, dim: str) -> xr.Dataset:
    """Return a group of a run with entries along a dimension, else an empty dataset."""
    node = tree.children.get(group)
    return node.to_dataset() if node is not None and node.sizes.get(dim) else xr.Dataset()


def group_differences(
    a: TaskTimeline, b: TaskTimeline, window: tuple[float, float] | None = None, per: str = ""
) -> pd.DataFrame:
    """Return thread-seconds by task group of two runs: too few to tell a change from noise."""
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
        column, size = PER[per]
        for name, side in zip("ab", sides, strict=True):
            amount = side[column].where(side[column] > 0) / size
            seconds[name] = side["total"] / amount
    table = seconds.assign(difference=seconds["b"] - seconds["a"])
    table = table.join(tasks.fillna(0).astype(int))
    table = table.sort_values("difference", key=np.abs, ascending=False, kind="stable")
    return table.rename_axis("group")
