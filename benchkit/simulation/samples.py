"""Samples of the scheduler and of all workers over virtual time."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Samples"]

#: Seconds between two samples at first; doubled whenever there are more than `MAX_SAMPLES`.
INTERVAL_S = 0.05
MAX_SAMPLES = 200
#: Largest number of samples of workers, over all workers.
MAX_WORKER_SAMPLES = 40_000


class WorkerSample(NamedTuple):
    """State of a worker."""

    managed: int
    spilled: int
    peak: int
    executing: int
    ready: int
    in_memory: int
    n_received: int


class Sample(NamedTuple):
    """State of the scheduler and of its workers at a virtual time in s."""

    time: float
    lag: float
    busy: float
    n_tasks: int
    queued: int
    occupancy: float
    n_transitions: int
    workers: list[WorkerSample]


class Samples:
    """Take samples of a cluster; their number is limited."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.rows: list[Sample] = []
        self.interval = INTERVAL_S
        self.limit = max(20, min(MAX_SAMPLES, MAX_WORKER_SAMPLES // len(cluster.workers)))

    def start(self) -> None:
        """Take the first sample, and then one per interval."""
        self.take()
        self.cluster.queue.at(self.cluster.queue.now + self.interval, self.start)

    def take(self) -> None:
        """Take a sample; if there are too many, keep each second one."""
        cluster, scheduler = self.cluster, self.cluster.scheduler
        now = cluster.queue.now
        workers = []
        for worker in cluster.workers.values():
            state = worker.state
            peak, worker.peak = max(worker.peak, state.nbytes), state.nbytes
            spilled = worker.spilled
            workers.append(
                WorkerSample(
                    state.nbytes - spilled,
                    spilled,
                    peak,
                    len(state.executing),
                    len(state.ready),
                    len(worker.data),
                    worker.n_received,
                )
            )
        self.rows.append(
            Sample(
                now,
                max(0.0, cluster.loop.free - now),
                cluster.loop.busy,
                len(scheduler.tasks),
                len(getattr(scheduler, "queued", ())),
                sum(ws.occupancy for ws in scheduler.workers.values()),
                scheduler.transition_counter,
                workers,
            )
        )
        if len(self.rows) > self.limit:
            kept = self.rows[::2]
            for before, after in zip(self.rows[1::2], kept[1:], strict=False):
                highest = [
                    sample._replace(peak=max(sample.peak, other.peak))
                    for sample, other in zip(after.workers, before.workers, strict=True)
                ]
                after.workers[:] = highest
                # `lag` of the removed sample: the larger one stays known.
            self.rows = kept
            self.interval *= 2
