"""Page of two runs on one time axis: memory, threads, tasks and their differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import panel as pn
from markupsafe import Markup
from panel.viewable import Viewable

from benchkit.analysis.compare.environment_diff import differences
from benchkit.analysis.insight.memory import memory_difference
from benchkit.analysis.run.timeline import TaskTimeline, group_differences
from benchkit.errors import BenchkitError, NotRecorded
from benchkit.formatting import MISSING, format_outcome
from benchkit.show.dashboard.components import tables
from benchkit.show.dashboard.components.widgets import filtered, select, window_controls
from benchkit.show.dashboard.run.call_stacks import stack_difference
from benchkit.show.dashboard.run.task_groups import (
    BAR_HEIGHT,
    BAR_WIDTH,
    CLICKABLE,
    COUNT,
    SECONDS,
    choose_group,
    group_tabulator,
)
from benchkit.show.dashboard.state.cache import load_run
from benchkit.show.dashboard.state.time_window import NAMES, PairWindow
from benchkit.show.dashboard.state.url import address, href
from benchkit.show.pages import comparison as pages
from benchkit.show.pages.page import metric_terms
from benchkit.show.plots.base import has, retitle
from benchkit.show.plots.run_metrics import PAIR_COLOURS, memory_overlay
from benchkit.show.plots.thread_activity import BusyThreads, TaskStream
from benchkit.show.plots.transfers import VALUES, transfer_difference
from benchkit.show.render import panel as ui
from benchkit.show.render.html import link
from benchkit.show.theme import BETTER, UNCHANGED, WORSE
from benchkit.store.run import Run

#: Divisor of thread-seconds -> unit of the values, and factor from seconds to this unit.
UNITS = {"": ("s", 1.0), "task": ("ms per task", 1e3), "GiB": ("s per GiB", 1.0)}
_DIVISORS = {"of all threads": "", "for each task": "task", "for each GiB of results": "GiB"}


def about_groups(window: PairWindow) -> str:
    """Return text that explains the table of groups."""
    where = "within the window" if window.has_times else "of the whole runs, for any window"
    text = (
        f"Thread-seconds {where}, B − A, largest difference first. One run per side shows a "
        "difference but proves none."
    )
    for name, timeline in zip(NAMES, window.timelines, strict=True):
        if not timeline.n_tasks:
            text += f" Task times of {name} were not recorded."
        elif timeline.n_unseen:
            text += f" {timeline.n_unseen} tasks of {name} were not recorded (too many)."
    return text


def group_table(window: PairWindow) -> pn.Column:
    """Return the table, below a select for the divisor of its seconds."""
    divisor = select("Thread-seconds", _DIVISORS, window.options["per"], width=220)
    place = ui.column(margin=0)
    update: Callable[[], object]

    def draw() -> None:
        nonlocal update
        table, update = _group_rows(window, str(divisor.value))
        place[:] = [table]

    def change_divisor(event: Any) -> None:
        # Reset order and page: they belong to the previous values.
        window.set_options(per=event.new, sort="", page="")
        draw()

    draw()
    divisor.param.watch(change_divisor, "value")
    window.subscribe(lambda: update())
    return ui.column(divisor, place)


def _group_rows(window: PairWindow, per: str) -> tuple[pn.widgets.Tabulator, Callable[[], object]]:
    """Return the table in one unit, and a function that updates it to window and group."""
    unit, scale = UNITS[per]
    names: list[str] = []
    a, b = window.timelines

    def rows() -> pd.DataFrame:
        table = group_differences(a, b, window.task_part, per)
        names[:] = [str(name) for name in table.index]
        table[["a", "b", "difference"]] *= scale
        largest = float(table["difference"].abs().max()) if len(table) else 0.0
        shown = {
            "task group": [f"● {name}" if name == window.group else name for name in names],
            "less · more": [_difference_bar(value, largest, unit) for value in table["difference"]],
        }
        titles = {
            "a": f"A ({unit})",
            "b": f"B ({unit})",
            "difference": f"B − A ({unit})",
            "tasks_a": "tasks of A",
            "tasks_b": "tasks of B",
        }
        table = table.reset_index(drop=True).rename(columns=titles)
        return pd.concat([pd.DataFrame(shown, dtype=object), table], axis=1)

    frame = rows()
    table = group_tabulator(
        frame,
        window,
        stylesheets=[CLICKABLE],
        layout="fit_data_table",
        formatters={
            "less · more": {"type": "html"},
            **{name: SECONDS for name in frame if name.endswith(f"({unit})")},
            **{name: COUNT for name in frame if name.startswith("tasks of")},
        },
        widths={"task group": 260, "less · more": BAR_WIDTH + 16},
    )

    table.on_click(lambda event: window.toggle_group(names[event.row]))
    return table, lambda: table.param.update(value=rows())


def _difference_bar(value: float, largest: float, unit: str) -> str:
    """Return a difference as an HTML bar from the centre: left is less, right is more."""
    if not math.isfinite(value):
        return ""
    half = BAR_WIDTH / 2
    width = half * abs(value) / largest if largest else 0.0
    left = half if value > 0 else half - width
    colour = WORSE if value > 0 else BETTER
    label = f"{value:+.3f} {unit}"
    return (
        f"<svg width='{BAR_WIDTH}' height='{BAR_HEIGHT}' role='img' aria-label='{label}'>"
        f"<rect x='{left:.1f}' width='{width:.1f}' height='{BAR_HEIGHT}' fill='{colour}'/>"
        f"<line x1='{half}' x2='{half}' y1='0' y2='{BAR_HEIGHT}' stroke='{UNCHANGED}'/></svg>"
    )


TITLE = "Two runs"


def view(state: dict[str, str]) -> Viewable:
    """Return the page of two runs."""
    if not {"a", "b"} <= set(state):
        return ui.message("Which two runs?", "Select two runs in the list of runs.", back=True)
    try:
        pages = [load_run(state[name]) for name in ("a", "b")]
    except BenchkitError as error:
        return ui.message("These runs cannot be shown", str(error), back=True)
    runs = [page.run for page in pages]
    window = PairWindow(runs, [page.timeline for page in pages], state)
    parts: list[Callable[[], Sequence[Viewable]]] = [
        lambda: _head(runs),
        lambda: _problems([page.problem for page in pages]),
        lambda: _controls(window),
        lambda: _overlay(window),
        lambda: _threads(window),
        lambda: [ui.heading("Task groups", about_groups(window)), group_table(window)],
        lambda: _memory(runs),
        lambda: _transfers(runs),
        lambda: _stacks(runs),
        lambda: _key_figures(runs),
        lambda: _differences(runs),
    ]
    return ui.column(*(element for make in parts for element in ui.guard_parts(make)))


def _problems(problems: Sequence[str]) -> list[Viewable]:
    return [
        ui.message(f"The tasks of {name} cannot be shown", problem)
        for name, problem in zip(NAMES, problems, strict=True)
        if problem
    ]


def _overlay(window: PairWindow) -> list[Viewable]:
    overlay = memory_overlay([run.tree for run in window.runs], NAMES)
    window.share(overlay)
    return [ui.figure(overlay)]


def _head(runs: list[Run]) -> list[Viewable]:
    is_same = runs[0].workload == runs[1].workload
    title = runs[0].workload if is_same else f"{runs[0].workload} and {runs[1].workload}"
    rows = [
        [
            Markup(f"<span style='color:{colour}'>■</span> {name}"),
            link(run.id[:13], address("run", id=run.id)),
            "" if is_same else run.workload,
            run.tree.attrs.get("arm") or run.tree.attrs.get("environment", MISSING),
            format_outcome({**run.record, "outcome": run.outcome}),
            run.summary_line,
        ]
        for name, colour, run in zip(NAMES, PAIR_COLOURS, runs, strict=True)
    ]
    lines = [] if is_same else ["These are runs of different workloads."]
    titles = ["", "run", "", "environment", "outcome", "started, on"]
    return [ui.page_head(title, lines=lines), tables.html_table(titles, rows)]


def _controls(window: PairWindow) -> list[Viewable]:
    def swap_link() -> pn.pane.HTML:
        swapped = {"a": window.ids["b"], "b": window.ids["a"]}
        target = address("pair", **window.state(**swapped))
        return ui.link_line("See also", {target: "swap A and B"})

    links = swap_link()
    window.subscribe(lambda: links.param.update(object=swap_link().object))
    controls = window_controls(
        window,
        choose_group(window, {name: name for name in window.names}),
        button="Whole runs",
        title="Time window (s) of both runs, over the memory of B: drag in this or any plot",
    )
    return [*controls, links]


def _threads(window: PairWindow) -> list[Viewable]:
    """Return plots of busy threads and task streams, A above B."""
    busy_plots, streams = [], []
    for name, run, timeline in zip(NAMES, window.runs, window.timelines, strict=True):
        if not timeline.n_tasks:
            continue
        busy, stream = BusyThreads(run.tree, timeline), TaskStream(run.tree, timeline)
        retitle(busy.figure, f"{name}: what were threads busy with?")
        title = str(stream.figure.html_attributes["aria-label"])
        retitle(stream.figure, f"{name}: {title[0].lower()}{title[1:]}")
        window.share(busy.figure, stream.figure)
        _update_with(window, timeline, busy, stream)
        busy_plots.append(ui.figure(busy.figure))
        streams.append(ui.figure(stream.figure))
    return [*busy_plots, *streams]


def _update_with(
    window: PairWindow, timeline: TaskTimeline, busy: BusyThreads, stream: TaskStream
) -> None:
    """Make the plots of one run show the selected window and task group."""

    def show() -> None:
        busy.show_window(*(window.part or window.whole))
        stream.choose(*window.groups_of(timeline))

    window.subscribe(show, now=True)


def _memory(runs: list[Run]) -> list[Viewable]:
    """Return the bytes of results by task group, or a message if a run has none."""
    try:
        difference = memory_difference([runs[0]], [runs[1]])
    except NotRecorded as error:
        return [ui.heading("Which task groups held memory?"), ui.paragraph(str(error))]
    names = {"before (B)": "A (B)", "after (B)": "B (B)"}
    return [ui.section(pages.group_memory(difference.rename(columns=names)), href)]


def _transfers(runs: list[Run]) -> list[Viewable]:
    """Return the difference of the transfer matrices, below a select for the cell value."""
    a, b = (run.tree for run in runs)
    cells = filtered(
        "",
        {"cells": select("Cells show", VALUES, "bytes", width=200)},
        lambda values: [ui.figure(transfer_difference(a, b, values["cells"]))],
    )
    below = "Of the whole runs, for any window; red and +: more in B, blue and −: less."
    return [ui.heading("Transfers", below), cells]


def _stacks(runs: list[Run]) -> list[Viewable]:
    """Return the difference of the call stacks of both runs, or a message if one has none."""
    missing = [
        name for name, run in zip(NAMES, runs, strict=True) if not has(run.tree, "profile", "frame")
    ]
    if missing:
        text = f"Not recorded in {' and '.join(missing)}: only the full capture records them."
        return [ui.heading("Call stacks"), ui.paragraph(text)]
    return [
        ui.heading("Call stacks", "Of the whole runs, for any window and group."),
        stack_difference(runs[0], runs[1]),
    ]


def _key_figures(runs: list[Run]) -> list[Viewable]:
    table = runs[0].compare(runs[1])
    table.columns = ["A", "B", "B / A"]
    return [
        ui.heading("Key figures"),
        tables.table(table, "metric", sortable=False),
        ui.glossary(metric_terms(runs[0].metrics), "What the metrics mean"),
    ]


def _differences(runs: list[Run]) -> list[Viewable]:
    table = differences([runs[0]], [runs[1]])
    (section,) = pages.differences("A", {"B": table[table["kind"] != "count"]})
    return [ui.section(section, href)]
