"""Poll workers for data that only they have, during the run and once after the clock stopped."""

from __future__ import annotations

import asyncio
from typing import Any

from distributed.metrics import time

__all__ = ["WorkerReportPoller"]

#: At most this many requests per second, over all workers. After five minutes requests become less
#: frequent: in a run of hours the data of one minute is a small loss.
QUESTIONS_A_SECOND, SHARE_OF_RUN = 20.0, 1 / 60
ANSWER_WITHIN_S = 6.0
#: Seconds. More recent entries may not be in the worker's logs yet.
SETTLED_S = 0.25
#: If the client has not drained for this many seconds, no more data is gathered for it.
CLIENT_SILENT_S = 30.0
#: Call stacks come from at most this many workers, evenly chosen; workers are similar.
MAX_PROFILED = 64


class WorkerReportPoller:
    """Gather parts of the workers' reports while the clock runs.

    The window of a request begins where the window of the last reply ended: a lost reply is
    requested again, and no data is sent twice.

    Parameters
    ----------
    name : str
        Name of the capture.
    scheduler : Scheduler
        The scheduler whose workers are polled.
    workers : dict
        Worker index by address.
    every_s : float
        Minimum seconds between two requests to a worker; longer with hundreds of workers and in
        long runs.
    """

    def __init__(self, name: str, scheduler: Any, workers: dict[Any, int], every_s: float) -> None:
        self.name, self.scheduler, self.workers = name, scheduler, workers
        self.every_s = every_s
        self.start = float("inf")
        self.over = False
        #: By worker index: end of the last window received, and time of the last request.
        self.told: dict[int, float] = {}
        self.asked: dict[int, float] = {}
        self.profiled: dict[int, bool] = {}
        self.parts: list[list] = []
        self.open: dict[int, asyncio.Future] = {}

    def question(self, address: str, stop: float, *, last: bool) -> dict[str, Any]:
        """Return a request: window in Unix s on the scheduler's clock, call stacks or not."""
        index = self.workers.get(address, -1)
        # Decided once per worker, so that the call stacks of a worker are complete or absent.
        every = max(1, -(-len(self.scheduler.workers) // MAX_PROFILED))
        stacks = self.profiled.setdefault(index, index % every == 0)
        start = self.told.get(index, self.start)
        return {"start": start, "stop": stop, "stacks": stacks, "last": last}

    def ask(self, tick_s: float, heard: float) -> None:
        """Send requests to workers that are due; `heard` is the time of the last client call."""
        now = time()
        if self.over or now - heard > CLIENT_SILENT_S:
            return
        states = self.scheduler.workers
        age = now - self.start if self.start < now else 0.0
        every = max(self.every_s, len(states) / QUESTIONS_A_SECOND, SHARE_OF_RUN * age)
        due = []
        for address in states:
            index = self.workers.get(address, -1)
            before = max(self.told.get(index, self.start), self.asked.get(index, 0.0))
            if index >= 0 and index not in self.open and now - before >= every:
                due.append((before, address, index))
        # Spread the requests over time: all workers may have the same window start.
        at_most = 1 + int(len(states) * tick_s / every)
        for _, address, index in sorted(due)[:at_most]:
            self.asked[index] = now
            question = self.question(address, now - SETTLED_S, last=False)
            self.open[index] = asyncio.ensure_future(self._ask(address, index, question))

    async def _ask(self, address: str, index: int, question: dict[str, Any]) -> None:
        try:
            call = getattr(self.scheduler.rpc(address), f"{self.name}_report")
            part = await asyncio.wait_for(call(**question), ANSWER_WITHIN_S)
        except Exception:  # worker gone, busy or without plugin: requested again later
            return
        finally:
            self.open.pop(index, None)
        # A part with errors is requested again; the final report contains the errors.
        if isinstance(part, dict) and not part.pop("errors", True):
            self.told[index] = question["stop"]
            self.parts.append([index, part])

    async def stop(self, patience_s: float) -> None:
        """Wait `patience_s` for replies, then cancel them; the final report has their data."""
        self.over = True
        if self.open:
            _, left = await asyncio.wait(list(self.open.values()), timeout=patience_s)
            for one in left:
                one.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    def cancel(self) -> None:
        """Cancel pending requests without waiting."""
        self.over = True
        for one in list(self.open.values()):
            one.cancel()

    def take(self) -> dict[str, list]:
        """Return the table of parts received since the last call."""
        parts, self.parts = self.parts, []
        return {"told": parts} if parts else {}
