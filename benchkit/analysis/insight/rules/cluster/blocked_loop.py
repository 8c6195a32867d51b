"""Find what blocks the event loop of the scheduler."""

from __future__ import annotations

import json

import numpy as np

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.formatting import counted, format_quantity

__all__ = ["find"]

#: Share of the duration.
MIN_SHARE = 0.03
#: Shorter times are those of a process without a processor, if other processes use processors.
LONG_S = 0.5
#: First function of stacks that say that nothing blocked the loop: it waited for messages and had
#: no processor.
NOT_BLOCKED = "select ("
#: Part of a blocked time from which on something else is its cause: garbage collection, which has a
#: rule of its own, or other threads of the process, which held the GIL.
MOST = 0.5
#: Longest time between two samples of the scheduler's counters.
SAMPLE_S = 0.5
#: Causes in which a blocked scheduler delays the run. While tasks compute it delays nothing.
NEEDED = ("scheduler", "graph", "transfer", "worker paused")


def find(case: Case) -> Finding | None:
    """Return the finding of this rule.

    Parameters
    ----------
    case : Case
        The run.

    Returns
    -------
    Finding or None
        None: nothing found.
    """
    rows, waits = [], 0.0
    blocked = case.events("loop-blocked")
    for text, stop in zip(blocked["message"], blocked["time"], strict=True):
        message = json.loads(text)
        least, span = MOST * message["seconds"], (stop - message["seconds"], stop)
        is_short = message["seconds"] < LONG_S and case.is_disturbed
        around = (span[0] - SAMPLE_S, stop + SAMPLE_S)
        is_garbage = case.increase(case.scheduler, "gc_time", around).max() > least
        if is_short or is_garbage or message["stack"].startswith(NOT_BLOCKED):
            continue
        others = message.get("process_cpu", np.nan) - message.get("own_cpu", np.nan)
        rows.append((message["seconds"], span, others > least, message["stack"]))
        # The client may have waited for what blocked the loop, such as a function that it sent; if
        # it held the GIL itself, it did not.
        waits += case.blamed(*NEEDED, *(["client"] if others <= least else []), window=span)
    if not rows or waits < MIN_SHARE * case.duration:
        return None
    seconds = case.seconds_within(*zip(*(row[1] for row in rows), strict=True))
    _, (begin, end), is_gil, stack = max(rows)
    names = " < ".join(line.partition(" (")[0] for line in stack.splitlines()[:3])
    what, change = "event loop was blocked", "move work out of its plugins; fewer, larger tasks"
    if is_gil:
        what = "process computed in other threads, which held the GIL"
        change = "a scheduler in a process of its own, or less work in its process"
    return Finding(
        what=f"the scheduler's {what}",
        seconds=waits,
        evidence=f"{counted(len(rows), 'time')}, {format_quantity(seconds, 's')} in all, during "
        f"{format_quantity(waits, 's')} of which something waited for it; the longest in {names}",
        change=change,
        window=(max(0.0, begin), min(end, case.duration)),
    )
