"""Find what blocks the event loop of the scheduler."""

from __future__ import annotations

from benchkit.analysis.insight.blocked_times import blocked_times
from benchkit.analysis.insight.findings import Case, Finding
from benchkit.formatting import counted, format_quantity

__all__ = ["find"]

#: Share of the duration.
MIN_SHARE = 0.03
#: Causes in which a blocked scheduler delays the run. While tasks compute it delays nothing.
NEEDED = ("scheduler", "graph", "transfer", "worker paused")


def find(case: Case) -> Finding | None:
    """Return the finding of this rule."""
    # returned: None: nothing found.
    times, waits = blocked_times(case), 0.0
    for time in times:
        # The client may have waited for what blocked the loop, such as a function that it sent; if
        # it held the GIL itself, it did not.
        causes = NEEDED if time.by_threads else (*NEEDED, "client")
        waits += case.blamed(*causes, window=time.window)
    if not times or waits < MIN_SHARE * case.duration:
        return None
    seconds = case.seconds_within(*zip(*(time.window for time in times), strict=True))
    longest = max(times)
    names = " < ".join(line.partition(" (")[0] for line in longest.stack.splitlines()[:3])
    what, change = "event loop was blocked", "move work out of its plugins; fewer, larger tasks"
    if longest.by_threads:
        what = "process computed in other threads, which held the GIL"
        change = "a scheduler in a process of its own, or less work in its process"
    return Finding(
        what=f"the scheduler's {what}",
        seconds=waits,
        evidence=f"{counted(len(times), 'time')}, {format_quantity(seconds, 's')} in all, during "
        f"{format_quantity(waits, 's')} of which something waited for it; the longest in {names}",
        change=change,
        window=(max(0.0, longest.window[0]), min(longest.window[1], case.duration)),
    )
