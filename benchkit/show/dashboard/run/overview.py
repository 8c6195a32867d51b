"""First tab of a run page: memory, busy threads, task groups, comparison to earlier runs."""

from __future__ import annotations

from typing import Any

import panel as pn

from benchkit.show.dashboard.components import components as parts
from benchkit.show.dashboard.components.components import metric_terms
from benchkit.show.dashboard.run.task_groups import GroupTable
from benchkit.show.dashboard.state.cache import usual_of
from benchkit.show.dashboard.state.time_window import NO_TIMES, Window
from benchkit.show.plots.base import has, worker_names
from benchkit.show.plots.run_metrics import memory_by_kind, memory_by_worker
from benchkit.show.plots.thread_activity import BusyThreads, busy_threads, mark_events

__all__ = ["group_table", "overview", "overview_and_before"]

CLUSTER = "the cluster"


def overview(window: Window) -> Any:
    """Return the part of the tab that needs no store."""
    return pn.Column(_memory(window), *_busy_and_groups(window), sizing_mode="stretch_width")


def overview_and_before(window: Window) -> Any:
    """Return the tab, with the comparison to earlier runs."""
    return pn.Column(
        _memory(window),
        parts.guarded(lambda: _below(window)),
        sizing_mode="stretch_width",
    )


def _below(window: Window) -> Any:
    """Return the part of the overview below the memory plot."""
    run = window.run
    usual = usual_of(run)
    against = "Against the median of comparable runs before this one."
    if not usual["runs before"].any():
        against, usual = "No comparable run was before this one.", usual[["this run"]]
    return pn.Column(
        *_busy_and_groups(window),
        parts.heading("Is that usual?", against),
        parts.table(usual, "metric", sortable=False),
        parts.glossary(metric_terms(window.run.metrics), "What the metrics mean"),
        sizing_mode="stretch_width",
    )


def _busy_and_groups(window: Window) -> list[Any]:
    with window.of_tab("overview"):
        workers = memory_by_worker(window.run.tree)
        busy = _busy(window)
        window.share(workers)
        return [
            parts.figure(workers),
            parts.figure(busy),
            parts.heading(
                "Task groups",
                "Thread-seconds within the window; a click points at a group, one more lets it go.",
            ),
            group_table(window),
        ]


def _memory(window: Window) -> Any:
    """Return memory by kind, of the cluster or of one worker."""
    run = window.run
    names = worker_names(run.tree)
    options = {CLUSTER: "", **{f"worker {name}": str(at) for at, name in enumerate(names)}}
    choose = pn.widgets.Select(name="Memory of", options=options, width=300, margin=(5, 0))
    choose.value = window.worker if window.worker in options.values() else ""
    place = pn.Column(sizing_mode="stretch_width", margin=0)

    def draw(*events: Any) -> None:
        window.worker = str(choose.value or "")
        worker = int(window.worker) if window.worker else None
        drawn = memory_by_kind(run.tree, worker)
        mark_events(drawn, run, worker)
        window.share(drawn)
        place[:] = [parts.figure(drawn)]
        if events:
            window.write()

    draw()
    choose.param.watch(draw, "value")
    chooser = [choose] if len(names) > 1 and has(run.tree, "workers", "time") else []
    return pn.Column(*chooser, place, sizing_mode="stretch_width", margin=0)


def _busy(window: Window) -> Any:
    if not window.within.n_tasks:
        return busy_threads(window.run.tree)
    busy = BusyThreads(window.run.tree, window.within)
    window.share(busy.figure)
    window.follow(lambda: busy.show_window(*(window.part or window.within.whole)))
    if window.part:
        busy.show_window(*window.part)
    return busy.figure


def group_table(window: Window) -> Any:
    """Return the table of task groups, or a message if there are none."""
    if not window.within.groups:
        return parts.message("No task groups", "Nothing was recorded of them.")
    unseen = window.within.n_unseen
    note = "Serialising is counted without a time: it is in the sums of the whole run only."
    if not window.has_times:
        note = f"Of the whole run, whatever the window. {NO_TIMES}"
    elif unseen:
        note += f" {unseen} tasks were too many to record; parts of the run miss them."
    return pn.Column(GroupTable(window).view, parts.words(note), sizing_mode="stretch_width")
