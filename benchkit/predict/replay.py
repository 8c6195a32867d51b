"""Replay a recorded graph by list scheduling, on another cluster or with other durations.

As Dask's scheduler does: a task runs on the worker where it would start first among those that
hold a dependency, and waits there for a thread; root tasks (no dependencies, or few for a large
group) are sent to workers that have fewer tasks than `worker-saturation` allows, by default one
more than threads; workers without tasks steal waiting ones at an interval. A worker starts the best
of the tasks that arrived. Tasks with `workers=` run on these. Durations are those recorded.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise

import numpy as np

from benchkit.predict.workflow import Workflow, max_tasks, root_tasks

#: Number of different times between two tasks of a thread: a table that fits the processor's cache.
N_HANDOFFS = 4096


@dataclass(frozen=True, eq=False)
class Schedule:
    """A replayed run."""

    duration: float  # Duration in s
    start: np.ndarray  # start, stop: When each task runs, in s
    stop: np.ndarray
    fetched: float  # Bytes of results that other workers fetched
    worker: np.ndarray  # Number of the worker of each task


def replay(given: Workflow, n_workers: int, nthreads: int) -> Schedule:
    """Return the schedule of a run on a cluster of this shape."""
    if np.isinf(given.bandwidth) and given.latency == 0 and not given.allowed:
        # Without transfers, workers are only threads.
        n_workers, nthreads = 1, n_workers * nthreads
    run = _Replay(given, n_workers, nthreads)
    duration = run.run() + given.tail
    start = np.array(run.start)
    return Schedule(duration, start, start + given.seconds, run.fetched, np.array(run.place))


class _Replay:
    """The state of one replay; tasks are numbered in the order of their priority."""

    def __init__(self, given: Workflow, n_workers: int, nthreads: int) -> None:
        graph = given.graph
        self.given, self.n_workers, self.nthreads = given, n_workers, nthreads
        self.seconds, self.ran = given.seconds.tolist(), np.isfinite(graph.start).tolist()
        # Like the times of a queue: without, equal tasks would always end at the same moment.
        random = np.random.default_rng(0).exponential(given.handoff, N_HANDOFFS)
        self.handoff: list[float] = random.tolist()
        self.row, self.edge = graph.indptr.tolist(), graph.indices.tolist()
        self.nbytes = np.maximum(graph.nbytes, 0).tolist()
        self.per_byte, self.latency = 1 / given.bandwidth, given.latency
        self.dispatch = given.dispatch
        rank = np.arange(len(graph)) if given.rank is None else given.rank
        self.rank, self.by_rank = rank.tolist(), np.argsort(rank).tolist()
        #: Workers that may run a task, where not all may: these modulo their number.
        self.allowed = {
            node: sorted({number % n_workers for number in numbers})
            for node, numbers in given.allowed.items()
        }
        #: Ready root tasks as negative ranks, the best last; for each worker ranks of tasks that
        #: arrived, and (time, task) of the others.
        self.roots: list[int] = []
        self.queues: list[list[int]] = [[] for _ in range(n_workers)]
        self.arriving: list[list[tuple[float, int]]] = [[] for _ in range(n_workers)]
        #: Tasks of each worker, up to which it is sent root tasks, and workers with fewer.
        self.n_tasks = [0] * n_workers
        self.max_tasks = max_tasks(given.saturation, nthreads)
        self.open = set(range(n_workers))
        #: Seconds of queued and running tasks of each worker.
        self.occupied = [0.0] * n_workers
        self.free = [nthreads] * n_workers
        self.n_free = n_workers * nthreads
        self.n_waiting = 0
        self.start = [0.0] * len(graph)
        self.fetched = 0
        self.place = [0] * len(graph)
        #: Workers that fetched each result, a bit for each.
        self.copies = [0] * len(graph)
        #: Events: (time, number); number >= 0: the end of a task, < 0: a gate opens, or stealing.
        self.events: list[tuple[float, int]] = []
        self.steal_event = -1 - len(given.gates)
        #: Whether an event for the next stealing is in `events`.
        self.steals = np.isinf(given.steal_interval)

    def run(self) -> float:
        """Return the end of the last task."""
        given, events, roots = self.given, self.events, self.roots
        opened_by: dict[int, list[int]] = {}
        for number, gate in enumerate(given.gates):
            if gate.after < 0:
                heappush(events, (gate.seconds, -1 - number))
            else:
                opened_by.setdefault(gate.after, []).append(number)
        members, waiting = self._submissions()
        found = root_tasks(given.graph, self.n_workers * self.nthreads)
        found[list(self.allowed)] = False
        is_root = found.tolist()
        starts, dependents = (values.tolist() for values in given.graph.dependents)
        # Tasks that wait for nothing are as freed by an event before the first one.
        freed = [node for node, count in enumerate(waiting) if not count]
        for node in freed:
            waiting[node] = 1
        now = last = 0.0
        new_roots: list[int] = []
        while True:
            for node in freed:
                waiting[node] -= 1
                if not waiting[node]:
                    if is_root[node]:
                        new_roots.append(node)
                    else:
                        self._send_to_data(node, now)
            if new_roots:
                self._add_roots(new_roots)
                new_roots = []
            if roots and self.open:
                self._send_roots(now)
            if self.n_free and self.n_waiting and not self.steals:
                self._plan_stealing(now)
            if not events:
                return last
            now, number = heappop(events)
            if number >= 0:
                last = now
                self._finish(number, now)
                freed = dependents[starts[number] : starts[number + 1]]
                for opened in opened_by.get(number, ()):
                    heappush(events, (now + given.gates[opened].seconds, -1 - opened))
            elif number == self.steal_event:
                self._steal(now)
                freed = []
            else:
                freed = members[-1 - number]

    def _submissions(self) -> tuple[list[list[int]], list[int]]:
        """Return the tasks of each submission, and what each task waits for."""
        graph, gates = self.given.graph, self.given.gates
        submission = np.minimum(graph.submission, len(gates) - 1)
        order = np.argsort(submission, kind="stable")
        ends = np.searchsorted(submission[order], np.arange(len(gates) + 1))
        members = [order[first:stop].tolist() for first, stop in pairwise(ends)]
        return members, (np.diff(graph.indptr) + (submission >= 0)).tolist()

    def _add_roots(self, nodes: list[int]) -> None:
        """Add root tasks that are ready; most come all at once."""
        if len(nodes) == 1:
            insort(self.roots, -self.rank[nodes[0]])
        else:
            self.roots += [-self.rank[node] for node in nodes]
            self.roots.sort()

    def _send_roots(self, now: float) -> None:
        """Send root tasks to the workers that have the fewest tasks."""
        while self.roots and self.open:
            worker = next(iter(self.open))
            if len(self.open) > 1:
                worker = min(self.open, key=self.n_tasks.__getitem__)
            node = self.by_rank[-self.roots.pop()]
            self._send(node, worker, now, self.edge[self.row[node] : self.row[node + 1]])

    def _send_to_data(self, node: int, now: float) -> None:
        """Send a task to the worker, among those with a dependency, where it would start first."""
        begin, end = self.row[node], self.row[node + 1]
        place, nbytes = self.place, self.nbytes
        if node in self.allowed:
            self._send_to_allowed(node, now, self.edge[begin:end])
            return
        best = place[self.edge[begin]]
        if end - begin == 1 or self.n_workers == 1:
            self._send(node, best, now, ())
            return
        inputs = self.edge[begin:end]
        held: dict[int, int] = {}
        for other in inputs:
            worker = place[other]
            held[worker] = held.get(worker, 0) + nbytes[other]
        if len(held) == 1:
            self._send(node, best, now, ())
            return
        total, least = sum(held.values()), np.inf
        for worker, size in held.items():
            begins = (total - size) * self.per_byte
            if not self.free[worker]:
                begins += self.occupied[worker] / self.nthreads
            if begins < least:
                best, least = worker, begins
        self._send(node, best, now, inputs)

    def _send_to_allowed(self, node: int, now: float, inputs: Sequence[int]) -> None:
        """Send a task to the worker, among those that may run it, where it would start first."""

        def begins(worker: int) -> tuple[float, int]:
            away = sum(self.nbytes[other] for other in inputs if self.place[other] != worker)
            waits = 0.0 if self.free[worker] else self.occupied[worker] / self.nthreads
            return away * self.per_byte + waits, self.n_tasks[worker]

        self._send(node, min(self.allowed[node], key=begins), now, inputs)

    def _send(self, node: int, worker: int, now: float, inputs: Sequence[int]) -> None:
        """Send a task to a worker, which fetches those of its inputs that it does not have."""
        self.place[node] = worker
        self.occupied[worker] += self.seconds[node]
        n_tasks = self.n_tasks[worker] = self.n_tasks[worker] + 1
        if n_tasks >= self.max_tasks:
            self.open.discard(worker)
        arrives = now
        if self.ran[node]:
            arrives += self.dispatch
            if inputs and self.n_workers > 1:
                # Results are fetched while the threads compute other tasks.
                arrives += self._fetching(inputs, worker)
        if self.free[worker]:
            begins = now + self.handoff[node % N_HANDOFFS]
            self._start(node, worker, begins if begins > arrives else arrives)
        else:
            heappush(self.arriving[worker], (arrives, node))
            self.n_waiting += 1

    def _fetching(self, inputs: Sequence[int], worker: int) -> float:
        """Return the seconds of the transfers of inputs to a worker that does not have them."""
        place, copies, own = self.place, self.copies, 1 << worker
        size, sources = 0, set()
        for other in inputs:
            source = place[other]
            if source != worker and not copies[other] & own:
                copies[other] |= own
                size += self.nbytes[other]
                sources.add(source)
        self.fetched += size
        return self.latency * len(sources) + size * self.per_byte

    def _finish(self, node: int, now: float) -> None:
        """End a task, and start the best of those that arrived at its worker, or the next."""
        worker = self.place[node]
        self.free[worker] += 1
        self.n_free += 1
        self.occupied[worker] -= self.seconds[node]
        n_tasks = self.n_tasks[worker] = self.n_tasks[worker] - 1
        if n_tasks < self.max_tasks:
            self.open.add(worker)
        queue, arriving = self.queues[worker], self.arriving[worker]
        while arriving and arriving[0][0] <= now:
            heappush(queue, self.rank[heappop(arriving)[1]])
        while self.free[worker] and (queue or arriving):
            if queue:
                node = self.by_rank[heappop(queue)]
                begins = now + self.handoff[node % N_HANDOFFS]
            else:
                arrives, node = heappop(arriving)
                begins = max(now + self.handoff[node % N_HANDOFFS], arrives)
            self.n_waiting -= 1
            self._start(node, worker, begins)

    def _start(self, node: int, worker: int, begins: float) -> None:
        self.free[worker] -= 1
        self.n_free -= 1
        self.start[node] = begins
        heappush(self.events, (begins + self.seconds[node], node))

    def _plan_stealing(self, now: float) -> None:
        # The interval began before the run, at an unknown moment.
        interval = self.given.steal_interval
        passed = np.floor(now / interval + 0.5)
        heappush(self.events, (float(passed + 0.5) * interval, self.steal_event))
        self.steals = True

    def _steal(self, now: float) -> None:
        """Move queued tasks to workers without any, where they end earlier."""
        self.steals = False
        refused = np.inf  # a worker that is as busy as one that got nothing gets nothing
        for thief in [w for w in range(self.n_workers) if self.free[w]]:
            if self.occupied[thief] >= refused:
                continue
            victim = max(range(self.n_workers), key=self.occupied.__getitem__)
            arrived, arriving = self.queues[victim], self.arriving[victim]
            queue = arrived + [self.rank[node] for _, node in arriving]
            if not queue:
                return
            for rank in sorted(queue, reverse=True):
                node = self.by_rank[rank]
                if thief not in self.allowed.get(node, (thief,)):
                    continue
                inputs = self.edge[self.row[node] : self.row[node + 1]]
                size = sum(self.nbytes[other] for other in inputs)
                cost = self.latency + size * self.per_byte
                ends = self.occupied[thief] / self.nthreads + cost + self.seconds[node]
                if ends >= self.occupied[victim] / self.nthreads:
                    break
                if rank in arrived:
                    arrived.remove(rank)
                else:
                    arriving[:] = [each for each in arriving if each[1] != node]
                self.n_waiting -= 1
                self.n_tasks[victim] -= 1
                self.occupied[victim] -= self.seconds[node]
                self._send(node, thief, now, inputs)
            heapify(arrived)
            heapify(arriving)
            if self.n_tasks[victim] < self.max_tasks:
                self.open.add(victim)
            stolen = len(arrived) + len(arriving) < len(queue)
            refused = np.inf if stolen else self.occupied[thief]
