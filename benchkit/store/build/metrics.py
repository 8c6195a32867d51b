"""Compute the metrics of a run from its groups.

One function per family of metrics. Unknown metrics are absent, never 0. Names, units and directions
are in `benchkit.store.schema.METRICS`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import xarray as xr

from benchkit.measure.capture.p2p_bytes import P2P_OTHERS, P2P_OWN
from benchkit.simulation.graph import first_p2p
from benchkit.store.build.facts import CaptureFacts, messages_of, restarted_workers
from benchkit.store.build.groups import recomputed_tasks
from benchkit.store.build.processes import (
    cluster_memory,
    held_seconds,
    increases,
    increases_by_worker,
    monitored_seconds,
    process_ids,
)
from benchkit.store.schema import METRICS

#: Seconds between two samples of Dask's system monitor.
MONITOR_S = 0.5
#: Share of the threads' time by which tasks may overlap, by errors of clocks, before idle time is
#: unknown.
MAX_OVERLAP = 0.02
#: Dask's own count of P2P bytes may differ by this share from the sum of both parts.
MAX_P2P_DIFFERENCE = 0.01
_DISK_TIMES = {"disk_read_time": "disk-read", "disk_write_time": "disk-write"}
#: What Dask's scheduler and workers count of their own work, which another engine does itself.
ONLY_DASK = frozenset({*_DISK_TIMES, "gather_bytes", "n_steals", "scatter_bytes", "spilled_peak"})


def compute_metrics(
    groups: Mapping[str, xr.Dataset],
    duration: float,
    *,
    facts: CaptureFacts = CaptureFacts(),  # noqa: B008 (frozen)
    n_steals: int | None = None,
) -> dict[str, float]:
    """Return the metrics that can be computed from the groups."""
    metrics: dict[str, float] = {"duration": duration}
    if "workers" in groups:
        workers = groups["workers"]
        metrics |= _memory(groups, duration)
        metrics |= _activities(groups, facts)
        metrics |= _counters(workers)
        metrics |= _occupancy(workers, metrics, duration, facts)
        metrics |= _scheduler(groups["scheduler"], duration)
        metrics |= _own_processes(groups, duration)
        metrics |= _waits(groups, duration)
        metrics |= _losses(groups, duration)
        metrics |= _tasks(groups)
        metrics |= _traffic(groups["transfers"], workers.sizes["worker"])
        if facts.scattered_bytes is not None:
            metrics["scatter_bytes"] = facts.scattered_bytes
        if n_steals is not None:
            metrics["n_steals"] = n_steals
    unknown = ONLY_DASK if facts.unreported else frozenset()
    return {
        name: float(metrics[name])
        for name in METRICS
        if name in metrics and np.isfinite(metrics[name]) and name not in unknown
    }


def biggest_group(groups: Mapping[str, xr.Dataset]) -> tuple[str, float]:
    """Return the task group with most thread-seconds and its share; ("", nan) if none."""
    if "task_groups" not in groups or not groups["task_groups"].sizes["task_group"]:
        return "", float("nan")
    # Fetches overlap with computing and with each other; rows without tasks are spilling.
    own = groups["task_groups"]["seconds"].drop_sel(action="transfer").sum("action")
    seconds = own.where(groups["task_groups"]["n_tasks"] > 0, 0.0)
    total = float(seconds.sum())
    index = int(seconds.values.argmax())
    share = float(seconds[index]) / total if total else float("nan")
    return str(seconds["task_group"].values[index]), share


def _memory(groups: Mapping[str, xr.Dataset], duration: float) -> dict[str, float]:
    workers = groups["workers"]
    metrics = cluster_memory(groups, duration)
    time = workers["time"].values
    inside = (time >= 0) & (time <= duration)
    if not inside.any():
        return metrics
    spilled = workers["spilled"].values[inside]
    if np.isfinite(spilled).any():  # else unknown
        metrics["spilled_peak"] = np.nansum(spilled, axis=1).max()
    messages = messages_of(groups["events"], "worker-restart-memory")
    killed = [message.get("rss") or 0 for message in messages]
    if "memory_peak_worker" in metrics or killed:
        metrics["memory_peak_worker"] = max(metrics.get("memory_peak_worker", 0.0), *killed, 0.0)
    if "trimmed" in workers:
        stayed = ~(workers["left"].values <= duration)
        # NaN if the value of any remaining worker is unknown.
        trimmed = _per_process(workers["trimmed"].values, workers, stayed)
        metrics["memory_trimmed"] = trimmed.sum() if stayed.any() else np.nan
    return metrics


def _per_process(values: np.ndarray, workers: xr.Dataset, chosen: np.ndarray) -> np.ndarray:
    """Return the largest value of the chosen workers of each process; NaN if one is unknown."""
    ids = process_ids(workers)
    return np.array([values[chosen & (ids == number)].max() for number in np.unique(ids[chosen])])


def _activities(groups: Mapping[str, xr.Dataset], facts: CaptureFacts) -> dict[str, float]:
    seconds = groups["task_groups"]["seconds"].sum("task_group")
    by_action = {str(name): float(seconds.sel(action=name)) for name in seconds["action"].values}
    metrics = {"transfer_time": by_action["transfer"]}
    if facts.has_waits or not facts.n_seceded:
        metrics["compute_time"] = by_action["compute"]
        if facts.n_seceded:
            metrics["seceded_time"] = by_action["seceded"]
    fine = groups["fine"]
    activities, in_seconds = fine["activity"].values, fine["unit"].values == "seconds"
    values = fine["value"].values

    def total(chosen: np.ndarray) -> float:
        return float(values[chosen].sum())

    known = fine.sizes["metric"] > 0  # without tasks, and in the first releases, there are none
    in_p2p = fine["context"].values == "p2p"  # a P2P shuffle writes its own files: no spilling
    for name, action in _DISK_TIMES.items():
        spilling = in_seconds & (activities == action) & ~in_p2p
        metrics[name] = total(spilling) if known else by_action[action]
    words = ("serialize", "deserialize", "compress", "decompress")
    if known:
        metrics["serialize_time"] = total(in_seconds & np.isin(activities, words))
    attempts = increases_by_worker(groups["workers"], "failed_time")
    counted = known or bool(np.isfinite(attempts).any())
    # Dask's workers do not see the attempts of another engine.
    failed = by_action["failed"] if facts.unreported else np.nansum(attempts)
    if failed or not _has_failures(groups["task_groups"], counted=counted):
        metrics["failed_time"] = failed
    sent = in_p2p & (fine["prefix"].values == "background-comms") & (fine["unit"].values == "bytes")
    others, own, both = (
        total(sent & (activities == name)) for name in (P2P_OTHERS, P2P_OWN, "process")
    )
    prefixes = groups["task_groups"]["prefix"].values
    # Releases before 2024 shuffle by P2P without counting it.
    known = in_p2p.any() or first_p2p(prefixes) is None
    if known and np.isclose(others + own, both, rtol=MAX_P2P_DIFFERENCE):
        metrics["p2p_bytes"] = others
    return metrics


def _has_failures(task_groups: xr.Dataset, *, counted: bool) -> bool:
    """Return whether attempts failed, or may have failed: not every capture counts retries.

    `counted`: the workers measure the seconds of failed attempts.
    """
    if "n_retried" in task_groups:
        return bool(task_groups["n_erred"].sum() + task_groups["n_retried"].sum())
    return not counted or bool(task_groups["n_erred"].sum())


def _counters(workers: xr.Dataset) -> dict[str, float]:
    """Return increases of counters, summed over processes; per machine for network traffic."""
    ids = process_ids(workers)
    metrics = {}
    for metric, names in (("cpu_time", ("cpu_time",)), ("disk_bytes", ("io_read", "io_write"))):
        grown = sum(increases(workers[name].values, ids) for name in names)
        if np.isfinite(grown).any():
            metrics[metric] = np.nansum(grown)
    if "machine_id" in workers:
        machines = workers["machine_id"].values
        received = increases(workers["net_read_total"].values, machines)
        if len(received) == 1:  # what one worker sends another stays within the machine
            received = received + np.nan_to_num(
                increases(workers["loopback_total"].values, machines)
            )
        if np.isfinite(received).any():
            metrics["network_bytes"] = np.nansum(received)
    return metrics


def _occupancy(
    workers: xr.Dataset, busy: Mapping[str, float], duration: float, facts: CaptureFacts
) -> dict[str, float]:
    held = held_seconds(workers, duration)
    metrics = {"worker_seconds": held.sum()}
    thread_seconds = (held * workers["nthreads"].values).sum()
    if "compute_time" in busy and "failed_time" in busy and not facts.n_actors:
        idle = thread_seconds - busy["compute_time"] - busy["failed_time"]
        # Tasks that computed longer than there were threads hide what was idle.
        if idle >= -MAX_OVERLAP * thread_seconds:
            metrics["idle_time"] = max(0.0, idle)
    tick = workers["tick_max"].values
    if np.isfinite(tick).any():
        metrics["worker_tick_max"] = np.nanmax(tick)
    known, _ = monitored_seconds(workers, duration)
    if duration >= 2 * MONITOR_S and known > held.sum() / 2:
        waits = np.nansum(increases_by_worker(workers, "gil_time"))
        metrics["gil_contention_mean"] = min(1.0, waits / known)
    return metrics


def _mean_in_window(ends: np.ndarray, values: np.ndarray, duration: float) -> float | None:
    """Return the mean of values of intervals in the window, weighted by their seconds.

    `ends`, shape (time, ...), are the ends of the intervals; each begins at the end before it. An
    interval across an edge of the window contains what was outside: it counts, by its seconds in
    the window, only if less than half of the window lies in other intervals. None if less than half
    of the window is known, or the window is shorter than two intervals.
    """
    if duration < 2 * MONITOR_S or not ends.size:
        return None
    sums = np.zeros((2, 2))  # intervals inside, and all; seconds times value, and seconds
    columns = ends.reshape(len(ends), -1).T, values.reshape(len(values), -1).T
    n_known = 0
    for end, value in zip(*columns, strict=True):
        known = np.isfinite(end) & np.isfinite(value)
        stops, first = np.unique(end[known], return_index=True)
        if not len(stops):
            continue
        n_known += 1
        starts = np.append(stops[0] - MONITOR_S, stops[:-1])
        seconds = np.minimum(stops, duration) - np.maximum(starts, 0.0)
        seconds = np.maximum(seconds, 0.0)
        inside = np.where((starts >= 0) & (stops <= duration), seconds, 0.0)
        for row, weights in enumerate((inside, seconds)):
            sums[row] += (value[known][first] * weights).sum(), weights.sum()
    for total, weight in sums:
        if weight > n_known * duration / 2:
            return float(total / weight)
    return None


def _traffic(transfers: xr.Dataset, n_workers: int) -> dict[str, float]:
    """Return what workers sent each other, and the bytes that they sent the client."""
    between = (transfers["source"].values >= 0) & (transfers["destination"].values >= 0)
    if not between.any() and transfers.sizes["incomplete_report"] == n_workers:
        return {}
    gathered = (transfers["source"].values >= 0) & (transfers["destination"].values < 0)
    return {
        "n_transfers": np.nansum(transfers["count"].values[between]),
        "transfer_bytes": np.nansum(transfers["bytes"].values[between]),
        "gather_bytes": np.nansum(transfers["bytes"].values[gathered]),
    }


def _scheduler(scheduler: xr.Dataset, duration: float) -> dict[str, float]:
    inside = scheduler.isel(time=(scheduler["time"] > 0) & (scheduler["time"] <= duration))
    if not inside.sizes["time"]:
        return {}
    metrics = {"scheduler_lag_max": float(inside["lag_max"].max())}
    if inside["rss"].notnull().any():  # a virtual cluster has no process
        metrics["scheduler_memory_peak"] = float(inside["rss"].max())
    cpu = _mean_in_window(scheduler["monitor_time"].values, scheduler["cpu"].values, duration)
    return metrics if cpu is None else {**metrics, "scheduler_cpu_mean": cpu}


def _own_processes(groups: Mapping[str, xr.Dataset], duration: float) -> dict[str, float]:
    """Return CPU and memory of scheduler and client; not of a process that also runs workers."""
    metrics: dict[str, float] = {}
    scheduler, client = groups["scheduler"], groups.get("client", xr.Dataset())
    worker_processes = set(process_ids(groups["workers"]).tolist())
    own, other = (server.attrs.get("process_id", -1) for server in (scheduler, client))
    if own in worker_processes:
        return metrics
    times = scheduler["time"].values
    used = {
        name: float(np.diff(np.interp([0.0, duration], times, scheduler[name].values))[0])
        for name in ("cpu_time", "loop_cpu_time")
        if name in scheduler and len(times)
    }
    is_shared = own == other
    if used:
        metrics["scheduler_cpu_time"] = used["loop_cpu_time" if is_shared else "cpu_time"]
    if client.sizes.get("time", 0) > 1 and other not in worker_processes:  # a row at each edge
        first, last = client.isel(time=0), client.isel(time=-1)
        used_by_client = float(last["cpu_time"] - first["cpu_time"])
        loop_s = used.get("loop_cpu_time", 0.0) if is_shared else 0.0
        metrics["client_cpu_time"] = max(0.0, used_by_client - loop_s)
        area, seconds = (float(last[n] - first[n]) for n in ("rss_area", "time"))
        metrics["client_memory_mean"] = area / seconds if seconds else np.nan
        highest = np.fmax(client["rss_peak"].values, client["rss"].values)
        metrics["client_memory_peak"] = np.nanmax(highest)
    return metrics


def _waits(groups: Mapping[str, xr.Dataset], duration: float) -> dict[str, float]:
    """Return the share of the time in which threads could run, but had no processor."""
    threads = groups.get("thread_times", xr.Dataset())
    seconds = np.zeros(2)
    if threads.sizes.get("sample"):
        process, times = threads["thread_process"].values, threads["sample_time"].values
        # Servers of one process sample the same event loop, which is one thread.
        place = np.where(process >= 0, process, -1 - np.arange(process.size))
        names = np.column_stack([place, threads["native_id"].values])
        _, same = np.unique(names, axis=0, return_inverse=True)
        number = same.reshape(-1)[threads["sample_thread"].values]
        columns = [threads[name].values for name in ("ran", "waited")]
        for thread in np.unique(number):
            own = np.flatnonzero(number == thread)
            own = own[np.argsort(times[own], kind="stable")]
            edges = [np.interp([0.0, duration], times[own], column[own]) for column in columns]
            seconds += np.diff(edges, axis=1).ravel()
    return {"processor_wait_share": seconds[1] / seconds.sum()} if seconds.sum() > 0 else {}


def _losses(groups: Mapping[str, xr.Dataset], duration: float) -> dict[str, float]:
    """Count lost workers: killed, crashed, or restarted by the nanny for their memory."""
    events = groups["events"]
    lost: set[int] = set()
    n_broken = 0  # failed workers close regularly; the event does not name the worker
    for index in range(events.sizes["event"]):
        topic, moment = str(events["topic"].values[index]), float(events["time"].values[index])
        if not 0 <= moment <= duration + 1:
            continue
        worker = int(events["worker"].values[index])
        if topic == "worker-restart-memory":
            lost.add(worker)
        elif topic == "worker-fail-hard":
            n_broken += 1
        elif topic == "worker-removed":
            # Before 2024 the scheduler does not say; a worker that closes says so itself.
            if not json.loads(str(events["message"].values[index])).get("expected"):
                lost.add(worker)
    lost -= restarted_workers(events, groups["workers"]["left"].values)
    return {"n_workers_lost": len(lost) + n_broken}


def _tasks(groups: Mapping[str, xr.Dataset]) -> dict[str, float]:
    metrics = {"n_tasks": float(groups["task_groups"]["n_tasks"].sum())}
    tasks = groups["tasks"]
    if tasks.sizes["task"] and not tasks.attrs.get("n_dropped"):
        left = groups["workers"]["left"].values.copy()
        left[list(restarted_workers(groups["events"], left))] = np.nan
        metrics["n_tasks_recomputed"] = len(recomputed_tasks(tasks, left))
    return metrics
