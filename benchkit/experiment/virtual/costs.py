"""Durations and sizes of the tasks of a workload, from its kept runs, by prefix of the keys."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from dask.utils import key_split

from benchkit.analysis.run.baseline import is_simulated
from benchkit.errors import UsageError
from benchkit.store.run import Run
from benchkit.store.store import Store

__all__ = ["costs_from_runs", "costs_of_workload"]

#: Number of newest runs to use, and of values to keep for each prefix.
MAX_RUNS = 5
MAX_VALUES = 200


def costs_of_workload(store: Store, workload: str) -> dict[str, list[list[float]]]:
    """Return durations and sizes of the tasks of a workload.

    Parameters
    ----------
    store : Store
        Store with measured runs of the workload.
    workload : str
        Name of the variant.

    Returns
    -------
    dict of str to list
        Prefix -> seconds and bytes, as pairs of one task each.

    Raises
    ------
    UsageError
        The store has no run of the workload with its tasks.
    """
    with warnings.catch_warnings():  # a workload without runs is an error below
        warnings.simplefilter("ignore", UserWarning)
        runs = store.runs(workload=workload, outcome="ok")
    if len(runs):
        ids = runs.loc[~is_simulated(runs) & (runs["capture"] == "full"), "id"].tolist()[-MAX_RUNS:]
        costs = costs_from_runs(store.load(ids))
        if costs:
            return costs
    raise UsageError(
        f"{workload}: the durations of its tasks are unknown: measure it once, with "
        f"`benchkit run '{workload}'` (capture level full)"
    )


def costs_from_runs(runs: Sequence[Run]) -> dict[str, list[list[float]]]:
    """Return durations and sizes of the tasks of runs.

    Parameters
    ----------
    runs : sequence of Run
        Runs with a task stream.

    Returns
    -------
    dict of str to list
        Prefix -> seconds and bytes, as pairs of one task each; evenly spaced in the order of the
        seconds if there are many.
    """
    values: dict[str, list[np.ndarray]] = {}
    for run in runs:
        tasks = run.tree["tasks"].to_dataset() if "tasks" in run.tree.children else None
        if tasks is None or not tasks.sizes["task"]:
            continue
        names = run.tree["task_groups"].to_dataset()["task_group"].values
        prefixes = np.array([str(key_split(str(name))) for name in names], dtype=object)
        rows = np.stack([tasks["duration"].values, np.maximum(tasks["nbytes"].values, 0)], axis=1)
        of_task, is_ok = prefixes[tasks["group"].values], tasks["ok"].values == 1
        for prefix in np.unique(of_task[is_ok].astype(str)):
            values.setdefault(str(prefix), []).append(rows[is_ok & (of_task == prefix)])
    costs = {}
    for prefix, parts in values.items():
        table = np.concatenate(parts)
        table = table[np.argsort(table[:, 0], kind="stable")]
        chosen = np.linspace(0, len(table) - 1, min(len(table), MAX_VALUES)).round().astype(int)
        costs[prefix] = table[chosen].tolist()
    return costs
