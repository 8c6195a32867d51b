"""First tab of a run page: memory, busy threads, task groups, comparison to earlier runs."""

from __future__ import annotations

from typing import Any

import pandas as pd
import panel as pn
from bokeh.plotting import figure
from panel.viewable import Viewable

from benchkit.analysis.insight.blame import CAUSES
from benchkit.analysis.insight.diagnose import Diagnosis, diagnose
from benchkit.analysis.insight.limits import BOUNDS, Limits
from benchkit.formatting import format_quantity
from benchkit.show.dashboard.components import tables
from benchkit.show.dashboard.components.widgets import select
from benchkit.show.dashboard.run.task_groups import GroupTable
from benchkit.show.dashboard.state.time_window import NO_TIMES, Window
from benchkit.show.dashboard.state.url import address
from benchkit.show.pages.page import metric_terms
from benchkit.show.plots.base import has
from benchkit.show.plots.run_metrics import memory_by_kind, memory_by_worker
from benchkit.show.plots.thread_activity import (
    BusyThreads,
    busy_threads,
    limits_over_time,
    mark_events,
)
from benchkit.show.render import panel as ui
from benchkit.show.render.html import link
from benchkit.store.run import Run, worker_names
from benchkit.store.task_graph import has_task_graph

#: How the causes are found.
HOW_COMPUTED = (
    "Computed from the last task back to the start of the clock: each moment has the cause that "
    "the next step of the run waited for then. The causes sum to the duration."
)


def conclusion(window: Window) -> list[Viewable]:
    """Return the conclusion, its evidence and the findings of the diagnosis."""
    run = window.run
    if "duration" not in run.metrics:
        return []
    diagnosis = diagnose(run)
    content: list[Viewable] = [ui.heading("Where the time went", _text(run, diagnosis))]
    if diagnosis.findings:
        content.append(_findings(window, diagnosis))
    if diagnosis.limits:
        strip = limits_over_time(run, diagnosis.limits)
        window.share(strip)
        content += [
            ui.figure(strip),
            ui.paragraph(HOW_COMPUTED),
            _causes(diagnosis.limits),
            ui.glossary({**BOUNDS, **CAUSES}),
        ]
    return content


def _text(run: Run, diagnosis: Diagnosis) -> str:
    sentences = [*diagnosis.conclusion]
    if not has_task_graph(run.tree):
        sentences.append("Dependencies of tasks were not recorded: fewer rules apply.")
    sentences.append(f"Diagnosis: {diagnosis.sentence}.")
    return " ".join(sentences)


def _findings(window: Window, diagnosis: Diagnosis) -> Viewable:
    """Return the findings; each links to the part of the run that shows it."""
    workers = window.run.tree["workers"].to_dataset()["name"].values.astype(str).tolist()
    rows = []
    for found in diagnosis.findings:
        start, stop = found.window or window.whole
        keys = {
            "from": f"{start:.6g}",
            "to": f"{stop:.6g}",
            "group": found.group,
            "worker": workers.index(found.worker) if found.worker in workers else "",
        }
        rows.append(
            [
                link(found.what, address("run", **window.state(tab="tasks", **keys))),
                format_quantity(found.seconds, "s"),
                found.evidence,
                found.change,
                diagnosis.proof(found),
            ]
        )
    return tables.html_table(["finding", "cost", "evidence", "change", "to prove it"], rows)


def _causes(limits: Limits) -> Viewable:
    rows = [
        {
            "what": row["name"],
            "kind": {"bound": "lower bound", "cause": "cause of wall time"}[row["kind"]],
            "seconds": format_quantity(row["seconds"], "s"),
            "share of the duration": f"{row['share']:.1%}",
        }
        for row in limits.to_records()
        if row["kind"] in ("bound", "cause")
    ]
    return tables.table(pd.DataFrame(rows).set_index("what"), "what", sortable=False)


def overview(window: Window, baseline: pd.DataFrame | None = None) -> pn.Column:
    """Return the tab."""
    return ui.column(
        ui.deferred(lambda: conclusion(window), "Where the time went"),
        _memory(window),
        ui.guard(lambda: _below_memory(window, baseline)),
    )


def _below_memory(window: Window, baseline: pd.DataFrame | None) -> pn.Column:
    """Return the part of the overview below the memory plot."""
    workers = memory_by_worker(window.run.tree)
    window.share(workers)
    content = ui.column(
        ui.figure(workers),
        ui.figure(_busy_threads(window)),
        ui.heading(
            "Task groups",
            "Thread-seconds within the window; a click selects a group, another click all groups.",
        ),
        group_table(window),
    )
    if baseline is None:
        return content
    below = "Compared with the median of comparable earlier runs."
    if not baseline["runs before"].any():
        below, baseline = "There is no comparable earlier run.", baseline[["this run"]]
    content.extend(
        [
            ui.heading("Is that usual?", below),
            tables.table(baseline, "metric", sortable=False),
            ui.glossary(metric_terms(window.run.metrics), "What the metrics mean"),
        ]
    )
    return content


def _memory(window: Window) -> pn.Column:
    """Return memory by kind, of the cluster or of one worker."""
    run = window.run
    names = worker_names(run.tree)
    options = {"the cluster": "", **{f"worker {name}": str(at) for at, name in enumerate(names)}}
    choice = select("Memory of", options, window.worker, width=300)
    choice.margin = (5, 0)
    place = ui.column(margin=0)

    def draw(*events: Any) -> None:
        window.worker = str(choice.value or "")
        worker = int(window.worker) if window.worker else None
        plot = memory_by_kind(run.tree, worker)
        mark_events(plot, run, worker)
        window.share(plot)
        place[:] = [ui.figure(plot)]
        if events:
            window.write()

    draw()
    choice.param.watch(draw, "value")
    has_choice = len(names) > 1 and has(run.tree, "workers", "time")
    return ui.column(*([choice] if has_choice else []), place, margin=0)


def _busy_threads(window: Window) -> figure:
    if not window.timeline.n_tasks:
        return busy_threads(window.run.tree)
    busy = BusyThreads(window.run.tree, window.timeline)
    window.share(busy.figure)
    window.subscribe(lambda: busy.show_window(*(window.part or window.timeline.whole)))
    if window.part:
        busy.show_window(*window.part)
    return busy.figure


def group_table(window: Window) -> pn.viewable.Viewable:
    """Return the table of task groups, or a message if there are none."""
    if not window.timeline.groups:
        return ui.message("No task groups", "Task groups were not recorded.")
    n_unseen = window.timeline.n_unseen
    note = "Serialisation is counted without times: only sums of the whole run contain it."
    if not window.has_times:
        note = f"Of the whole run, for any window. {NO_TIMES}"
    elif n_unseen:
        note += f" {n_unseen} tasks were not recorded (too many): parts of the run lack them."
    return ui.column(GroupTable(window).view, ui.paragraph(note))
