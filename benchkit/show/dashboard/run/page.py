"""Page of one run: outcome and key figures, then plots and tables of one time window in tabs.

The selected window and task group apply to the whole page; see
`benchkit.show.dashboard.state.time_window`. A tab is created when it is first opened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import panel as pn
from bokeh.plotting import figure
from panel.viewable import Viewable

from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.errors import BenchkitError
from benchkit.formatting import MIB, MISSING, ROWS_SHOWN, format_bytes, format_quantity, short_names
from benchkit.show.dashboard.components import tables
from benchkit.show.dashboard.components.mark_form import mark_run
from benchkit.show.dashboard.components.tables import outcome_text
from benchkit.show.dashboard.components.widgets import window_controls
from benchkit.show.dashboard.run.call_stacks import stacks
from benchkit.show.dashboard.run.overview import group_table, overview
from benchkit.show.dashboard.run.task_groups import choose_group
from benchkit.show.dashboard.run.transfers import transfers
from benchkit.show.dashboard.state.cache import load_run, open_store
from benchkit.show.dashboard.state.time_window import NO_TIMES, Window
from benchkit.show.dashboard.state.url import Debounced, address, history_address
from benchkit.show.dashboard.web.template import TABS_STYLES
from benchkit.show.grafana import grafana_link
from benchkit.show.plots.base import has
from benchkit.show.plots.run_metrics import scheduler_load, worker_load
from benchkit.show.plots.thread_activity import TaskStream, format_event, task_stream
from benchkit.show.render import panel as ui
from benchkit.show.render.html import code
from benchkit.show.run_summary import KEY_FIGURES, metadata_table
from benchkit.store.run import Run, worker_names
from benchkit.store.schema import METRICS
from benchkit.values import decode_json

#: Number of complete tracebacks; repeating the same error gives no further information.
MAX_TRACEBACKS = 5
#: Prefix of Dask's log lines; other columns of the table contain its values.
_LINE_HEAD = re.compile(r"^[\d-]+ [\d:,.]+ - (?:distributed\.)?(?P<logger>[\w.-]+) - [A-Z]+ - ")


def problems(run: Run) -> pn.Column:
    """Return errors, tracebacks, warnings and all events of the cluster."""
    names = pd.Series(worker_names(run.tree), dtype=object)
    return ui.column(
        ui.paragraph("Of the whole run, for any window and task group."),
        _summary(run),
        *_tracebacks(run, names),
        *_logs(run, names),
        *_events(run, names),
    )


def _summary(run: Run) -> Viewable:
    frame = run.problems()
    if frame.empty:
        return ui.message("No problems", "No error, no lost worker.")
    frame["time (s)"] = frame["time (s)"].round(3)
    frame["message"] = frame["message"].map(format_event)
    return tables.table(frame.set_index("what"), "what", long="message")


def _tracebacks(run: Run, names: pd.Series) -> list[Viewable]:
    content: list[Viewable] = []
    trace = str(run.tree.attrs.get("traceback") or "")
    if trace:
        content += [ui.heading("Traceback"), ui.code_block(trace)]
    errors = run.errors()
    if errors.empty or "traceback" not in errors:
        return content
    distinct = errors[errors["traceback"].astype(str) != ""].drop_duplicates("traceback")
    for error in distinct.head(MAX_TRACEBACKS).itertuples():
        worker = names.get(error.worker, MISSING)
        where = f"{error.exception} on worker {worker}, {error.time:.3f} s"
        content += [ui.heading(f"Task {error.key} raised", where), ui.code_block(error.traceback)]
    if len(distinct) > MAX_TRACEBACKS:
        n_hidden = len(distinct) - MAX_TRACEBACKS
        content.append(ui.paragraph(f"{n_hidden} other tracebacks are not shown."))
    return content


def _logs(run: Run, names: pd.Series) -> list[Viewable]:
    logs = run.logs()
    if logs.empty:
        return []
    logs["time"] = logs["time"].round(3)
    logs["worker"] = logs["worker"].map(names).fillna(MISSING).astype(object)
    logs["text"] = [_LINE_HEAD.sub(r"\g<logger>: ", str(text)) for text in logs["text"]]
    shown = logs.rename(columns={"time": "time (s)"}).set_index("server")
    return [
        ui.heading("Warnings of scheduler and workers"),
        tables.table(shown[["time (s)", "level", "worker", "text"]], "server", long="text"),
    ]


def _events(run: Run, names: pd.Series) -> list[Viewable]:
    events = run.events()
    if events.empty:
        return []
    counts = events["topic"].value_counts()
    summary = ", ".join(f"{count} × {topic}" for topic, count in counts.items())
    shown = pd.DataFrame(
        {
            "event": events["topic"].to_numpy(),
            "time (s)": events["time"].round(3).to_numpy(),
            "worker": events["worker"].map(names).fillna(MISSING).astype(object).to_numpy(),
            "what": events["message"].map(format_event).to_numpy(),
        }
    )
    shown = shown.set_index("event")
    return [ui.heading("Events", summary), tables.table(shown, "event", long="what")]


#: Largest size of a file in bytes for download; of larger files the page shows the path.
MAX_BYTES = 200 * 2**20


def details(run: Run, files: Sequence[Path] = ()) -> pn.Column:
    """Return the metadata of a run, most frequently needed first."""
    attrs = run.tree.attrs
    content = [
        ui.heading("What was measured"),
        ui.facts(metadata_table(run).to_dict()),
        *_downloads(files),
    ]
    if attrs.get("source"):
        content += [ui.heading("Source"), ui.code_block(attrs["source"])]
    for name, title in (
        ("environment_spec", "Environment"),
        ("cluster_description", "Cluster"),
        ("variables", "Environment variables"),
        ("config", "Dask configuration"),
        ("packages", "Packages"),
    ):
        value = decode_json(attrs.get(name))
        if value:
            content += [ui.heading(title), ui.json_block(value)]
    return ui.column(*content)


def _downloads(files: Sequence[Path]) -> list[Viewable]:
    """Return download buttons for the stored files; no file name comes from the address."""
    files = [path for path in files if path.exists()]  # deleted by pruning after the page opened
    if not files:
        return []
    content: list[Viewable] = [
        ui.heading(
            "Files",
            "The run as NetCDF; if requested: performance report, cluster dump, memray profiles.",
        )
    ]
    for path in files[:ROWS_SHOWN]:
        size = path.stat().st_size
        if size > MAX_BYTES:
            content.append(ui.paragraph(f"{path.name} ({format_bytes(size)}): {path}"))
        else:
            label = f"{path.name} ({format_bytes(size)})"
            content.append(tables.download_button(path.name, partial(path.open, "rb"), label))
    if len(files) > ROWS_SHOWN:
        content.append(ui.paragraph(f"{len(files) - ROWS_SHOWN} more in {files[0].parent}"))
    return content


_TITLES = ("key", "worker", "thread", "start (s)", "duration (s)", "result (MiB)", "ended")


def longest_tasks(window: Window) -> pn.Column:
    """Return the tasks of the selected group, longest first; updates with window and group."""
    place = ui.column(margin=0)
    shown_group = ""

    def fill() -> None:
        nonlocal shown_group
        shown_group = window.group
        place[:] = _longest_table(window) if window.group else []

    # Reading the keys of 1 M tasks takes some 0.1 s: update after a drag, not at each step.
    fill_later = Debounced(fill, lambda: window.range)

    def update() -> None:
        if shown_group != window.group:
            fill()
        elif window.group:
            fill_later()

    window.subscribe(update, now=True)
    return place


def _longest_table(window: Window) -> list[Viewable]:
    timeline = window.timeline
    tasks = timeline.inside(*(window.part or timeline.whole))
    tasks = tasks[timeline.group[tasks] == timeline.groups.index(window.group)]
    title = f"Tasks of {short_names(timeline.groups)[window.group]}"
    if not window.has_times:
        return [ui.heading(title, NO_TIMES)]
    if not len(tasks):
        return [ui.heading(title, "No task of the group ran within the window.")]
    below = f"The longest {min(ROWS_SHOWN, len(tasks))} of {len(tasks)} within the window."
    cells = _longest_cells(window, _longest(timeline, tasks))
    return [ui.heading(title, below), tables.html_table(_TITLES, cells, tight=True)]


def _longest(timeline: TaskTimeline, tasks: np.ndarray) -> np.ndarray:
    duration = timeline.stop[tasks] - timeline.start[tasks]
    longest = np.argsort(-duration, kind="stable")[:ROWS_SHOWN]
    return tasks[longest]


def _longest_cells(window: Window, chosen: np.ndarray) -> list[list[str]]:
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
