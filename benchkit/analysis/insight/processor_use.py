"""What a run recorded of the processors and of the GIL: seconds of tasks, machines, late timers."""

from __future__ import annotations

import json

import numpy as np
import xarray as xr

from benchkit.store.build.processes import increases
from benchkit.store.run import Run

__all__ = ["cores_of", "is_new_heartbeat", "late_beats", "machine_seconds", "task_seconds"]

#: A thread that computes in Python gives the GIL away after 5 ms (`sys.getswitchinterval`): then
#: the timer of the worker's event loop is late by more than this.
GIL_LAG_S = 0.0045
#: Seconds between two measurements of that timer (`LAG_TICK_S` of the capture).
TICK_S = 0.05
#: Names of the machine of the client: its number of processors is recorded.
LOCAL_HOSTS = {"127.0.0.1", "localhost", "::1"}


def is_new_heartbeat(workers: xr.Dataset) -> np.ndarray:
    """Return which values of a run's group ``workers`` are new heartbeats."""
    found = np.zeros((workers.sizes["time"], workers.sizes["worker"]), bool)
    for name in ("cpu_time", "monitor_time", "tick_max", "gc_time"):
        if name in workers:
            values = workers[name].values
            found[1:] |= (values[1:] != values[:-1]) & np.isfinite(values[1:])
            found[:1] |= np.isfinite(values[:1])
    return found


def task_seconds(run: Run) -> tuple[float, float]:
    """Return the seconds in which the threads of tasks used a processor, and waited."""
    fine = run.fine_metrics()
    if not fine.empty:
        own = fine[(fine["context"] == "execute") & (fine["unit"] == "seconds")]
        seconds = own.groupby("activity")["value"].sum()
        if "thread-cpu" in seconds:
            return float(seconds["thread-cpu"]), float(seconds.get("thread-noncpu", 0.0))
    cpu, computing = (run.metrics.get(name, np.nan) for name in ("cpu_time", "compute_time"))
    cpu = min(cpu, computing)
    return cpu, computing - cpu


def machine_seconds(workers: xr.Dataset) -> float:
    """Return the processor seconds that all processes of the workers' machines used."""
    counts = (
        workers["machine_cpu_time"].values if "machine_cpu_time" in workers else np.zeros((0, 0))
    )
    machines = workers["machine_id"].values if counts.size else np.zeros(0)
    return float(np.nansum(increases(counts[:, machines >= 0], machines[machines >= 0])))


def cores_of(run: Run, workers: xr.Dataset) -> float:
    """Return the processors of the machine of all workers."""
    hosts = set(workers["host"].values.tolist())
    try:
        cores = json.loads(run.tree.attrs["host_json"])["cores"]
    except (KeyError, TypeError, ValueError):
        return np.inf
    return float(cores) if cores and hosts <= LOCAL_HOSTS else np.inf


def late_beats(
    workers: xr.Dataset, duration: float, computing: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return for each heartbeat whether a timer was late, and its calls while tasks computed."""
    is_late, n_ticks = [], []
    if "tick_max" in workers:
        times, lags = workers["time"].values, workers["tick_max"].values
        for column, is_new in zip(lags.T, is_new_heartbeat(workers).T, strict=True):
            beats = np.flatnonzero(is_new & np.isfinite(column) & (times > 0))
            begins = np.maximum(np.append(0.0, times[beats])[:-1], 0.0)
            within = np.minimum(times[beats], duration) - begins
            kept = within > TICK_S
            is_late.append(column[beats][kept] > GIL_LAG_S)
            n_ticks.append(within[kept] / TICK_S * computing)
    return np.concatenate([*is_late, np.zeros(0, bool)]), np.concatenate([*n_ticks, np.zeros(0)])
