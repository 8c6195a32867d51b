"""Read what predictions need from a recorded run: durations, transfers, delays, submissions."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchkit.predict.contention import Contention
from benchkit.predict.refusals import UnsupportedRun, refuse
from benchkit.simulation.graph import Submission, VirtualGraph
from benchkit.simulation.model import ClusterShape
from benchkit.store.run import Run
from benchkit.store.task_graph import TaskGraph, event_actions

#: Dask's defaults since 2025.2, for runs without configuration.
STEAL_INTERVAL_S, SATURATION = 1.0, 1.1


class Gate(NamedTuple):
    """What a submission waited for; seconds begin at the end of that, or of the clock's start."""

    after: int  # The task after whose end the client submits; -1: none
    seconds: float  # Until its first tasks are sent to workers
    received: float = 0.0  # Until the scheduler receives it


@dataclass(frozen=True, eq=False)
class Workflow:
    """A graph with its durations, and all that decides how long it takes on a cluster."""

    graph: TaskGraph  # The graph
    seconds: np.ndarray  # Seconds that each task occupies a thread, with `disk`
    # Mean seconds from the end of a task to the start of one that waits for its thread.
    handoff: float
    # Seconds from the end of the last dependency of a task to its arrival at the worker, other than
    # transfers: messages, and the scheduler's work.
    dispatch: float
    bandwidth: float  # Bytes per second of one fetch; infinite: transfers are free
    latency: float  # Seconds of a fetch without its bytes
    gates: list[Gate]  # Of each submission
    tail: float  # Seconds from the end of the last task to the end of the run
    shape: ClusterShape  # The cluster of the run
    disk: np.ndarray  # Seconds of each task in which it waited for spilled data
    contention: Contention  # What the tasks share
    fetched: bool = True  # Whether transfers were measured, or bandwidth and latency are assumed
    # Seconds between two looks for workers without tasks; infinite: nothing is stolen.
    steal_interval: float = np.inf
    # Processor seconds of the scheduler for each task, and the share of the run in which it
    # computed; 0: unknown.
    scheduler: tuple[float, float] = (0.0, 0.0)
    saturation: float = SATURATION  # Tasks per thread that a worker gets while root tasks wait
    # Numbers of the workers that may run a task, where not all may.
    allowed: dict[int, list[int]] = field(default_factory=dict)
    # Place of each task in the order in which a worker starts those that wait; None: their numbers.
    rank: np.ndarray | None = None
    # Number here of each task of the run, where larger chunks merged tasks.
    merged: np.ndarray | None = None

    @classmethod
    def of(cls, run: Run) -> Workflow:
        """Return the workflow of a run."""
        graph = run.task_graph()
        refuse(run, graph)
        ran = np.isfinite(graph.start)
        disk = event_seconds(run, graph, ("disk-read", "disk-write"))
        bandwidth, latency, fetched = _transfer_model(run, graph)
        saturation, steal_interval = _scheduling(run)
        handoff, dispatch = delays(run, graph, saturation)
        stop = np.where(ran, graph.stop, -np.inf)
        cpu = run.metrics.get("scheduler_cpu_time", 0.0)
        priority = {node: given.get("priority", 0) for node, given in graph.options.items()}
        return cls(
            graph=graph,
            seconds=np.where(ran, np.nan_to_num(graph.duration), 0.0) + disk,
            handoff=handoff,
            dispatch=dispatch,
            bandwidth=bandwidth,
            latency=latency,
            gates=_gates(graph, stop),
            tail=float(max(0.0, run.metrics["duration"] - stop.max())),
            shape=_shape(run),
            disk=disk,
            contention=Contention.of(run),
            fetched=fetched,
            scheduler=(cpu / int(ran.sum()), cpu / run.metrics["duration"]),
            steal_interval=steal_interval,
            saturation=saturation,
            allowed=dict(_allowed(run, graph)),
            rank=_rank(len(graph), priority) if any(priority.values()) else None,
        )

    def virtual_graph(self, run: Run, seconds: np.ndarray) -> VirtualGraph:
        """Return the graph for a simulation, with seconds of computing of each task.

        It has the nodes that ran, and those of earlier work, which are in memory before the clock.
        """
        graph, keys = self.graph, _keys(run, self.graph)
        kept = (graph.row >= 0) | (graph.submission < 0)
        number = np.cumsum(kept) - 1
        nodes = np.flatnonzero(kept)
        rows = (graph.indices[graph.indptr[node] : graph.indptr[node + 1]] for node in nodes)
        before = number[np.flatnonzero(kept & (graph.submission < 0))].tolist()
        submissions = [Submission(before, before)] if before else []
        submissions += self._submissions(kept, number)
        last_received = max((0.0, *graph.submissions["received"]))
        end = max(last_received, float(np.nanmax(graph.stop)))
        return VirtualGraph(
            keys=[keys[node] for node in nodes],
            dependencies=[number[row[kept[row]]].tolist() for row in rows],
            seconds=seconds[nodes].tolist(),
            nbytes=np.maximum(graph.nbytes[nodes], 0).tolist(),
            submissions=submissions,
            producers=number[np.flatnonzero(kept & graph.producer)].tolist(),
            name=run.workload,
            n_before=len(submissions[:1]) if before else 0,
            tail_s=max(0.0, run.metrics["duration"] - end),
            workers={
                int(number[node]): numbers for node, numbers in self.allowed.items() if kept[node]
            },
            priority={
                int(number[node]): int(given["priority"])
                for node, given in graph.options.items()
                if given.get("priority") and kept[node]
            },
        )

    def _submissions(self, kept: np.ndarray, number: np.ndarray) -> Iterator[Submission]:
        sent, releases = self.graph.submissions, self.graph.releases
        released_at, released = (releases[name].to_numpy() for name in ("time", "node"))
        before = 0.0
        for place, (gate, received, ordered, wanted) in enumerate(
            zip(self.gates, sent["received"], sent["ordered"], sent["wanted"], strict=True)
        ):
            tasks = np.flatnonzero(kept & (self.graph.submission == place))
            between = released[(released_at > before) & (released_at <= received)].astype(int)
            before = received
            yield Submission(
                number[tasks].tolist(),
                number[wanted[kept[wanted]]].tolist(),
                gate.received,
                number[between[kept[between]]].tolist(),
                int(number[gate.after]) if gate.after >= 0 else -1,
                float(ordered - received) if np.isfinite(ordered) else None,
            )


def _shape(run: Run) -> ClusterShape:
    """Return the shape of the cluster of a run, whose workers are alike."""
    workers = run.tree["workers"].to_dataset()
    n_workers = workers.sizes["worker"]
    processes = workers["process_id"].values if "process_id" in workers else np.zeros(0)
    return ClusterShape(
        n_workers,
        int(workers["nthreads"].values[0]),
        int(workers["memory_limit"].values[0]),
        shared_loop=n_workers > 1 and len(set(processes.tolist())) == 1,
    )


def _allowed(run: Run, graph: TaskGraph) -> Iterator[tuple[int, list[int]]]:
    """Yield the tasks that may run on some workers only, and the numbers of these."""
    workers = run.tree["workers"].to_dataset()
    names = [workers[name].values.astype(str).tolist() for name in ("address", "name", "host")]
    for node, given in graph.options.items():
        chosen = given.get("workers")
        if not chosen:
            continue
        texts = {str(text) for text in ([chosen] if isinstance(chosen, str) else chosen)}
        found = [number for number, own in enumerate(zip(*names, strict=True)) if texts & set(own)]
        if not found:
            raise UnsupportedRun(run.id, f"a task needs worker {min(texts)}, which it did not have")
        if len(found) < workers.sizes["worker"]:
            yield node, found


def _rank(n_tasks: int, priority: dict[int, int]) -> np.ndarray:
    """Return the place of each task in the order of their priorities, then of their numbers."""
    values = np.zeros(n_tasks, np.int64)
    values[list(priority)] = list(priority.values())
    rank = np.empty(n_tasks, np.int64)
    rank[np.argsort(-values, kind="stable")] = np.arange(n_tasks)
    return rank


def _keys(run: Run, graph: TaskGraph) -> list[Any]:
    """Return a key per node; nodes that did not run get one from their group."""
    recorded = [_parse_key(text) for text in run.task_keys()]
    names = [*graph.group_names, "data"]  # -1: no task of the group ran
    keys: list[Any] = [
        recorded[row] if row >= 0 else (f"{names[group]}-kept", node)
        for node, (row, group) in enumerate(zip(graph.row, graph.group, strict=True))
    ]
    seen: set[Any] = set()
    for node, key in enumerate(keys):
        if key in seen:  # computed again after its release: another task of the same group
            keys[node] = (*key, node) if isinstance(key, tuple) else f"{key}-{node}"
        seen.add(key)
    return keys


def _parse_key(text: str) -> Any:
    if text.startswith("("):
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            pass
    return text


def _scheduling(run: Run) -> tuple[float, float]:
    """Return how root tasks wait, and how tasks are stolen."""
    try:
        options = distributed_options(run)["scheduler"]
        given = options["work-stealing-interval"]
        # Not by Dask, whose import takes 0.1 s; as there, a number is in ms.
        interval = pd.Timedelta(given, unit=None if isinstance(given, str) else "ms")
        seconds = interval.total_seconds() if options["work-stealing"] else np.inf
        return float(options["worker-saturation"]), seconds
    except (KeyError, TypeError, ValueError):
        return SATURATION, STEAL_INTERVAL_S


def distributed_options(run: Run) -> Any:
    """Return Dask's configuration `distributed` of a run."""
    return json.loads(run.tree.attrs["config"])["distributed"]


def max_tasks(saturation: float, nthreads: int) -> int:
    """Return up to how many tasks a worker is sent root tasks."""
    return max(1, ceil(min(saturation * nthreads, sys.maxsize)))


def root_tasks(graph: TaskGraph, n_threads: int) -> np.ndarray:
    """Return which tasks the scheduler queues for any worker: its rule, by task group."""
    n_groups = len(graph.group_names)
    sizes = np.bincount(graph.group[graph.group >= 0], minlength=n_groups)
    counts = np.diff(graph.indptr)
    own, other = np.repeat(graph.group, counts), graph.group[graph.indices]
    known = (own >= 0) & (other >= 0)
    pairs = np.unique(own[known].astype(np.int64) * n_groups + other[known])
    own, other = pairs // max(n_groups, 1), pairs % max(n_groups, 1)
    # A chain inside of a group makes the group its own input.
    n_inputs = np.bincount(own, minlength=n_groups)
    n_input_tasks = np.bincount(own, sizes[other], minlength=n_groups)
    is_root = (sizes > 2 * n_threads) & (n_inputs < 5) & (n_input_tasks < 5)
    found: np.ndarray = (counts == 0) | np.append(is_root, False)[graph.group]
    return found


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


def delays(run: Run, graph: TaskGraph, saturation: float) -> tuple[float, float]:
    """Return the seconds between two tasks of a thread, and from readiness to arrival of a task.

    Both are such that all threads were idle between tasks for as long as they were.
    """
    ran = np.flatnonzero(np.isfinite(graph.start))
    free = graph.thread_free
    ready = np.fmax(graph.ready, _when_sent(run, graph, ran, saturation))
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
    owner = np.repeat(np.arange(len(graph)), np.diff(graph.indptr))
    elsewhere = graph.worker[graph.indices] != graph.worker[owner]
    sizes = np.where(elsewhere, np.maximum(graph.nbytes[graph.indices], 0), 0)
    away = np.bincount(owner, sizes, minlength=len(graph))[fetched]
    if away.sum() < MIN_BYTES:
        hosts = set(run.tree["workers"].to_dataset()["host"].values.tolist())
        return (LOCAL_BANDWIDTH if len(hosts) == 1 else BANDWIDTH), LATENCY_S, False
    latency = float(np.quantile(seconds[fetched], 0.1))
    rest = float(np.maximum(seconds[fetched] - latency, 0.0).sum())
    return (float(away.sum()) / rest if rest > 0 else np.inf), latency, True


def _gates(graph: TaskGraph, stop: np.ndarray) -> list[Gate]:
    """Return what each submission waited for: the last wanted result before it arrived."""
    sent = graph.submissions
    wanted = np.unique(np.concatenate([*sent["wanted"], np.zeros(0, np.int32)]))
    wanted = wanted[np.isfinite(stop[wanted])]
    wanted = wanted[np.argsort(stop[wanted], kind="stable")]
    places = np.searchsorted(stop[wanted], sent["received"], side="right") - 1
    gates = []
    for place, *times in zip(places.tolist(), sent["started"], sent["received"], strict=True):
        anchor = int(wanted[place]) if place >= 0 else -1
        since = float(stop[anchor]) if anchor >= 0 else 0.0
        gates.append(Gate(anchor, *(max(0.0, float(time) - since) for time in times)))
    return gates
