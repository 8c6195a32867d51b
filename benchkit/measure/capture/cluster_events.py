"""Events of a cluster during a run: workers join and leave, tasks are stolen, tasks fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from distributed.metrics import time

from benchkit.measure.capture.columns import text

#: Errors and events of a run that are kept: later ones are counted. They bound the memory of the
#: scheduler; failing tasks mostly fail alike.
MAX_ERRORS = 100
MAX_EVENTS = 100_000


class EventLog:
    """Collect events and the first failed tasks, from hooks or from the poller."""

    def __init__(
        self, name: str, workers: dict[Any, int], add_memory: Callable[[int, bytes], None]
    ) -> None:
        self.name = name
        self.workers = workers
        self.add_memory = add_memory
        self.counting = False
        self.retired: set[str] = set()
        self.events: list[tuple[Any, ...]] = []
        self.failures: list[tuple[Any, ...]] = []
        self.n_events = self.n_dropped = self.n_steals = self.n_failures = 0

    def add_event(
        self, topic: str, worker: Any, message: dict[str, Any], moment: float | None = None
    ) -> None:
        """Add an event, up to `MAX_EVENTS` events."""
        if self.n_events >= MAX_EVENTS:
            self.n_dropped += 1
            return
        self.n_events += 1
        moment = time() if moment is None else moment
        self.events.append((moment, topic, self.workers.get(worker, -1), json.dumps(message)))

    def add_scheduler_event(self, topic: Any, msg: Any, moment: float | None = None) -> None:
        """Add an entry of the scheduler's event log if the analysis of a run needs it."""
        if topic == self.name:
            self.retired.add(msg["leaving"])
            self.add_memory(self.workers.get(msg["leaving"], -1), msg["memory"])
        elif topic == "stealing":
            if isinstance(msg, (list, tuple)) and msg and msg[0] == "confirm":
                self.n_steals += self.counting
                thief = msg[4] if len(msg) > 4 else None
                self.add_event("steal", thief, {"key": str(msg[1])}, moment)
        elif not isinstance(msg, dict):
            return
        elif topic == "worker-fail-hard":
            self.add_event(topic, None, {"error": text(msg.get("text", ""), 300)}, moment)
        elif topic == "worker-restart-memory":
            self.add_event(topic, msg.get("worker"), {"rss": msg.get("rss")}, moment)
        elif msg.get("action") == "worker-status-change":  # the topic is the worker's address
            status = {"status": msg.get("status"), "before": msg.get("prev-status")}
            self.add_event("worker-status-change", topic, status, moment)
        elif topic == "all" and msg.get("action") == "restart":  # before 2024, for all workers
            self.add_event("restart", None, {}, moment)
        elif topic == "all" and msg.get("action") == "restart-workers":
            # Logged after the workers left: the reader of all events does not count them as lost.
            workers = [self.workers.get(address, -1) for address in msg.get("workers") or ()]
            self.add_event("restart-workers", None, {"workers": workers}, moment)
        elif topic == "all" and msg.get("action") == "remove-worker":
            message = {
                "n_lost": len(msg.get("lost-computed-tasks") or ()),
                "n_processing": len(msg.get("processing-tasks") or ()),
                # None before 2024. False also for workers that a restart or scaling retired.
                "expected": msg.get("worker") in self.retired or msg.get("expected"),
            }
            self.add_event("worker-removed", msg.get("worker"), message, moment)

    def add_failure(self, task: Any, address: Any, error: str, traceback: str) -> None:
        """Add the error of a failed task, up to `MAX_ERRORS` tasks."""
        self.n_failures += 1
        if self.n_failures > MAX_ERRORS:
            return
        error = error or getattr(task, "exception_text", "") or ""
        traceback = traceback or getattr(task, "traceback_text", "") or ""
        suspicious = getattr(task, "suspicious", 0)
        if not error and suspicious:
            # No exception exists: the scheduler gives up on a task when several workers died.
            error = f"KilledWorker: {suspicious} workers died while they ran it"
        worker = self.workers.get(address, -1)
        self.failures.append((time(), text(task.key), worker, text(error), text(traceback)))

    def drain(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return the tables gathered since the last call."""
        events, self.events = self.events, []
        failures, self.failures = self.failures, []
        return {"events": events, "task_errors": failures}
