"""Find what blocks the event loop of the scheduler."""

from __future__ import annotations

import json

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.formatting import counted, format_quantity

__all__ = ["find"]


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
    messages = [json.loads(text) for text in blocked["message"]]
    # In `select` the loop waits: then the process had no processor, and nothing blocked the loop.
    messages = [message for message in messages if not message["stack"].startswith("select (")]
    seconds = sum(message["seconds"] for message in messages)
    if not messages or seconds < 0.02 * case.duration:
        return None
    longest = max(messages, key=lambda message: message["seconds"])
    frames = longest["stack"].splitlines()[:3]
    return Finding(
        what="the scheduler's event loop was blocked",
        seconds=seconds,
        evidence=f"{counted(len(messages), 'time')}, {format_quantity(seconds, 's')} in all; "
        f"the longest in {' < '.join(frame.partition(' (')[0] for frame in frames)}",
        change="move work out of scheduler plugins; fewer tasks; smaller graphs",
    )
