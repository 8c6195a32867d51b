"""Table of the longest tasks of a task group within the window, with their keys."""

from __future__ import annotations

import numpy as np
import panel as pn
from panel.viewable import Viewable

from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.formatting import MIB, MISSING, short_names
from benchkit.show.dashboard.components import tables, ui
from benchkit.show.dashboard.components.markup import code
from benchkit.show.dashboard.state.debounce import Debounced
from benchkit.show.dashboard.state.time_window import NO_TIMES, Window
from benchkit.store.run import worker_names

__all__ = ["longest_tasks"]

MAX_TASKS = 20
_TITLES = ("key", "worker", "thread", "start (s)", "duration (s)", "result (MiB)", "ended")


def longest_tasks(window: Window) -> pn.Column:
    """Return the tasks of the selected group, longest first; updates with window and group."""
    place = ui.column(margin=0)
    shown_group = ""

    def fill() -> None:
        nonlocal shown_group
        shown_group = window.group
        place[:] = _table(window) if window.group else []

    # Reading the keys of 1 M tasks takes some 0.1 s: update after a drag, not at each step.
    fill_later = Debounced(fill, lambda: window.range)

    def update() -> None:
        if shown_group != window.group:
            fill()
        elif window.group:
            fill_later()

    window.subscribe(update, now=True)
    return place


def _table(window: Window) -> list[Viewable]:
    timeline = window.timeline
    tasks = timeline.inside(*(window.part or timeline.whole))
    tasks = tasks[timeline.group[tasks] == timeline.groups.index(window.group)]
    title = f"Tasks of {short_names(timeline.groups)[window.group]}"
    if not window.has_times:
        return [ui.heading(title, NO_TIMES)]
    if not len(tasks):
        return [ui.heading(title, "No task of the group ran within the window.")]
    below = f"The longest {min(MAX_TASKS, len(tasks))} of {len(tasks)} within the window."
    cells = _cells(window, _longest(timeline, tasks))
    return [ui.heading(title, below), tables.html_table(_TITLES, cells, tight=True)]


def _longest(timeline: TaskTimeline, tasks: np.ndarray) -> np.ndarray:
    duration = timeline.stop[tasks] - timeline.start[tasks]
    longest = np.argsort(-duration, kind="stable")[:MAX_TASKS]
    return tasks[longest]


def _cells(window: Window, chosen: np.ndarray) -> list[list[str]]:
    timeline, run = window.timeline, window.run
    rows = timeline.row[chosen]
    tasks = run.tree["tasks"].to_dataset()
    names = dict(enumerate(worker_names(run.tree)))
    nbytes, ok, workers = (tasks[name].values[rows] for name in ("nbytes", "ok", "worker"))
    keys = run.task_keys(rows)
    return [
        [
            code(keys[i]),
            str(names.get(int(workers[i]), MISSING)),
            str(int(timeline.threads[timeline.lane[task]])),
            f"{timeline.start[task]:.3f}",
            f"{timeline.stop[task] - timeline.start[task]:.4f}",
            f"{nbytes[i] / MIB:.3f}" if nbytes[i] >= 0 else MISSING,
            "ok" if ok[i] else "raised",
        ]
        for i, task in enumerate(chosen)
    ]
