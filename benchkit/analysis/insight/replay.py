"""Replay a recorded graph by list scheduling, on another cluster or with other durations.

As Dask's scheduler does: a task runs on the worker where it would start first among those that
hold a dependency, and waits there for a thread; a root task (no dependencies, or few for a large
group) runs on the next free thread; workers without tasks steal waiting ones at an interval.
Durations are those recorded. A thread is idle between two tasks for as long as it was in the
recorded run.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np

from benchkit.store.task_graph import TaskGraph

__all__ = ["ReplayInput", "replay"]


@dataclass(frozen=True, eq=False)
class ReplayInput:
    """What a replay needs to know.

    Parameters
    ----------
    graph : TaskGraph
        The graph.
    seconds : ndarray of float
        Seconds that each task occupies a thread.
    delay : ndarray of float
        Seconds that pass between the end of the last dependency of each task and its start, other
        than transfers.
    bandwidth : float
        Bytes per second of one fetch; infinite: transfers are free.
    latency : float
        Seconds of a fetch without its bytes.
    gates : list of (int, float)
        Of each submission: the task after whose end the client submits it (-1: none), and seconds
        from there (or from the start of the run) to its start.
    tail : float
        Seconds from the end of the last task to the end of the run.
    steal_interval : float
        Seconds between two looks for workers without tasks; infinite: nothing is stolen.
    """

    graph: TaskGraph
    seconds: np.ndarray
    delay: np.ndarray
    bandwidth: float
    latency: float
    gates: list[tuple[int, float]]
    tail: float
    steal_interval: float = np.inf


def replay(given: ReplayInput, n_workers: int, nthreads: int) -> float:
    """Return the duration of a run on a cluster of this shape.

    Parameters
    ----------
    given : ReplayInput
        The recorded run, or a changed one.
    n_workers, nthreads : int
        Number of workers, and of threads of each worker.

    Returns
    -------
    float
        Duration in s.
    """
    if np.isinf(given.bandwidth) and given.latency == 0:
        # Without transfers, workers are only threads.
        n_workers, nthreads = 1, n_workers * nthreads
    return _Replay(given, n_workers, nthreads).run() + given.tail


def _root_tasks(graph: TaskGraph, n_threads: int) -> list[bool]:
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
    roots: list[bool] = ((counts == 0) | np.append(is_root, False)[graph.group]).tolist()
    return roots


class _Replay:
    """The state of one replay; tasks are numbered in the order of their priority."""

    def __init__(self, given: ReplayInput, n_workers: int, nthreads: int) -> None:
        graph = given.graph
        self.given, self.n_workers, self.nthreads = given, n_workers, nthreads
        self.seconds, self.delay = given.seconds.tolist(), given.delay.tolist()
        self.row, self.edge = graph.indptr.tolist(), graph.indices.tolist()
        self.starts, self.dependents = (values.tolist() for values in graph.dependents)
        self.nbytes = np.maximum(graph.nbytes, 0).tolist()
        self.per_byte, self.latency = 1 / given.bandwidth, given.latency
        self.is_root = _root_tasks(graph, n_workers * nthreads)
        #: Ready tasks: root tasks, and those of each worker.
        self.roots: list[int] = []
        self.queues: list[list[int]] = [[] for _ in range(n_workers)]
        #: Seconds of queued and running tasks of each worker.
        self.occupied = [0.0] * n_workers
        self.free = [nthreads] * n_workers
        self.n_free = n_workers * nthreads
        self.n_queued = 0
        self.place = [0] * len(graph)
        self.ready_at = [0.0] * len(graph)
        #: Results fetched by a worker, as task x workers + worker.
        self.copies: set[int] = set()
        #: Events: (time, number); number >= 0: the end of a task, < 0: a gate opens, or stealing.
        self.steal_event = -1 - len(given.gates)
        self.events: list[tuple[float, int]] = []
        self.turn = 0
        #: Whether an event for the next stealing is in `events`.
        self.steals = np.isinf(given.steal_interval)

    def run(self) -> float:
        """Return the end of the last task."""
        given, events = self.given, self.events
        opened_by: dict[int, list[int]] = {}
        for number, (anchor, seconds_after) in enumerate(given.gates):
            if anchor < 0:
                heappush(events, (seconds_after, -1 - number))
            else:
                opened_by.setdefault(anchor, []).append(number)
        members, waiting = self._submissions()
        for node, count in enumerate(waiting):
            if not count:
                self._ready(node, 0.0)
        starts, dependents = self.starts, self.dependents
        last = 0.0
        self._start_roots(0.0)
        while events:
            now, number = heappop(events)
            worker = -1
            if number == self.steal_event:
                self._steal(now)
                freed: list[int] = []
            elif number < 0:
                freed = members[-1 - number]
            else:
                last = now
                worker = self.place[number]
                self.free[worker] += 1
                self.n_free += 1
                self.occupied[worker] -= self.seconds[number]
                freed = dependents[starts[number] : starts[number + 1]]
                for gate in opened_by.get(number, ()):
                    heappush(events, (now + given.gates[gate][1], -1 - gate))
            others = []
            for node in freed:
                waiting[node] -= 1
                if not waiting[node]:
                    other = self._ready(node, now)
                    if other != worker and other >= 0:
                        others.append(other)
            if worker >= 0:
                self._start_next(worker, now)
            for other in others:
                self._start_next(other, now)
            if self.n_free:
                if self.roots:
                    self._start_roots(now)
                if self.n_queued and not self.steals:
                    self._plan_stealing(now)
        return last

    def _submissions(self) -> tuple[list[list[int]], list[int]]:
        """Return the tasks of each submission, and what each task waits for."""
        graph, gates = self.given.graph, self.given.gates
        submission = np.minimum(graph.submission, len(gates) - 1)
        order = np.argsort(submission, kind="stable")
        ends = np.searchsorted(submission[order], np.arange(len(gates) + 1))
        members = [order[first:stop].tolist() for first, stop in pairwise(ends)]
        return members, (np.diff(graph.indptr) + (submission >= 0)).tolist()

    def _ready(self, node: int, now: float) -> int:
        """Assign a task whose dependencies are finished; return its worker, -1 if it has none."""
        self.ready_at[node] = now
        if self.is_root[node]:
            heappush(self.roots, node)
            return -1
        begin, end = self.row[node], self.row[node + 1]
        worker = self.place[self.edge[begin]] if end - begin == 1 else self._worker_of(begin, end)
        self._assign(node, worker)
        return worker

    def _assign(self, node: int, worker: int) -> None:
        self.place[node] = worker
        self.occupied[worker] += self.seconds[node]
        heappush(self.queues[worker], node)
        self.n_queued += 1

    def _worker_of(self, begin: int, end: int) -> int:
        """Return the worker, among those with a dependency, where a task would start first."""
        if self.n_workers == 1:
            return 0
        place, nbytes = self.place, self.nbytes
        held: dict[int, int] = {}
        total = 0
        for other in self.edge[begin:end]:
            size = nbytes[other]
            total += size
            worker = place[other]
            held[worker] = held.get(worker, 0) + size
        best, least = -1, np.inf
        for worker, size in held.items():
            wait = self.occupied[worker] / self.nthreads if not self.free[worker] else 0.0
            begins = wait + (total - size) * self.per_byte
            if begins < least:
                best, least = worker, begins
        return best

    def _fetching(self, node: int, worker: int) -> float:
        """Return the seconds of the transfers that a task needs on a worker."""
        size, sources = 0, set()
        place, n_workers, copies = self.place, self.n_workers, self.copies
        for other in self.edge[self.row[node] : self.row[node + 1]]:
            source = place[other]
            if source != worker and other * n_workers + worker not in copies:
                size += self.nbytes[other]
                sources.add(source)
                copies.add(other * n_workers + worker)
        return self.latency * len(sources) + size * self.per_byte

    def _start_next(self, worker: int, now: float) -> None:
        """Start tasks of a worker on its free threads: its own, and root tasks."""
        queue, roots = self.queues[worker], self.roots
        while self.free[worker] and (queue or roots):
            if queue and not (roots and roots[0] < queue[0]):
                self.n_queued -= 1
                self._start(heappop(queue), worker, now)
            else:
                self._start_root(worker, now)

    def _start_roots(self, now: float) -> None:
        """Start root tasks on free threads, worker by worker in turn."""
        while self.n_free and self.roots:
            while not self.free[self.turn]:
                self.turn = (self.turn + 1) % self.n_workers
            self._start_root(self.turn, now)
            self.turn = (self.turn + 1) % self.n_workers

    def _start_root(self, worker: int, now: float) -> None:
        node = heappop(self.roots)
        self.place[node] = worker
        self.occupied[worker] += self.seconds[node]
        self._start(node, worker, now)

    def _start(self, node: int, worker: int, now: float) -> None:
        self.free[worker] -= 1
        self.n_free -= 1
        wait = 0.0
        if self.n_workers > 1 and self.row[node] != self.row[node + 1]:
            # Results are fetched while the threads compute other tasks.
            wait = max(0.0, self.ready_at[node] + self._fetching(node, worker) - now)
        heappush(self.events, (now + self.delay[node] + wait + self.seconds[node], node))

    def _plan_stealing(self, now: float) -> None:
        # The interval began before the run, at an unknown moment.
        interval = self.given.steal_interval
        passed = np.floor(now / interval + 0.5)
        heappush(self.events, (float(passed + 0.5) * interval, self.steal_event))
        self.steals = True

    def _steal(self, now: float) -> None:
        """Move queued tasks to workers without any, where they end earlier."""
        self.steals = False
        for thief in [w for w in range(self.n_workers) if self.free[w] and not self.queues[w]]:
            victim = max(range(self.n_workers), key=self.occupied.__getitem__)
            queue = self.queues[victim]
            for node in sorted(queue, reverse=True):
                size = sum(self.nbytes[o] for o in self.edge[self.row[node] : self.row[node + 1]])
                cost = self.latency + size * self.per_byte
                ends = self.occupied[thief] / self.nthreads + cost + self.seconds[node]
                if ends >= self.occupied[victim] / self.nthreads:
                    break
                queue.remove(node)
                self.n_queued -= 1
                self.occupied[victim] -= self.seconds[node]
                self._assign(node, thief)
            queue.sort()
            self._start_next(thief, now)
