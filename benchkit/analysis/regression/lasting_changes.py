"""Find lasting changes of measures of task groups: arrays of levels in, changes out.

Busy nights of a machine slow some groups more than others, for three to seven nights. A change is
therefore reported when it has lasted for ten nights, once for each workload.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchkit.analysis.changepoint.rule import MIN_NIGHTS, MIN_REFERENCE_NIGHTS
from benchkit.analysis.changepoints import ChangePoint, detect_many
from benchkit.analysis.options import VERDICTS
from benchkit.analysis.regression.level_events import LEVEL_NIGHTS

#: Nights that a change must last. With the parameters of a benchmark as groups (see
#: `validation/nights/groups.py`), false reports per 100 nights of a workload were .16 on the night
#: of detection, .035 after 8 nights and .030 after 10, for changes of any size.
LASTING_NIGHTS = MIN_REFERENCE_NIGHTS

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LastingChange:
    """A lasting change of one measure of a task group."""

    row: int  # Row of the workload
    night: int  # Night on which the change has lasted long enough, as a position
    change: ChangePoint  # The change of the level


def find_lasting_changes(workloads: Sequence[Array]) -> list[list[LastingChange]]:
    """Find the changes of level that last."""
    # workloads: (rows, nights), positive levels of the task groups of each workload, such as the
    # odds of their shares, `share / (1 - share)`; NaN on nights without a run. The number of nights
    # is the same for all workloads.
    if not sum(map(len, workloads)):
        return [[] for _ in workloads]
    levels = np.concatenate([rows for rows in workloads if len(rows)])
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(levels)
    changes = detect_many(levels)
    results, first = [], 0
    for rows in workloads:
        lasting = [
            (night, -size, LastingChange(row, night, change))
            for row in range(len(rows))
            for change in changes[first + row]
            for night, size in _lasting(logs[first + row], change)
        ]
        first += len(rows)
        kept: list[LastingChange] = []
        for night, _, found in sorted(lasting, key=lambda each: each[:2]):
            if not kept or night - kept[-1].night > LASTING_NIGHTS:
                kept.append(found)
        results.append(kept)
    return results


def _lasting(log: Array, change: ChangePoint) -> list[tuple[int, float]]:
    """Return the night on which a change has lasted long enough, and its size; empty if not."""
    before = log[: change.index]
    before = before[np.isfinite(before)][-LEVEL_NIGHTS:]
    since = change.index + np.flatnonzero(np.isfinite(log[change.index :]))
    if not before.size or since.size < LASTING_NIGHTS:
        return []
    night = max(int(since[LASTING_NIGHTS - 1]), change.detected_at)
    distance = log[since[since <= night]] - np.median(before)
    needed = abs(np.log(change.ratio)) / 2  # that the nights since, and the last ones, still show
    medians = change.direction * np.array([np.median(distance), np.median(distance[-MIN_NIGHTS:])])
    # Groups drift by 3 to 4 % each: without the limit of A/B there are twice as many false reports.
    is_lasting = (medians >= needed).all() and medians[0] >= np.log1p(VERDICTS.same)
    return [(night, float(medians[0]))] if is_lasting else []
