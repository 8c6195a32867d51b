"""Which tasks ran again because the worker that had run them was gone."""

from __future__ import annotations

import zlib
from typing import NamedTuple

import numpy as np
import xarray as xr

__all__ = ["Again", "recomputed"]


class Again(NamedTuple):
    """A task that ran again: its row, its key, and the number of the worker that was lost."""

    task: int
    key: str
    lost: int


def recomputed(tasks: xr.Dataset, left: np.ndarray) -> list[Again]:
    """Return tasks that ended well again after the worker they had ended well on was gone.

    Parameters
    ----------
    tasks : Dataset
        The group ``tasks`` of a run, in order of their ends.
    left : ndarray, shape (workers,)
        When each worker left, s after clock on; NaN for those that stayed.
    """
    if not np.isfinite(left).any() or not tasks.sizes["task"]:
        return []
    keys = zlib.decompress(tasks["key_blob"].values.tobytes()).decode().split("\n")
    worker, start = tasks["worker"].values, tasks["start"].values
    ran_on: dict[str, int] = {}
    found = []
    for index in np.flatnonzero(tasks["ok"].values == 1).tolist():
        before = ran_on.get(keys[index], -1)
        if before >= 0 and left[before] <= start[index]:
            found.append(Again(index, keys[index], before))
        ran_on[keys[index]] = int(worker[index])
    return found
