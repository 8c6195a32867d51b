"""Explain the wall time of a run: its critical path, and the cause of each second, from its end."""

from __future__ import annotations

import json
from bisect import bisect_right, insort
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from benchkit.predict.contention import is_new_heartbeat
from benchkit.predict.processors import Processors
from benchkit.store.run import Run
from benchkit.store.task_graph import TaskGraph, event_actions, largest_dependency

#: Tasks whose dependencies outside of the block are looked up at once; those inside of it are
#: looped over. Chosen with a million tasks: others take up to twice as long.
BLOCK = 256


def finish_times(indptr: np.ndarray, indices: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Return the earliest end of each task if threads, transfers and scheduling cost nothing."""
    # seconds: Duration of each task; NaN counts as 0.
    own = np.nan_to_num(seconds)
    finish = np.full(len(own), -np.inf)
    for first in range(0, len(own), BLOCK):
        rows = indptr[first : first + BLOCK + 1]
        edges = indices[rows[0] : rows[-1]]
        counts = np.diff(rows)
        some = np.flatnonzero(counts)
        begin = np.zeros(len(counts))
        if len(some):
            begin[some] = np.maximum.reduceat(finish[edges], rows[some] - rows[0])
        block = slice(first, first + len(counts))
        inside = np.flatnonzero(edges >= first)
        if len(inside):
            owner = np.repeat(np.arange(len(counts)), counts)[inside]
            begin = _begin_in_block(begin, own[block], edges[inside] - first, owner)
        finish[block] = begin + own[block]
    return finish


def _begin_in_block(
    begin: np.ndarray, own: np.ndarray, source: np.ndarray, target: np.ndarray
) -> np.ndarray:
    """Return the earliest begin of each task, given dependencies in the order of their targets."""
    begins, seconds = begin.tolist(), own.tolist()
    for before, after in zip(source.tolist(), target.tolist(), strict=True):
        stop = begins[before] + seconds[before]
        if stop > begins[after]:
            begins[after] = stop
    return np.array(begins)


def critical_path(
    indptr: np.ndarray, indices: np.ndarray, seconds: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return the chain of dependent tasks with the largest sum of durations."""
    # seconds: Duration of each task; NaN counts as 0.
    if not len(seconds):
        return np.zeros(0, np.int64), 0.0
    finish = finish_times(indptr, indices, seconds)
    node = int(finish.argmax())
    length = float(finish[node])
    chosen = largest_dependency(indptr, indices, finish).tolist()
    path = [node]
    while (node := chosen[node]) >= 0:
        path.append(node)
    return np.array(path[::-1]), length


#: Causes of wall time, in the order of tables: name -> what it means.
CAUSES = {
    "computing": "a task computed, and most other threads computed too",
    "not parallel": "a task computed while most threads had nothing to do",
    "straggler": "the last tasks computed; nothing else was left",
    "seceded": "a task that had left its thread (secede) waited while most threads were idle",
    "unfinished": "tasks ran that had not ended when the clock stopped",
    "no processor": "a thread was ready to run, and no processor was free for it",
    "restricted": "tasks were ready, and may run on some workers only (workers=, resources=)",
    "transfer": "the next task waited for a result of another worker",
    "disk": "the next task waited for data from disk, or spilling",
    "worker paused": "the next task waited on a worker that was paused",
    "no worker": "no worker was there",
    "stealing": "the next task was on its way from one worker to another that had no task",
    "queued": "threads were idle, and tasks that could run waited elsewhere",
    "worker loop": "the event loop of the next task's worker was late",
    "scheduler": "the next task had all it needs, and the scheduler's process was busy",
    "messages": "the next task had all it needs; this is what each message takes at least",
    "graph": "the scheduler materialised, ordered and initialised a graph",
    "client graph": "the client built, optimised, serialised or sent a graph",
    "gather": "results were sent to the client",
    "client": "the client had its results and had not asked for more",
    "unexplained": "something waited, and nothing recorded says for what",
}
#: Causes of the time from the moment at which a task could start to its start that are no waits for
#: data: each task that starts costs them.
BETWEEN_TASKS = ("scheduler", "messages", "worker loop", "stealing", "unexplained")
#: Causes in which a task computed.
COMPUTING = ("computing", "not parallel", "straggler", "unfinished")
#: Causes in which the cluster waited for the client.
CLIENT = ("client graph", "gather", "client")
NO_PROCESSOR = "no processor"
#: Causes in which something waited: without them, tasks compute for as long as they did.
WAITS = frozenset(CAUSES) - {*COMPUTING, "seceded", NO_PROCESSOR}
#: Causes of which the thread that works in them is known: it may wait for a processor.
WITH_PROCESSOR = (*CLIENT, "graph", "transfer", "computing", "not parallel", "straggler")
#: Below this share of busy threads, one half, most of the cluster is idle.
FEW_BUSY = 0.5


#: Results of one worker are fetched together, and the transfer is noted for one of the tasks that
#: wait for them: the others start within this time of its end.
TOGETHER_S = 0.02

#: The fastest tenth of the waits between tasks shows what messages take alone.
FASTEST = 0.1
#: Waits of the walk whose cause is found later; no cause of the result.
_GAP = "gap"
#: Tasks that start after a moment among which one is looked for that could have run then.
MAX_LATER = 64
#: Results reach the client by the scheduler, in two hops: the seconds of the senders are the first.
GATHER_HOPS = 2

#: Action of a task event -> cause of a wait.
_WAITS = {"transfer": "transfer", "disk-read": "disk", "disk-write": "disk"}


@dataclass(frozen=True)
class _Step:
    """A part of the walk: the time from `start` to the step after it."""

    start: float
    cause: str
    node: int = -1


def blame_walk(run: Run, graph: TaskGraph | None = None) -> pd.DataFrame:
    """Tile the wall time of a run with causes.

    `origin` is the cause that the seconds without a processor would have with one.

    The walk begins at the end of the run and goes to what the present step waited for: a task
    waited for its last dependency, or for the task before it in its thread, or for the graph to
    arrive; a graph waited for the client, and the client for the results of the graph before.
    """
    graph = graph or run.task_graph()
    duration = run.metrics["duration"]
    walk = _Walk(run, graph, duration)
    steps = list(walk.steps())
    starts = np.minimum.accumulate([min(max(step.start, 0.0), duration) for step in steps])
    stops = np.concatenate([[duration], starts[:-1]])
    frame = pd.DataFrame(
        {
            "start": starts,
            "stop": stops,
            "cause": [step.cause for step in steps],
            "node": [step.node for step in steps],
        }
    )
    frame["origin"] = frame["cause"]
    frame = frame[frame["stop"] > frame["start"]].iloc[::-1].reset_index(drop=True)
    restricted, held = _Restricted(graph, duration), held_seconds(run)
    processors = Processors(run)
    threads = busy_threads(run)
    left = graph.start + np.append(held, np.inf)[graph.group]
    frame = _split_computing(frame, graph, threads, restricted, left)
    frame = _split_idle(frame, graph, threads, walk.waits)
    seconds_of = _gap_seconds(run, graph, restricted, processors)
    for cause, rest in ((_GAP, "unexplained"), ("queued", "queued")):
        frame = _divide(frame, cause, rest, seconds_of)
    frame = _divide(
        frame, "client", "client", lambda rows: {"gather": _gathering(run, graph, rows)}
    )
    for cause in WITH_PROCESSOR:
        frame = _divide(frame, cause, cause, _waits_for_processors(processors, graph, cause))
    node = frame["node"].to_numpy(int)
    names = np.array([*graph.group_names, ""], object)
    frame["group"] = names[np.where(node >= 0, graph.group[node], -1)]
    frame["worker"] = np.where(node >= 0, graph.worker[node], -1)
    return frame


def max_threads(workers: xr.Dataset) -> int:
    """Return the largest number of threads that a run had at the same time."""
    times, change = _thread_changes(workers)
    return max(1, int(np.cumsum(change[np.argsort(times, kind="stable")]).max(initial=0)))


def paused_spans(run: Run) -> dict[int, list[tuple[float, float]]]:
    """Return when workers were paused, because their memory was full."""
    spans: dict[int, list[tuple[float, float]]] = {}
    since: dict[int, float] = {}
    events = run.events()
    if not len(events):
        return spans
    for row in events[events["topic"] == "worker-status-change"].itertuples():
        if '"status": "paused"' in row.message:
            since[row.worker] = row.time
        elif row.worker in since:
            spans.setdefault(row.worker, []).append((since.pop(row.worker), row.time))
    for worker, begin in since.items():
        spans.setdefault(worker, []).append((begin, np.inf))
    return spans


def _thread_changes(workers: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return when workers came and left, and by how much that changed the number of threads."""
    left, nthreads = workers["left"].values, workers["nthreads"].values
    # Leaving is before joining, for the process of a nanny that replaces another.
    times = np.concatenate([np.where(np.isnan(left), np.inf, left), workers["joined"].values])
    return times, np.concatenate([-nthreads, nthreads])


class _Walk:
    """The walk back through the tasks of a run."""

    def __init__(self, run: Run, graph: TaskGraph, duration: float) -> None:
        self.graph, self.duration = graph, duration
        stop = graph.stop
        # A time of NaN sorts last and is never reached.
        self.stop = np.where(np.isnan(stop), np.inf, stop).tolist()
        self.start = graph.start.tolist()
        self.by_stop = np.argsort(self.stop)
        self.sorted_stops = np.asarray(self.stop)[self.by_stop]
        self.dependency, self.previous = graph.last_dependency.tolist(), graph.previous.tolist()
        self.submission = graph.submission.tolist()
        self.waits = _Waits(run, graph)
        sent = graph.submissions
        self.phases = {
            name: sent[name].tolist() for name in ("received", "materialized", "ordered", "started")
        }
        calls = graph.calls.sort_values("sent")
        self.calls = calls[["optimised", "serialised", "sent"]].to_numpy(float)

    def steps(self) -> Iterator[_Step]:
        """Yield the steps from the end of the run to its start."""
        node = self._last_before(self.duration)
        if node is not None:
            ended = self.stop[node]
            missing = unfinished(self.graph, self.duration)
            if len(missing):
                yield from self.waits.steps(int(missing[0]), ended, self.duration, is_over=False)
            yield _Step(ended, "client")
        while node is not None:
            start = self.start[node]
            yield _Step(start, "computing", node)
            dependency, before = self.dependency[node], self.previous[node]
            ready = -np.inf
            # Clocks of workers differ by some ms: never go to a task that began later.
            if dependency >= 0 and self.start[dependency] <= start:
                ready = self.stop[dependency]
            arrival, number = -np.inf, self.submission[node]
            if number >= 0:
                arrival = min(self.phases["started"][number], start)
            in_thread = self.stop[before] if before >= 0 else -np.inf
            moment = max(ready, arrival, in_thread)
            moment = min(moment, start)
            yield from self.waits.steps(node, moment, start)
            if moment == -np.inf:
                break
            if in_thread >= max(ready, arrival):
                node = before
            elif ready >= arrival:
                node = dependency
            else:
                node = None
                began = yield from self._submission(number)
                if began > 0:
                    node = self._last_before(began)
                    yield _Step(self.stop[node] if node is not None else 0.0, "client")
        yield _Step(0.0, "client")

    def _submission(self, number: int) -> Generator[_Step, None, float]:
        """Yield the phases of a submission; return when the client began with it."""
        received = self.phases["received"][number]
        yield _Step(received, "graph")
        place = int(np.searchsorted(self.calls[:, 2], received + 0.005)) - 1
        if place < 0:
            return float(received)
        optimised, serialised, sent = self.calls[place]
        began = float(serialised if np.isnan(optimised) else optimised)
        if sent < received - 5 or began > received:  # of another client
            return float(received)
        yield _Step(began, "client graph")
        return began

    def _last_before(self, moment: float) -> int | None:
        """Return the task that ended last until a moment."""
        place = int(np.searchsorted(self.sorted_stops, moment, side="right")) - 1
        return int(self.by_stop[place]) if place >= 0 else None


class _Waits:
    """What tasks waited for between the moment they could run and their start."""

    def __init__(self, run: Run, graph: TaskGraph) -> None:
        self.graph = graph
        events = run.tree["task_events"].to_dataset()
        actions = event_actions(events)
        kinds = np.array([_WAITS.get(action, "") for action in actions], object)
        kind = kinds[events["action"].values]
        chosen = np.flatnonzero(kind != "")
        node = run.tree["tasks"].to_dataset()["task_node"].values[events["task"].values[chosen]]
        order = np.argsort(node, kind="stable")
        self.node, self.kind = node[order], kind[chosen][order]
        self.start = events["start"].values[chosen][order]
        self.stop = events["stop"].values[chosen][order]
        self.paused = paused_spans(run)
        #: By worker: ends and starts of its transfers, ordered.
        self.transfers: dict[int, list[tuple[float, float]]] = {}
        chosen = np.flatnonzero(self.kind == "transfer")
        chosen = chosen[np.lexsort((self.start[chosen], self.stop[chosen]))]
        workers = np.where(self.node >= 0, graph.worker[self.node], -1)[chosen].tolist()
        spans = zip(self.stop[chosen].tolist(), self.start[chosen].tolist(), strict=True)
        for worker, span in zip(workers, spans, strict=True):
            self.transfers.setdefault(worker, []).append(span)

    def steps(
        self, node: int, ready: float, start: float, *, is_over: bool = True
    ) -> Iterator[_Step]:
        """Yield the causes of a wait, the last first; together they reach back to `ready`.

        A task that did not end waited for any worker.
        """
        worker = int(self.graph.worker[node])
        paused = self.paused.get(worker, ()) if is_over else chain(*self.paused.values())
        spans = [(*span, "worker paused") for span in paused]
        first, last = np.searchsorted(self.node, [node, node + 1])
        columns = (values[first:last].tolist() for values in (self.start, self.stop, self.kind))
        spans += zip(*columns, strict=True)
        if start - ready > TOGETHER_S and self._needs_others(node, worker):
            ended = self.transfers.get(worker, [])
            place = bisect_right(ended, (start + TOGETHER_S, np.inf))
            while place and ended[place - 1][0] >= start - TOGETHER_S:
                place -= 1
                spans.append((ended[place][1], min(ended[place][0], start), "transfer"))
        end = start
        for begin, stop, kind in sorted(spans, key=lambda span: -span[1]):
            stop, begin = min(stop, end), max(begin, ready)
            if stop <= begin:
                continue
            yield _Step(stop, _GAP, node)
            yield _Step(begin, kind, node)
            end = begin
        yield _Step(ready, _GAP, node)

    def _needs_others(self, node: int, worker: int) -> bool:
        """Return whether a task needs a result that is not known to be made by its worker."""
        inputs = self.graph.indices[self.graph.indptr[node] : self.graph.indptr[node + 1]]
        return bool((self.graph.worker[inputs] != worker).any())


class _Restricted:
    """Tasks that may run on some workers only, by name or by resources."""

    def __init__(self, graph: TaskGraph, duration: float) -> None:
        nodes = [n for n, given in graph.options.items() if {"workers", "resources"} & given.keys()]
        self.nodes = np.array(sorted(nodes), np.int64)
        started, stop = graph.start[self.nodes], graph.stop[self.nodes]
        ready = graph.ready[self.nodes]
        self.waiting = _covered(ready, np.where(np.isnan(started), duration, started))
        self.running = _covered(started, stop)


def _covered(start: np.ndarray, stop: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return times, and for how long some interval covered the time until then."""
    known = (stop > start) & np.isfinite(start)
    times = np.concatenate([start[known], stop[known]])
    if not len(times):
        return np.zeros(1), np.zeros(1)
    order = np.argsort(times, kind="stable")
    count = np.cumsum(np.repeat([1, -1], known.sum())[order])
    lengths = np.diff(times[order]) * (count[:-1] > 0)
    return times[order], np.append(0.0, np.cumsum(lengths))


def seconds_until(curve: tuple[np.ndarray, np.ndarray], rows: pd.DataFrame) -> np.ndarray:
    """Return by how much a sum over time grew in each row of the blame."""
    grown: np.ndarray = np.interp(rows["stop"], *curve) - np.interp(rows["start"], *curve)
    return grown


def _divide(
    frame: pd.DataFrame,
    cause: str,
    rest: str,
    seconds_of: Callable[[pd.DataFrame], Mapping[str, np.ndarray]],
) -> pd.DataFrame:
    """Divide the segments of a cause by others, of which the seconds are known but not the times.

    A cause gets no more than those before it leave; `rest` is what all of them leave.
    """
    chosen = (frame["cause"] == cause).to_numpy()
    rows = frame[chosen]
    seconds = seconds_of(rows) if len(rows) else {}
    left = (rows["stop"] - rows["start"]).to_numpy()
    parts = []
    for amount in seconds.values():
        parts.append(np.clip(amount, 0.0, left))
        left = left - parts[-1]
    edges = rows["start"].to_numpy() + np.cumsum([left, *parts], axis=0)
    edges = np.minimum(
        np.vstack([rows["start"], edges[:-1], rows["stop"]]), rows["stop"].to_numpy()
    )
    causes = [rest, *seconds]
    # With a processor, the time between tasks would be that of messages.
    without = "messages" if cause == _GAP else cause
    pieces = pd.DataFrame(
        {
            "start": edges[:-1].T.ravel(),
            "stop": edges[1:].T.ravel(),
            "cause": causes * len(rows),
            "node": np.repeat(rows["node"].to_numpy(), len(causes)),
            "origin": [without if name == NO_PROCESSOR else name for name in causes] * len(rows),
        }
    )
    pieces = pieces[pieces["stop"] > pieces["start"]]
    found = pd.concat([frame[~chosen], pieces], ignore_index=True)
    return found.sort_values("start", kind="stable", ignore_index=True)


def _waits_for_processors(
    processors: Processors, graph: TaskGraph, cause: str
) -> Callable[[pd.DataFrame], dict[str, np.ndarray]]:
    """Return what finds for how long the thread behind a cause waited for a processor."""

    def seconds(rows: pd.DataFrame) -> dict[str, np.ndarray]:
        node = rows["node"].to_numpy()
        span = rows["start"].to_numpy(), rows["stop"].to_numpy()
        if cause in CLIENT:
            waited = processors.of_client(*span)
        elif cause == "graph":
            waited = processors.of_scheduler(*span)
        elif cause == "transfer":
            waited = processors.of_worker_loops(graph.worker[node], *span)
        else:
            waited, _ = processors.of_tasks(graph.thread[node], *span)
        return {NO_PROCESSOR: waited}

    return seconds


def _gap_seconds(
    run: Run, graph: TaskGraph, restricted: _Restricted, processors: Processors
) -> Callable[[pd.DataFrame], Mapping[str, np.ndarray]]:
    """Return what finds how long the causes of waits between tasks took, the most certain first."""
    workers, scheduler = run.tree["workers"].to_dataset(), run.tree["scheduler"].to_dataset()

    def seconds(rows: pd.DataFrame) -> dict[str, np.ndarray]:
        node = rows["node"].to_numpy()
        span = rows["start"].to_numpy(), rows["stop"].to_numpy()
        length = span[1] - span[0]
        loops = processors.of_worker_loops(graph.worker[node], *span)
        is_over = np.isfinite(graph.stop[node])
        is_restricted = np.isin(node, restricted.nodes)
        alone = ~is_over & is_restricted & (seconds_until(restricted.running, rows) == 0)
        found = {
            "no worker": seconds_until(_without_workers(workers, run.metrics["duration"]), rows),
            "restricted": np.where(
                alone, length, seconds_until(restricted.running, rows) * is_restricted
            ),
            "unfinished": np.where(is_over, 0.0, seconds_until(_executing(workers), rows)),
            "stealing": _stealing(run, graph, rows),
            NO_PROCESSOR: loops + processors.of_scheduler(*span),
            "worker loop": _late_loop(workers, graph, rows),
            "scheduler": seconds_until(busy_seconds(scheduler), rows),
        }
        if len(length) >= 1 / FASTEST:
            found["messages"] = np.full(len(length), np.quantile(length, FASTEST))
        return found

    return seconds


def busy_seconds(scheduler: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return times, and the seconds for which the scheduler's process was busy until then."""
    end, cpu = scheduler["monitor_time"].values, scheduler["cpu"].values
    known = np.isfinite(end) & np.isfinite(cpu) & (end > 0)
    end, first = np.unique(end[known], return_index=True)
    width = np.diff(end, prepend=0.0)
    busy = np.cumsum(np.clip(cpu[known][first], 0, 100) / 100 * width)
    return np.append(0.0, end), np.append(0.0, busy)


def _without_workers(workers: xr.Dataset, duration: float) -> tuple[np.ndarray, np.ndarray]:
    """Return times, and for how long no thread of a worker was there until then."""
    times, change = _thread_changes(workers)
    order = np.argsort(times, kind="stable")
    none = np.append(True, np.cumsum(change[order]) == 0)
    times = np.clip(np.concatenate([[0.0], times[order], [duration]]), 0.0, duration)
    return _covered(times[:-1][none], times[1:][none])


def _executing(workers: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return times, and for how long some worker had a running task until then."""
    if "executing" not in workers or not workers.sizes["time"]:
        return np.zeros(1), np.zeros(1)
    busy = np.nan_to_num(workers["executing"].values).sum(axis=1) > 0
    times = workers["time"].values
    return times, np.cumsum(np.diff(times, prepend=times[:1]) * busy)


def _late_loop(workers: xr.Dataset, graph: TaskGraph, rows: pd.DataFrame) -> np.ndarray:
    """Return for how long the event loop of each row's worker was late, by heartbeat at most."""
    late = np.zeros(len(rows))
    if "tick_max" not in workers:
        return late
    times, is_new = workers["time"].values, is_new_heartbeat(workers)
    ticks = workers["tick_max"].values
    place = graph.worker[rows["node"].to_numpy()]
    for worker in np.unique(place[place >= 0]).tolist():
        heartbeats = is_new[:, worker] & np.isfinite(ticks[:, worker])
        own = place == worker
        if heartbeats.any():
            own_times, own_ticks = times[heartbeats], ticks[heartbeats, worker]
            curve = (
                np.append(own_times[0] - own_ticks[0], own_times),
                np.append(0.0, np.cumsum(own_ticks)),
            )
            late[own] = seconds_until(curve, rows[own])
    return late


def _stealing(run: Run, graph: TaskGraph, rows: pd.DataFrame) -> np.ndarray:
    """Return for how long the task of each row was on its way to the worker that stole it."""
    found, events = np.zeros(len(rows)), run.events()
    steals = events[events["topic"] == "steal"] if len(events) else events
    if not len(steals):
        return found
    moments = {
        json.loads(text)["key"]: moment
        for text, moment in zip(steals["message"], steals["time"], strict=True)
    }
    place = graph.row[rows["node"].to_numpy()]
    ran = np.flatnonzero(place >= 0)
    keys = run.task_keys(place[ran])
    moment = np.array([moments.get(key, np.inf) for key in keys])
    start, stop = rows["start"].to_numpy()[ran], rows["stop"].to_numpy()[ran]
    found[ran] = np.where(moment >= start, np.maximum(stop - moment, 0.0), 0.0)
    return found


def _gathering(run: Run, graph: TaskGraph, rows: pd.DataFrame) -> np.ndarray:
    """Return for how long results were sent to the client, by the senders' seconds a byte."""
    if "transfers" not in run.tree.children:
        return np.zeros(len(rows))
    sent = run.transfers()
    outside = sent["destination"].values == -1
    size, seconds = (float(sent[name].values[outside].sum()) for name in ("bytes", "seconds"))
    wanted = _wanted(graph)
    ended, nbytes = graph.stop[wanted], np.maximum(graph.nbytes[wanted], 0)
    order = np.argsort(ended)
    ended, until = ended[order], np.append(0.0, np.cumsum(nbytes[order]))
    if not size > 0 or not until[-1] > 0:
        return np.zeros(len(rows))
    # From the results that ended after the row before, up to those that ended as this row began.
    counts = np.searchsorted(ended, rows["start"].to_numpy(), side="right")
    shares: np.ndarray = np.diff(until[counts], prepend=0.0) / until[-1]
    return shares * (GATHER_HOPS * seconds)


def _wanted(graph: TaskGraph) -> np.ndarray:
    """Return the tasks whose results a client wanted."""
    return np.unique(np.concatenate([*graph.submissions["wanted"], np.zeros(0, np.int64)])).astype(
        int
    )


def unfinished(graph: TaskGraph, duration: float) -> np.ndarray:
    """Return the tasks that a client still wanted at the end, and that had not ended."""
    wanted = _wanted(graph)
    missing = wanted[~(graph.stop[wanted] <= duration) & (graph.submission[wanted] >= 0)]
    dropped = graph.releases["node"].to_numpy()[graph.releases["time"].to_numpy() < duration]
    left: np.ndarray = missing[~np.isin(missing, dropped)]
    return left


def _split_computing(
    frame: pd.DataFrame,
    graph: TaskGraph,
    threads: BusyThreads,
    restricted: _Restricted,
    left: np.ndarray,
) -> pd.DataFrame:
    """Divide segments of computing by how many other threads were busy."""
    # left: When each task left its thread; infinite: it held the thread to its end.
    times, busy, there = threads
    # A thread that computes alone is one of many, or all that there are.
    many = busy > np.where(there > 1, np.maximum(1, FEW_BUSY * there), 0)
    edges = np.flatnonzero(np.diff(many, prepend=False))  # where the state changes
    moments, states = times[edges], many[edges]
    last_many = moments[-1] if len(moments) and not states[-1] else np.inf
    if not len(moments):
        last_many = np.inf
    rows = []
    for row in frame.itertuples(index=False):
        if row.cause != "computing":
            rows.append(tuple(row))
            continue
        first, last = np.searchsorted(moments, [row.start, row.stop])
        cuts = [row.start, *moments[first:last].tolist(), row.stop]
        if row.start < left[row.node] < row.stop:
            insort(cuts, left[row.node])
        for begin, end in pairwise(cuts):
            if end <= begin:
                continue
            place = int(np.searchsorted(moments, (begin + end) / 2)) - 1
            state = place >= 0 and bool(states[place])
            cause = "computing" if state else "not parallel"
            if begin >= last_many > graph.start[row.node]:
                cause = "straggler"
            if begin >= left[row.node] and not state:
                cause = "seceded"
            rows.append((begin, end, cause, row.node, cause))
    found = pd.DataFrame(rows, columns=frame.columns)
    idle = found["cause"].isin(["not parallel", "straggler"]).to_numpy()
    waits = seconds_until(restricted.waiting, found) > FEW_BUSY * (found["stop"] - found["start"])
    found.loc[idle & waits.to_numpy(), ["cause", "origin"]] = "restricted"
    return found


def held_seconds(run: Run) -> np.ndarray:
    """Return for how long a task of each group computes before it leaves its thread, on average.

    Infinite where tasks hold their threads to their ends.
    """
    groups = run.tree["task_groups"].to_dataset()
    held = np.full(groups.sizes["task_group"], np.inf)
    actions = groups["action"].values.tolist()
    if "seceded" in actions:
        seconds, n_tasks = groups["seconds"].values, groups["n_tasks"].values
        left = (seconds[:, actions.index("seceded")] > 0) & (n_tasks > 0)
        held[left] = seconds[left, actions.index("compute")] / n_tasks[left]
    return held


class BusyThreads(NamedTuple):
    """Threads of a run over time."""

    times: np.ndarray  # When one of the numbers changes, in s after clock on
    busy: np.ndarray  # How many threads compute from then on
    there: np.ndarray  # How many there are


def busy_threads(run: Run) -> BusyThreads:
    """Return how many threads compute, and are there, over time."""
    # Not those of the graph: it has the last attempt of a task whose result was lost.
    tasks = run.tree["tasks"].to_dataset()
    start, seconds = tasks["start"].values, tasks["duration"].values
    seconds = np.minimum(seconds, held_seconds(run)[tasks["group"].values])
    start, seconds = start[seconds > 0], seconds[seconds > 0]
    moved, threads = _thread_changes(run.tree["workers"].to_dataset())
    times = np.concatenate([start, start + seconds, moved])
    change = np.repeat([1, -1, 0], [len(start), len(start), len(moved)])
    threads = np.concatenate([np.zeros(2 * len(start)), threads])
    order = np.argsort(times, kind="stable")
    times, busy, threads = times[order], np.cumsum(change[order]), np.cumsum(threads[order])
    last = np.append(times[1:] != times[:-1], True)  # of several changes at the same time
    return BusyThreads(times[last], busy[last], threads[last])


def _split_idle(
    frame: pd.DataFrame, graph: TaskGraph, threads: BusyThreads, waits: _Waits
) -> pd.DataFrame:
    """Replace the time in which most threads were idle, and tasks could run, by what these lack."""
    idle = (frame["cause"] == "not parallel").to_numpy()
    ready, ran = graph.ready, np.flatnonzero(np.isfinite(graph.start))
    ran = ran[graph.start[ran] > ready[ran]]
    if not idle.any() or not len(ran):
        return frame
    free = sum_over_time(threads.times, threads.there - threads.busy)
    moments = np.concatenate([ready[ran], graph.start[ran]])
    order = np.argsort(moments, kind="stable")
    counts = np.cumsum(np.repeat([1, -1], len(ran))[order])
    waiting = sum_over_time(moments[order], counts)
    ran = ran[np.argsort(graph.start[ran], kind="stable")]
    started, was_ready = graph.start[ran], ready[ran].tolist()
    is_late = idle & (seconds_until(waiting, frame) > FEW_BUSY * seconds_until(free, frame))
    if not is_late.any():
        return frame
    rows: list[tuple[Any, ...]] = []
    for row in frame[is_late].itertuples(index=False):
        middle = (row.start + row.stop) / 2
        first = int(np.searchsorted(started, middle))
        later = range(first, min(first + MAX_LATER, len(ran)))
        place = next((n for n in later if was_ready[n] <= middle), None)
        if place is None:
            rows.append(tuple(row))
            continue
        end = row.stop
        for step in waits.steps(int(ran[place]), row.start, row.stop):
            cause = "queued" if step.cause == _GAP else step.cause
            rows.append((step.start, end, cause, step.node, cause))
            end = step.start
    pieces = pd.DataFrame(rows, columns=frame.columns)
    found = pd.concat([frame[~is_late], pieces[pieces["stop"] > pieces["start"]]])
    return found.sort_values("start", kind="stable", ignore_index=True)


def sum_over_time(times: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return times, and the integral until then of values that hold from their time on."""
    known = np.isfinite(times)
    return times[known], np.append(0.0, np.cumsum(values[known][:-1] * np.diff(times[known])))
