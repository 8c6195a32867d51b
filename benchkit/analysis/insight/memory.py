"""Memory of runs: who held the peak, what single tasks need, and how it differs and grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchkit.analysis.options import VERDICTS
from benchkit.errors import NotEnoughRuns, UsageError
from benchkit.formatting import format_quantity, short_group, short_names
from benchkit.store.build.processes import share_processes
from benchkit.store.run import Run, worker_names
from benchkit.table import Table

#: Smallest number of runs that show growth: by chance, four grow in order once in 24 times.
MIN_RUNS = 4
#: Series of the group ``scheduler`` -> place of the sample (first or last), and label.
_SERIES = {
    ("process", 0): "workers' processes at the start",
    ("process", -1): "workers' processes at the end",
    ("unmanaged_old", -1): "unmanaged, old, at the end",
    ("rss", -1): "scheduler's process at the end",
}


@dataclass(frozen=True, eq=False)
class MemoryPeaks:
    """The largest sums of bytes held by results, by task group."""

    time: float  # Time of the cluster's peak, s after clock on
    cluster: pd.Series  # Bytes by task group at that time, replicas included, largest first
    # Name of the worker with the largest sum at any time; empty if bytes by worker are unknown.
    worker: str
    worker_time: float  # Time of that worker's peak, s after clock on
    on_worker: pd.Series  # Bytes by task group on that worker at that time
    # By task group: highest process memory of a worker that ran only tasks of this group, less the
    # results it held and the memory that stayed from before, per task that ran, in B. Empty if
    # workers share a process.
    transient: pd.Series
    names: Mapping[str, str]  # Task group -> its name without hashes, as in the other tables

    def to_records(self) -> list[dict[str, Any]]:
        """Return a flat object per task group, for ``--json``."""
        # returned: Keys `task_group`, `cluster_bytes`, `worker_bytes` and `transient_bytes`; None:
        # unknown.
        names = self.cluster.index.union(self.transient.index, sort=False)
        return [
            {
                "task_group": str(name),
                "cluster_bytes": _number(self.cluster, name),
                "worker_bytes": _number(self.on_worker, name),
                "transient_bytes": _number(self.transient, name),
            }
            for name in names
        ]

    def to_table(self) -> Table:
        """Return the peaks as a table."""
        return Table(
            [
                {
                    "task group": self.names.get(row["task_group"], row["task_group"]),
                    "at the cluster's peak": format_quantity(row["cluster_bytes"], "B"),
                    "on the worst worker": format_quantity(row["worker_bytes"], "B"),
                    "one task while it runs": format_quantity(row["transient_bytes"], "B"),
                }
                for row in self.to_records()
            ]
        )

    def __repr__(self) -> str:
        return self.to_table().to_text()

    def _repr_html_(self) -> str:
        return self.to_table().to_html()


def _number(values: pd.Series, name: Any) -> float | None:
    return float(values[name]) if name in values.index else None


def memory_peaks(run: Run) -> MemoryPeaks:
    """Return who held the peaks of the results' bytes in a run: `Run.memory_peaks`."""
    held = run.memory_by_group()
    names = worker_names(run.tree)
    tables = {worker: run.memory_by_group(worker) for worker in range(len(names))}
    totals = {worker: table.sum(axis=1) for worker, table in tables.items() if table.size}
    worst = max(totals, key=lambda worker: totals[worker].max(), default=-1)
    worker_time, on_worker = np.nan, pd.Series(dtype=float)
    if worst >= 0:
        worker_time = float(totals[worst].idxmax())
        on_worker = _holders(tables[worst], worker_time)
    time = float(held.sum(axis=1).idxmax()) if held.size else np.nan
    return MemoryPeaks(
        time=time,
        cluster=_holders(held, time) if held.size else pd.Series(dtype=float),
        worker=names[worst] if worst >= 0 else "",
        worker_time=worker_time,
        on_worker=on_worker,
        transient=_transient(run, totals),
        names=short_names(dict.fromkeys([*_recorded_groups(run), *map(str, held.columns)])),
    )


def _recorded_groups(run: Run) -> list[str]:
    """Return the task groups of a run in their order, which numbers groups of equal names."""
    if "task_groups" not in run.tree.children:
        return []
    return [str(name) for name in run.tree["task_groups"].to_dataset()["task_group"].values]


def _holders(held: pd.DataFrame, time: float) -> pd.Series:
    row = held.loc[time]
    return row[row > 0].sort_values(ascending=False)


def _transient(run: Run, totals: dict[int, pd.Series]) -> pd.Series:
    samples, tasks = run.tree["memory_samples"].to_dataset(), run.task_stream()
    found: dict[str, float] = {}
    if tasks.empty or share_processes(run.tree["workers"].to_dataset()):
        return pd.Series(found, dtype=float)
    for worker, total in totals.items():
        # Arrays: `isel` imports Dask, which takes 0.1 s.
        own = samples["worker"].values == worker
        time, peak, rss = (samples[name].values[own] for name in ("time", "peak", "rss"))
        if not len(time):
            continue
        held = np.interp(time, total.index, total.to_numpy())
        lasting = _lasting(rss - held)
        rows = tasks[tasks["worker"] == worker]
        begins, ends = rows["start"].to_numpy(), (rows["start"] + rows["duration"]).to_numpy()
        groups = rows["task_group"].to_numpy(object)
        since = -np.inf
        for at in np.flatnonzero(np.isfinite(peak)).tolist():
            running = np.flatnonzero((begins < time[at]) & (ends > since))
            since = time[at]
            if len(running) and len(set(groups[running])) == 1:
                at_once = _most_at_once(begins[running], ends[running])
                before = max(0, int(np.searchsorted(time, begins[running].min())) - 1)
                floor = max(0.0, float(lasting[before]))
                extra = max(0.0, peak[at] - held[at] - floor) / at_once
                found[groups[running[0]]] = max(found.get(groups[running[0]], 0.0), extra)
    return pd.Series(found, dtype=float).sort_values(ascending=False)


def _lasting(outside: np.ndarray) -> np.ndarray:
    """Return the memory at each sample that is never given back: the smallest from then on."""
    return np.minimum.accumulate(outside[::-1])[::-1]


#: Fewest tasks and samples of a worker that show whether memory grows with the number of tasks.
MIN_LEAVING = 16
#: Memory that grows steadily grows by this share of the second half, at least, in each quarter of
#: it: a cache that is filled once does not.
STEADY = 0.25


class MemoryLeft(NamedTuple):
    """Memory outside of results that tasks left behind."""

    group: str  # The task group that left most of it
    per_task: float  # Bytes that a task of it left
    worker: int  # Index of the worker with the largest share of its memory
    share: float  # What the second half of its tasks left there, as a share of its memory limit


def memory_left(run: Run) -> MemoryLeft | None:
    """Return which tasks left memory behind on the workers; None: none, or it is not known.

    The memory outside of results that is never given back, in the second half of the tasks of a
    worker: the first ones import modules and fill caches.
    """
    tasks = run.task_stream()
    if tasks.empty or not {"memory_samples", "held"} <= set(run.tree.children):
        return None
    workers, samples = (run.tree[name].to_dataset() for name in ("workers", "memory_samples"))
    known = np.isfinite(samples["rss"].values)
    if share_processes(workers):
        return None
    held = run.tree["held"].to_dataset()
    sizes = pd.Series(held["nbytes"].values)
    totals = sizes.groupby([held["worker"].values, held["time"].values]).sum()
    codes, names = tasks["task_group"].cat.codes.to_numpy(), tasks["task_group"].cat.categories
    ends = (tasks["start"] + tasks["duration"]).to_numpy()
    grown, counts = np.zeros(len(names)), np.zeros(len(names))
    shares = np.zeros(len(workers["name"]))
    for worker in np.flatnonzero(workers["memory_limit"].values > 0).tolist():
        rows = known & (samples["worker"].values == worker)
        own = tasks["worker"].to_numpy() == worker
        if min(own.sum(), rows.sum()) < MIN_LEAVING or worker not in totals.index.levels[0]:
            continue
        time, total = samples["time"].values[rows], totals[worker]
        results = np.interp(time, total.index, total)
        lasting = _lasting(samples["rss"].values[rows] - results)
        order = np.argsort(ends[own], kind="stable")
        ended, groups = ends[own][order], codes[own][order]
        place = np.searchsorted(time, [*np.quantile(ended, (0.5, 0.75)), ended[-1]])
        half, later, last = np.minimum(place, len(time) - 1).tolist()
        parts = lasting[later] - lasting[half], lasting[last] - lasting[later]
        # Results may be larger than Dask measures: they are no leak while they are held.
        if min(parts) <= STEADY * sum(parts) or sum(parts) < results[last] - results[half]:
            continue
        shares[worker] = sum(parts) / float(workers["memory_limit"].values[worker])
        _add_growth(grown, counts, time[half : last + 1], lasting[half : last + 1], ended, groups)
    if not grown.any():
        return None
    most = int(grown.argmax())
    return MemoryLeft(
        str(names[most]), grown[most] / counts[most], int(shares.argmax()), shares.max()
    )


def _add_growth(
    grown: np.ndarray,
    counts: np.ndarray,
    time: np.ndarray,
    lasting: np.ndarray,
    ended: np.ndarray,
    groups: np.ndarray,
) -> None:
    """Add the growth between two samples to the groups of the tasks that ended between them.

    If none ended, it belongs to those that end next.
    """
    borders = np.searchsorted(ended, time, side="right").tolist()
    waiting = 0.0
    for (first, last), step in zip(pairwise(borders), np.diff(lasting).tolist(), strict=True):
        waiting += step
        if last > first:
            np.add.at(grown, groups[first:last], waiting / (last - first))
            np.add.at(counts, groups[first:last], 1)
            waiting = 0.0


def _most_at_once(begins: np.ndarray, ends: np.ndarray) -> int:
    changes = np.repeat([1, -1], len(begins))
    order = np.lexsort((changes, np.concatenate([begins, ends])))
    return int(np.cumsum(changes[order]).max(initial=1))


def memory_difference(before: Sequence[Run], after: Sequence[Run]) -> pd.DataFrame:
    """Return the bytes of results by task group at the peak of results, of two sets of runs."""
    sides = {"before (B)": before, "after (B)": after}
    means = {
        name: pd.DataFrame([_held_at_peak(run) for run in runs]).fillna(0.0).mean()
        for name, runs in sides.items()
    }
    frame = pd.DataFrame(means, columns=list(sides)).fillna(0.0)
    frame = frame[(frame != 0).any(axis=1)]
    frame = frame.assign(**{"difference (B)": frame["after (B)"] - frame["before (B)"]})
    order = frame["difference (B)"].abs().sort_values(ascending=False, kind="stable").index
    return frame.loc[order].rename_axis("task group")


def _held_at_peak(run: Run) -> dict[str, float]:
    """Return bytes by short name of the task group at the peak of their sum."""
    held = run.memory_by_group()
    if not held.size:
        return {}
    row = held.loc[held.sum(axis=1).idxmax()]
    return {str(name): float(size) for name, size in row.groupby(short_group).sum().items()}


def memory_growth(runs: Sequence[Run]) -> pd.DataFrame:
    """Return how memory grows from run to run of a workload, such as by a leak.

    Notes
    -----
    Theil-Sen: one run with unusual memory does not change the slope. Clusters that are started for
    each run show growth only of what outlives them; reused clusters that of their processes.
    """
    if len(runs) < MIN_RUNS:
        raise NotEnoughRuns(f"growth of memory needs {MIN_RUNS} runs, not {len(runs)}")
    kinds = {(run.workload, str(run.tree.attrs.get("environment"))) for run in runs}
    if len(kinds) > 1:
        names = " and ".join(sorted(f"{workload} in {name}" for workload, name in kinds)[:2])
        raise UsageError(f"growth of memory: runs differ ({names}): select one workload")
    # Takes 0.5 s, which reports and the dashboard would wait at their start.
    from scipy.stats import theilslopes

    ordered = sorted(runs, key=lambda run: str(run.tree.attrs.get("started")))
    values = pd.DataFrame([_memory_of(run) for run in ordered])
    rows = {}
    for name in values:
        known = np.flatnonzero(values[name].notna())
        if len(known) >= MIN_RUNS:
            series = values[name].to_numpy(float)[known]
            slope, _, low, high = theilslopes(series, known, alpha=VERDICTS.level)
            rows[str(name)] = [series[0], series[-1], slope, low, high]
    columns = ["first (B)", "last (B)", "growth (B per run)", "low", "high"]
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    return frame.sort_values("growth (B per run)", ascending=False, kind="stable")


def _memory_of(run: Run) -> dict[str, float]:
    out = {}
    series = run.tree["scheduler"].to_dataset() if "scheduler" in run.tree.children else {}
    for (name, place), label in _SERIES.items():
        values = series[name].values if name in series else np.zeros(0)
        values = values[np.isfinite(values)]
        if len(values):
            out[label] = float(values[place])
    if "held" in run.tree.children:
        sizes = _held_at_peak(run)
        out |= {f"results of {name}": size for name, size in sizes.items()}
    return out


def bytes_as_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table of this module as text with units."""
    signed = ("difference (B)", "growth (B per run)", "low", "high")
    return pd.DataFrame(
        {
            name.replace(" (B)", "").replace(" (B per run)", " per run"): [
                ("+" if name in signed and size > 0 else "") + format_quantity(float(size), "B")
                for size in frame[name]
            ]
            for name in frame
        },
        index=frame.index,
    )
