"""Measure the delay of an event loop's timer."""

from __future__ import annotations

import asyncio

__all__ = ["LoopLag"]

#: Seconds between measurements: 20 callbacks a second have no measurable cost.
LAG_TICK_S = 0.05


class LoopLag:
    """Mean and maximum delay of an event loop's timer since the last `read`.

    `digests_max["tick-duration"]` is not used because each Prometheus scrape resets it.
    """

    def __init__(self) -> None:
        self.total = self.longest = 0.0
        self.count = 0
        self.loop = asyncio.get_running_loop()
        self.due = self.loop.time() + LAG_TICK_S
        self.handle = self.loop.call_at(self.due, self._tick)

    def _tick(self) -> None:
        now = self.loop.time()
        lag = max(0.0, now - self.due)
        self.total += lag
        self.count += 1
        self.longest = max(self.longest, lag)
        self.due = now + LAG_TICK_S
        self.handle = self.loop.call_at(self.due, self._tick)

    def read(self) -> tuple[float, float]:
        """Return the delays since the last call, including a pending delay.

        Returns
        -------
        mean, longest : float
            Seconds.
        """
        overdue = max(0.0, self.loop.time() - self.due)
        mean = self.total / self.count if self.count else overdue
        longest = max(self.longest, overdue)
        self.total = self.longest = 0.0
        self.count = 0
        return mean, longest

    def stop(self) -> None:
        """Stop measuring."""
        self.handle.cancel()
