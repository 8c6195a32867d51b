"""Compute the metrics of a run from its groups.

One function per family of metrics. Unknown metrics are absent, never 0. Names, units and directions
are in `benchkit.store.schema.METRICS`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from benchkit.store.build.groups import recomputed_tasks
from benchkit.store.schema import METRICS

__all__ = ["biggest_group", "compute_metrics"]


def compute_metrics(
    groups: Mapping[str, xr.Dataset], duration: float, *, n_steals: int | None = None
) -> dict[str, float]:
    """Return the metrics that can be computed from the groups.

    Parameters
    ----------
    groups : mapping of str to Dataset
        The groups of a run file, times in s after clock on.
    duration : float
        Seconds between clock on and clock off.
    n_steals : int, optional
        Tasks stolen while the clock ran.

    Returns
    -------
    dict of str to float
        By metric name, in the units of `METRICS`.
    """
    metrics: dict[str, float] = {"duration": duration}
    if "workers" in groups:
        workers = groups["workers"]
        metrics |= _memory(groups, duration)
        metrics |= _activities(groups)
        metrics |= _counters(workers)
        metrics |= _occupancy(workers, metrics.get("compute_time"), duration)
        metrics |= _scheduler(groups["scheduler"], duration)
        metrics |= _losses(groups, duration)
        metrics |= _tasks(groups)
        if n_steals is not None:
            metrics["n_steals"] = n_steals
    return {
        name: float(metrics[name])
        for name in METRICS
        if name in metrics and np.isfinite(metrics[name])
    }


def biggest_group(groups: Mapping[str, xr.Dataset]) -> tuple[str, float]:
    """Return the task group with most thread-seconds and its share.

    Parameters
    ----------
    groups : mapping of str to Dataset
        The groups of a run file.

    Returns
    -------
    tuple of str and float
        Name, and share of all thread-seconds from 0 to 1; ("", nan) if there is no task group.
    """
    if "task_groups" not in groups or not groups["task_groups"].sizes["task_group"]:
        return "", float("nan")
    seconds = groups["task_groups"]["seconds"].sum("action")
    total = float(seconds.sum())
    index = int(seconds.values.argmax())
    share = float(seconds[index]) / total if total else float("nan")
    return str(seconds["task_group"].values[index]), share


def _memory(groups: Mapping[str, xr.Dataset], duration: float) -> dict[str, float]:
    workers = groups["workers"]
    time = workers["time"].values
    inside = (time >= 0) & (time <= duration)
    if not inside.any():
        return {}
    metrics: dict[str, float] = {}
    process, spilled = (_summed(workers[name].values[inside]) for name in ("process", "spilled"))
    if process is not None:
        metrics["memory_mean"] = _mean_over_time(time[inside], process, duration)
        metrics["memory_peak"] = process.max()
    if spilled is not None:
        metrics["spilled_peak"] = spilled.max()
    # The heartbeat after the end covers time before the end.
    tail = time <= duration + _heartbeat_s(time)
    peaks = [np.nanmax(values, initial=0.0) for values in (
        workers["process"].values[inside], workers["rss_peak"].values[tail])]  # fmt: skip
    peaks += [message.get("rss") or 0 for message in _messages(groups, "worker-restart-memory")]
    if max(peaks) > 0:
        metrics["memory_peak_worker"] = max(peaks)
    if "trimmed" in workers:
        stayed = ~(workers["left"].values <= duration)
        # NaN if the value of any remaining worker is unknown.
        trimmed = workers["trimmed"].values[stayed]
        metrics["memory_trimmed"] = trimmed.sum() if len(trimmed) else np.nan
    return metrics


def _summed(values: np.ndarray) -> np.ndarray | None:
    """Return sums over workers that are present; None if there is no value."""
    return np.nansum(values, axis=1) if np.isfinite(values).any() else None


def _mean_over_time(time: np.ndarray, values: np.ndarray, duration: float) -> float:
    """Return the mean of a step function: each value holds until the next."""
    held = np.diff(np.append(time, max(duration, time[-1])))
    return float(np.average(values, weights=held)) if held.sum() > 0 else float(values.mean())


def _heartbeat_s(time: np.ndarray) -> float:
    return 2 * float(np.median(np.diff(time))) + 0.5 if len(time) > 1 else 1.0


def _activities(groups: Mapping[str, xr.Dataset]) -> dict[str, float]:
    seconds = groups["task_groups"]["seconds"].sum("task_group")
    by_action = {str(name): float(seconds.sel(action=name)) for name in seconds["action"].values}
    fine = groups["fine"]
    fine_seconds: dict[str, float] = {}
    in_seconds = fine["unit"].values == "seconds"
    for activity, value in zip(
        fine["activity"].values[in_seconds], fine["value"].values[in_seconds], strict=True
    ):
        fine_seconds[activity] = fine_seconds.get(activity, 0.0) + float(value)
    metrics = {"compute_time": by_action["compute"], "transfer_time": by_action["transfer"]}
    for action in ("disk-read", "disk-write"):
        # Task events below 5 ms are not reported; the fine metrics include them.
        name = f"{action.replace('-', '_')}_time"
        metrics[name] = max(by_action[action], fine_seconds.get(action, 0.0))
    if fine_seconds:
        activities = ("serialize", "deserialize", "compress", "decompress")
        metrics["serialize_time"] = sum(fine_seconds.get(name, 0.0) for name in activities)
    return metrics


def _counters(workers: xr.Dataset) -> dict[str, float]:
    """Return increases of counters, summed over workers; per host for network traffic."""
    metrics = {}
    for metric, names in (
        ("cpu_time", ("cpu_time",)),
        ("disk_bytes", ("io_read", "io_write")),
        ("n_transfers", ("transfer_incoming_total",)),
    ):
        increases = sum(_increase(workers[name].values) for name in names)
        if np.isfinite(increases).any():
            metrics[metric] = np.nansum(increases)
    received = _increase(workers["net_read_total"].values)
    if np.isfinite(received).any():
        hosts = workers["host"].values
        # Every worker on a machine reports the traffic of the machine.
        metrics["network_bytes"] = sum(
            np.nanmax(np.append(received[hosts == host], 0.0)) for host in set(hosts)
        )
    return metrics


def _increase(values: np.ndarray) -> np.ndarray:
    """Return last minus first finite value of each column; NaN where there is none."""
    out = np.full(values.shape[1], np.nan)
    for index, column in enumerate(values.T):
        finite = column[np.isfinite(column)]
        if len(finite):
            out[index] = finite[-1] - finite[0]
    return out


def _occupancy(
    workers: xr.Dataset, compute_time: float | None, duration: float
) -> dict[str, float]:
    left = np.where(np.isnan(workers["left"].values), np.inf, workers["left"].values)
    held = np.minimum(left, duration) - np.maximum(workers["joined"].values, 0.0)
    held = np.maximum(held, 0.0)
    metrics = {"worker_seconds": held.sum()}
    if compute_time is not None:
        thread_seconds = (held * workers["nthreads"].values).sum()
        metrics["idle_time"] = max(0.0, thread_seconds - compute_time)
    tick = workers["tick_max"].values
    if np.isfinite(tick).any():
        metrics["worker_tick_max"] = np.nanmax(tick)
    gil = workers["gil"].values
    if np.isfinite(gil).any():
        metrics["gil_contention_mean"] = np.nanmean(gil)
    return metrics


def _scheduler(scheduler: xr.Dataset, duration: float) -> dict[str, float]:
    inside = scheduler.isel(time=(scheduler["time"] > 0) & (scheduler["time"] <= duration))
    if not inside.sizes["time"]:
        return {}
    return {
        "scheduler_cpu_mean": float(inside["cpu"].mean()),
        "scheduler_memory_peak": float(inside["rss"].max()),
        "scheduler_lag_max": float(inside["lag_max"].max()),
    }


def _losses(groups: Mapping[str, xr.Dataset], duration: float) -> dict[str, float]:
    """Count lost workers: killed, crashed, or restarted by the nanny for their memory."""
    events = groups["events"]
    lost: set[int] = set()
    n_failed = 0  # failed workers close regularly; the event does not name the worker
    for index in range(events.sizes["event"]):
        topic, moment = str(events["topic"].values[index]), float(events["time"].values[index])
        if not 0 <= moment <= duration + 1:
            continue
        message = json.loads(str(events["message"].values[index]))
        worker = int(events["worker"].values[index])
        if topic == "worker-restart-memory":
            lost.add(worker)
        elif topic == "worker-fail-hard":
            n_failed += 1
        elif topic == "worker-removed":
            expected = message.get("expected")
            if expected is False or (expected is None and message.get("n_processing")):
                lost.add(worker)
    for message in _messages(groups, "restart-workers"):
        lost.difference_update(message.get("workers", ()))
    return {"n_workers_lost": len(lost) + n_failed}


def _messages(groups: Mapping[str, xr.Dataset], topic: str) -> list[dict[str, Any]]:
    events = groups["events"]
    chosen = events["message"].values[events["topic"].values == topic]
    return [json.loads(str(message)) for message in chosen]


def _tasks(groups: Mapping[str, xr.Dataset]) -> dict[str, float]:
    metrics = {"n_tasks": float(groups["task_groups"]["n_tasks"].sum())}
    tasks = groups["tasks"]
    if tasks.sizes["task"] and not tasks.attrs.get("n_dropped"):
        metrics["n_tasks_recomputed"] = len(
            recomputed_tasks(tasks, groups["workers"]["left"].values)
        )
    return metrics
