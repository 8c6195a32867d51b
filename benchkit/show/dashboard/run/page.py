"""Page of one run: outcome and key figures, then plots and tables of one time window.

The selected window and task group apply to the whole page; see
`benchkit.show.dashboard.state.time_window`. A tab is created when it is first opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import panel as pn
from bokeh.plotting import figure
from panel.viewable import Viewable

from benchkit.errors import BenchkitError
from benchkit.formatting import MISSING, format_quantity, short_names
from benchkit.show.dashboard.components import ui
from benchkit.show.dashboard.components.mark_form import mark_run
from benchkit.show.dashboard.components.markup import outcome_text
from benchkit.show.dashboard.components.widgets import window_controls
from benchkit.show.dashboard.run.call_stacks import stacks
from benchkit.show.dashboard.run.details import details
from benchkit.show.dashboard.run.longest_tasks import longest_tasks
from benchkit.show.dashboard.run.overview import group_table, overview
from benchkit.show.dashboard.run.problems import problems
from benchkit.show.dashboard.run.task_groups import choose_group
from benchkit.show.dashboard.run.transfers import transfers
from benchkit.show.dashboard.state.cache import load_run, open_store
from benchkit.show.dashboard.state.time_window import Window
from benchkit.show.dashboard.state.url import address, history_address
from benchkit.show.dashboard.web.template import TABS_STYLES
from benchkit.show.grafana import grafana_link
from benchkit.show.plots.base import has
from benchkit.show.plots.run_metrics import scheduler_load, worker_load
from benchkit.show.plots.task_stream import TaskStream, task_stream
from benchkit.show.run_summary import KEY_FIGURES
from benchkit.store.run import Run
from benchkit.store.schema import METRICS

__all__ = ["TITLE", "head", "live_figures", "view"]

TITLE = "Run"


def view(state: dict[str, str]) -> Viewable:
    """Return the page of a run."""
    try:
        page = load_run(state.get("id") or "latest")
    except BenchkitError as error:
        return ui.message("This run cannot be shown", str(error), back=True)
    run, window = page.run, Window(page.run, page.timeline, state)
    tabs = {
        **_TABS,
        "overview": lambda window: overview(window, page.baseline),
        "facts": lambda window: details(run, _files(run.id)),
    }
    return ui.column(
        ui.guard(lambda: head(run, page.baseline)),
        *([ui.message("Its tasks cannot be shown", page.problem)] if page.problem else []),
        *ui.guard_parts(lambda: _links(run)),
        *ui.guard_parts(lambda: _controls(window)),
        _tabs(window, tabs),
        *ui.guard_parts(lambda: mark_run(run)),
    )


def live_figures(window: Window) -> pn.Column:
    """Return the parts of the page that need no store, for notebooks."""
    return ui.column(head(window.run), *_controls(window), _tabs(window, _TABS))


def _links(run: Run) -> list[Viewable]:
    """Return links from a run to other runs and, if configured, to Grafana."""
    links = {
        address("runs", workload=run.workload, pick=run.id): "compare with another run",
        history_address(run.record): "history of the workload",
        address("workloads", name=run.workload): "description, noise and source of the workload",
        address("environments", name=run.tree.attrs.get("environment")): "its environment",
    }
    try:
        board = grafana_link(run)
    except BenchkitError as error:
        return [ui.link_line("See also", links), ui.paragraph(str(error), kind="bad")]
    if board:
        links[board] = "Grafana at that time"
    return [ui.link_line("See also", links)]


def _tabs(window: Window, makers: Mapping[str, Callable[[Window], Viewable]]) -> pn.Tabs:
    """Return the tabs of a run page; each is created when it is first opened."""
    # Create empty columns first (no `dynamic=True`): content that is added to a column while
    # the browser still builds this column is lost, and the tab stays blank.
    names = list(makers)
    pages = [ui.column() for _ in names]
    window.tab = window.tab if window.tab in names else names[0]

    def fill(index: int) -> None:
        if not len(pages[index]):
            with window.tab_callbacks(names[index]):
                pages[index][:] = [ui.guard(lambda: makers[names[index]](window))]

    def open_tab(event: Any) -> None:
        window.show_tab(names[event.new])
        fill(event.new)
        window.write()

    fill(names.index(window.tab))
    tabs = pn.Tabs(
        *zip([_TAB_TITLES.get(name, name.capitalize()) for name in names], pages, strict=True),
        sizing_mode="stretch_width",
        active=names.index(window.tab),
        stylesheets=[TABS_STYLES],
    )
    tabs.param.watch(open_tab, "active")
    return tabs


def head(run: Run, baseline: pd.DataFrame | None = None) -> pn.pane.HTML:
    """Return the head of the page: run, outcome, and key figures with the usual values."""
    metrics = run.metrics
    shown = {name: label for name, label in KEY_FIGURES.items() if name in metrics}
    usual: dict[str, str] = {}
    if baseline is not None:
        rows = {label: baseline.loc[METRICS[name].long_name] for name, label in shown.items()}
        usual = {
            label: f"{row['change']} on {row['median before']}"
            for label, row in rows.items()
            if row["runs before"]
        }
    level = str(run.tree.attrs.get("capture") or "")
    texts = (
        run.id,
        f"environment {run.tree.attrs.get('environment', MISSING)}",
        f"capture {level}" if level else "",
        ", ".join(f"{name}={value}" for name, value in run.tags.items()),
    )
    limits = [f"{row.kind}: {row.text}" for row in run.quality().itertuples()]
    return ui.page_head(
        run.workload,
        state=outcome_text(run.outcome),
        good=run.outcome == "ok",
        lines=[run.summary_line, ", ".join(text for text in texts if text), *limits],
        error=run.error,
        figures={
            label: format_quantity(metrics[name], METRICS[name].units)
            for name, label in shown.items()
        },
        usual=usual,
    )


def _controls(window: Window) -> list[Viewable]:
    """Return the widgets above all tabs that show and set the window and the group."""
    if not has(window.run.tree, "scheduler", "time") and not window.timeline.n_tasks:
        return []
    links = ui.column(margin=0)

    def show() -> None:
        # Links contain the window; update them in place: creating them again takes 10x the time.
        new = [_group_links(window)] if window.group else []
        if new and len(links):
            links.objects[0].param.update(object=new[0].object)
        elif new or len(links):
            links[:] = new

    window.subscribe(show, now=True)
    return [*window_controls(window, choose_group(window), button="Whole run"), links]


def _group_links(window: Window) -> pn.pane.HTML:
    """Return links from the selected group to its tasks, call stacks and transfers."""
    titles = {"tasks": "its tasks", "stacks": "its call stacks", "transfers": "its transfers"}
    links = {address("run", **window.state(tab=tab)): title for tab, title in titles.items()}
    links[address("run", **window.state(group=""))] = "all groups"
    return ui.link_line(short_names(window.timeline.groups)[window.group], links)


def _tasks(window: Window) -> pn.Column:
    tree = window.run.tree
    plot = _task_stream(window) if window.timeline.n_tasks else task_stream(tree)
    return ui.column(
        ui.figure(plot),
        ui.paragraph(
            "Zoom with the wheel or by dragging. Many tasks are drawn as pixels: a pixel has the "
            "colour of the group that used most of its time, and is paler if the thread was idle."
        ),
        longest_tasks(window),
        ui.heading("Task groups", "Thread-seconds within the window, busiest first."),
        group_table(window),
    )


def _task_stream(window: Window) -> figure:
    """Return the task stream; updates with window and group."""
    stream = TaskStream(window.run.tree, window.timeline)
    window.share(stream.figure)

    def show() -> None:
        stream.choose(*window.groups_of(window.timeline))

    window.subscribe(show, now=True)
    return stream.figure


def _machines(window: Window) -> pn.Column:
    plots = [*worker_load(window.run.tree), *scheduler_load(window.run.tree)]
    window.share(*plots)
    return ui.column(*map(ui.figure, plots))


def _files(run_id: str) -> list[Path]:
    store = open_store()
    return [store.file(run_id), *store.extras(run_id)]


#: Tab in the address -> function that makes its content without the store.
_TABS: dict[str, Callable[[Window], Viewable]] = {
    "overview": overview,
    "tasks": _tasks,
    "stacks": stacks,
    "transfers": transfers,
    "machines": _machines,
    "trouble": lambda window: problems(window.run),
    "facts": lambda window: details(window.run),
}
#: Tab in the address -> title, where it is not the same word.
_TAB_TITLES = {"stacks": "Call stacks", "trouble": "Problems"}
