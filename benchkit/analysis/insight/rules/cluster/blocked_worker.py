"""Find workers whose event loop was blocked by their tasks."""

from __future__ import annotations

import numpy as np

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.formatting import format_quantity

__all__ = ["find"]

#: Shorter delays are usual; on a machine with other processes, longer ones are.
LONG_S, LONG_IF_DISTURBED_S = 0.5, 1.0


def find(case: Case) -> Finding | None:
    """Return the finding of this rule."""
    # returned: None: nothing found.
    ticks = np.where(case.heartbeats, case.workers["tick_max"].values, np.nan)
    long = LONG_IF_DISTURBED_S if case.is_disturbed else LONG_S
    ticks[~(ticks > long)] = np.nan
    # Heartbeats may report one delay twice, or a delay from before the clock started.
    times = case.workers["time"].values
    seconds = np.array([case.seconds_within(times - column, times) for column in ticks.T])
    if not seconds.size:
        return None
    worker = int(seconds.argmax())
    if seconds[worker] < 0.1 * case.duration:
        return None
    name = str(case.workers["name"].values[worker])
    return Finding(
        what="the event loop of a worker was blocked",
        seconds=float(seconds[worker]) / 2,
        evidence=f"worker {name}: at least {format_quantity(float(seconds[worker]), 's')}, in "
        "which it sends and fetches nothing",
        change="code that holds the GIL or writes spilled data blocks it: more processes with "
        "fewer threads",
        worker=name,
    )
