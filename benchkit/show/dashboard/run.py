"""One run: its outcome and key figures, its memory and load over time, its groups and tasks."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import panel as pn

from benchkit.analysis.previous import beside_previous
from benchkit.errors import BenchkitError
from benchkit.show.dashboard import parts
from benchkit.show.dashboard.data import open_run, open_store, runs_table
from benchkit.show.dashboard.stacks import stacks
from benchkit.show.plots.base import has
from benchkit.show.plots.run import (
    memory_by_kind,
    memory_by_worker,
    scheduler_load,
    task_group_bars,
    worker_load,
)
from benchkit.show.plots.stream import TaskStream, task_stream
from benchkit.show.plots.transfers import transfer_matrix
from benchkit.show.summary import KEY_FIGURES, OUTCOME_WORDS
from benchkit.store.run import Run
from benchkit.store.schema import METRICS
from benchkit.store.text import format_quantity, short_group

__all__ = ["TITLE", "view"]

TITLE = "Run"
#: A wheel turn makes dozens of range changes; the picture is drawn for the last one.
COALESCE_MS = 40


def view(state: dict[str, str]) -> Any:
    """Return the page of the run that `state["id"]` names; the latest without one."""
    wanted = state.get("id") or "latest"
    try:
        run = open_run(wanted)
    except BenchkitError as error:
        return parts.message("This run cannot be shown", str(error), back=True)
    made = {
        "overview": _overview,
        "tasks": _tasks,
        "stacks": stacks,
        "transfers": _transfers,
        "machines": _machines,
        "trouble": _trouble,
        "facts": _facts,
    }
    names = list(made)
    tabs = pn.Tabs(
        *((name.capitalize(), _guarded(made[name], run)) for name in names),
        dynamic=True,
        sizing_mode="stretch_width",
        active=names.index(state["tab"]) if state.get("tab") in names else 0,
        stylesheets=[_TABS],
    )

    def remember(event: Any) -> None:
        location = pn.state.location
        if location is not None:
            location.search = f"?view=run&id={run.id}&tab={names[event.new]}"

    tabs.param.watch(remember, "active")
    return pn.Column(_head(run), tabs, sizing_mode="stretch_width")


_TABS = """
:host { color: var(--ink); }
.bk-header { border-color: var(--line) !important; }
.bk-tab { color: var(--soft) !important; background: none !important; border: 0 !important;
  padding: .4rem 1rem .4rem 0 !important; font-size: 14px; }
.bk-tab.bk-active { color: var(--ink) !important; box-shadow: inset 0 -2px var(--link); }
"""


def _guarded(make: Any, run: Run) -> Any:
    """Return a part of the page; one that cannot be made says so in its place."""
    try:
        return make(run)
    except Exception as error:
        return parts.message("This part cannot be shown", f"{type(error).__name__}: {error}")


def _head(run: Run) -> Any:
    symbol, text = OUTCOME_WORDS.get(run.outcome, ("?", run.outcome))
    metrics = run.metrics
    tiles = {
        label: format_quantity(metrics[name], METRICS[name].units)
        for name, label in KEY_FIGURES.items()
        if name in metrics
    }
    tags = ", ".join(f"{name}={value}" for name, value in run.tags.items())
    level = str(run.tree.attrs.get("capture") or "")
    return parts.head(
        run.workload,
        state=f"{symbol} {text}",
        good=run.outcome == "ok",
        lines=[
            run.context,
            ", ".join(
                part
                for part in (
                    run.id,
                    f"environment {run.tree.attrs.get('environment', '–')}",
                    f"capture {level}" if level else "",
                    tags,
                )
                if part
            ),
        ],
        error=run.error,
        tiles=tiles,
    )


def _overview(run: Run) -> Any:
    memory, workers = memory_by_kind(run.tree), memory_by_worker(run.tree)
    if has(run.tree, "workers", "time") and has(run.tree, "scheduler", "time"):
        workers.x_range = memory.x_range  # one window of time for both
    return pn.Column(
        parts.figure(memory),
        parts.figure(workers),
        parts.figure(task_group_bars(run.tree)),
        parts.heading("Is that usual?", "Against the median of comparable runs before this one."),
        parts.table(beside_previous(runs_table().iloc[::-1], run.record), "metric", sortable=False),
        sizing_mode="stretch_width",
    )


def _tasks(run: Run) -> Any:
    table = _group_numbers(run)
    groups = (
        parts.table(table, "task group")
        if len(table)
        else parts.message("No task groups", "Nothing was recorded of them.")
    )
    if not has(run.tree, "tasks", "task"):
        drawn = task_stream(run.tree)
    else:
        stream = TaskStream(run.tree)
        drawn = stream.figure
        _follow(stream)
    return pn.Column(
        parts.figure(drawn),
        parts.words(
            "Zoom with the wheel. Many tasks are drawn as pixels in the colour of the group that "
            "took most of each, paler the more the thread was idle."
        ),
        parts.heading("Task groups", "Thread-seconds by activity, busiest first."),
        groups,
        sizing_mode="stretch_width",
    )


def _group_numbers(run: Run) -> pd.DataFrame:
    """Return the task groups as numbers, which sort; columns that are 0 throughout are left out."""
    table = run.task_groups()
    if table.empty:
        return table
    table = table.rename(columns={"result (B)": "results (MiB)", "n_tasks": "tasks"})
    table = table.rename(columns={"n_erred": "raised", "n_retried": "retried"})
    table["results (MiB)"] = table["results (MiB)"] / 2**20
    table.index = pd.Index([short_group(str(name)) for name in table.index])
    table = table.loc[:, [table[name].fillna(0).ne(0).any() for name in table]]
    seconds = [name for name in table if table[name].dtype == float]
    return table.round(dict.fromkeys(seconds, 3))


def _follow(stream: TaskStream) -> None:
    """Draw the stream anew when the window of time changes, once it has come to rest."""
    waiting: list[bool] = []

    def draw() -> None:
        waiting.clear()
        window = stream.figure.x_range
        stream.show_window(float(window.start), float(window.end))

    def changed(attr: str, old: Any, new: Any) -> None:
        document = pn.state.curdoc or stream.figure.document
        if not waiting and document is not None:
            waiting.append(True)
            document.add_timeout_callback(draw, COALESCE_MS)

    stream.figure.x_range.on_change("start", changed)
    stream.figure.x_range.on_change("end", changed)


def _machines(run: Run) -> Any:
    figures = [*worker_load(run.tree), *scheduler_load(run.tree)]
    timed = [figure for figure in figures if figure.axis and figure.axis[0].visible]
    for figure in timed:
        figure.x_range = timed[0].x_range
    return pn.Column(*(parts.figure(figure) for figure in figures), sizing_mode="stretch_width")


def _transfers(run: Run) -> Any:
    content: list[Any] = [parts.figure(transfer_matrix(run.tree))]
    spans = run.spans()
    if len(spans):
        shown = spans.drop(columns=["id", "parent"]).round(3)
        shown = shown.rename(
            columns={name: f"{name} (s)" for name in ("enqueued", "start", "stop")}
        )
        content += [parts.heading("Spans"), parts.table(shown.set_index("name"), "span")]
    return pn.Column(*content, sizing_mode="stretch_width")


def _trouble(run: Run) -> Any:
    found = run.trouble()
    content: list[Any] = []
    if found.empty:
        content.append(parts.message("Nothing went wrong", "No error, no lost worker."))
    else:
        found["time (s)"] = found["time (s)"].round(3)
        content.append(parts.table(found.set_index("what"), "what"))
    trace = str(run.tree.attrs.get("traceback") or "")
    if trace:
        content += [parts.heading("Traceback"), parts.source_text(trace)]
    logs = run.logs()
    if len(logs):
        logs["time"] = logs["time"].round(3)
        shown = logs.rename(columns={"time": "time (s)"}).set_index("server")
        content += [
            parts.heading("Warnings of scheduler and workers"),
            parts.table(shown[["time (s)", "level", "worker", "text"]], "server"),
        ]
    return pn.Column(*content, sizing_mode="stretch_width")


def _facts(run: Run) -> Any:
    attrs = run.tree.attrs
    content = [parts.heading("What was measured"), parts.facts(run.facts())]
    files = open_store().extras(run.id)
    if files:
        text = "\n".join(map(str, files))
        content += [parts.heading("Kept beside the run"), parts.source_text(text)]
    if attrs.get("source"):
        content += [parts.heading("Source"), parts.source_text(attrs["source"])]
    for name, title in (
        ("cluster_description", "Cluster"),
        ("variables", "Environment variables"),
        ("config", "Dask configuration"),
        ("packages", "Packages"),
    ):
        value = json.loads(attrs.get(name) or "{}")
        if value:
            text = json.dumps(value, indent=1, sort_keys=True)
            content += [parts.heading(title), parts.source_text(text)]
    return pn.Column(*content, sizing_mode="stretch_width")
