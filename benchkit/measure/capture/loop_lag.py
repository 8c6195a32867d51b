"""Measure the delay of an event loop's timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import time

#: Seconds between measurements: 20 callbacks a second have no measurable cost.
LAG_TICK_S = 0.05


class LoopLag:
    """Mean and maximum delay of an event loop's timer since the last `read`.

    `digests_max["tick-duration"]` is not used because each Prometheus scrape resets it.
    """

    def __init__(self, on_tick: Callable[[], object] = lambda: None) -> None:
        self.on_tick = on_tick
        self.total = self.longest = 0.0
        self.count = 0
        self.blocked_s = 0.0
        self.loop = asyncio.get_running_loop()
        self.due = self.read_at = self._next()
        self.handle = self.loop.call_at(self.due, self._tick)

    def _tick(self) -> None:
        now = self.loop.time()
        lag = max(0.0, now - self.due)
        self.total += lag
        self.count += 1
        # What `read` returned before the timer ran is no delay of the time after it.
        self.longest = max(self.longest, now - max(self.due, self.read_at))
        self.blocked_s += lag
        self.on_tick()
        self.due = self._next()
        self.handle = self.loop.call_at(self.due, self._tick)

    def _next(self) -> float:
        # A multiple of the interval on the wall clock: all processes of a machine tick together.
        rest = LAG_TICK_S - time() % LAG_TICK_S
        return self.loop.time() + (rest if rest > LAG_TICK_S / 5 else rest + LAG_TICK_S)

    def read(self) -> tuple[float, float]:
        """Return the delays since the last call, including a pending delay."""
        self.read_at = self.loop.time()
        overdue = max(0.0, self.read_at - self.due)
        mean = self.total / self.count if self.count else overdue
        longest = max(self.longest, overdue)
        self.total = self.longest = 0.0
        self.count = 0
        return mean, longest

    def blocked(self) -> float:
        """Return the sum of all delays since the beginning, including a pending delay."""
        return self.blocked_s + max(0.0, self.loop.time() - self.due)

    def stop(self) -> None:
        """Stop measuring."""
        self.handle.cancel()
