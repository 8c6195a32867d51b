"""Describe the limits of a run: what was not measured, estimated, cut, or disturbed by others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from benchkit.formatting import counted, format_quantity
from benchkit.measure.capture.process import CLOCK_STEP_S, MONITOR_GAP_S
from benchkit.store.build.facts import CaptureFacts
from benchkit.store.build.metrics import ONLY_DASK
from benchkit.store.build.processes import (
    MIN_SAMPLED,
    increases,
    increases_by_worker,
    mean_uncertainty,
    monitored_seconds,
    process_ids,
    rows_by_process,
    sampled_share,
    share_processes,
)
from benchkit.store.schema import METRICS

#: A bound or a part that is not measured is mentioned above this share of the whole.
MENTIONED = 0.03
#: Seconds between two samples of a process's memory above which the gap is mentioned.
LONGEST_GAP_S = 0.5
#: Processor cores used by processes that are not workers above which they are mentioned: processes
#: of the cluster had to wait.
OTHER_CORES = 0.5
MEMORY = ("memory_mean", "memory_peak")
#: Metrics that a run without prices or without seceded tasks does not need.
OPTIONAL = ("cost", "seceded_time")
FULL_ONLY = ("n_tasks_recomputed", "memory_trimmed", "seceded_time")
UNKNOWN = "the capture was off or incomplete"
_SHORT = "the run was too short for the samples of Dask's monitor, which are 0.5 s apart"
_SHARED = "workers run in its process, or its process was not sampled"
_RELEASE = "this release of Dask does not measure it"
#: Name of a metric -> why it is absent, unless another note says so.
REASONS = {
    "gil_contention_mean": "gilknocker is not installed on the workers, or the run was short",
    "scheduler_cpu_mean": _SHORT,
    "scheduler_memory_peak": _SHORT,
    "serialize_time": _RELEASE,
    "p2p_bytes": _RELEASE,
    "scheduler_cpu_time": _SHARED,
    "client_cpu_time": _SHARED,
    "client_memory_mean": _SHARED,
    "client_memory_peak": _SHARED,
    "memory_trimmed": "a worker did not report it",
    "n_transfers": "no worker reported it",
    "transfer_bytes": "no worker reported it",
    "gather_bytes": "no worker reported it",
    "network_bytes": "the workers' system does not count it",
    "disk_bytes": "the workers' system does not count it",
    "cpu_time": "the workers' system does not count it",
    "processor_wait_share": "the system does not count it, or the run was short",
}
#: Metrics that place samples and events by the scheduler's wall clock: unknown if it was set.
BY_WALL_CLOCK = (
    "memory_mean",
    "memory_peak",
    "memory_peak_bound",
    "memory_peak_worker",
    "spilled_peak",
    "scheduler_cpu_mean",
    "scheduler_cpu_time",
    "scheduler_memory_peak",
    "scheduler_lag_max",
    "gil_contention_mean",
    "processor_wait_share",
    "n_workers_lost",
    "n_tasks_recomputed",
)
#: Metrics that rest on the wall clocks of single workers.
BY_WORKER_CLOCK = (
    "compute_time",
    "failed_time",
    "idle_time",
    "transfer_time",
    "gil_contention_mean",
)


#: Metrics that lack the last half second of a worker that died; the attempt that ran then is in
#: neither of the times, so that it counts as idle.
LOST_WITH_A_WORKER = (
    "cpu_time",
    "disk_bytes",
    "memory_mean",
    "memory_peak",
    "compute_time",
    "failed_time",
    "idle_time",
    "worker_tick_max",
)
#: Metrics that are increases of workers' counters, or their largest values.
BY_HEARTBEAT = (
    "cpu_time",
    "disk_bytes",
    "network_bytes",
    "failed_time",
    "idle_time",
    "gil_contention_mean",
    "memory_peak",
    "worker_tick_max",
)


class Note(NamedTuple):
    """One limit of a run."""

    kind: str  # See `quality_notes`
    metrics: tuple[str, ...]  # Names of the metrics that it concerns
    text: str  # A sentence for the reader
    other_cores: float | None = None  # Processor cores that other processes used, if it says so


def quality_notes(
    groups: Mapping[str, xr.Dataset],
    metrics: Mapping[str, float],
    duration: float,
    facts: CaptureFacts,
) -> list[Note]:
    """Return what the reader of a run's metrics must know."""
    notes = _clock(facts)
    if facts.unreported:
        text = f"the engine {facts.engine} does not report {', '.join(facts.unreported)}"
        notes.append(Note("unmeasured", (), text))
    if "workers" in groups:
        notes += _sampling(groups, metrics, duration, facts)
        notes += _processes(groups["workers"], duration)
        notes += _time(groups["workers"], metrics, duration, facts)
        notes += _worker_clocks(groups["workers"])
        notes += _late_heartbeats(groups["workers"], facts)
        notes += _sums(groups, metrics, facts)
        notes += _losses(metrics)
        notes += _threads(groups)
        notes += _tasks(groups, metrics, facts)
        notes += _neighbours(groups["workers"], metrics, facts)
    return notes + _unmeasured(metrics, notes, facts)


def simulated_note(metrics: Mapping[str, float]) -> Note:
    """Return what the reader of a simulated run must know, in place of `quality_notes`."""
    absent = tuple(name for name in METRICS if name not in metrics and name not in OPTIONAL)
    return Note("unmeasured", absent, "this run is simulated: a virtual cluster does not model it")


def imported_notes(metrics: Mapping[str, float], imported: Mapping[str, Any]) -> list[Note]:
    """Return what the reader of a run that was converted from another file must know."""
    absent = tuple(name for name in METRICS if name not in metrics and name not in OPTIONAL)
    reason = f"this run was read from a {imported['tool']}, which does not hold it"
    stated = [Note(kind, tuple(names), text) for kind, names, text in imported["notes"]]
    return [*stated, Note("unmeasured", absent, reason)]


def _clock(facts: CaptureFacts) -> list[Note]:
    if not facts.clock_was_set:
        return []
    text = (
        f"the scheduler's clock was set by {facts.clock_step_s:+.2f} s during the run: times of "
        "tasks and samples are shifted, and metrics that rest on them are absent"
    )
    tasks = "the seconds of tasks that ran at that moment may be wrong by as much"
    return [Note("absent", BY_WALL_CLOCK, text), Note("estimated", BY_WORKER_CLOCK[:4], tasks)]


def _sampling(
    groups: Mapping[str, xr.Dataset],
    metrics: Mapping[str, float],
    duration: float,
    facts: CaptureFacts,
) -> list[Note]:
    if facts.clock_was_set:
        return []
    share = sampled_share(groups, duration)
    if "memory_peak" not in metrics:
        text = f"memory was sampled during {share:.0%} of the workers' time, less than "
        return [Note("absent", MEMORY, f"{text}{MIN_SAMPLED:.0%}")]
    notes = []
    if share < 1 - MENTIONED:
        text = f"memory was sampled during {share:.1%} of the workers' time"
        notes.append(Note("estimated", MEMORY, text))
    mean, error = metrics["memory_mean"], mean_uncertainty(groups, duration)
    if error > MENTIONED * mean:
        text = f"memory_mean may be wrong by {error / mean:.0%}: memory changed between two samples"
        notes.append(Note("estimated", ("memory_mean",), text))
    bound = metrics.get("memory_peak_bound", metrics["memory_peak"])
    if bound > metrics["memory_peak"] * (1 + MENTIONED):
        low, high = (format_quantity(value, "B") for value in (metrics["memory_peak"], bound))
        text = f"memory_peak is between {low} and {high}: peaks of workers between two samples"
        notes.append(Note("estimated", ("memory_peak",), text))
    gap = _longest_gap(groups["memory_samples"], process_ids(groups["workers"]), duration)
    if gap > max(LONGEST_GAP_S, MENTIONED * duration):
        text = f"a worker's memory was not sampled for {gap:.1f} s: its event loop did not run"
        notes.append(Note("estimated", MEMORY, text))
    return notes


def _processes(workers: xr.Dataset, duration: float) -> list[Note]:
    notes, ids = [], process_ids(workers)
    children = np.nansum(increases(workers["children_cpu_time"].values, ids))
    if children > MENTIONED * duration:
        text = (
            f"tasks ran subprocesses, which took {children:.1f} s of CPU: neither their memory nor "
            "their CPU is in the metrics"
        )
        notes.append(Note("cut", (*MEMORY, "memory_peak_worker", "cpu_time"), text))
    if share_processes(workers):
        text = (
            "workers share a process: memory, CPU and disk are those of the process, with the "
            "client and scheduler if they run in it; values of single workers must not be summed"
        )
        notes.append(Note("estimated", (*MEMORY, "cpu_time", "disk_bytes"), text))
    return notes


def _longest_gap(memory: xr.Dataset, ids: np.ndarray, duration: float) -> float:
    times = memory["time"].values
    if not len(times):
        return 0.0
    owners = ids[memory["worker"].values.astype(int)]
    longest = 0.0
    for rows in rows_by_process(owners).values():
        own = np.unique(times[rows])
        own = own[(own > -1) & (own < duration + 1)]
        longest = max(longest, float(np.diff(own).max(initial=0.0)))
    return longest


def _time(
    workers: xr.Dataset, metrics: Mapping[str, float], duration: float, facts: CaptureFacts
) -> list[Note]:
    notes = []
    known, held = monitored_seconds(workers, duration)
    if "gil_contention_mean" in metrics and known < held * (1 - MENTIONED):
        text = f"the wait for the GIL is known for {known / held:.0%} of the workers' time"
        notes.append(Note("estimated", ("gil_contention_mean",), text))
    blocked_s = metrics.get("worker_tick_max", 0.0)
    if metrics.get("gil_contention_mean") and blocked_s > MONITOR_GAP_S:
        text = (
            f"the event loop of a worker was blocked for {blocked_s:.1f} s, during which Dask's "
            "monitor cannot sample: the wait for the GIL at that time is that of its event loop"
        )
        notes.append(Note("estimated", ("gil_contention_mean",), text))
    names = ("compute_time", "idle_time")
    if facts.n_actors:
        text = f"{counted(facts.n_actors, 'actor')}: the seconds of their calls are not measured"
        notes += [Note("cut", ("compute_time",), text), Note("absent", ("idle_time",), text)]
    if facts.n_seceded and not facts.has_waits:
        text = f"{counted(facts.n_seceded, 'task')} seceded (secede, worker_client): the seconds "
        text += "that they computed are not known"
        if not facts.full:
            text += " at capture level light"
        notes.append(Note("absent", (*names, "seceded_time"), text))
    if "failed_time" not in metrics:
        text = "attempts failed or may have failed, and their seconds were not measured"
        notes.append(Note("absent", ("failed_time", "idle_time"), text))
    elif "idle_time" not in metrics and "compute_time" in metrics and not facts.n_actors:
        text = "tasks computed longer than the workers' threads lasted: idle_time is not known"
        notes.append(Note("absent", ("idle_time",), text))
    return notes


def _threads(groups: Mapping[str, xr.Dataset]) -> list[Note]:
    """Return a note with the processes for which waits for a processor are not known."""
    absent = json.loads(groups["thread_times"].attrs["absent"]) if "thread_times" in groups else {}
    by_reason: dict[str, list[str]] = {}
    for server, reason in absent.items():
        by_reason.setdefault(reason, []).append(server)
    return [
        Note("unmeasured", (), f"waits for a processor of {', '.join(servers)}: {reason}")
        for reason, servers in by_reason.items()
    ]


def _worker_clocks(workers: xr.Dataset) -> list[Note]:
    """Return a note for each worker whose wall clock was set."""
    notes = []
    for index, name in enumerate(workers["name"].values):
        steps = workers["clock_step"].values[:, index] if "clock_step" in workers else np.array([])
        steps = steps[np.isfinite(steps)] - np.append(steps[np.isfinite(steps)], 0.0)[0]
        if not len(steps) or np.abs(steps).max() <= CLOCK_STEP_S:
            continue
        step = steps[np.abs(steps).argmax()]
        text = (
            f"the clock of worker {name} was set by {step:+.2f} s during the run: until its next "
            "heartbeat the times of its tasks are shifted, and the seconds of tasks that ran at "
            "that moment may be wrong by as much"
        )
        notes.append(Note("estimated", BY_WORKER_CLOCK, text))
    return notes


def _late_heartbeats(workers: xr.Dataset, facts: CaptureFacts) -> list[Note]:
    """Return a note for each worker whose heartbeat for the start of the clock came after it."""
    return [
        Note(
            "estimated",
            BY_HEARTBEAT,
            f"the heartbeat of worker {workers['name'].values[index]} for the start of the clock "
            "arrived after it: its counters contain what was used since the heartbeat before, and "
            "its largest values up to this heartbeat are not known",
        )
        for index in facts.late_at_on
    ]


def _sums(
    groups: Mapping[str, xr.Dataset], metrics: Mapping[str, float], facts: CaptureFacts
) -> list[Note]:
    """Return a note for each sum that two sources count differently."""
    workers, transfers = groups["workers"], groups["transfers"]
    notes = []
    for end, noun in (("incoming", "fetches"), ("outgoing", "sends")):
        logged = transfers.attrs.get(f"n_{end}")
        by_heartbeats = increases_by_worker(workers, f"transfer_{end}_total")
        if facts.unreported or logged is None or not np.isfinite(by_heartbeats).any():
            continue
        heartbeats = float(np.nansum(by_heartbeats))
        # The heartbeats' fetches contain those that a busy sender refused. One transfer may be on
        # its way when the clock starts or stops.
        excess = logged - heartbeats if end == "incoming" else abs(logged - heartbeats)
        if excess > max(MENTIONED * heartbeats, 1):
            text = f"the workers' heartbeats count {heartbeats:.0f} {noun}, their logs {logged:.0f}"
            notes.append(Note("estimated", ("n_transfers", "transfer_bytes"), text))
    received, sent = (transfers.attrs.get(f"bytes_{end}") for end in ("received", "sent"))
    if received is not None and abs(received - sent) > MENTIONED * max(received, sent):
        low, high = (format_quantity(value, "B") for value in (received, sent))
        text = f"workers received {low} of results from each other, the senders count {high}"
        notes.append(Note("estimated", ("transfer_bytes",), text))
    return notes + _host_sums(workers, transfers)


def _host_sums(workers: xr.Dataset, transfers: xr.Dataset) -> list[Note]:
    """Return a note if workers alone on their machine received more than its network did."""
    if "machine_id" not in workers:
        return []
    machines = workers["machine_id"].values
    numbers, places, n_workers = np.unique(machines, return_index=True, return_counts=True)
    net = increases(workers["net_read_total"].values, machines)
    source, destination = transfers["source"].values, transfers["destination"].values
    notes = []
    for number, worker, alone, host_bytes in zip(numbers, places, n_workers == 1, net, strict=True):
        if number < 0 or not alone or not np.isfinite(host_bytes):
            continue
        # The number of bytes on the wire is known if all of the senders counted it.
        chosen = (destination == worker) & (source >= 0)
        wire = transfers["bytes_compressed"].values[chosen].sum()
        if wire > host_bytes * (1 + MENTIONED):
            logged, host = (format_quantity(value, "B") for value in (wire, host_bytes))
            text = (
                f"worker {workers['name'].values[worker]} received {logged} of results, by the "
                f"senders' logs, and its machine {host} in all"
            )
            notes.append(Note("estimated", ("transfer_bytes",), text))
    return notes


def _losses(metrics: Mapping[str, float]) -> list[Note]:
    n_lost = int(metrics.get("n_workers_lost", 0))
    if not n_lost:
        return []
    text = (
        f"{counted(n_lost, 'worker')} lost: what was used between the last heartbeat and the death "
        "is not known"
    )
    return [Note("cut", LOST_WITH_A_WORKER, text)]


def _tasks(
    groups: Mapping[str, xr.Dataset], metrics: Mapping[str, float], facts: CaptureFacts
) -> list[Note]:
    notes = []
    n_dropped = int(groups["tasks"].attrs.get("n_dropped", 0))
    if n_dropped:
        text = f"task stream without {counted(n_dropped, 'task')}; group sums contain them"
        notes.append(Note("cut", ("n_tasks_recomputed",), text))
    if facts.n_unfinished:
        text = (
            f"{counted(facts.n_unfinished, 'task')} unfinished when the clock stopped (persist "
            "without wait, fire and forget): the run does not contain all the work"
        )
        notes.append(Note("unfinished", ("duration",), text))
    if facts.n_running_at_on:
        text = f"{counted(facts.n_running_at_on, 'task')} of earlier work ran at the start"
        notes.append(Note("disturbed", ("duration", "compute_time"), text))
    if not metrics.get("n_tasks", 1):
        text = "no task ended on this cluster while the clock was on"
        notes.append(Note("unfinished", ("duration",), text))
    return notes


def _neighbours(
    workers: xr.Dataset, metrics: Mapping[str, float], facts: CaptureFacts
) -> list[Note]:
    notes = []
    if facts.n_other_captures:
        text = "another measurement ran on the same scheduler"
        notes.append(Note("disturbed", ("duration",), text))
    cores = _other_cores(workers, facts.own_cpu_s or 0.0)
    if facts.own_cpu_s is None:  # an older capture
        cores -= metrics.get("scheduler_cpu_mean", 0.0) / 100
    if cores > OTHER_CORES:
        text = (
            f"processes other than workers, scheduler and client used {cores:.1f} cores of the "
            "workers' machines"
        )
        notes.append(Note("disturbed", ("duration",), text, other_cores=cores))
    return notes


def _other_cores(workers: xr.Dataset, own_cpu_s: float) -> float:
    """Return processor cores that other processes used on the workers' machines, on average.

    `own_cpu_s` are the CPU seconds of scheduler and client on these machines.
    """
    known = workers.isel(worker=workers["machine_id"].values >= 0)
    # Counted at the first and the last heartbeat, which a blocked scheduler receives late.
    counts = known["machine_cpu_time"].values
    rows = np.flatnonzero(np.isfinite(counts).any(axis=1))
    if not len(rows):
        return 0.0
    last = int(np.nanargmax(np.nanmax(counts[rows], axis=1)))
    elapsed = float(known["time"].values[rows[last]] - known["time"].values[rows[0]])
    busy = np.nansum(increases(counts, known["machine_id"].values))
    cpu_time = workers["cpu_time"].values
    own = own_cpu_s + np.nansum(increases(cpu_time, process_ids(workers)))
    # A process that joined had used CPU before its first heartbeat, at most since clock on.
    _, first = np.unique(process_ids(workers), return_index=True)
    since_on = np.maximum(workers["joined"].values[first], 0.0)
    own += np.nansum(np.minimum(np.fmin.reduce(cpu_time[:, first], axis=0), since_on))
    return max(0.0, float(busy - own)) / elapsed if elapsed > 0 else 0.0


def _unmeasured(metrics: Mapping[str, float], notes: list[Note], facts: CaptureFacts) -> list[Note]:
    """Return a note for each reason why metrics are absent that no other note explains."""
    explained = {name for note in notes for name in note.metrics}
    by_reason: dict[str, list[str]] = {}
    for name in METRICS:
        if name in metrics or name in explained or name in OPTIONAL:
            continue
        light_only = name in FULL_ONLY and not facts.full
        reason = "only at capture level full" if light_only else REASONS.get(name, UNKNOWN)
        if facts.unreported and (reason in (_RELEASE, UNKNOWN) or name in ONLY_DASK):
            reason = f"the engine {facts.engine} does not report it"
        by_reason.setdefault(reason, []).append(name)
    return [
        Note("unmeasured", tuple(names), f"{', '.join(names)}: {reason}")
        for reason, names in by_reason.items()
    ]


def kinds_by_metric(notes: list[Note]) -> dict[str, str]:
    """Return the kinds of notes on each metric, for the run's record."""
    # returned: Kinds, sorted and separated by spaces, by name of the metric; without "unmeasured".
    kinds: dict[str, set[str]] = {}
    for note in notes:
        for metric in note.metrics if note.kind != "unmeasured" else ():
            kinds.setdefault(metric, set()).add(note.kind)
    return {metric: " ".join(sorted(words)) for metric, words in kinds.items()}


def as_rows(notes: list[Note]) -> list[dict[str, Any]]:
    """Return notes as JSON objects, for the run's attribute ``quality``."""
    return [
        {name: value for name, value in note._asdict().items() if value is not None}
        for note in notes
    ]
