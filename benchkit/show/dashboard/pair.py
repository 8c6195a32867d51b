"""Two runs side by side on one axis of time: memory, threads, tasks, and where they differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import panel as pn
from bokeh.models.widgets.tables import NumberFormatter

from benchkit.analysis.differences import differences
from benchkit.analysis.pairs import group_differences
from benchkit.analysis.within import Within
from benchkit.errors import BenchkitError
from benchkit.show.dashboard import parts
from benchkit.show.dashboard.address import address
from benchkit.show.dashboard.data import open_run, run_times
from benchkit.show.dashboard.ends import end_fields
from benchkit.show.dashboard.loading import filled_later
from benchkit.show.dashboard.remembered import first_filters, page_of, remember_table, sorters_of
from benchkit.show.dashboard.shell import TABLE_STYLES
from benchkit.show.dashboard.stacks import stack_difference
from benchkit.show.dashboard.terms import metric_terms
from benchkit.show.dashboard.window import Window, align
from benchkit.show.escape import esc
from benchkit.show.plots.base import has, retitle
from benchkit.show.plots.busy import BusyThreads, whole_time, window_strip
from benchkit.show.plots.pair import PAIR_COLOURS, memory_overlay
from benchkit.show.plots.stream import TaskStream
from benchkit.store.run import Run
from benchkit.store.text import short_group

__all__ = ["TITLE", "PairWindow", "view"]

TITLE = "Two runs"
NAMES = ("A", "B")
ALL = "all task groups"
BAR, BAR_HEIGHT = 150, 12
PAGE_SIZE = 20
#: Pixels of call stacks, which are made later.
BELOW = 500


def view(state: dict[str, str]) -> Any:
    """Return the page of the runs that ``a`` and ``b`` name.

    ``from`` and ``to`` (s after the start of each) and ``group`` say what is looked at, ``sort``,
    ``holds`` and ``page`` how the table is sorted, what its names hold and where in it.
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
        parts.heading("Task groups", _about_groups(window)),
        _group_table(window),
        *_stacks(runs),
        parts.heading("Key figures"),
        parts.table(_figures(runs), "metric", sortable=False),
        parts.glossary(metric_terms(runs[0].metrics), "What the metrics mean"),
        *_facts(runs),
        sizing_mode="stretch_width",
    )


class PairWindow(Window):
    """What a page of two runs looks at; groups go by their names without Dask's hash."""

    VIEW = "pair"

    def __init__(self, runs: list[Run], withins: list[Within], state: Mapping[str, str]) -> None:
        self.runs, self.withins = runs, withins
        self.ids = {name: run.id for name, run in zip(("a", "b"), runs, strict=True)}
        ends = [whole_time(run.tree, within) for run, within in zip(runs, withins, strict=True)]
        super().__init__(
            runs[1], withins[1], state, whole=(min(e[0] for e in ends), max(e[1] for e in ends))
        )
        self.names = list(
            dict.fromkeys(short_group(name) for within in withins for name in within.groups)
        )
        self.group = state.get("group", "") if state.get("group") in self.names else ""

    def state(self, **changed: Any) -> dict[str, Any]:
        """Return the keys of the page's address, some of them changed."""
        kept = super().state()
        mine = ("from", "to", "group", "sort", "holds", "page")
        return {**self.ids, **{name: kept[name] for name in mine}, **changed}

    @property
    def has_times(self) -> bool:
        """Whether it is known of both when tasks computed."""
        return all(within.n_tasks for within in self.withins)

    def groups_of(self, within: Within) -> list[str]:
        """Return the groups of one run that the chosen name stands for."""
        return [name for name in within.groups if short_group(name) == self.group]


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
                f"<a href='{esc(link)}'>{esc(run.id[:13])}</a>",
                esc("" if same else run.workload),
                esc(arm),
                esc(run.outcome.replace("_", " ")),
                esc(run.context),
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
    """Return threads busy and task streams, each of A above that of B."""
    busy, streams = [], []
    for name, run, within in zip(NAMES, window.runs, window.withins, strict=True):
        if not within.n_tasks:
            continue
        curve, stream = BusyThreads(run.tree, within), TaskStream(run.tree, within)
        retitle(curve.figure, f"{name}: what were threads busy with?")
        title = stream.figure.title.text
        retitle(stream.figure, f"{name}: {title[0].lower()}{title[1:]}")
        window.share(curve.figure, stream.figure)
        window.follow(_follower(window, within, curve, stream))
        busy.append(parts.figure(curve.figure))
        streams.append(parts.figure(stream.figure))
    for follower in window.followers[-len(busy) :] if busy else ():
        follower()
    return [*busy, *streams]


def _follower(window: PairWindow, within: Within, curve: BusyThreads, stream: TaskStream) -> Any:
    chosen = [""]

    def show() -> None:
        curve.show_window(*(window.part or window.whole))
        if chosen[0] != window.group:
            chosen[0] = window.group
            stream.choose(*window.groups_of(within))
        else:
            stream.show_window(*window.shown)

    return show


def _about_groups(window: PairWindow) -> str:
    where = "within the window" if window.has_times else "of the whole runs, whatever the window"
    told = (
        f"Thread-seconds {where}, B − A, the largest difference first; one run a side is a look, "
        "not a verdict."
    )
    for name, within in zip(NAMES, window.withins, strict=True):
        if not within.n_tasks:
            told += f" Of {name} it is not known when each task computed."
        elif within.n_unseen:
            told += f" Of {name} {within.n_unseen} tasks were too many to record: parts miss them."
    return told


def _group_table(window: PairWindow) -> Any:
    numbers = NumberFormatter(format="0,0.000", nan_format="–")
    counts = NumberFormatter(format="0,0", nan_format="–")
    names: list[str] = []

    def frame() -> Any:
        found = group_differences(window.withins[0], window.withins[1], window.of_tasks)
        names[:] = [str(name) for name in found.index]
        most = float(found["difference"].abs().max()) if len(found) else 0.0
        bars = [_bar(value, most) for value in found["difference"]]
        marked = [f"● {name}" if name == window.group else name for name in names]
        found = found.reset_index(drop=True)
        found = found.rename(
            columns={
                "a": "A (s)", "b": "B (s)", "difference": "B − A (s)", "tasks_a": "tasks of A",
                "tasks_b": "tasks of B",
            }
        )  # fmt: skip
        found.insert(0, "less · more", bars)
        found.insert(0, "task group", marked)
        return found.astype({"task group": object, "less · more": object})

    shown, held = frame(), {"task group": window.words["holds"]}
    table = pn.widgets.Tabulator(
        shown,
        sorters=sorters_of(window.words["sort"], shown.columns),
        configuration=first_filters(held, window.words["page"]),
        show_index=False,
        disabled=True,
        theme="simple",
        stylesheets=[*TABLE_STYLES, ".tabulator-row { cursor: pointer; }"],
        layout="fit_data_table",
        pagination="remote",
        page_size=PAGE_SIZE,
        page=page_of(window.words["page"], len(shown), PAGE_SIZE),
        formatters={
            "less · more": {"type": "html"},
            **{name: numbers for name in shown if name.endswith("(s)")},
            **{name: counts for name in shown if name.startswith("tasks of")},
        },
        text_align={name: "right" for name in shown.columns[2:]},
        header_filters={"task group": {"type": "input", "func": "like", "placeholder": "filter"}},
        widths={"task group": 260, "less · more": BAR + 16},
    )

    def clicked(event: Any) -> None:
        group = names[event.row]
        window.choose("" if group == window.group else group)

    def show() -> None:
        table.value = frame()

    table.on_click(clicked)
    remember_table(
        table,
        held,
        lambda order, held, page: window.note(
            sort=order, holds=held.get("task group", ""), page=page
        ),
    )
    window.follow(show)
    return table


def _bar(value: float, most: float) -> str:
    """Return a difference as a bar from the middle: less to the left, more to the right."""
    half = BAR / 2
    width = half * abs(value) / most if most else 0.0
    left = half if value > 0 else half - width
    colour = "#b2182b" if value > 0 else "#2166ac"
    return (
        f"<svg width='{BAR}' height='{BAR_HEIGHT}' role='img' aria-label='{value:+.3f} s'>"
        f"<rect x='{left:.1f}' width='{width:.1f}' height='{BAR_HEIGHT}' fill='{colour}'/>"
        f"<line x1='{half}' x2='{half}' y1='0' y2='{BAR_HEIGHT}' stroke='#8a95a2'/></svg>"
    )


def _stacks(runs: list[Run]) -> list[Any]:
    """Return the call stacks of both, laid over one another once the first screen is there."""
    without = [
        name for name, run in zip(NAMES, runs, strict=True) if not has(run.tree, "profile", "frame")
    ]
    if without:
        told = f"Of {' and '.join(without)} none were recorded: capture in full takes them."
        return [parts.heading("Call stacks"), parts.words(told)]
    return [
        parts.heading("Call stacks", "Of the whole runs, whatever the window and the group."),
        filled_later(
            lambda: parts.guarded(lambda: stack_difference(runs[0], runs[1])), below=BELOW
        ),
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
