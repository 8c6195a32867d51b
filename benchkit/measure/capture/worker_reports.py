"""Asks workers again and again for what they alone know: one that dies has told most of it."""

from __future__ import annotations

import asyncio
from typing import Any

from distributed.metrics import time

__all__ = ["WorkerReportPoller"]

#: Not more questions a second than that, of all workers; and after five minutes less often: in a
#: run of hours, what a minute had in it is little.
QUESTIONS_A_SECOND, SHARE_OF_RUN = 20.0, 1 / 60
ANSWER_WITHIN_S = 6.0
#: What is younger than this may still be on its way into a worker's own books.
SETTLED_S = 0.25
#: A client that has not drained for so long gets no more to drain.
CLIENT_SILENT_S = 30.0
#: Call stacks come from so many workers, evenly chosen: with hundreds, one is like another.
MAX_PROFILED = 64


class WorkerReportPoller:
    """Gathers parts of the workers' reports while the clock runs.

    A worker is asked for a window of time that begins where its last answer ended, so that a lost
    answer is asked for again and nothing is told twice.

    Parameters
    ----------
    name : str
        Of the capture, whose probes answer.
    scheduler : Scheduler
        Whose workers are asked.
    workers : dict
        The number of each worker by address.
    every_s : float
        Seconds between two questions to a worker, at least: hundreds are asked less often, and so
        are those of a run that takes long.
    """

    def __init__(self, name: str, scheduler: Any, workers: dict[Any, int], every_s: float) -> None:
        self.name, self.scheduler, self.workers = name, scheduler, workers
        self.every_s = every_s
        self.start = float("inf")
        self.over = False
        #: When the last window ended and when the last question was asked, by the worker's number.
        self.told: dict[int, float] = {}
        self.asked: dict[int, float] = {}
        self.profiled: dict[int, bool] = {}
        self.parts: list[list] = []
        self.open: dict[int, asyncio.Future] = {}

    def question(self, address: str, stop: float, *, last: bool) -> dict[str, Any]:
        """Return what a worker is asked: a window in Unix s, and whether for call stacks, too."""
        index = self.workers.get(address, -1)
        # Decided once: half of a worker's call stacks would be no worker's.
        every = max(1, -(-len(self.scheduler.workers) // MAX_PROFILED))
        stacks = self.profiled.setdefault(index, index % every == 0)
        start = self.told.get(index, self.start)
        return {"start": start, "stop": stop, "stacks": stacks, "last": last}

    def ask(self, tick_s: float, heard: float) -> None:
        """Ask those whose turn it is; `heard` is when the client called last."""
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
        # Not all at once: what has the same beginning is spread over the time.
        at_most = 1 + int(len(states) * tick_s / every)
        for _, address, index in sorted(due)[:at_most]:
            self.asked[index] = now
            question = self.question(address, now - SETTLED_S, last=False)
            self.open[index] = asyncio.ensure_future(self._ask(address, index, question))

    async def _ask(self, address: str, index: int, question: dict[str, Any]) -> None:
        try:
            call = getattr(self.scheduler.rpc(address), f"{self.name}_report")
            part = await asyncio.wait_for(call(**question), ANSWER_WITHIN_S)
        except Exception:  # it is gone, or busy, or has no probe: asked again
            return
        finally:
            self.open.pop(index, None)
        # What it could not tell is asked for again, and at last why.
        if isinstance(part, dict) and not part.pop("errors", True):
            self.told[index] = question["stop"]
            self.parts.append([index, part])

    async def stop(self, patience_s: float) -> None:
        """Wait for answers that are due, then no longer: what they hold is asked for at the end."""
        self.over = True
        if self.open:
            _, left = await asyncio.wait(list(self.open.values()), timeout=patience_s)
            for one in left:
                one.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    def cancel(self) -> None:
        """Wait for nobody."""
        self.over = True
        for one in list(self.open.values()):
            one.cancel()

    def take(self) -> dict[str, list]:
        """Return the table of what was told since the last time."""
        parts, self.parts = self.parts, []
        return {"told": parts} if parts else {}
