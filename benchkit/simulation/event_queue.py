"""Virtual time: a queue of events, event loops that take time, and batches of messages."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from benchkit.simulation.model import Model

Callback = Callable[..., Any]


class HandlerCost(NamedTuple):
    """Seconds of a call of a state machine's handler."""

    machine: Any  # Counts its transitions
    call: float  # call, transition: Seconds per call and per transition of a task
    transition: float


class EventQueue:
    """Events in order of their virtual time; events of the same time in the order of addition."""

    def __init__(self) -> None:
        self.now = 0.0
        #: The event loop whose job is running.
        self.running: EventLoop | None = None
        self._heap: list[tuple[float, int, Callback, tuple[Any, ...]]] = []
        self._n_added = 0

    def at(self, time: float, call: Callback, *args: Any) -> None:
        """Add an event."""
        self._n_added += 1
        heapq.heappush(self._heap, (time, self._n_added, call, args))

    def after(self, delay: float, call: Callback, *args: Any) -> None:
        """Add an event after the end of the running job, or after now."""
        if self.running is not None:
            self.running.sent.append((delay, call, args))
        else:
            self.at(self.now + delay, call, *args)

    def step(self) -> None:
        """Go to the next event and call it."""
        self.now, _, call, args = heapq.heappop(self._heap)
        call(*args)


class EventLoop:
    """The event loop of a server: runs one job after the other, and each takes time."""

    def __init__(self, queue: EventQueue) -> None:
        self.queue = queue
        #: Virtual time at which the loop becomes free, and seconds in which it was busy.
        self.free = self.busy = 0.0
        #: Seconds that the running job takes in addition to its handler.
        self.extra = 0.0
        #: Events that start when the running job ends.
        self.sent: list[tuple[float, Callback, tuple[Any, ...]]] = []
        self._jobs: deque[tuple[HandlerCost, Callback, tuple[Any, ...]]] = deque()
        self._is_waiting = False

    def submit(self, cost: HandlerCost, call: Callback, *args: Any) -> None:
        """Run a job now, or after the jobs before it."""
        if self._jobs or self.queue.now < self.free or self.queue.running is not None:
            self._jobs.append((cost, call, args))
            if not self._is_waiting:
                self._is_waiting = True
                self.queue.at(max(self.free, self.queue.now), self._next)
        else:
            self._run(cost, call, args)

    def _next(self) -> None:
        if self.queue.now < self.free:  # a job in between made it later
            self.queue.at(self.free, self._next)
            return
        self._is_waiting = False
        self._run(*self._jobs.popleft())
        if self._jobs:
            self._is_waiting = True
            self.queue.at(self.free, self._next)

    def _run(self, cost: HandlerCost, call: Callback, args: tuple[Any, ...]) -> None:
        queue = self.queue
        queue.running, self.extra = self, 0.0
        before = cost.machine.transition_counter
        try:
            call(*args)
        finally:
            queue.running = None
        n_transitions = cost.machine.transition_counter - before
        seconds = cost.call + cost.transition * n_transitions + self.extra
        self.free = queue.now + seconds
        self.busy += seconds
        sent, self.sent = self.sent, []
        for delay, then, arguments in sent:
            queue.at(self.free + delay, then, *arguments)


class MessageStream:
    """A `BatchedSend`: sends at once, but at most one batch per interval."""

    def __init__(self, queue: EventQueue, model: Model) -> None:
        self.queue, self.model = queue, model
        self._messages: list[Any] = []
        self._is_waiting = False
        self._earliest = 0.0

    def connect(
        self, loop: EventLoop, cost: HandlerCost, interval: float, deliver: Callback
    ) -> MessageStream:
        """Connect the stream."""
        self.loop, self.cost, self.interval, self.deliver = loop, cost, interval, deliver
        return self

    def start(self, comm: Any) -> None:
        """Do nothing; the scheduler calls it."""

    def send(self, *messages: Any) -> None:
        """Send messages with the next batch."""
        self._messages.extend(messages)
        if not self._is_waiting:
            self._is_waiting = True
            self.queue.after(0.0, self._send_soon)

    def _send_soon(self) -> None:
        if self.queue.now < self._earliest:
            self.queue.at(self._earliest + self.model.timer_delay, self._send_soon)
        else:
            self.loop.submit(self.cost, self._send_batch)

    def _send_batch(self) -> None:
        messages, self._messages, self._is_waiting = self._messages, [], False
        model = self.model
        self._earliest = self.queue.now + self.interval
        self.loop.extra += model.batch_write + model.message_write * len(messages)
        self.queue.after(model.latency, self.deliver, messages)
