"""Durations and sizes of the tasks of a workload, from its kept runs, by prefix of the keys."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
from dask.utils import key_split

from benchkit.analysis.run.baseline import is_simulated
from benchkit.errors import UsageError
from benchkit.store.run import Run
from benchkit.store.store import Store

#: Number of newest runs to use, and of values to keep for each prefix.
MAX_RUNS = 5
MAX_VALUES = 200


def costs_of_workload(store: Store, workload: str) -> dict[str, list[list[float]]]:
    """Return durations and sizes of the tasks of a workload."""
    with warnings.catch_warnings():  # a workload without runs is an error below
        warnings.simplefilter("ignore", UserWarning)
        runs = store.runs(workload=workload, outcome="ok")
    if len(runs):
        ids = runs.loc[~is_simulated(runs) & (runs["capture"] == "full"), "id"].tolist()[-MAX_RUNS:]
        costs = _costs_from_runs(store.load(ids))
        if costs:
            return costs
    raise UsageError(
        f"{workload}: the durations of its tasks are unknown: measure it once, with "
        f"`benchkit run '{workload}'` (capture level full)"
    )


def _costs_from_runs(runs: Sequence[Run]) -> dict[str, list[list[float]]]:
    """Return the pairs, evenly spaced in the order of the seconds if there are many."""
    streams = [stream for run in runs if len(stream := run.task_stream())]
    if not streams:
        return {}
    tasks = pd.concat(streams, ignore_index=True)
    tasks = tasks[tasks["ok"] == 1].sort_values("duration", kind="stable")
    tasks["nbytes"] = tasks["nbytes"].clip(lower=0)  # -1 is unknown
    prefixes = tasks["task_group"].astype(str).map(key_split)
    costs = {}
    for prefix, own in tasks.groupby(prefixes):
        chosen = np.linspace(0, len(own) - 1, min(len(own), MAX_VALUES)).round().astype(int)
        costs[str(prefix)] = own[["duration", "nbytes"]].iloc[chosen].to_numpy(float).tolist()
    return costs
