"""What bounds the duration of a run: lower bounds, critical path, and the cause of each second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from benchkit.analysis.insight.blame import (
    CAUSES,
    blame_walk,
    busy_seconds,
    critical_path,
    max_threads,
)
from benchkit.errors import NotRecorded
from benchkit.formatting import format_quantity
from benchkit.store.run import Run
from benchkit.store.task_graph import event_actions
from benchkit.table import Table

#: Limits -> what would have to change to lower them.
BOUNDS = {
    "compute": "thread-seconds of all tasks / number of threads",
    "critical path": "longest chain of dependent tasks",
    "network": "time in which the busiest worker fetched results",
    "disk": "time in which the busiest worker read or wrote spilled data",
    "scheduler": "time in which the scheduler's process was busy, which may be the client's, too",
}


@dataclass(frozen=True, eq=False)
class Limits:
    """Limits of a run."""

    duration: float  # Wall time in s
    # Lower bounds of the duration in s, by the keys of `BOUNDS`: with everything else free, the run
    # would take at least so long.
    bounds: dict[str, float]
    # Critical path by task group: seconds, number of tasks, share of the duration.
    path: pd.DataFrame
    blame: pd.DataFrame  # Segments that tile the duration, see `blame_walk`

    @property
    def binding(self) -> str:
        """The largest lower bound."""
        return max(self.bounds, key=lambda name: self.bounds[name])

    @property
    def causes(self) -> pd.DataFrame:
        """Seconds and share of the duration by cause; they sum to the duration exactly."""
        return self._summed(["cause"])

    @property
    def groups(self) -> pd.DataFrame:
        """Seconds and share of the duration by cause and task group."""
        return self._summed(["cause", "group"])

    def _summed(self, by: list[str]) -> pd.DataFrame:
        seconds = self.blame["stop"] - self.blame["start"]
        frame = seconds.groupby([self.blame[name] for name in by]).sum().to_frame("seconds")
        frame["share"] = frame["seconds"] / self.duration
        return frame.sort_values("seconds", ascending=False)

    def over_time(self, n_parts: int = 200) -> pd.DataFrame:
        """Return which causes took each part of the duration."""
        # returned: A row per part (index: its middle in s), a column per cause that occurs, in the
        # order of `CAUSES`: the share of the part; a row sums to 1.
        ends = np.linspace(0.0, self.duration, n_parts + 1)
        start, stop = self.blame["start"].to_numpy(), self.blame["stop"].to_numpy()
        cause = self.blame["cause"].to_numpy()
        borders = np.concatenate([[0.0], stop])
        shares = {}
        for name in CAUSES:
            if (cause == name).any():
                seconds = np.where(cause == name, stop - start, 0.0)
                until = np.concatenate([[0.0], np.cumsum(seconds)])
                shares[name] = np.diff(np.interp(ends, borders, until)) / np.diff(ends)
        return pd.DataFrame(shares, index=pd.Index((ends[:-1] + ends[1:]) / 2, name="time"))

    @property
    def sentences(self) -> list[str]:
        """The conclusion in two sentences."""
        causes = self.causes
        parts = [
            f"{row.share:.0%} {CAUSES_SHORT.get(str(cause), str(cause))}"
            for cause, row in causes.head(3).iterrows()
            if row.share >= 0.01
        ]
        bound = self.bounds[self.binding]
        duration = format_quantity(self.duration, "s")
        first = f"Of {duration}, {', '.join(parts)}."
        second = (
            f"The largest lower bound is {self.binding} "
            f"({format_quantity(bound, 's')}, {bound / self.duration:.0%} of the duration)."
        )
        return [first, second]

    def to_records(self) -> list[dict[str, Any]]:
        """Return bounds and causes as flat objects, for ``--json``."""
        rows = [("bound", name, seconds) for name, seconds in self.bounds.items()]
        rows += [("cause", name, row.seconds) for name, row in self.causes.iterrows()]
        rows += [("path", name, row.seconds) for name, row in self.path.iterrows()]
        return [
            {"kind": kind, "name": str(name), "seconds": value, "share": value / self.duration}
            for kind, name, value in rows
        ]

    def to_table(self) -> Table:
        """Return bounds and causes as one table."""
        meaning = {**BOUNDS, **CAUSES}
        return Table(
            [
                {
                    "kind": row["kind"],
                    "name": row["name"],
                    "seconds": format_quantity(row["seconds"], "s"),
                    "share": f"{row['share']:.1%}",
                    "meaning": meaning.get(row["name"], "on the critical path"),
                }
                for row in self.to_records()
            ]
        )

    def __repr__(self) -> str:
        return "\n".join([*self.sentences, "", self.to_table().to_text()])

    def _repr_html_(self) -> str:
        return f"<p>{' '.join(self.sentences)}</p>{self.to_table().to_html()}"


#: Causes as parts of a sentence.
CAUSES_SHORT = {
    "computing": "computing with most threads busy",
    "not parallel": "computing with most threads idle",
    "straggler": "waiting for the last tasks",
    "seceded": "in tasks that left their threads",
    "unfinished": "in tasks that did not end",
    "no processor": "waiting for a processor",
    "restricted": "waiting for the workers that may run a task",
    "transfer": "waiting for transfers",
    "disk": "waiting for disk",
    "worker paused": "waiting for paused workers",
    "no worker": "without a worker",
    "stealing": "moving tasks to other workers",
    "queued": "with idle threads and tasks that wait elsewhere",
    "worker loop": "waiting for event loops of workers",
    "scheduler": "waiting for the scheduler",
    "messages": "in messages between tasks",
    "graph": "in the scheduler's handling of graphs",
    "client graph": "in the client's handling of graphs",
    "gather": "sending results to the client",
    "client": "in the client",
    "unexplained": "unexplained waits",
}


def run_limits(run: Run) -> Limits:
    """Return what bounds the duration of a run: `Run.limits`."""
    graph = run.task_graph()
    if not run.metrics.get("duration", 0.0) > 0:
        raise NotRecorded(f"run {run.id}: it has no duration: its outcome is {run.outcome}")
    duration = run.metrics["duration"]
    within = np.clip(graph.stop, 0.0, duration) - np.clip(graph.start, 0.0, duration)
    seconds = np.nan_to_num(within)  # clocks of workers differ, and tasks may outlast the clock
    path, length = critical_path(graph.indptr, graph.indices, seconds)
    workers = run.tree["workers"].to_dataset()
    fetching, spilling = _busiest_worker(run, duration)
    bounds = {
        "compute": float(run.metrics.get("compute_time", seconds.sum())) / max_threads(workers),
        "critical path": length,
        "network": fetching,
        "disk": spilling,
        "scheduler": float(np.interp(duration, *busy_seconds(run.tree["scheduler"].to_dataset()))),
    }
    names = np.array([*graph.group_names, ""], object)[graph.group[path]]
    by_group = pd.Series(seconds[path]).groupby(names).agg(["sum", "size"])
    by_group.columns = ["seconds", "tasks"]
    by_group["share"] = by_group["seconds"] / duration
    return Limits(
        duration=duration,
        bounds=bounds,
        path=by_group.sort_values("seconds", ascending=False),
        blame=blame_walk(run, graph),
    )


def _busiest_worker(run: Run, duration: float) -> tuple[float, float]:
    """Return the seconds in which the busiest worker fetched results, and used the disk."""
    events = run.tree["task_events"].to_dataset()
    actions = event_actions(events)
    worker = run.tree["tasks"].to_dataset()["worker"].values[events["task"].values]
    begins, ends = (np.clip(events[name].values, 0.0, duration) for name in ("start", "stop"))
    out = []
    for names in (("transfer",), ("disk-read", "disk-write")):
        codes = [actions.index(name) for name in names]
        chosen = np.isin(events["action"].values, codes)
        out.append(
            max(
                (
                    seconds_covered(begins[chosen & on_it], ends[chosen & on_it])
                    for on_it in (worker == number for number in np.unique(worker[chosen]))
                ),
                default=0.0,
            )
        )
    return out[0], out[1]


def seconds_covered(start: ArrayLike, stop: ArrayLike) -> float:
    """Return the seconds that at least one interval covers."""
    # start, stop: Begin and end of each interval in s; intervals with NaN are left out.
    start, stop = np.asarray(start, float), np.asarray(stop, float)
    known = np.isfinite(start) & np.isfinite(stop)
    order = np.argsort(start[known], kind="stable")
    start, stop = start[known][order], stop[known][order]
    reached = np.maximum.accumulate(stop)
    before = np.concatenate([[-np.inf], reached[:-1]])
    return float(np.maximum(reached - np.maximum(start, before), 0.0).sum())
