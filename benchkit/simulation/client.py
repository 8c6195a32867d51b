"""The client of a virtual cluster: submits the graph, and waits for its results."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Mapping
from typing import Any

from benchkit._compat.distributed_internals import CLIENT, Internals
from benchkit.measure.errors import error_summary
from benchkit.simulation.graph import Submission

__all__ = ["SimulationError", "VirtualClient"]


class SimulationError(RuntimeError):
    """A simulation cannot continue."""


class VirtualClient:
    """Submit the graph of a cluster, one submission after the other."""

    def __init__(self, cluster: Any) -> None:
        self.cluster, self.queue = cluster, cluster.queue
        #: Arrival of each submission, and time at which the scheduler had handled it.
        self.submitted: list[tuple[float, float]] = []
        self.is_done = False
        self._packer = cluster.internals.new_client()
        self._submissions: deque[Submission] = deque(cluster.graph.submissions)
        self._wanted: set[Any] = set()
        self._in_memory: set[Any] = set()
        self._is_submitting = False

    def submit_next(self) -> None:
        """Send the next submission to the scheduler."""
        cluster = self.cluster
        self._is_submitting = True
        if len(self.submitted) == cluster.graph.n_before:
            cluster.started = self.queue.now
        submission = self._submissions.popleft()
        delay = submission.delay_s + cluster.model.latency
        self.queue.after(delay, cluster.loop.submit, cluster.cost, self._update_graph, submission)

    def _update_graph(self, submission: Submission) -> None:
        cluster, all_keys = self.cluster, self.cluster.keys
        self._is_submitting = False
        seconds = submission.handling_s
        if seconds is None:
            seconds = cluster.model.update_per_task * len(submission.tasks)
        self.submitted.append((self.queue.now, self.queue.now + seconds))
        cluster.loop.extra += seconds
        keys = [all_keys[index] for index in submission.tasks]
        wanted = [all_keys[index] for index in submission.wanted]
        self._wanted.update(wanted)
        if keys or wanted:
            dependencies = cluster.graph.dependencies
            graph = cluster.internals.new_graph(
                keys,
                {
                    all_keys[index]: [all_keys[other] for other in dependencies[index]]
                    for index in submission.tasks
                },
                {all_keys[index] for index in cluster.graph.producers},
            )
            self._packer.get(graph, wanted, sync=False)
            message = self._packer.messages.pop()
            message.pop("op")
            # A coroutine from 2023.5 on.
            update_graph = cluster.scheduler.stream_handlers["update-graph"]
            Internals.call_handler(update_graph, client=CLIENT, **message)
        if submission.released:
            cluster.scheduler.client_releases_keys(
                keys=[all_keys[index] for index in submission.released],
                client=CLIENT,
                stimulus_id=f"release-{self.queue.now}",
            )
        if self._submissions and self._submissions[0].overlaps:
            self.submit_next()
        else:
            self.queue.after(0.0, self.notify_client, ())

    def notify_client(self, messages: Any) -> None:
        """Receive messages of the scheduler to the client."""
        for message in messages:
            if message["op"] == "key-in-memory":
                self._in_memory.add(message["key"])
            elif message["op"] in ("task-erred", "cancelled-keys", "lost-data"):
                raise SimulationError(f"the scheduler sent {message['op']}: {_error_of(message)}")
        if not self._is_submitting and self._wanted <= self._in_memory:
            if self._submissions:
                self.submit_next()
            else:
                self.is_done = True

    def send(self, *messages: dict[str, Any]) -> None:
        """Deliver messages after the latency of the network; the scheduler calls it."""
        self.queue.after(self.cluster.model.latency, self.notify_client, messages)


def _error_of(message: Mapping[str, Any]) -> str:
    """Return the tasks and the error that a message of the scheduler names."""
    keys = message.get("keys") or [message.get("key")]
    text = ", ".join(map(str, keys))
    if "exception" not in message:
        return text
    try:
        error = pickle.loads(message["exception"])  # of the scheduler in this process
    except Exception:
        return text
    return f"{text}: {error_summary(error)}"
