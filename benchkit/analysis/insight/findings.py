"""A finding of the diagnosis, and what its rules look at."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from benchkit.analysis.insight.limits import Limits, run_limits
from benchkit.analysis.insight.whatif import Prediction, WhatIf
from benchkit.errors import NotRecorded, UsageError
from benchkit.store.run import Run

__all__ = ["MIN_S", "MIN_SHARE", "Case", "Finding"]

#: Findings that cost less than this share of the duration, or less than these seconds, are not
#: reported. A single collection of garbage, a late heartbeat and an import take 0.1 s each.
MIN_SHARE, MIN_S = 0.03, 0.2


@dataclass(frozen=True)
class Finding:
    """Something that makes a run slower, or needs more memory than it would have to.

    Parameters
    ----------
    what : str
        What is wrong, in one sentence.
    seconds : float
        What it costs of the duration in s.
    evidence : str
        Numbers that show it.
    change : str
        What to change.
    settings : mapping, optional
        Changes of the environment that would prove it by an A/B, such as ``{"cluster.n_workers":
        4}``; empty: the workload has to change.
    group, worker : str
        Task group and worker concerned; empty: none in particular.
    window : tuple of float, optional
        Start and end in s of the part of the run that shows it best; None: the whole run.
    rule : str
        Name of the rule.
    """

    what: str
    seconds: float
    evidence: str
    change: str
    settings: Mapping[str, Any] | None = None
    group: str = ""
    worker: str = ""
    window: tuple[float, float] | None = None
    rule: str = ""


class Case:
    """The data of a run, as the rules need them.

    Parameters
    ----------
    run : Run
        The run.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.metrics = run.metrics
        self.duration = self.metrics.get("duration", 0.0)

    def metric(self, name: str) -> float:
        """Return a metric; 0 if it is unknown.

        Parameters
        ----------
        name : str
            Name of the metric.

        Returns
        -------
        float
            In the unit of the metric.
        """
        return self.metrics.get(name, 0.0)

    @property
    def least_cost(self) -> float:
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
        """Number of threads of all workers."""
        return max(1, int(self.workers["nthreads"].values.sum()))

    @cached_property
    def tasks(self) -> pd.DataFrame:
        """The finished tasks; without columns if none were recorded."""
        return self.run.task_stream()

    def events(self, topic: str) -> pd.DataFrame:
        """Return the events of a topic.

        Parameters
        ----------
        topic : str
            Kind of the events.

        Returns
        -------
        DataFrame
            Time (s), topic, worker (index), message (JSON).
        """
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
        for text in self.run.quality()["text"]:
            found = re.search(r"processes other than workers.* used ([\d.]+) cores", text)
            if found:
                return float(found[1])
        return 0.0

    def task_seconds(self, activity: str) -> float | None:
        """Return the seconds that tasks spent on an activity.

        Parameters
        ----------
        activity : str
            Name of an activity of distributed's fine metrics, such as "thread-cpu".

        Returns
        -------
        float or None
            Of all tasks together; None: not recorded.
        """
        fine = self.run.fine_metrics()
        if fine.empty:
            return None
        own = fine[(fine["context"] == "execute") & (fine["activity"] == activity)]
        return float(own["value"].sum()) if len(own) else None

    @cached_property
    def other_threads(self) -> float:
        """Processor seconds of the workers outside of the threads of tasks; 0: unknown."""
        own = self.task_seconds("thread-cpu")
        return 0.0 if own is None else max(0.0, self.metric("cpu_time") - own)

    @property
    def imbalance(self) -> float:
        """Seconds that the run would save if its tasks kept all threads busy to the end."""
        if self.limits is None:
            return 0.0
        return max(0.0, self.duration - self.limits.bounds["compute"])

    @property
    def disturbance(self) -> float:
        """How many times as long as usual waits of processes may take: 2 if it is disturbed."""
        return 2.0 if self.is_disturbed else 1.0

    @property
    def is_disturbed(self) -> bool:
        """Whether other processes used so much that processes of the cluster had to wait."""
        return self.other_cores > 0.5

    def blamed(self, *causes: str) -> float:
        """Return the seconds of the duration that some causes took; 0 without a task graph.

        Parameters
        ----------
        *causes : str
            Keys of `CAUSES`.

        Returns
        -------
        float
            Their sum in s.
        """
        if self.limits is None:
            return 0.0
        seconds = self.limits.causes["seconds"]
        return float(sum(seconds.get(cause, 0.0) for cause in causes))

    def longest_span(self, *causes: str) -> tuple[float, float] | None:
        """Return the longest part of the run with some causes and no others.

        Parameters
        ----------
        *causes : str
            Keys of `CAUSES`.

        Returns
        -------
        tuple of float or None
            Start and end in s; None: the causes took no time.
        """
        if self.limits is None or not self.blamed(*causes):
            return None
        blame = self.limits.blame
        chosen = blame["cause"].isin(causes)
        spans = blame[chosen].groupby((~chosen).cumsum())
        starts, stops = spans["start"].min(), spans["stop"].max()
        longest = (stops - starts).idxmax()
        return float(starts[longest]), float(stops[longest])

    def predict(self, **changes: Any) -> Prediction | None:
        """Return what a change would bring by the replay.

        Parameters
        ----------
        **changes
            Arguments of `WhatIf.predict`.

        Returns
        -------
        Prediction or None
            None: the replay cannot predict.
        """
        try:
            return None if self.model is None else self.model.predict(**changes)
        except UsageError:
            return None

    def saving(self, **changes: Any) -> float | None:
        """Return the seconds that a change would save by the replay.

        Parameters
        ----------
        **changes
            Arguments of `WhatIf.predict`.

        Returns
        -------
        float or None
            Seconds, at least 0; None: the replay cannot predict.
        """
        predicted = self.predict(**changes)
        return None if predicted is None else max(0.0, self.duration - predicted.seconds)

    def increase(self, dataset: xr.Dataset, name: str) -> np.ndarray:
        """Return the growth of a cumulative counter while the clock ran.

        Parameters
        ----------
        dataset : Dataset
            Group of the run with the counter over time.
        name : str
            Name of the counter.

        Returns
        -------
        ndarray of float
            Per worker; 0 if it is unknown.
        """
        if name not in dataset:
            return np.zeros(1)
        values = dataset[name].values
        values = values[:, None] if values.ndim == 1 else values
        known = np.isfinite(values)
        highest = np.where(known, values, -np.inf).max(axis=0, initial=-np.inf)
        lowest = np.where(known, values, np.inf).min(axis=0, initial=np.inf)
        return np.where(known.any(axis=0), highest - lowest, 0.0)
