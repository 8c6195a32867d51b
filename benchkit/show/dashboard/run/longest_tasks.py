"""Table of the longest tasks of a task group within the window, with their keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import panel as pn

from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.formatting import short_names
from benchkit.show.dashboard.components import components as parts
from benchkit.show.dashboard.state.table_state import Debounced
from benchkit.show.dashboard.state.time_window import NO_TIMES, Window
from benchkit.show.escape import escape
from benchkit.show.plots.base import worker_names

__all__ = ["longest_tasks"]

MOST = 20
_TITLES = ("key", "worker", "thread", "start (s)", "took (s)", "result (MiB)", "ended")


def longest_tasks(window: Window) -> Any:
    """Return the tasks of the selected group, longest first; updates with window and group."""
    place = pn.Column(sizing_mode="stretch_width", margin=0)
    drawn = [""]

    def fill() -> None:
        drawn[0] = window.group
        place[:] = _table(window) if window.group else []

    # Reading the keys of 1 M tasks takes some 0.1 s: update after a drag, not at each step.
    rested = Debounced(fill, lambda: window.range)

    def show() -> None:
        if drawn[0] != window.group:
            fill()
        elif window.group:
            rested()

    show()
    window.follow(show)
    return place


def _table(window: Window) -> list[Any]:
    within = window.within
    group = within.groups.index(window.group)
    found = within.inside(*(window.part or within.whole))
    found = found[within.group[found] == group]
    title = f"Tasks of {short_names(within.groups)[window.group]}"
    if not window.has_times:
        return [parts.heading(title, NO_TIMES)]
    if not len(found):
        return [parts.heading(title, "None computed within the window.")]
    return [
        parts.heading(
            title, f"The longest {min(MOST, len(found))} of {len(found)} within the window."
        ),
        parts.rows(_TITLES, _cells(window, _longest(within, found)), tight=True),
    ]


def _longest(within: TaskTimeline, found: np.ndarray) -> np.ndarray:
    took = within.stop[found] - within.start[found]
    if len(found) > MOST:
        found = found[np.argpartition(-took, MOST)[:MOST]]
    return found[np.argsort(within.start[found] - within.stop[found], kind="stable")]


def _cells(window: Window, chosen: np.ndarray) -> list[list[str]]:
    within, run = window.within, window.run
    rows = within.row[chosen]
    tasks: Any = run.tree["tasks"]
    names = dict(enumerate(worker_names(run.tree)))
    nbytes, ok, workers = (tasks[name].values[rows] for name in ("nbytes", "ok", "worker"))
    keys = run.task_keys(rows)
    return [
        [
            f"<code>{escape(keys[at])}</code>",
            escape(str(names.get(int(workers[at]), "–"))),
            str(int(within.threads[within.lane[task]])),
            f"{within.start[task]:.3f}",
            f"{within.stop[task] - within.start[task]:.4f}",
            f"{nbytes[at] / 2**20:.3f}" if nbytes[at] >= 0 else "–",
            "ok" if ok[at] else "raised",
        ]
        for at, task in enumerate(chosen)
    ]
