"""Page of one run: outcome and key figures, then plots and tables of one time window.

The selected window and task group apply to the whole page; see
`benchkit.show.dashboard.state.time_window`. A tab is created when it is first opened.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import panel as pn

from benchkit.analysis.regression.history import SERIES_FIELDS
from benchkit.errors import BenchkitError
from benchkit.formatting import format_quantity, short_names
from benchkit.show.dashboard.components import components as parts
from benchkit.show.dashboard.components.mark_form import mark_run
from benchkit.show.dashboard.run.call_stacks import stacks
from benchkit.show.dashboard.run.details import provenance
from benchkit.show.dashboard.run.longest_tasks import longest_tasks
from benchkit.show.dashboard.run.overview import group_table, overview, overview_and_before
from benchkit.show.dashboard.run.problems import trouble
from benchkit.show.dashboard.run.task_groups import choose_group
from benchkit.show.dashboard.run.transfers import transfers
from benchkit.show.dashboard.state.cache import open_run, open_store, run_times, usual_of
from benchkit.show.dashboard.state.time_window import Window, align, end_fields
from benchkit.show.dashboard.state.url import address
from benchkit.show.dashboard.web.template import TABS_STYLES
from benchkit.show.grafana.link import grafana_link
from benchkit.show.plots.base import has
from benchkit.show.plots.run_metrics import scheduler_load, worker_load
from benchkit.show.plots.task_stream import TaskStream, task_stream
from benchkit.show.plots.thread_activity import window_strip
from benchkit.show.run_summary import KEY_FIGURES, OUTCOME_WORDS
from benchkit.store.run import Run
from benchkit.store.schema import METRICS

__all__ = ["TITLE", "head", "pieces", "view"]

TITLE = "Run"


def view(state: dict[str, str]) -> Any:
    """Return the page of the run `state["id"]`; without an id, of the latest run.

    ``tab``, ``from`` and ``to`` (s), ``group``, ``worker`` and the other keys of `Window` set
    the selection.
    """
    wanted = state.get("id") or "latest"
    try:
        run = open_run(wanted)
    except BenchkitError as error:
        return parts.message("This run cannot be shown", str(error), back=True)
    window = Window(run, run_times(run.id), state)
    return pn.Column(
        head(run, usual_of(run)),
        *_lead(run),
        *_controls(window),
        _tabs(window, _MAKERS),
        *mark_run(run),
        sizing_mode="stretch_width",
    )


def pieces(window: Window) -> Any:
    """Return the parts of the page that need no store, for notebooks."""
    return pn.Column(
        head(window.run),
        *_controls(window),
        _tabs(window, _PIECES),
        sizing_mode="stretch_width",
    )


def _lead(run: Run) -> list[Any]:
    """Return links from a run to other runs and, if configured, to Grafana."""
    series = {name: run.record.get(name) for name in SERIES_FIELDS}
    ways = {
        address("runs", workload=run.workload, pick=run.id): "hold it beside another run",
        address("history", **series): "history of the workload",
        address("workloads", name=run.workload): "what it does, its noise and its source",
        address("environments", name=run.tree.attrs.get("environment")): "its environment",
    }
    try:
        board = grafana_link(run)
    except BenchkitError as error:
        return [parts.way("See also", ways), parts.words(str(error), kind="bad")]
    if board:
        ways[board] = "Grafana at that time"
    return [parts.way("See also", ways)]


def _tabs(window: Window, makers: dict[str, Callable[[Window], Any]]) -> Any:
    """Return the tabs of a run page; each is created when it is first opened."""
    # Create empty columns first (no `dynamic=True`): content that is added to a column while
    # the browser still builds this column is lost, and the tab stays blank.
    names = list(makers)
    pages = [pn.Column(sizing_mode="stretch_width") for _ in names]
    window.tab = window.tab if window.tab in names else names[0]

    def fill(place: int) -> None:
        if not len(pages[place]):
            with window.of_tab(names[place]):
                pages[place][:] = [parts.guarded(lambda: makers[names[place]](window))]

    fill(names.index(window.tab))
    widget = pn.Tabs(
        *zip([name.capitalize() for name in names], pages, strict=True),
        sizing_mode="stretch_width",
        active=names.index(window.tab),
        stylesheets=[TABS_STYLES],
    )

    def turned(event: Any) -> None:
        window.turn(names[event.new])
        fill(event.new)
        window.write()

    widget.param.watch(turned, "active")
    return widget


def head(run: Run, usual: pd.DataFrame | None = None) -> Any:
    """Return the head of the page: run, outcome, and key figures with the usual values."""
    symbol, text = OUTCOME_WORDS.get(run.outcome, ("?", run.outcome))
    metrics = run.metrics
    shown = {name: label for name, label in KEY_FIGURES.items() if name in metrics}
    tiles = {
        label: format_quantity(metrics[name], METRICS[name].units) for name, label in shown.items()
    }
    before = {}
    if usual is not None and usual["runs before"].any():
        rows = {label: usual.loc[METRICS[name].long_name] for name, label in shown.items()}
        before = {
            label: f"{row['change']} on {row['median before']}"
            for label, row in rows.items()
            if row["runs before"]
        }
    tags = ", ".join(f"{name}={value}" for name, value in run.tags.items())
    level = str(run.tree.attrs.get("capture") or "")
    told = (
        run.id,
        f"environment {run.tree.attrs.get('environment', '–')}",
        f"capture {level}" if level else "",
        tags,
    )
    return parts.head(
        run.workload,
        state=f"{symbol} {text}",
        good=run.outcome == "ok",
        lines=[run.summary_line, ", ".join(part for part in told if part)],
        error=run.error,
        tiles=tiles,
        below=before,
    )


def _controls(window: Window) -> list[Any]:
    """Return the widgets above all tabs that show and set the window and the group."""
    if not has(window.run.tree, "scheduler", "time") and not window.within.n_tasks:
        return []
    told = parts.words(window.told)
    ends = end_fields(window)
    whole = pn.widgets.Button(name="Whole run", button_type="default", width=100, align="end")
    whole.on_click(window.reset)
    links = pn.Column(sizing_mode="stretch_width", margin=0)

    def show() -> None:
        parts.say(told, window.told)
        whole.disabled = window.part is None
        about = _about_group(window) if window.group else None
        # Links contain the window; update them in place: creating them again takes 10x the time.
        if about is not None and len(links):
            links.objects[0].param.update(object=about.object)
        elif about is not None or len(links):
            links[:] = [] if about is None else [about]

    show()
    window.follow(show)
    strip = window_strip(window.run.tree, window.whole, window.range)
    align(strip)
    return [
        parts.figure(strip),
        pn.Row(
            *(choose_group(window), *ends, whole, pn.Column(told, width=330, align="end")), margin=0
        ),
        links,
    ]


def _about_group(window: Window) -> Any:
    """Return links from the selected group to its tasks, call stacks and transfers."""
    name = short_names(window.within.groups)[window.group]

    def to(tab: str) -> str:
        return address("run", **window.state(tab=tab))

    return parts.way(
        name,
        {
            to("tasks"): "its tasks",
            to("stacks"): "its call stacks",
            to("transfers"): "its transfers",
            address("run", **window.state(group="")): "all groups again",
        },
    )


def _tasks(window: Window) -> Any:
    tree = window.run.tree
    if window.within.n_tasks:
        stream = TaskStream(tree, window.within)
        window.share(stream.figure)
        drawn = stream.figure
        chosen = [""]

        def show() -> None:
            if chosen[0] != window.group:
                chosen[0] = window.group
                stream.choose(*filter(None, [window.group]))
            else:
                stream.show_window(*window.shown)

        show()
        window.follow(show)
    else:
        drawn = task_stream(tree)
    return pn.Column(
        parts.figure(drawn),
        parts.words(
            "Zoom with the wheel, or drag across. Many tasks are drawn as pixels in the colour of "
            "the group that took most of each, paler the more the thread was idle."
        ),
        longest_tasks(window),
        parts.heading("Task groups", "Thread-seconds within the window, busiest first."),
        group_table(window),
        sizing_mode="stretch_width",
    )


def _machines(window: Window) -> Any:
    figures = [*worker_load(window.run.tree), *scheduler_load(window.run.tree)]
    window.share(*figures)
    return pn.Column(*(parts.figure(figure) for figure in figures), sizing_mode="stretch_width")


def _files(run_id: str) -> list[Path]:
    store = open_store()
    return [store.file(run_id), *store.extras(run_id)]


#: Tabs that need no store, by name.
_PIECES: dict[str, Callable[[Window], Any]] = {
    "overview": overview,
    "tasks": _tasks,
    "stacks": stacks,
    "transfers": transfers,
    "machines": _machines,
    "trouble": lambda window: trouble(window.run),
    "facts": lambda window: provenance(window.run),
}
_MAKERS = {
    **_PIECES,
    "overview": overview_and_before,
    "facts": lambda window: provenance(window.run, _files(window.run.id)),
}
