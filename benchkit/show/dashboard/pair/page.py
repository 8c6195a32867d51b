"""Page of two runs on one time axis: memory, threads, tasks and their differences."""

from __future__ import annotations

from typing import Any

import panel as pn

from benchkit.analysis.compare.environment_diff import differences
from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.errors import BenchkitError
from benchkit.show.dashboard.components import components as parts
from benchkit.show.dashboard.components.components import metric_terms
from benchkit.show.dashboard.pair.task_groups import about_groups, group_table
from benchkit.show.dashboard.run.call_stacks import stack_difference
from benchkit.show.dashboard.run.transfers import VALUES
from benchkit.show.dashboard.state.cache import open_run, run_times
from benchkit.show.dashboard.state.time_window import NAMES, PairWindow, align, end_fields
from benchkit.show.dashboard.state.url import address
from benchkit.show.escape import escape
from benchkit.show.plots.base import has, retitle
from benchkit.show.plots.memory_overlay import PAIR_COLOURS, memory_overlay
from benchkit.show.plots.task_stream import TaskStream
from benchkit.show.plots.thread_activity import BusyThreads, window_strip
from benchkit.show.plots.transfers import transfer_difference
from benchkit.store.run import Run

__all__ = ["TITLE", "view"]

TITLE = "Two runs"
ALL = "all task groups"


def view(state: dict[str, str]) -> Any:
    """Return the page of the runs ``a`` and ``b``.

    Further keys: ``from`` and ``to`` (s after the start of each run) and ``group`` set the
    selection; ``sort``, ``holds`` and ``page`` set order, name filter and page of the table.
    """
    if not {"a", "b"} <= set(state):
        return parts.message(
            "Which two runs?", "Choose one in the list of runs, then another beside it.", back=True
        )
    try:
        runs = [open_run(state[name]) for name in ("a", "b")]
    except BenchkitError as error:
        return parts.message("These runs cannot be shown", str(error), back=True)
    window = PairWindow(runs, [run_times(run.id) for run in runs], state)
    overlay = memory_overlay([run.tree for run in runs], NAMES)
    window.share(overlay)
    return pn.Column(
        _head(runs),
        *_controls(window),
        parts.figure(overlay),
        *_threads(window),
        parts.heading("Task groups", about_groups(window)),
        group_table(window),
        *_transfers(runs),
        *_stacks(runs),
        parts.heading("Key figures"),
        parts.table(_figures(runs), "metric", sortable=False),
        parts.glossary(metric_terms(runs[0].metrics), "What the metrics mean"),
        *_facts(runs),
        sizing_mode="stretch_width",
    )


def _head(runs: list[Run]) -> Any:
    same = runs[0].workload == runs[1].workload
    title = runs[0].workload if same else f"{runs[0].workload} and {runs[1].workload}"
    cells = []
    for name, colour, run in zip(NAMES, PAIR_COLOURS, runs, strict=True):
        link = address("run", id=run.id)
        arm = run.tree.attrs.get("arm") or run.tree.attrs.get("environment", "–")
        cells.append(
            [
                f"<span style='color:{colour}'>■</span> {name}",
                f"<a href='{escape(link)}'>{escape(run.id[:13])}</a>",
                escape("" if same else run.workload),
                escape(arm),
                escape(run.outcome.replace("_", " ")),
                escape(run.summary_line),
            ]
        )
    lines = [] if same else ["These are runs of different workloads."]
    return pn.Column(
        parts.head(title, lines=lines),
        parts.rows(["", "run", "", "environment", "outcome", "started, on"], cells),
        sizing_mode="stretch_width",
    )


def _controls(window: PairWindow) -> list[Any]:
    strip = window_strip(window.run.tree, window.whole, window.range)
    align(strip)
    retitle(strip, "Window of time (s) of both, over the memory of B: drag across this or any plot")
    options = {ALL: "", **{name: name for name in window.names}}
    group = pn.widgets.Select(
        name="Task group", options=options, value=window.group, width=300, margin=(5, 10, 5, 0)
    )
    group.param.watch(lambda event: window.choose(event.new), "value")
    told = parts.words(window.told)
    whole = pn.widgets.Button(name="Whole runs", button_type="default", width=110, align="end")
    whole.on_click(window.reset)
    swapped = {"a": window.ids["b"], "b": window.ids["a"]}

    def onward() -> Any:
        return parts.way("See also", {address("pair", **window.state(**swapped)): "swap A and B"})

    lead = onward()

    def show() -> None:
        lead.object = onward().object
        group.value = window.group
        parts.say(told, window.told)
        whole.disabled = window.part is None

    show()
    window.follow(show)
    return [
        parts.figure(strip),
        pn.Row(
            *(group, *end_fields(window), whole, pn.Column(told, width=330, align="end")), margin=0
        ),
        lead,
    ]


def _threads(window: PairWindow) -> list[Any]:
    """Return plots of busy threads and task streams, A above B."""
    busy, streams = [], []
    for name, run, within in zip(NAMES, window.runs, window.withins, strict=True):
        if not within.n_tasks:
            continue
        curve, stream = BusyThreads(run.tree, within), TaskStream(run.tree, within)
        retitle(curve.figure, f"{name}: what were threads busy with?")
        title = str(stream.figure.html_attributes["aria-label"])
        retitle(stream.figure, f"{name}: {title[0].lower()}{title[1:]}")
        window.share(curve.figure, stream.figure)
        window.follow(_follower(window, within, curve, stream))
        busy.append(parts.figure(curve.figure))
        streams.append(parts.figure(stream.figure))
    for follower in window.followers[-len(busy) :] if busy else ():
        follower()
    return [*busy, *streams]


def _follower(
    window: PairWindow, within: TaskTimeline, curve: BusyThreads, stream: TaskStream
) -> Any:
    chosen = [""]

    def show() -> None:
        curve.show_window(*(window.part or window.whole))
        if chosen[0] != window.group:
            chosen[0] = window.group
            stream.choose(*window.groups_of(within))
        else:
            stream.show_window(*window.shown)

    return show


def _transfers(runs: list[Run]) -> list[Any]:
    """Return the difference of the transfer matrices, below a select for the cell value."""
    value = pn.widgets.Select(name="Cells show", options=VALUES, value="bytes", width=200)
    shown = pn.Column(sizing_mode="stretch_width", margin=0)

    def draw(*events: Any) -> None:
        drawn = transfer_difference(runs[0].tree, runs[1].tree, str(value.value))
        shown[:] = [parts.figure(drawn)]

    draw()
    value.param.watch(draw, "value")
    about = "Of the whole runs, whatever the window: red and + is more in B, blue and − less."
    return [parts.heading("Transfers", about), value, shown]


def _stacks(runs: list[Run]) -> list[Any]:
    """Return the difference of the call stacks of both runs, or a message if one has none."""
    without = [
        name for name, run in zip(NAMES, runs, strict=True) if not has(run.tree, "profile", "frame")
    ]
    if without:
        told = f"Of {' and '.join(without)} none were recorded: capture in full takes them."
        return [parts.heading("Call stacks"), parts.words(told)]
    return [
        parts.heading("Call stacks", "Of the whole runs, whatever the window and the group."),
        parts.guarded(lambda: stack_difference(runs[0], runs[1])),
    ]


def _figures(runs: list[Run]) -> Any:
    table = runs[0].compare(runs[1])
    table.columns = ["A", "B", "B / A"]
    return table


def _facts(runs: list[Run]) -> list[Any]:
    found = differences([runs[0]], [runs[1]])
    found = found[found["kind"] != "count"]
    title = parts.heading("What differs besides", "Packages, configuration, cluster, variables.")
    if found.empty:
        return [title, parts.words("Nothing that was recorded.")]
    found = found.rename(columns={"baseline": "A", "contender": "B"})
    return [title, parts.table(found.set_index("kind"), "kind")]
