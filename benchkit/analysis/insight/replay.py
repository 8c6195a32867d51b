"""Replay a recorded graph by list scheduling, on another cluster or with other durations.

A thread that becomes free takes the ready task with the highest priority. Durations are those
recorded; results that are not on the worker are fetched from the moment on at which the task is
ready. A thread is idle between two tasks for as long as it was in the recorded run.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

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
    """

    graph: TaskGraph
    seconds: np.ndarray
    delay: np.ndarray
    bandwidth: float
    latency: float
    gates: list[tuple[int, float]]
    tail: float


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
    graph = given.graph
    n_tasks = len(graph)
    seconds = given.seconds.tolist()
    delay = given.delay.tolist()
    waiting = np.diff(graph.indptr)
    submission = np.minimum(graph.submission, len(given.gates) - 1)
    waiting = (waiting + (submission >= 0)).tolist()
    starts, dependents = (values.tolist() for values in graph.dependents)
    with_transfers = n_workers > 1 and (np.isfinite(given.bandwidth) or given.latency > 0)
    costs = _Transfers(given) if with_transfers else None

    opened_by: dict[int, list[int]] = {}
    #: Events: (time, number); number >= 0: the end of a task, < 0: a gate opens.
    events: list[tuple[float, int]] = []
    for number, (anchor, seconds_after) in enumerate(given.gates):
        if anchor < 0:
            heappush(events, (seconds_after, -1 - number))
        else:
            opened_by.setdefault(anchor, []).append(number)
    members: list[list[int]] = [[] for _ in given.gates]
    for node, number in enumerate(submission.tolist()):
        if number >= 0:
            members[number].append(node)
    ready = [node for node in range(n_tasks) if not waiting[node]]  # sorted: a heap
    ready_at = [0.0] * n_tasks
    free = [nthreads] * n_workers
    n_free = n_workers * nthreads
    place = [0] * n_tasks
    now = 0.0
    last = 0.0
    #: Workers by number of free threads, for tasks without dependencies: taken in turn.
    turn = 0
    while True:
        while n_free and ready:
            node = heappop(ready)
            if costs is None:
                worker, wait = 0, 0.0
                if n_workers > 1:
                    while not free[turn]:
                        turn = (turn + 1) % n_workers
                    worker = turn
                    turn = (turn + 1) % n_workers
            else:
                worker, fetching, turn = costs.place(node, free, place, turn)
                # Results are fetched while the threads compute other tasks.
                wait = max(0.0, ready_at[node] + fetching - now)
            place[node] = worker
            free[worker] -= 1
            n_free -= 1
            heappush(events, (now + delay[node] + wait + seconds[node], node))
        if not events:
            break
        now, number = heappop(events)
        if number < 0:
            for node in members[-1 - number]:
                waiting[node] -= 1
                if not waiting[node]:
                    heappush(ready, node)
                    ready_at[node] = now
            continue
        last = now
        free[place[number]] += 1
        n_free += 1
        for node in dependents[starts[number] : starts[number + 1]]:
            waiting[node] -= 1
            if not waiting[node]:
                heappush(ready, node)
                ready_at[node] = now
        for gate in opened_by.get(number, ()):
            heappush(events, (now + given.gates[gate][1], -1 - gate))
    return last + given.tail


class _Transfers:
    """Where a task runs, and how long it waits for results of other workers."""

    def __init__(self, given: ReplayInput) -> None:
        graph = given.graph
        self.row, self.edge = graph.indptr.tolist(), graph.indices.tolist()
        nbytes = np.maximum(graph.nbytes, 0)
        self.nbytes = nbytes.tolist()
        self.per_byte, self.latency = 1 / given.bandwidth, given.latency

    def place(
        self, node: int, free: list[int], place: list[int], turn: int
    ) -> tuple[int, float, int]:
        """Return worker, seconds of transfers, and the next worker in turn.

        The worker with the most bytes of the task's dependencies, if it has a free thread.
        """
        edge = self.edge[self.row[node] : self.row[node + 1]]
        if len(edge) == 1 and free[place[edge[0]]]:
            return place[edge[0]], 0.0, turn
        if not edge:
            while not free[turn]:
                turn = (turn + 1) % len(free)
            return turn, 0.0, (turn + 1) % len(free)
        held: dict[int, int] = {}
        for other in edge:
            worker = place[other]
            held[worker] = held.get(worker, 0) + self.nbytes[other] + 1
        best, most = -1, -1
        for worker, nbytes in held.items():
            if free[worker] and nbytes > most:
                best, most = worker, nbytes
        if best < 0:
            while not free[turn]:
                turn = (turn + 1) % len(free)
            best = turn
            turn = (turn + 1) % len(free)
        n_sources = len(held) - (best in held)
        if not n_sources:
            return best, 0.0, turn
        away = sum(held.values()) - held.get(best, 0)
        return best, self.latency * n_sources + away * self.per_byte, turn
