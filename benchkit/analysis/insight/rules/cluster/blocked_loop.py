"""Find what blocks the event loop of the scheduler."""

from __future__ import annotations

import json

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.formatting import counted, format_quantity

__all__ = ["find"]

#: Share of the duration.
MIN_SHARE = 0.03
#: Shorter times are those of a process without a processor, if other processes use processors.
LONG_S = 0.5
#: First functions of stacks that say that nothing blocked the loop: it waited for messages and had
#: no processor; and garbage collections, which have a rule of their own.
NOT_BLOCKED = ("select (", "_gc_callback (")


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
    blocked = case.events("loop-blocked")
    messages = [
        {**json.loads(text), "stop": float(moment)}
        for text, moment in zip(blocked["message"], blocked["time"], strict=True)
    ]
    messages = [
        message
        for message in messages
        if not message["stack"].startswith(NOT_BLOCKED)
        and (message["seconds"] >= LONG_S or not case.is_disturbed)
    ]
    seconds = sum(message["seconds"] for message in messages)
    if not messages or seconds < MIN_SHARE * case.duration:
        return None
    longest = max(messages, key=lambda message: message["seconds"])
    frames = longest["stack"].splitlines()[:3]
    return Finding(
        what="the scheduler's event loop was blocked",
        seconds=seconds,
        evidence=f"{counted(len(messages), 'time')}, {format_quantity(seconds, 's')} in all; "
        f"the longest in {' < '.join(frame.partition(' (')[0] for frame in frames)}",
        change="move work out of scheduler plugins; fewer tasks; smaller graphs",
        window=(longest["stop"] - longest["seconds"], longest["stop"]),
    )
