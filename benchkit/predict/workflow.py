"""What a replay needs, from a recorded run: durations, transfers, idle seconds, submissions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from dask.utils import parse_timedelta

from benchkit.predict.replay import ReplayInput, max_tasks, root_tasks
from benchkit.store.run import Run
from benchkit.store.task_graph import TaskGraph, event_actions, largest_dependency

#: Dask's defaults since 2025.2, for runs without configuration.
STEAL_INTERVAL_S, SATURATION, SPILLING_SHARE = 1.0, 1.1, 0.6


def scheduling(run: Run) -> tuple[float, float]:
    """Return how root tasks wait, and how tasks are stolen."""
    try:
        options = _distributed(run)["scheduler"]
        interval = parse_timedelta(options["work-stealing-interval"], default="ms")
        return float(options["worker-saturation"]), interval if options["work-stealing"] else np.inf
    except (KeyError, TypeError, ValueError):
        return SATURATION, STEAL_INTERVAL_S


def spilling_share(run: Run) -> float:
    """Return beyond which share of a worker's memory results are spilled."""
    try:
        memory = _distributed(run)["worker"]["memory"]
        return float(memory["target"] or memory["spill"] or np.inf)
    except (KeyError, TypeError, ValueError):
        return SPILLING_SHARE


def _distributed(run: Run) -> Any:
    return json.loads(run.tree.attrs["config"])["distributed"]


#: Bytes that must have been fetched, or bandwidth and latency are assumed: in B/s, on one host and
#: between hosts (Dask's own assumption), and in s.
MIN_BYTES = 1e6
LOCAL_BANDWIDTH, BANDWIDTH, LATENCY_S = 500e6, 100e6, 0.002
#: Seconds in which no task arrives at its worker after it is ready.
JUST_READY_S = 0.001
#: A thread may be idle before a ready task for this many times the seconds of the task's way to the
#: worker; if it is idle for longer, the task waited for another reason.
MAX_DELAYS = 5.0


def event_seconds(run: Run, graph: TaskGraph, names: Sequence[str]) -> np.ndarray:
    """Return the seconds of events of each task, such as transfers."""
    events = run.tree["task_events"].to_dataset()
    actions = event_actions(events)
    codes = [code for code, action in enumerate(actions) if action in names]
    chosen = np.isin(events["action"].values, codes)
    task = events["task"].values[chosen]
    seconds = (events["stop"].values - events["start"].values)[chosen]
    by_row = np.bincount(task, seconds, minlength=run.tree["tasks"].sizes["task"])
    return np.where(graph.row >= 0, by_row[graph.row], 0.0)


def replay_input(run: Run, graph: TaskGraph, disk: np.ndarray) -> tuple[ReplayInput, bool]:
    """Return what a replay needs, and whether its transfers were measured."""
    ran = np.isfinite(graph.start)
    seconds = np.where(ran, np.nan_to_num(graph.duration), 0.0) + disk
    bandwidth, latency, measured = _transfer_model(run, graph)
    saturation, steal_interval = scheduling(run)
    handoff, dispatch = _overhead(run, graph, saturation)
    stop = np.where(ran, graph.stop, -np.inf)
    given = ReplayInput(
        graph=graph,
        seconds=seconds,
        handoff=handoff,
        dispatch=dispatch,
        bandwidth=bandwidth,
        latency=latency,
        gates=_gates(graph, stop),
        tail=float(max(0.0, run.metrics["duration"] - stop.max())),
        steal_interval=steal_interval,
        saturation=saturation,
    )
    return given, measured


def _overhead(run: Run, graph: TaskGraph, saturation: float) -> tuple[float, float]:
    """Return the seconds between two tasks of a thread, and from readiness to arrival of a task.

    Both are such that all threads were idle between tasks for as long as they were.
    """
    ran = np.flatnonzero(np.isfinite(graph.start))
    order = ran[np.lexsort((graph.start[ran], graph.thread[ran]))]
    free = np.full(len(graph), -np.inf)
    same = graph.thread[order][1:] == graph.thread[order][:-1]
    free[order[1:][same]] = graph.stop[order][:-1][same]
    last = largest_dependency(graph.indptr, graph.indices, graph.stop)
    started = np.append(graph.submissions["started"].to_numpy(), -np.inf)[graph.submission]
    ready = np.fmax(started, np.where(last >= 0, graph.stop[last], -np.inf))
    ready = np.fmax(ready, _when_sent(run, graph, ran, saturation))
    waits = event_seconds(run, graph, ("transfer", "disk-read", "disk-write"))
    with np.errstate(invalid="ignore"):  # the first task of a thread that was never submitted
        waited = (free - ready)[ran]
    idle = np.maximum((graph.start - np.fmax(free, ready) - waits)[ran], 0.0)
    # The thread became free before the task was ready, or as it was.
    just_ready = np.sort(idle[(waited < JUST_READY_S) & np.isfinite(idle)])
    # The largest tenth may have waited for reasons that the replay models.
    just_ready = just_ready[: max(1, round(0.9 * len(just_ready)))]
    dispatch = float(just_ready.mean()) if len(just_ready) else 0.0
    arrived = waited >= JUST_READY_S
    if not arrived.any():
        return dispatch, dispatch
    waited, idle = waited[arrived], idle[arrived]
    most = max(MAX_DELAYS * dispatch, float(np.quantile(idle, 0.9, method="lower")))
    mean = np.minimum(idle, most).mean()
    low, high = 0.0, most
    for _ in range(20):  # the larger one of handoff and the rest of the dispatch is seen
        handoff = (low + high) / 2
        if np.maximum(handoff, dispatch - waited).mean() < mean:
            low = handoff
        else:
            high = handoff
    return low, dispatch


def _when_sent(run: Run, graph: TaskGraph, ran: np.ndarray, saturation: float) -> np.ndarray:
    """Return when the worker of each root task had few enough tasks to be sent it; else -inf."""
    nthreads = run.tree["workers"].to_dataset()["nthreads"].values
    is_root = root_tasks(graph, round(float(nthreads.sum())))
    sent = np.full(len(graph), -np.inf)
    order = ran[np.lexsort((graph.start[ran], graph.worker[ran]))]
    bounds = np.searchsorted(graph.worker[order], np.arange(len(nthreads) + 1))
    for threads, begin, end in zip(nthreads.tolist(), bounds, bounds[1:], strict=False):
        own = order[begin:end]
        later = own[max_tasks(saturation, round(threads)) :]
        sent[later] = np.sort(graph.stop[own])[: len(later)]
    return np.where(is_root, sent, -np.inf)


def _transfer_model(run: Run, graph: TaskGraph) -> tuple[float, float, bool]:
    """Return bytes per second and latency (s) of a fetch, and whether they were measured.

    Bytes are those of the results in memory, as in the replay.
    """
    seconds = event_seconds(run, graph, ("transfer",))
    fetched = np.flatnonzero((seconds > 0) & (graph.worker >= 0))
    away = np.zeros(len(fetched))
    for place, node in enumerate(fetched.tolist()):
        inputs = graph.indices[graph.indptr[node] : graph.indptr[node + 1]]
        elsewhere = inputs[graph.worker[inputs] != graph.worker[node]]
        away[place] = np.maximum(graph.nbytes[elsewhere], 0).sum()
    if away.sum() < MIN_BYTES:
        hosts = set(run.tree["workers"].to_dataset()["host"].values.tolist())
        return (LOCAL_BANDWIDTH if len(hosts) == 1 else BANDWIDTH), LATENCY_S, False
    latency = float(np.quantile(seconds[fetched], 0.1))
    rest = float(np.maximum(seconds[fetched] - latency, 0.0).sum())
    return (float(away.sum()) / rest if rest > 0 else np.inf), latency, True


def _gates(graph: TaskGraph, stop: np.ndarray) -> list[tuple[int, float]]:
    """Return what each submission waited for: the last wanted result before it arrived."""
    sent = graph.submissions
    wanted = np.unique(np.concatenate([*sent["wanted"], np.zeros(0, np.int32)]))
    wanted = wanted[np.isfinite(stop[wanted])]
    wanted = wanted[np.argsort(stop[wanted], kind="stable")]
    places = np.searchsorted(stop[wanted], sent["received"], side="right") - 1
    gates = []
    for place, started in zip(places.tolist(), sent["started"].tolist(), strict=True):
        anchor = int(wanted[place]) if place >= 0 else -1
        since = float(stop[anchor]) if anchor >= 0 else 0.0
        gates.append((anchor, max(0.0, started - since)))
    return gates
