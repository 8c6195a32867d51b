"""A process: its CPU seconds, garbage collections, and what blocks its event loop."""

from __future__ import annotations

import gc
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter, process_time, thread_time
from typing import Any

from benchkit.measure.capture.columns import text
from benchkit.measure.capture.loop_lag import LoopLag
from benchkit.measure.capture.memory_sampler import machine_number, process_number

__all__ = ["GcPauses", "LoopWatch", "cpu_between", "process_cpu"]

#: A blocked loop is recorded from this many seconds on; also the time between two checks.
BLOCKED_S = 0.1
#: Innermost frames of a stack that are kept.
MAX_FRAMES = 25
MAX_STACKS = 200


def process_cpu() -> tuple[int, int, float]:
    """Return the CPU seconds of this process, cumulative.

    Returns
    -------
    machine, process : int
        Numbers, see `machine_number` and `process_number`.
    seconds : float
        User and system time.
    """
    return machine_number(), process_number(), process_time()


def cpu_between(
    before: Sequence[Sequence[float]], after: Sequence[Sequence[float]]
) -> list[tuple[int, int, float]]:
    """Return the CPU seconds that processes used between two moments.

    Parameters
    ----------
    before, after : sequence of tuple
        What `process_cpu` returned in each process; a process may be in it twice.

    Returns
    -------
    list of (int, int, float)
        Numbers of machine and process, and seconds, for each process that is in both.
    """
    first = {(int(row[0]), int(row[1])): row[2] for row in before}
    last = {(int(row[0]), int(row[1])): row[2] for row in after}
    return [(*key, last[key] - first[key]) for key in first if key in last]


class GcPauses:
    """Seconds that the garbage collector of this process took, by Python's `gc.callbacks`."""

    def __init__(self) -> None:
        #: Seconds since the beginning, and the longest pause since the last `read`.
        self.total = self.longest = 0.0
        self.began = 0.0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self.began = perf_counter()
        elif self.began:
            pause = perf_counter() - self.began
            self.total += pause
            self.longest = max(self.longest, pause)

    def read(self) -> tuple[float, float]:
        """Return the sum of all pauses, and the longest since the last call.

        Returns
        -------
        total, longest : float
            Seconds.
        """
        longest, self.longest = self.longest, 0.0
        return self.total, longest

    def close(self) -> None:
        """Stop counting; safe to call twice."""
        with suppress(ValueError):
            gc.callbacks.remove(self._note)


class LoopWatch:
    """Record the stack of an event loop's thread when the loop is blocked.

    Parameters
    ----------
    lag : LoopLag
        The timer of the loop; this object takes its `on_tick`.
    add_event : callable
        ``add_event(topic, worker, message)`` records an event; called by the loop's own thread.
    """

    def __init__(self, lag: LoopLag, add_event: Callable[..., None]) -> None:
        self.lag, self.add_event = lag, add_event
        self.thread_id = threading.get_ident()
        self.stack = ""
        self.n_stacks = 0
        #: CPU seconds of the loop's thread and of the process at the last tick.
        self.cpu = thread_time(), process_time()
        self.stopped = threading.Event()
        lag.on_tick = self._tick
        self.thread = threading.Thread(target=self._watch, name="benchkit-loop-watch", daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        # 10 wake-ups a second take 0.05 % of a core.
        while not self.stopped.wait(BLOCKED_S):
            if self.lag.loop.time() - self.lag.due > BLOCKED_S and not self.stack:
                frame = sys._current_frames().get(self.thread_id)
                if frame is not None:
                    self.stack = _lines(frame)

    def _tick(self) -> None:
        before, self.cpu = self.cpu, (thread_time(), process_time())
        if self.stack:
            stack, self.stack = self.stack, ""
            blocked_s = self.lag.loop.time() - self.lag.due
            if blocked_s > BLOCKED_S and self.n_stacks < MAX_STACKS:
                self.n_stacks += 1
                own, process = (now - then for now, then in zip(self.cpu, before, strict=True))
                message = {"seconds": blocked_s, "own_cpu": own, "process_cpu": process}
                self.add_event("loop-blocked", None, {**message, "stack": stack})

    def stop(self) -> None:
        """Stop watching."""
        self.stopped.set()
        self.lag.on_tick = lambda: None


def _lines(frame: Any) -> str:
    """Return the innermost frames of a stack, a line each: function, file, line."""
    frames = traceback.extract_stack(frame)[-MAX_FRAMES:]
    lines = [f"{entry.name} ({entry.filename}:{entry.lineno})" for entry in reversed(frames)]
    return text("\n".join(lines))
