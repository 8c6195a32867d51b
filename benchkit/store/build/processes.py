"""Add up values of workers: those of a shared process or machine report the same counters."""

from __future__ import annotations

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
    # returned: (workers,), seconds.
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
