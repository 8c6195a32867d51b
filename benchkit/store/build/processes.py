"""Add up counters of workers: workers that share a process or a machine share its counters."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

__all__ = ["increases", "process_ids", "rows_by_process"]


def process_ids(workers: xr.Dataset) -> NDArray[np.int64]:
    """Return the number of each worker's process; where it is unknown, one for each worker.

    Parameters
    ----------
    workers : Dataset
        Group ``workers`` of a run.

    Returns
    -------
    ndarray of int, shape (workers,)
        Workers of the same process have the same number.
    """
    n_workers = workers.sizes["worker"]
    if "process_id" not in workers:
        return np.arange(n_workers)
    ids = workers["process_id"].values.astype(np.int64)
    return np.where(ids < 0, n_workers + np.arange(n_workers), ids)


def rows_by_process(ids: NDArray[np.int64]) -> dict[int, NDArray[np.intp]]:
    """Return the positions of each process in a column of process numbers.

    Parameters
    ----------
    ids : ndarray of int
        Number of a process in each row.

    Returns
    -------
    dict of int to ndarray
        Positions in order, by number; one sort, because large clusters have a million samples.
    """
    if not len(ids):
        return {}
    order = np.argsort(ids, kind="stable")
    numbers, first = np.unique(ids[order], return_index=True)
    return dict(zip(numbers.tolist(), np.split(order, first[1:]), strict=True))


def increases(values: NDArray[np.float64], owners: NDArray[Any]) -> NDArray[np.float64]:
    """Return the increase of each owner's counter.

    Parameters
    ----------
    values : ndarray, shape (times, workers)
        Values of a counter that never falls; NaN: unknown. Workers of one owner report the same
        counter at different times.
    owners : ndarray, shape (workers,)
        Process or machine of each worker.

    Returns
    -------
    ndarray
        One value per owner, in sorted order; NaN if no value is known.
    """
    out = []
    for owner in np.unique(owners):
        columns = values[:, owners == owner]
        known = columns[np.isfinite(columns)]
        out.append(known.max() - known.min() if len(known) else np.nan)
    return np.array(out)
