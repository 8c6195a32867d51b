"""A finding of the diagnosis, and what its rules look at."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike

from benchkit.analysis.insight.blame import (
    BETWEEN_TASKS,
    WAITS,
    busy_threads,
    max_threads,
    sum_over_time,
)
from benchkit.analysis.insight.limits import Limits, run_limits, seconds_covered
from benchkit.errors import NotRecorded, UsageError
from benchkit.predict.answer import Prediction
from benchkit.predict.contention import MAX_WAITS, Contention, is_new_heartbeat
from benchkit.predict.whatif import WhatIf
from benchkit.store.run import Run

#: Findings that cost less than this share of the duration, or less than these seconds, are not
#: reported. A single collection of garbage, a late heartbeat and an import take 0.1 s each.
MIN_SHARE, MIN_S = 0.03, 0.2
#: With this many bytes per task of a graph or more, the scheduler needs longer for the data than
#: for the task itself: up to 1 ms a task; graphs with data in them came and went with 160 to
#: 400 MB/s.
DATA_BYTES = 300_000

#: Share of the duration below which most findings are not worth a change of code: repeats of a run
#: differ by as much.
WORTH_SHARE = 0.1
#: Share of the duration of what every run has: a quarter of the run or more is a finding.
LARGE_SHARE = 0.25
#: Seconds that the first graph of a process may take: Dask imports modules when it needs them.
USUAL_START_S = 0.5
#: Paths of code that no user wrote.
LIBRARIES = r"site-packages|/lib/python3|^<"


@dataclass(frozen=True)
class Finding:
    """Something that makes a run slower, or needs more memory than it would have to."""

    what: str  # What is wrong, in one sentence
    seconds: float  # What it costs of the duration in s
    evidence: str  # Numbers that show it
    change: str  # What to change
    # Changes of the environment that would prove it by an A/B, such as `{"cluster.n_workers": 4}`;
    # empty: the workload has to change.
    settings: Mapping[str, Any] | None = None
    group: str = ""  # group, worker: Task group and worker concerned; empty: none in particular
    worker: str = ""
    # Start and end in s of the part of the run that shows it best; None: the whole run.
    window: tuple[float, float] | None = None
    rule: str = ""  # Name of the rule
    causes: tuple[str, ...] = ()  # Causes of the blame whose seconds it explains
    is_always_reported: bool = False  # A fact to know, also if it cost no time
    shared: float = 0.0  # Seconds of the cost that more expensive findings have, too


class Case:
    """The data of a run, as the rules need them."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.metrics = run.metrics
        self.duration = self.metrics.get("duration", 0.0)

    def metric(self, name: str) -> float:
        """Return a metric; 0 if it is unknown."""
        return self.metrics.get(name, 0.0)

    @property
    def min_cost(self) -> float:
        """Seconds that a finding must cost to be reported."""
        return max(MIN_S, MIN_SHARE * self.duration)

    @cached_property
    def workers(self) -> xr.Dataset:
        """The group ``workers`` of the run."""
        return self.run.tree["workers"].to_dataset()

    @cached_property
    def scheduler(self) -> xr.Dataset:
        """The group ``scheduler`` of the run."""
        return self.run.tree["scheduler"].to_dataset()

    @cached_property
    def n_threads(self) -> int:
        """Number of threads of the workers that were there at the same time."""
        return max_threads(self.workers)

    @cached_property
    def tasks(self) -> pd.DataFrame:
        """The finished tasks; without columns if none were recorded."""
        return self.run.task_stream()

    @cached_property
    def usual_seconds(self) -> pd.Series:
        """The median duration of the group of each finished task, in s."""
        groups = self.tasks.groupby("task_group", observed=True)["duration"]
        usual: pd.Series = groups.transform("median")
        return usual

    def events(self, topic: str) -> pd.DataFrame:
        """Return the events of a topic."""
        events = self.run.events()
        if not len(events):
            return pd.DataFrame(columns=["time", "topic", "worker", "message"])
        return events[events["topic"] == topic]

    @cached_property
    def limits(self) -> Limits | None:
        """The limits of the run; None without a task graph."""
        try:
            return run_limits(self.run)
        except NotRecorded:
            return None

    @cached_property
    def model(self) -> WhatIf | None:
        """The replay of the run; None if it cannot predict."""
        try:
            return WhatIf(self.run)
        except UsageError:
            return None

    @cached_property
    def other_cores(self) -> float:
        """Processor cores of the workers' machines that other processes used, as the run notes."""
        return self.run.other_cores

    def task_seconds(self, activity: str) -> float | None:
        """Return the seconds that tasks spent on an activity."""
        # returned: Of all tasks together; None: not recorded.
        fine = self.fine_seconds
        own = fine[(fine["context"] == "execute") & (fine["activity"] == activity)]
        return float(own["value"].sum()) if len(own) else None

    @cached_property
    def fine_seconds(self) -> pd.DataFrame:
        """The fine metrics in seconds: context, prefix, activity, value; empty: not recorded."""
        fine = self.run.fine_metrics()
        columns = ["context", "prefix", "activity", "value"]
        return fine[fine["unit"] == "seconds"] if len(fine) else pd.DataFrame(columns=columns)

    def waits_in_tasks(self, group: str) -> float:
        """Return the seconds in which tasks like those of a group did not use a processor."""
        groups, fine = self.run.tree["task_groups"].to_dataset(), self.fine_seconds
        prefixes = groups["prefix"].values[groups["task_group"].values == group]
        own = fine[(fine["context"] == "execute") & fine["prefix"].isin(prefixes)]
        return float(own.loc[own["activity"] == "thread-noncpu", "value"].sum())

    @cached_property
    def other_threads(self) -> float:
        """Processor seconds of the workers outside of the threads of tasks; 0: unknown."""
        own = self.task_seconds("thread-cpu")
        return 0.0 if own is None else max(0.0, self.metric("cpu_time") - own)

    @cached_property
    def processor_waits(self) -> float:
        """Largest ratio of waiting for a processor to using one, of a task without others' work.

        0 if the machine has a processor for each thread and event loop, or it is unknown.
        """
        seconds = self.metric("compute_time")
        shape = self.workers.sizes["worker"], round(float(self.workers["nthreads"].values.mean()))
        stretch = Contention.of(self.run).stretch((*shape, seconds, self.duration), 0.0)
        return MAX_WAITS * (stretch - 1)

    @property
    def imbalance(self) -> float:
        """Seconds that the run would save if its tasks kept all threads busy to the end."""
        if self.limits is None:
            return 0.0
        return max(0.0, self.duration - self.limits.bounds["compute"])

    def max_saving(self, causes: Collection[str]) -> float:
        """Return the seconds that the run would save at most without some causes."""
        # Without waits alone, tasks still compute, on all threads and one after another.
        if self.limits is None or not set(causes) <= WAITS:
            return self.duration
        bounds = self.limits.bounds
        return max(0.0, self.duration - max(bounds["compute"], bounds["critical path"]))

    @property
    def disturbance(self) -> float:
        """How many times as long as usual waits of processes may take: 2 if it is disturbed."""
        return 2.0 if self.is_disturbed else 1.0

    @property
    def usual_start(self) -> float:
        """Seconds before the first task that say nothing of the workload."""
        return USUAL_START_S * self.disturbance

    @property
    def is_disturbed(self) -> bool:
        """Whether other processes used so much that processes of the cluster had to wait."""
        return self.other_cores > 0

    def blamed(self, *causes: str, window: tuple[float, float] | None = None) -> float:
        """Return the seconds that some causes took, also without a processor."""
        # window: Start and end in s of a part of the run; None: the duration.
        if self.limits is None:
            return 0.0 if window is None else self.seconds_within([window[0]], [window[1]])
        blame = self.limits.blame
        chosen = _with_causes(blame, causes)
        length = (blame["stop"] - blame["start"]).where(chosen, 0.0)
        if window is None:
            return float(length.sum())
        until = np.append(0.0, length.cumsum())
        before, after = np.interp(window, np.append(0.0, blame["stop"]), until)
        return float(after - before)

    @cached_property
    def data_waits(self) -> float:
        """Seconds that tasks waited for the scheduler to send data that was in their graph."""
        if self.limits is None:
            return 0.0
        graph, blame = self.run.task_graph(), self.limits.blame
        sent = graph.submissions
        has_data = sent["nbytes"] > DATA_BYTES * sent["n_nodes"]
        rows = blame[blame["origin"].isin(BETWEEN_TASKS) & (blame["node"] >= 0)]
        number = graph.submission[rows["node"]]
        chosen = rows[np.isin(number, np.flatnonzero(has_data))]
        return float((chosen["stop"] - chosen["start"]).sum())

    def longest_span(self, *causes: str) -> tuple[float, float] | None:
        """Return the longest part of the run with some causes and no others."""
        # returned: Start and end in s; None: the causes took no time.
        if self.limits is None or not self.blamed(*causes):
            return None
        blame = self.limits.blame
        chosen = _with_causes(blame, causes)
        spans = blame[chosen].groupby((~chosen).cumsum())
        starts, stops = spans["start"].min(), spans["stop"].max()
        longest = (stops - starts).idxmax()
        return float(starts[longest]), float(stops[longest])

    def in_functions(self, names: Collection[tuple[str, str]]) -> pd.Series:
        """Return the seconds that tasks spent in functions, by prefix, the largest first.

        A function is a part of its file's path, and the beginning of its name.
        """
        frames = self.run.profile()
        if frames.empty or not self.metric("compute_time"):
            return pd.Series(dtype=float)
        inside: list[bool] = []
        chosen: list[bool] = []
        for parent, file, function in zip(
            frames["parent"], frames["file"], frames["function"], strict=True
        ):
            before = parent >= 0 and inside[parent]
            found = any(path in file and function.startswith(name) for path, name in names)
            chosen.append(found and not before)
            inside.append(found or before)
        seconds = (
            frames["count"]
            * self.metric("compute_time")
            / frames.loc[frames["parent"] < 0, "count"].sum()
        )
        return seconds[chosen].groupby(frames["prefix"][chosen]).sum().sort_values(ascending=False)

    def user_line(self, group: str) -> str:
        """Return function and line of user code that the tasks of a group were in most often."""
        groups, frames = self.run.tree["task_groups"].to_dataset(), self.run.profile()
        if frames.empty:
            return ""
        prefix = groups["prefix"].values[groups["task_group"].values == group]
        own = frames[frames["prefix"].isin(prefix) & (frames["file"] != "")]
        own = own[~own["file"].str.contains(LIBRARIES)]
        if own.empty:
            return ""
        # Of frames with as many samples, the innermost is the last one.
        frame = own.iloc[::-1].loc[own.iloc[::-1]["count"].idxmax()]
        return f"{frame['function']} ({frame['file'].rpartition('/')[2]}:{frame['line']})"

    def predict(self, **changes: Any) -> Prediction | None:
        """Return what a change would bring by the replay."""
        # returned: None: the replay cannot predict.
        try:
            return None if self.model is None else self.model.predict(**changes)
        except UsageError:
            return None

    def saving(self, **changes: Any) -> float | None:
        """Return the seconds that a change would save by the replay."""
        # returned: Seconds, at least 0; None: the replay cannot predict.
        predicted = self.predict(**changes)
        return None if predicted is None else max(0.0, self.duration - predicted.seconds)

    def even_saving(self, group: str) -> float | None:
        """Return the seconds that equal durations of the tasks of a group would save."""
        if self.model is None:
            return None
        graph, seconds = self.model.graph, self.model.given.seconds
        chosen = (graph.group == graph.group_names.index(group)) & np.isfinite(graph.start)
        return self.saving(durations=np.where(chosen, seconds[chosen].mean(), seconds))

    def even_load_saving(self, *causes: str) -> float:
        """Return the seconds of causes that an even load of all threads would save."""
        if self.limits is None:
            return 0.0
        blame = self.limits.blame
        return min(self.idle_seconds(blame[_with_causes(blame, causes)]), self.imbalance)

    def idle_seconds(self, rows: pd.DataFrame) -> float:
        """Return the seconds of rows of the blame that an even load of all threads would save."""
        threads = busy_threads(self.run)
        until = sum_over_time(threads.times, threads.busy)
        computed = np.interp(rows["stop"], *until) - np.interp(rows["start"], *until)
        length = (rows["stop"] - rows["start"]).to_numpy()
        return float(np.maximum(length - computed / self.n_threads, 0.0).sum())

    def increase(
        self, dataset: xr.Dataset, name: str, window: tuple[float, float] | None = None
    ) -> np.ndarray:
        """Return the growth of a cumulative counter in a part of the run."""
        # window: Start and end in s; None: while the clock ran. What grew between two values of
        # which one lies outside is divided by their times.
        if name not in dataset:
            return np.zeros(1)
        values, times = dataset[name].values, dataset["time"].values
        values = values[:, None] if values.ndim == 1 else values
        known = np.isfinite(values)
        if "address" in dataset.coords:
            known &= self.heartbeats
        edges = (0.0, self.duration) if window is None else window
        out = np.zeros(values.shape[1])
        for column in np.flatnonzero(known.any(axis=0)):
            rows = known[:, column]
            low, high = np.interp(edges, times[rows], values[rows, column])
            out[column] = max(0.0, high - low)
        return out

    @cached_property
    def heartbeats(self) -> np.ndarray:
        """Rows of `workers` that are new heartbeats, by time and worker; others repeat values."""
        return is_new_heartbeat(self.workers)

    def seconds_within(self, start: ArrayLike, stop: ArrayLike) -> float:
        """Return the seconds of the run that at least one interval covers."""
        # start, stop: Begin and end of each interval in s; intervals with NaN are left out.
        return seconds_covered(np.clip(start, 0, self.duration), np.clip(stop, 0, self.duration))


def _with_causes(blame: pd.DataFrame, causes: Collection[str]) -> pd.Series:
    """Return which rows of the blame have some causes, or would have them with a processor."""
    chosen: pd.Series = blame["cause"].isin(causes) | blame["origin"].isin(causes)
    return chosen


Rule = Callable[[Case], Finding | None]
#: The rules by name, in the order of their files. Findings of equal cost keep this order.
RULES: dict[str, Rule] = {}


def rule(*causes: str) -> Callable[[Rule], Rule]:
    """Add a function that explains causes to the rules: it returns a finding, or None."""

    def add(function: Rule) -> Rule:
        @wraps(function)
        def find(case: Case) -> Finding | None:
            finding = function(case)
            return finding and replace(finding, rule=function.__name__, causes=causes)

        RULES[function.__name__] = find
        return find

    return add
