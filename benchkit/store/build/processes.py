"""Values and memory of workers: those of a shared process or machine report the same counters.

The memory of a process counts once, while one of its workers is in the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray


def process_ids(workers: xr.Dataset) -> NDArray[np.int64]:
    """Return the number of each worker's process; where it is unknown, one for each worker."""
    # returned: (workers,), workers of the same process have the same number.
    n_workers = workers.sizes["worker"]
    if "process_id" not in workers:
        return np.arange(n_workers)
    ids = workers["process_id"].values.astype(np.int64)
    return np.where(ids < 0, n_workers + np.arange(n_workers), ids)


def share_processes(workers: xr.Dataset) -> bool:
    """Return whether several workers run in one process, as with ``processes: false``."""
    ids = process_ids(workers)
    return len(np.unique(ids)) < len(ids)


def add_up_memory(scheduler: xr.Dataset, workers: xr.Dataset) -> xr.Dataset:
    """Return the scheduler's samples with the memory of each process counted once.

    Dask adds up the memory of all workers, as if each had its own process.
    """
    if not share_processes(workers) or not workers.sizes["time"]:
        return scheduler
    newest = np.searchsorted(workers["time"].values, scheduler["time"].values, side="right") - 1
    ids = process_ids(workers)

    def sums(name: str, over: np.ufunc) -> NDArray[np.float64]:
        values = np.where((newest >= 0)[:, None], workers[name].values[newest], np.nan)
        one_each = [over.reduce(values[:, ids == number], axis=1) for number in np.unique(ids)]
        return np.asarray(np.nansum(one_each, axis=0))

    process = sums("process", np.fmax)
    in_memory = np.nan_to_num(scheduler["managed"].values - scheduler["spilled"].values)
    unmanaged = np.maximum(process - in_memory, 0.0)
    recent = np.minimum(sums("unmanaged_recent", np.fmin), unmanaged)
    values = {"process": process, "unmanaged_recent": recent, "unmanaged_old": unmanaged - recent}
    return scheduler.assign(
        {name: (("time",), array, scheduler[name].attrs) for name, array in values.items()}
    )


def rows_by_process(ids: NDArray[np.int64]) -> dict[int, NDArray[np.intp]]:
    """Return the positions of each process in a column of process numbers."""
    if not len(ids):
        return {}
    order = np.argsort(ids, kind="stable")
    numbers, first = np.unique(ids[order], return_index=True)
    return dict(zip(numbers.tolist(), np.split(order, first[1:]), strict=True))


def increases(values: NDArray[np.float64], owners: NDArray[Any]) -> NDArray[np.float64]:
    """Return the increase of each owner's counter."""
    # values: (times, workers), values of a counter that never falls; NaN: unknown. Workers of one
    # owner report the same counter at different times.
    # owners: (workers,), process or machine of each worker.
    # returned: One value per owner, in sorted order; NaN if no value is known.
    out = []
    for owner in np.unique(owners):
        columns = values[:, owners == owner]
        known = columns[np.isfinite(columns)]
        out.append(known.max() - known.min() if len(known) else np.nan)
    return np.array(out)


def increases_by_worker(workers: xr.Dataset, name: str) -> NDArray[np.float64]:
    """Return the increase of each worker's own counter."""
    # returned: (workers,), NaN where it is unknown, or the run has no such variable.
    n_workers = workers.sizes["worker"]
    if name not in workers:
        return np.full(n_workers, np.nan)
    return increases(workers[name].values, np.arange(n_workers))


def held_seconds(workers: xr.Dataset, duration: float) -> NDArray[np.float64]:
    """Return the seconds that each worker was there while the clock ran."""
    left = np.where(np.isnan(workers["left"].values), np.inf, workers["left"].values)
    held = np.minimum(left, duration) - np.maximum(workers["joined"].values, 0.0)
    return np.asarray(np.maximum(held, 0.0))


def monitored_seconds(workers: xr.Dataset, duration: float) -> tuple[float, float]:
    """Return the seconds for which the workers' waits for the GIL are known."""
    held = held_seconds(workers, duration)
    measured = np.isfinite(increases_by_worker(workers, "gil_time"))
    ends = np.fmax.reduce(workers["monitor_time"].values, axis=0, initial=-np.inf)
    known = np.minimum(ends - np.maximum(workers["joined"].values, 0.0), held)
    return float(np.maximum(known, 0.0)[measured].sum()), float(held.sum())


Array = NDArray[np.float64]

#: Points of time at which the processes' memory is added up; a run with more samples has a coarser
#: grid.
MAX_GRID = 20_000
#: Below this share of the workers' time with samples, mean and peak are unknown.
MIN_SAMPLED = 0.9


@dataclass(frozen=True)
class _Process:
    """Samples of one process in order of time, and when it belonged to the cluster."""

    time: Array
    rss: Array
    area: Array
    peak: Array
    begin: float
    end: float

    def over(self, grid: Array) -> Array:
        """Return RSS at the times of a grid, 0 outside the time in the cluster."""
        values = np.interp(grid, self.time, self.rss)
        return np.where((grid >= self.begin) & (grid <= self.end), values, 0.0)

    def integral(self) -> float:
        """Return B s while the process belonged to the cluster."""
        ends = np.interp([self.begin, self.end], self.time, self.area)
        # Before the first and after the last sample: as in that sample.
        early = max(0.0, min(self.time[0], self.end) - self.begin) * self.rss[0]
        late = max(0.0, self.end - max(self.time[-1], self.begin)) * self.rss[-1]
        return float(ends[1] - ends[0] + early + late)

    def uncertainty(self) -> float:
        """Return B s by which the integral may be wrong: a step may be anywhere between samples."""
        begins, ends = np.maximum(self.time[:-1], self.begin), np.minimum(self.time[1:], self.end)
        seconds = np.maximum(ends - begins, 0.0)
        return float((np.abs(np.diff(self.rss)) * seconds).sum() / 2)

    def peaks(self) -> list[tuple[float, float, float]]:
        """Return the peaks reached in the cluster, each with begin and end of its interval."""
        rows = np.flatnonzero(np.isfinite(self.peak))
        return [
            (float(self.peak[row]), float(self.time[before]), float(self.time[row]))
            for before, row in pairwise(rows)
            if self.time[row] > self.begin and self.time[before] < self.end
        ]

    def sampled_s(self) -> float:
        """Return seconds in the cluster that lie between samples."""
        return float(max(0.0, min(self.end, self.time[-1]) - max(self.begin, self.time[0])))


def cluster_memory(groups: Mapping[str, xr.Dataset], duration: float) -> dict[str, float]:
    """Return mean and peak of the cluster's memory."""
    workers = groups["workers"]
    ids = process_ids(workers)
    processes = _processes(workers, groups["memory_samples"], ids, duration)
    if not _held_s(workers, ids, duration):
        names = ("memory_mean", "memory_peak", "memory_peak_bound")
        return dict.fromkeys(names, 0.0) if workers.sizes["worker"] else {}
    if sampled_share(groups, duration) < MIN_SAMPLED:
        return {}
    grid = _grid(groups["memory_samples"]["time"].values, duration)
    series = {number: process.over(grid) for number, process in processes.items()}
    total = np.sum(list(series.values()), axis=0)
    low = high = float(total.max())
    worst = max(float(own.max()) for own in series.values())
    for number, own in series.items():
        others = total - own
        for peak, begin, end in processes[number].peaks():
            start, stop = np.searchsorted(grid, [begin, end])
            places = others[max(0, start - 1) : stop + 1]
            low = max(low, peak + float(places.min()))
            high = max(high, peak + float(places.max()))
            worst = max(worst, peak)
    mean = sum(process.integral() for process in processes.values()) / duration
    return {
        "memory_mean": mean,
        "memory_peak": low,
        "memory_peak_bound": high,
        "memory_peak_worker": worst,
    }


def sampled_share(groups: Mapping[str, xr.Dataset], duration: float) -> float:
    """Return the part of the processes' time in the cluster that lies between two samples."""
    workers = groups["workers"]
    ids = process_ids(workers)
    held = _held_s(workers, ids, duration)
    processes = _processes(workers, groups["memory_samples"], ids, duration)
    return sum(process.sampled_s() for process in processes.values()) / held if held else 1.0


def mean_uncertainty(groups: Mapping[str, xr.Dataset], duration: float) -> float:
    """Return the largest error of ``memory_mean`` in B, if memory changes once between samples."""
    workers = groups["workers"]
    processes = _processes(workers, groups["memory_samples"], process_ids(workers), duration)
    return sum(process.uncertainty() for process in processes.values()) / duration


def _held_s(workers: xr.Dataset, ids: NDArray[np.int64], duration: float) -> float:
    return sum(end - begin for begin, end in _presence(workers, ids, duration).values())


def _presence(
    workers: xr.Dataset, ids: NDArray[np.int64], duration: float
) -> dict[int, tuple[float, float]]:
    """Return the first and last second of each process in the cluster while the clock ran."""
    left = np.nan_to_num(workers["left"].values, nan=np.inf)
    begin = np.clip(workers["joined"].values, 0.0, duration)
    end = np.clip(left, 0.0, duration)
    return {
        int(number): (float(begin[ids == number].min()), float(end[ids == number].max()))
        for number in np.unique(ids)
    }


def _processes(
    workers: xr.Dataset, memory: xr.Dataset, ids: NDArray[np.int64], duration: float
) -> dict[int, _Process]:
    out = {}
    present = _presence(workers, ids, duration)
    processes = ids[memory["worker"].values.astype(int)] if memory.sizes["sample"] else ids[:0]
    columns = [memory[name].values for name in ("time", "rss", "area", "peak")]
    for number, rows in rows_by_process(processes).items():
        begin, end = present[number]
        if end <= begin:
            continue
        # Workers of a process send the same samples.
        _, first = np.unique(columns[0][rows], return_index=True)
        time, rss, area, peak = (column[rows][first] for column in columns)
        out[number] = _Process(time, rss, area, peak, begin, end)
    return out


def _grid(times: Array, duration: float) -> Array:
    inside = np.unique(times[(times > 0) & (times < duration)])
    if len(inside) > MAX_GRID:
        return np.linspace(0.0, duration, MAX_GRID)
    return np.concatenate([[0.0], inside, [duration]])
