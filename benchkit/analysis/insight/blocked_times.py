"""The times in which the event loop of the scheduler was blocked, and by what."""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np

from benchkit.analysis.insight.findings import Case

__all__ = ["BlockedTime", "blocked_times"]

#: Shorter times are those of a process without a processor, if other processes use processors.
LONG_S = 0.5
#: First function of stacks that say that nothing blocked the loop: it waited for messages and had
#: no processor.
NOT_BLOCKED = "select ("
#: Part of a blocked time from which on something else is its cause: garbage collection, which has a
#: rule of its own, or other threads of the process, which held the GIL.
MAX_SHARE = 0.5
#: Longest time between two samples of the scheduler's counters.
SAMPLE_S = 0.5


class BlockedTime(NamedTuple):
    """A time in which the event loop did nothing else."""

    seconds: float  # Length in s
    window: tuple[float, float]  # Start and end in s of the run's clock
    by_threads: bool  # Whether other threads of its process held the GIL
    stack: str  # Call stack of the loop, the innermost function first


def blocked_times(case: Case) -> list[BlockedTime]:
    """Return the times in which code blocked the loop, without those of garbage collection."""
    found = []
    events = case.events("loop-blocked")
    for text, stop in zip(events["message"], events["time"], strict=True):
        message = json.loads(text)
        seconds, stack = message["seconds"], message["stack"]
        is_short = seconds < LONG_S and case.is_disturbed
        around = (stop - seconds - SAMPLE_S, stop + SAMPLE_S)
        collected_s = case.increase(case.scheduler, "gc_time", around).max()
        if is_short or collected_s > MAX_SHARE * seconds or stack.startswith(NOT_BLOCKED):
            continue
        others_s = message.get("process_cpu", np.nan) - message.get("own_cpu", np.nan)
        window = (stop - seconds, stop)
        found.append(BlockedTime(seconds, window, others_s > MAX_SHARE * seconds, stack))
    return found
