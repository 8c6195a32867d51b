"""Say what a run does not know: what was not measured, estimated, cut, or disturbed by others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from benchkit.formatting import counted, format_quantity
from benchkit.measure.capture_client import CLOCK_STEP_S
from benchkit.store.build.facts import CaptureFacts
from benchkit.store.build.memory import process_ids

__all__ = ["Note", "as_rows", "kinds_by_metric", "quality_notes"]

#: A bound or a part that is not measured is mentioned above this share of the whole.
MENTIONED = 0.03
#: Seconds between two samples of a process's memory above which the gap is mentioned.
LONGEST_GAP_S = 0.5
#: Processor cores used by processes that are not workers above which they are mentioned.
OTHER_CORES = 0.5


class Note(NamedTuple):
    """One limit of a run.

    Parameters
    ----------
    kind : str
        See `quality_notes`.
    metrics : tuple of str
        Names of the metrics that it concerns.
    text : str
        A sentence for the reader.
    """

    kind: str
    metrics: tuple[str, ...]
    text: str


def quality_notes(
    groups: Mapping[str, xr.Dataset],
    metrics: Mapping[str, float],
    duration: float,
    facts: CaptureFacts,
) -> list[Note]:
    """Return what the reader of a run's metrics must know.

    Parameters
    ----------
    groups : mapping of str to Dataset
        The groups of a run file.
    metrics : mapping of str to float
        The metrics of the run.
    duration : float
        Seconds between clock on and clock off.
    facts : CaptureFacts
        What else the capture knows.

    Returns
    -------
    list of Note
        Kinds are "absent", "estimated", "cut", "unfinished" and "disturbed".
    """
    notes = _clock(facts)
    if "workers" in groups:
        notes += _memory(groups, metrics, duration)
        notes += _time(metrics, facts)
        notes += _losses(groups, metrics)
        notes += _tasks(groups, metrics, facts)
        notes += _neighbours(groups["workers"], metrics, duration, facts)
    return notes


def _clock(facts: CaptureFacts) -> list[Note]:
    if abs(facts.clock_step_s) <= CLOCK_STEP_S:
        return []
    text = (
        f"the scheduler's clock was set by {facts.clock_step_s:+.2f} s during the run: times of "
        "tasks and samples are shifted, and metrics that rest on them are absent"
    )
    return [Note("absent", ("memory_mean", "memory_peak", "gil_contention_mean"), text)]


def _memory(
    groups: Mapping[str, xr.Dataset], metrics: Mapping[str, float], duration: float
) -> list[Note]:
    notes, workers, memory = [], groups["workers"], groups["memory_samples"]
    names = ("memory_mean", "memory_peak")
    if "memory_peak" not in metrics:
        text = "memory was sampled during less than 90 % of the time of the workers"
        notes.append(Note("absent", names, text))
    elif metrics["memory_peak_bound"] > metrics["memory_peak"] * (1 + MENTIONED):
        low, high = (format_quantity(metrics[n], "B") for n in ("memory_peak", "memory_peak_bound"))
        text = f"memory_peak is between {low} and {high}: peaks of workers between two samples"
        notes.append(Note("estimated", ("memory_peak",), text))
    gap = _longest_gap(memory, process_ids(workers), duration)
    if gap > max(LONGEST_GAP_S, MENTIONED * duration):
        text = f"the memory of a worker was not sampled for {gap:.1f} s: its event loop was blocked"
        notes.append(Note("estimated", names, text))
    children = _increase(workers, "children_cpu_time")
    if children > MENTIONED * duration:
        text = (
            f"tasks ran subprocesses, which took {children:.1f} s of CPU: neither their memory nor "
            "their CPU is in the metrics"
        )
        notes.append(Note("absent", (*names, "memory_peak_worker", "cpu_time"), text))
    n_shared = workers.sizes["worker"] - len(set(process_ids(workers).tolist()))
    if n_shared:
        text = (
            "workers share a process: memory, CPU and disk are those of the process, with the "
            "client and scheduler if they run in it; values of single workers must not be summed"
        )
        notes.append(Note("estimated", (*names, "cpu_time", "disk_bytes"), text))
    return notes


def _longest_gap(memory: xr.Dataset, ids: np.ndarray, duration: float) -> float:
    times = memory["time"].values
    if not len(times):
        return 0.0
    owners = ids[memory["worker"].values.astype(int)]
    longest = 0.0
    for number in np.unique(owners):
        own = np.unique(times[owners == number])
        own = own[(own > -1) & (own < duration + 1)]
        longest = max(longest, float(np.diff(own).max(initial=0.0)))
    return longest


def _increase(workers: xr.Dataset, name: str) -> float:
    """Return the increase of a counter, summed over processes."""
    ids, values, total = process_ids(workers), workers[name].values, 0.0
    for number in np.unique(ids):
        known = values[:, ids == number]
        known = known[np.isfinite(known)]
        total += float(known[-1] - known[0]) if len(known) else 0.0
    return total


def _time(metrics: Mapping[str, float], facts: CaptureFacts) -> list[Note]:
    notes = []
    if facts.n_actors:
        text = f"{counted(facts.n_actors, 'actor')}: the seconds of their calls are not measured"
        notes.append(Note("absent", ("compute_time", "idle_time"), text))
    if facts.n_seceded:
        tasks = counted(facts.n_seceded, "task")
        text = f"{tasks} seceded (secede, worker_client) and waited outside the worker's threads"
        if not facts.full:
            text += ": compute_time is known only at capture level full"
        notes.append(Note("absent", ("compute_time", "idle_time"), text))
    elif "idle_time" not in metrics and not facts.n_actors:
        text = "idle_time is unknown: attempts failed, or tasks computed longer than threads lasted"
        notes.append(Note("absent", ("idle_time",), text))
    return notes


def _losses(groups: Mapping[str, xr.Dataset], metrics: Mapping[str, float]) -> list[Note]:
    n_lost = int(metrics.get("n_workers_lost", 0))
    if not n_lost:
        return []
    text = (
        f"{counted(n_lost, 'worker')} lost: what was used between the last heartbeat and the death "
        "is not known"
    )
    return [Note("cut", ("cpu_time", "disk_bytes", "memory_mean"), text)]


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
    workers: xr.Dataset, metrics: Mapping[str, float], duration: float, facts: CaptureFacts
) -> list[Note]:
    notes = []
    if facts.n_other_captures:
        text = "another measurement ran on the same scheduler"
        notes.append(Note("disturbed", ("duration",), text))
    cores = _other_cores(workers, duration) - metrics.get("scheduler_cpu_mean", 0.0) / 100
    if cores > OTHER_CORES:
        text = (
            f"processes other than workers and scheduler used {cores:.1f} cores of the workers' "
            "machines"
        )
        notes.append(Note("disturbed", ("duration",), text))
    return notes


def _other_cores(workers: xr.Dataset, duration: float) -> float:
    """Return processor cores that other processes used on the workers' machines, on average."""
    busy, machines = workers["machine_cpu_time"].values, workers["machine_id"].values
    total = 0.0
    for number in np.unique(machines[machines >= 0]):
        known = busy[:, machines == number]
        known = known[np.isfinite(known)]
        total += float(known.max() - known.min()) if len(known) else 0.0
    own = _increase(workers, "cpu_time")
    return max(0.0, total - own) / duration if total and duration > 0 else 0.0


def kinds_by_metric(notes: list[Note]) -> dict[str, str]:
    """Return the kinds of notes on each metric, for the run's record.

    Parameters
    ----------
    notes : list of Note
        What `quality_notes` returned.

    Returns
    -------
    dict of str to str
        Kinds, sorted and separated by spaces, by name of the metric.
    """
    kinds: dict[str, set[str]] = {}
    for note in notes:
        for metric in note.metrics:
            kinds.setdefault(metric, set()).add(note.kind)
    return {metric: " ".join(sorted(words)) for metric, words in kinds.items()}


def as_rows(notes: list[Note]) -> list[dict[str, Any]]:
    """Return notes as JSON objects, for the run's attribute ``quality``.

    Parameters
    ----------
    notes : list of Note
        What `quality_notes` returned.

    Returns
    -------
    list of dict
        Keys ``kind``, ``metrics`` and ``text``.
    """
    return [{"kind": n.kind, "metrics": list(n.metrics), "text": n.text} for n in notes]
