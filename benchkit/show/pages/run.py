"""The page of a run: where its time and memory went, its tasks, transfers, problems and facts."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from benchkit.analysis.insight.blame import CAUSES
from benchkit.analysis.insight.diagnose import Diagnosis, diagnose
from benchkit.analysis.insight.findings import Finding
from benchkit.analysis.insight.limits import BOUNDS
from benchkit.analysis.insight.memory import bytes_as_text, memory_growth, memory_peaks
from benchkit.analysis.run.baseline import comparable, metrics_against_previous
from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.errors import BenchkitError, NotRecorded, describe_error
from benchkit.formatting import (
    MIB,
    MISSING,
    NO_FAILURE,
    ROWS_SHOWN,
    format_outcome,
    format_quantity,
    format_seconds,
    short_group,
    short_names,
)
from benchkit.show.pages.page import (
    Bar,
    Cell,
    Column,
    Content,
    Figure,
    Filter,
    KeyFigure,
    Later,
    LiveFigure,
    Page,
    Row,
    Section,
    Table,
    Target,
    Text,
    make_table,
    metric_terms,
    select_filter,
    text_table,
)
from benchkit.show.plots import flame, run_metrics, thread_activity
from benchkit.show.plots.base import has
from benchkit.show.plots.transfers import VALUES, TransferMatrix
from benchkit.show.theme import ACTIVITY_COLOURS
from benchkit.store.run import Run, worker_names
from benchkit.store.schema import METRICS
from benchkit.store.task_graph import has_task_graph
from benchkit.table import Table as TextTable
from benchkit.values import decode_json

_log = logging.getLogger(__name__)

#: Metrics at the top of the page -> label.
KEY_FIGURES = {
    "duration": "wall time",
    "memory_peak": "peak memory of all workers",
    "memory_peak_worker": "highest peak of one worker",
    "spilled_peak": "peak of spilled data",
    "transfer_bytes": "fetched between workers",
    "n_tasks": "tasks",
}
#: Earlier runs used for the growth of memory, and the groups of them that it reads.
GROWTH_RUNS, GROWTH_GROUPS = 9, ("scheduler", "held")
#: Number of complete tracebacks; repeating the same error gives no further information.
MAX_TRACEBACKS = 5
#: Largest number of rows of the table of what a group fetched.
MAX_PAIRS = 500
#: Message shown where task times are missing.
NO_TIMES = "Task times were not recorded: the light capture only counts tasks."
#: Prefix of Dask's log lines; other columns of the table contain its values.
_LINE_HEAD = re.compile(r"^[\d-]+ [\d:,.]+ - (?:distributed\.)?(?P<logger>[\w.-]+) - [A-Z]+ - ")
#: Keys of the state that select a part of the run.
_SELECTION = ("from", "to", "group")


@dataclass(frozen=True, eq=False)
class RunData:
    """A run, and what its page compares it with."""

    run: Run
    timeline: TaskTimeline  # Start and stop of its tasks
    problem: str = ""  # Why the timeline lacks tasks that the run has; empty if it does not
    # Metrics of the run, and the medians of comparable earlier runs
    baseline: pd.DataFrame = field(default_factory=pd.DataFrame)

    @classmethod
    def read(cls, run: Run) -> RunData:
        """Return the data of a run; a run without a store has no earlier runs."""
        earlier = pd.DataFrame() if run.store is None else run.store.runs(run.workload)
        baseline = metrics_against_previous(earlier, run.record)
        return cls(run, *read_timeline(run.tree), baseline)

    @cached_property
    def whole(self) -> tuple[float, float]:
        """First and last time of the run, in s."""
        return thread_activity.whole_time(self.run.tree, self.timeline)

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """What makes the run slower than it has to be."""
        return diagnose(self.run)

    @cached_property
    def names(self) -> dict[str, str]:
        """Task group -> its name without hash."""
        return short_names(self.timeline.groups)

    @cached_property
    def workers(self) -> pd.Series:
        """Names of the workers."""
        return pd.Series(worker_names(self.run.tree), dtype=object)


def read_timeline(tree: xr.DataTree) -> tuple[TaskTimeline, str]:
    """Return the tasks of a run, and why they cannot be shown; empty if they can."""
    try:
        return TaskTimeline(tree), ""
    except Exception as error:  # of a damaged run, whose other parts can be shown
        _log.error("tasks of run %s", tree.attrs.get("id"), exc_info=error)
        return TaskTimeline(xr.DataTree()), describe_error(error)


class _View:
    """A run, and the part of it that the page shows."""

    def __init__(self, data: RunData, state: Mapping[str, str]) -> None:
        self.data, self.state = data, state
        self.run, self.timeline = data.run, data.timeline
        group = state.get("group", "")
        self.group = group if group in data.timeline.groups else ""
        self.part = shown_part(state)  # Times in s; None: the whole run
        self.times = self.part or data.whole
        self.has_times = bool(data.timeline.n_tasks)

    def worker_name(self, index: Any) -> str:
        """Return the name of a worker, or `MISSING` for a process outside of the cluster."""
        return str(self.data.workers.get(index, MISSING))

    @property
    def prefix(self) -> str:
        """Prefix of the selected group, or an empty text."""
        prefixes = dict(zip(self.timeline.groups, self.timeline.prefixes, strict=False))
        return prefixes.get(self.group, "")


def shown_part(state: Mapping[str, str]) -> tuple[float, float] | None:
    """Return the times in s between which a page shows a run; None: the whole run."""
    try:
        left, right = float(state.get("from") or "nan"), float(state.get("to") or "nan")
    except ValueError:
        return None
    return (left, right) if math.isfinite(right - left) and right > left else None


def page(data: RunData, state: Mapping[str, str]) -> Page:
    """Return the page of a run.

    `state` has the times in s (``from``, ``to``), the task group, and the values of filters.
    """
    run, metrics = data.run, data.run.metrics
    attrs = run.tree.attrs
    lines = [
        run.summary_line,
        " · ".join(
            text
            for text in (
                run.id,
                f"environment {attrs.get('environment', MISSING)}",
                f"capture {attrs['capture']}" if attrs.get("capture") else "",
                ", ".join(f"{name}={value}" for name, value in run.tags.items()),
            )
            if text
        ),
        *(f"{row.kind}: {row.text}" for row in run.quality().itertuples()),
        f"Its tasks cannot be shown: {data.problem}" if data.problem else "",
    ]
    return Page(
        run.workload,
        lines,
        sections(data, state),
        Text(format_outcome(run.record), "good" if run.outcome in NO_FAILURE else "bad"),
        run.error,
        [
            KeyFigure(label, format_quantity(metrics[name], METRICS[name].units), usual)
            for name, label in KEY_FIGURES.items()
            if name in metrics
            for usual in [_usual(data.baseline, METRICS[name].long_name)]
        ],
    )


def _usual(baseline: pd.DataFrame, metric: str) -> str:
    if metric not in baseline.index or not baseline.loc[metric, "runs before"]:
        return ""
    return f"{baseline.loc[metric, 'change']} on {baseline.loc[metric, 'median before']}"


def _diagnosis(view: _View) -> list[Content]:
    if "duration" not in view.run.metrics:
        return []
    found = view.data.diagnosis
    sentences = list(found.conclusion)
    if not has_task_graph(view.run.tree):
        sentences.append("Dependencies of tasks were not recorded: fewer rules apply.")
    content: list[Content] = [[Text(" ".join([*sentences, f"Diagnosis: {found.sentence}."]))]]
    if found.findings:
        rows = [(view, found, finding) for finding in found.findings]
        content.append(make_table(_FINDING, rows))
    if found.limits is not None:
        limits = found.limits
        causes = [row for row in limits.to_records() if row["kind"] in _KINDS]
        content += [
            Figure(lambda: thread_activity.limits_over_time(view.run, limits), view.times),
            _note("Computed from the last task back to the start of the clock: each moment has the "
                  "cause that the next step of the run waited for then. The causes sum to the "
                  "duration."),
            replace(make_table(_CAUSE, causes), terms={**BOUNDS, **CAUSES},
                    terms_title="What the causes mean"),
        ]  # fmt: skip
    return content


def _finding(each: tuple[_View, Diagnosis, Finding]) -> Text:
    """Return what was found, and the part of the run that shows it."""
    view, _, found = each
    start, stop = found.window or view.data.whole
    workers = view.data.workers.tolist()
    keys = {
        **view.state,
        "tab": "tasks",
        "from": f"{start:.6g}",
        "to": f"{stop:.6g}",
        "group": found.group,
        "worker": str(workers.index(found.worker)) if found.worker in workers else "",
    }
    return Text(found.what, target=Target("run", {"id": view.run.id, **keys}))


def _proof(each: tuple[_View, Diagnosis, Finding]) -> Cell:
    proof = each[1].proof(each[2])
    return Text(proof, "code") if "\n" in proof else proof


_FINDING = (
    Column("finding", _finding),
    Column("cost", lambda each: format_quantity(each[2].seconds, "s")),
    Column("evidence", lambda each: each[1].evidence(each[2])),
    Column("change", lambda each: each[2].change),
    Column("to prove it", _proof),
)
_KINDS = {"bound": "lower bound", "cause": "cause of wall time"}
_CAUSE = (
    Column("what", lambda row: row["name"]),
    Column("kind", lambda row: _KINDS[row["kind"]]),
    Column("seconds", lambda row: format_quantity(row["seconds"], "s")),
    Column("share of the duration", lambda row: f"{row['share']:.1%}"),
)


def _busy(view: _View) -> list[Content]:
    def make() -> Any:
        if not view.has_times:
            return thread_activity.busy_threads(view.run.tree)
        return busy_threads(view.data, view.part)

    return [Figure(make, view.times)]


def busy_threads(data: RunData, part: tuple[float, float] | None) -> LiveFigure:
    """Return the figure of what threads were busy with, in a part of the run."""
    busy, whole = thread_activity.BusyThreads(data.run.tree, data.timeline), data.timeline.whole
    if part:
        busy.show_window(*part)
    return LiveFigure(busy.figure, lambda part, group: busy.show_window(*(part or whole)))


def _group_table(view: _View) -> list[Content]:
    """Return thread-seconds by task group and activity within the window."""
    timeline = view.timeline
    if not timeline.groups:
        return [[Text("Task groups were not recorded.")]]
    note = "Serialisation is counted without times: only sums of the whole run contain it."
    if not view.has_times:
        note = f"Of the whole run, for any window. {NO_TIMES}"
    elif timeline.n_unseen:
        n_unseen = f"{timeline.n_unseen:,}"
        note += f" {n_unseen} tasks were not recorded (too many): parts of the run lack them."
    whole = timeline.group_seconds()
    recorded = timeline.activities
    activities = [
        name
        for name in ACTIVITY_COLOURS
        if name in recorded or (name in whole and whole[name].any())
    ]
    table = timeline.group_seconds(view.part if view.has_times else None)
    table = table.reindex(columns=["tasks", "total", *activities]).join(_whole_run_columns(view))
    longest = float(table["total"].max()) if len(table) else 0.0
    rows = []
    for group, *values in table.itertuples(name=None):
        seconds = dict(zip(activities, values[2:], strict=False))
        name = view.data.names.get(str(group), str(group))
        mark = "● " if group == view.group else ""
        texts = [decimals(value, *_GROUP_DECIMALS.get(column, (3,)))
                 for column, value in zip(table.columns, values, strict=True)]  # fmt: skip
        rows.append(Row([f"{mark}{name}", _activity_bar(seconds, longest), *texts], str(group)))
    titles = [f"{name} (s)" if name in ("total", *activities) else name for name in table.columns]
    empty = "No task ran within the window."
    columns = ["task group", "by activity", *map(str, titles)]
    return [Table(columns, rows, empty, picks="group"), _note(note)]


#: Column of the table of groups -> decimals; others have 3.
_GROUP_DECIMALS = {"tasks": (0,), "raised": (0,), "retried": (0,), "results (MiB)": (2,)}


def _whole_run_columns(view: _View) -> pd.DataFrame:
    """Return columns that exist only for the whole run: results, errors, retries."""
    table = view.run.task_groups()
    names = {"result (B)": "results (MiB)", "n_erred": "raised", "n_retried": "retried"}
    return pd.DataFrame(
        {
            new: table[old] / (MIB if old == "result (B)" else 1)
            for old, new in names.items()
            if old in table and table[old].fillna(0).any()
        },
        index=table.index,
    )


def _activity_bar(seconds: Mapping[str, float], longest: float) -> Bar:
    shown = {name: value for name, value in seconds.items() if longest and value > 0}
    parts = [(value / longest, ACTIVITY_COLOURS[name]) for name, value in shown.items()]
    return Bar(parts, ", ".join(f"{name} {value:.3f} s" for name, value in shown.items()))


def decimals(value: float, digits: int = 3) -> str:
    """Return a number with fixed decimals, so that those of a column are ordered as texts."""
    return f"{value:,.{digits}f}" if np.isfinite(value) else MISSING


def _memory(view: _View) -> list[Content]:
    tree = view.run.tree

    def by_kind() -> Any:
        value = next((choice.value for choice in _worker_filter(view)), "")
        worker = int(value) if value else None
        plot = run_metrics.memory_by_kind(tree, worker)
        if has(tree, "scheduler", "time"):
            thread_activity.mark_events(plot, view.run, worker)
        return plot

    by_worker = partial(run_metrics.memory_by_worker, tree)
    return [Figure(by_kind, view.times), Figure(by_worker, view.times)]


def _worker_filter(view: _View) -> list[Filter]:
    if len(view.data.workers) < 2 or not has(view.run.tree, "workers", "time"):
        return []
    options = {f"worker {name}": str(at) for at, name in enumerate(view.data.workers)}
    return [select_filter(view.state, "worker", "Memory of", {"the cluster": "", **options})]


def _held(view: _View) -> list[Content]:
    """Return who held the memory of a run, and its growth from run to run."""
    run = view.run
    content: list[Content] = []
    try:
        content.append(text_table(memory_peaks(run).to_table()))
    except NotRecorded as error:
        content.append([Text(str(error))])
    if run.store is None:
        return content
    earlier = comparable(run.store.runs(run.workload), run.record).tail(GROWTH_RUNS)
    try:
        runs = [*run.store.load(earlier["id"] if len(earlier) else (), GROWTH_GROUPS), run]
        growth = bytes_as_text(memory_growth(runs))
        content.append(text_table(TextTable.from_frame(growth, f"of {len(runs)} runs")))
    except BenchkitError as error:
        content.append([Text(str(error))])
    return content


def _usual_metrics(view: _View) -> list[Content]:
    table = view.data.baseline
    if table.empty:
        return []
    note = "Medians of earlier comparable runs: same workload, environment, machine and cluster."
    if not table["runs before"].any():
        note, table = "There is no comparable earlier run.", table[["this run"]]
    made = text_table(TextTable.from_frame(table, "metric"))
    terms = metric_terms(view.run.metrics)
    return [_note(note), replace(made, terms=terms, terms_title="What the metrics mean")]


def _note(text: str) -> list[Text]:
    return [Text(text, "soft")]


def _stream(view: _View) -> list[Content]:
    def make() -> Any:
        if not view.has_times:
            return thread_activity.task_stream(view.run.tree)
        return task_stream(view.data, view.part, view.group, lambda group: [group] if group else [])

    return [Figure(make, view.times)]


def task_stream(
    data: RunData,
    part: tuple[float, float] | None,
    group: str,
    groups: Callable[[str], Sequence[str]],
) -> LiveFigure:
    """Return the figure of each thread's tasks; `groups` returns the task groups of a selection."""
    made = thread_activity.TaskStream(data.run.tree, data.timeline)
    if chosen := groups(group):
        made.choose(*chosen)
    if part:
        made.show_window(*part)
    return LiveFigure(made.figure, lambda part, group: made.choose(*groups(group)))


def _longest(view: _View) -> list[Content]:
    """Return the longest tasks of the selected group within the window; nothing without a group."""
    if not view.group:
        return []
    if not view.has_times:
        return [[Text(NO_TIMES)]]
    timeline = view.timeline
    tasks = timeline.inside(*(view.part or timeline.whole))
    tasks = tasks[timeline.group[tasks] == timeline.groups.index(view.group)]
    if not len(tasks):
        return [[Text("No task of the group ran within the window.")]]
    text = f"The longest {min(ROWS_SHOWN, len(tasks))} of {len(tasks):,} within the window."
    order = np.argsort(timeline.start[tasks] - timeline.stop[tasks], kind="stable")
    chosen = tasks[order[:ROWS_SHOWN]]
    rows = timeline.row[chosen]
    data = view.run.tree["tasks"].to_dataset()
    nbytes, ok, workers = (data[name].values[rows] for name in ("nbytes", "ok", "worker"))
    keys = view.run.task_keys(rows)
    cells = [
        [
            keys[i],
            view.worker_name(int(workers[i])),
            str(int(timeline.threads[timeline.lane[task]])),
            decimals(timeline.start[task]),
            decimals(timeline.stop[task] - timeline.start[task], 4),
            decimals(nbytes[i] / MIB) if nbytes[i] >= 0 else MISSING,
            "ok" if ok[i] else "raised",
        ]
        for i, task in enumerate(chosen)
    ]
    titles = ("key", "worker", "thread", "start (s)", "duration (s)", "result (MiB)", "ended")
    return [_note(text), Table(titles, [Row(row) for row in cells])]


class _Stacks:
    """Call stacks of the tasks of a prefix within a window."""

    def __init__(self, view: _View) -> None:
        self.view, tree = view, view.run.tree
        self.prefixes: list[str] = []
        # The window, if the times of call stacks were recorded
        self.part: tuple[float, float] | None = None
        if has(tree, "profile", "frame"):
            profile = view.run.profile()
            roots = profile[profile["parent"] < 0].sort_values("count", ascending=False)
            self.prefixes = [str(name) for name in roots["prefix"]]
            self.part = view.part if "cycle_start" in tree["profile"].to_dataset() else None
        self.own = view.prefix if view.prefix in self.prefixes else ""
        wanted = view.state.get("prefix", "")
        self.prefix = wanted if wanted in self.prefixes else "" if wanted == ALL_TASKS else self.own
        self.find, self.frames = view.state.get("find", ""), view.state.get("frames", "")

    def filters(self) -> list[Filter]:
        if not self.prefixes:
            return []
        calls = {"everything": ""}
        found = flame.widest_calls(self.view.run, self.prefix or None, self.part)
        calls |= {name: f"{left:.1f}-{right:.1f}" for name, (left, right) in found.items()}
        if self.frames not in calls.values():
            calls["as dragged"] = self.frames
        default = ALL_TASKS if self.own else ""
        options = {ALL_TASKS: default, **{name: name for name in self.prefixes}}
        return [
            Filter("prefix", "Tasks", self.prefix or default, options, resets=("frames",)),
            Filter("find", "Find", self.find, None, "function or file", ("frames",)),
            Filter("frames", "As wide as the page", self.frames, calls),
        ]

    def draw(self) -> Any:
        plot = flame.flame_graph(self.view.run, self.prefix or None, self.find, self.part)
        x_range: Any = plot.x_range
        ends = _ends(self.frames, x_range.bounds)
        if ends:
            x_range.update(start=ends[0], end=ends[1])
        return plot

    def contents(self) -> list[Content]:
        if not self.prefixes:
            text = "Only the full capture of Dask's tasks records call stacks, while tasks run."
            return [[Text(text)]]
        text = "A click zooms to a call, a double click shows everything again."
        if self.part:
            text += " Samples of the window, to the second."
        elif self.view.part:
            text += " The graph is of the whole run, for any window: times were not recorded."
        return [Figure(self.draw, zoom="frames"), _note(text)]


#: Value of the filter of tasks that shows all of them although a group is selected.
ALL_TASKS = "all tasks"


def _ends(text: str, bounds: Any) -> tuple[float, float] | None:
    """Return the ends of a range of samples, such as 10.0-25.5, if it is valid."""
    try:
        left, right = (float(end) for end in text.split("-"))
    except ValueError:
        return None
    is_valid = bounds is not None and 0 <= left < min(right, bounds[1])
    return (left, min(right, bounds[1])) if is_valid else None


def _transfers(view: _View) -> list[Content]:
    value = cells_filter(view.state).value or "bytes"
    matrix = TransferMatrix(view.run.tree, view.timeline)

    def show(part: tuple[float, float] | None, group: str) -> None:
        matrix.show_window(part, value)

    show(view.part, "")
    text = "The matrix is of the whole run, for any window: fetch times were not recorded."
    if matrix.has_windows:
        text = (
            "Number and time of fetches are those within the window; bytes are recorded for the "
            "whole run only."
        )
    return [Figure(lambda: LiveFigure(matrix.figure, show)), _note(text)]


def cells_filter(state: Mapping[str, str]) -> Filter:
    """Return the choice of what the cells of a transfer matrix show; "" stands for bytes."""
    options = {name: "" if each == "bytes" else each for name, each in VALUES.items()}
    return select_filter(state, "cells", "Cells show", options)


def _fetched(view: _View) -> list[Content]:
    """Return the transfers to tasks of the selected group within the window, by worker pair."""
    if not view.group:
        return []
    if not view.has_times:
        return [[Text(NO_TIMES)]]
    pairs = view.timeline.transfers_of(view.group, view.part)
    if pairs.empty:
        return [[Text("Its tasks fetched nothing within the window.")]]
    text = "Within the window."
    if len(pairs) > MAX_PAIRS:
        text += f" The first {MAX_PAIRS} of {len(pairs):,} pairs of workers."
    cells = [
        [*map(view.worker_name, row[:2]), f"{int(row[2]):,}", decimals(row[3], 4)]
        for row in pairs.head(MAX_PAIRS).itertuples(index=False, name=None)
    ]
    titles = ("from worker", "to worker", "fetches", "time (s)")
    return [_note(text), Table(titles, [Row(row) for row in cells])]


def _shuffles(view: _View) -> list[Content]:
    """Return the fine metrics of P2P shuffles, which tasks and transfers do not contain."""
    fine = view.run.fine_metrics()
    if fine.empty or not (is_p2p := fine["context"] == "p2p").any():
        return []
    sums = fine[is_p2p].groupby(["activity", "prefix", "unit"], sort=True)["value"].sum().unstack()
    units = {"seconds": "s", "bytes": "B", "count": "1"}
    names = [name for name in units if name in sums]
    rows = [
        Row([str(activity), str(prefix), *(format_quantity(row[n], units[n]) for n in names)])
        for (activity, prefix), row in sums.iterrows()
    ]
    return [Table(["activity", "where", *names], rows)]


def _spans(view: _View) -> list[Content]:
    titles = {
        "enqueued": "enqueued",
        "start": "first task started",
        "stop": "last task stopped",
        "active_cpu_seconds": "thread-seconds available",
    }
    rows = [
        Row([str(span["name"]), *(format_seconds(span[name]) for name in titles)])
        for span in view.run.spans().to_dict("records")
    ]
    return [Table(["span", *titles.values()], rows)] if rows else []


def _machines(view: _View) -> list[Content]:
    tree = view.run.tree
    made = [*run_metrics.worker_load(tree), *run_metrics.scheduler_load(tree)]
    return [Figure(partial(_unchanged, plot), view.times) for plot in made]


def _unchanged(plot: Any) -> Any:
    return plot


def _problem_table(view: _View) -> list[Content]:
    rows = [
        Row([decimals(time), str(what), thread_activity.format_event(str(message))])
        for time, what, message in view.run.problems().itertuples(index=False, name=None)
    ]
    return [Table(["time (s)", "what", "message"], rows, "Nothing: no error, no lost worker.")]


def _tracebacks(view: _View) -> list[Content]:
    content: list[Text] = []
    if trace := str(view.run.tree.attrs.get("traceback") or ""):
        content.append(Text(trace, "code"))
    errors = view.run.errors()
    if errors.empty or "traceback" not in errors:
        return [content] if content else []
    distinct = errors[errors["traceback"].astype(str) != ""].drop_duplicates("traceback")
    for error in distinct.head(MAX_TRACEBACKS).itertuples():
        where = f"on worker {view.worker_name(error.worker)}, {error.time:.3f} s"
        content.append(Text(f"Task {error.key} raised {error.exception} {where}"))
        content.append(Text(str(error.traceback), "code"))
    if len(distinct) > MAX_TRACEBACKS:
        content.append(Text(f"{len(distinct) - MAX_TRACEBACKS} other tracebacks are not shown."))
    return [content] if content else []


def _logs(view: _View) -> list[Content]:
    rows = [
        Row([decimals(row.time), str(row.server), view.worker_name(row.worker), str(row.level),
             _LINE_HEAD.sub(r"\g<logger>: ", str(row.text))])
        for row in view.run.logs().itertuples()
    ]  # fmt: skip
    return [Table(["time (s)", "server", "worker", "level", "text"], rows)] if rows else []


def _events(view: _View) -> list[Content]:
    events = view.run.events()
    if events.empty:
        return []
    counts = ", ".join(f"{n:,} × {topic}" for topic, n in events["topic"].value_counts().items())
    rows = [
        Row([decimals(row.time), str(row.topic), view.worker_name(row.worker),
             thread_activity.format_event(str(row.message))])
        for row in events.itertuples()
    ]  # fmt: skip
    return [_note(counts), Table(["time (s)", "event", "worker", "what"], rows)]


#: Attribute of a run -> title of its JSON.
_SPECIFICATIONS = {
    "environment_spec": "Environment",
    "cluster_description": "Cluster",
    "variables": "Environment variables",
    "config": "Dask configuration",
    "packages": "Packages",
}


def _facts(view: _View) -> list[Content]:
    values = view.run.metadata()
    for name, units, factor in (("memory_limit", "B", 1), ("biggest_group_share", "%", 100)):
        if name in values:
            values[name] = format_quantity(values[name] * factor, units)
    if "biggest_group" in values:
        values["biggest_group"] = short_group(str(values["biggest_group"]))
    return [text_table(TextTable.from_frame(values, "fact"))]


def _source(view: _View) -> list[Content]:
    source = str(view.run.tree.attrs.get("source") or "")
    return [[Text(source, "code") if source else Text("The source was not recorded.")]]


def _specifications(view: _View) -> list[Content]:
    attrs = view.run.tree.attrs
    values = {title: decode_json(attrs.get(name)) for name, title in _SPECIFICATIONS.items()}
    return [[
        Text(json.dumps(value, indent=1, sort_keys=True), "code", title=title)
        for title, value in values.items()
        if value
    ]]  # fmt: skip


class _Part(NamedTuple):
    """A section of the page."""

    key: str
    tab: str
    title: str  # With `{group}` for the name of the selected group
    contents: Callable[[_View], Sequence[Content]]
    note: str = ""
    filters: Callable[[_View], Sequence[Filter]] = lambda view: ()
    follows: bool = False  # Whether what it contains is that of the window and the group
    is_slow: bool = False


#: Tab in the address -> title.
_TABS = {
    "overview": "Overview", "tasks": "Tasks", "memory": "Memory", "stacks": "Call stacks",
    "transfers": "Transfers", "machines": "Machines", "trouble": "Problems", "facts": "Facts",
}  # fmt: skip
_BUSY_GROUPS = "Which task groups kept the threads busy?"
_THREAD_SECONDS = "Thread-seconds, summed over all threads: 10 s on 2 threads may have taken 5 s."
#: The sections, in the order of the page.
_PARTS = (
    _Part("limits", "overview", "What bounds this run, and what would save time?", _diagnosis,
          is_slow=True),
    _Part("memory", "overview", "How was memory used?", _memory,
          "Process memory by kind. Unmanaged is what Dask does not know as a result of a task: the "
          "interpreter, temporary buffers, memory that the allocator has not returned, and the "
          "results of other engines.", _worker_filter),
    _Part("threads", "overview", "How many threads were busy?", _busy),
    _Part("groups", "overview", _BUSY_GROUPS, _group_table, _THREAD_SECONDS, follows=True),
    _Part("usual", "overview", "Is this result usual?", _usual_metrics),
    _Part("stream", "tasks", "What did each thread do, and when?", _stream,
          "A lane is a thread; white is idle. Gaps before long tasks are waits for data, gaps at "
          "the end are caused by stragglers. Many tasks are drawn as pixels: a pixel has the "
          "colour of the group that used most of its time, and is paler if the thread was idle."),
    _Part("longest", "tasks", "Which tasks of {group} took longest?", _longest, follows=True),
    _Part("task_groups", "tasks", _BUSY_GROUPS, _group_table, _THREAD_SECONDS, follows=True),
    _Part("held", "memory", "Which task groups held memory, and does memory grow?", _held,
          "Bytes of results by task group at their peak; then the growth from run to run of the "
          "workload in this environment: median slope with its 95 % interval.", is_slow=True),
    _Part("stacks", "stacks", "Which code took the time?",
          lambda view: _Stacks(view).contents(),
          "Call stacks of the tasks, sampled on the workers; the width of a box is its share of "
          "the samples.", lambda view: _Stacks(view).filters(), follows=True),
    _Part("fetched", "transfers", "What was fetched for {group}?", _fetched, follows=True),
    _Part("transfers", "transfers", "How much data did workers transfer?", _transfers,
          "Task results that one worker fetched from another, as counted by the receiver.",
          lambda view: [cells_filter(view.state)]),
    _Part("shuffles", "transfers", "What did P2P shuffles do?", _shuffles,
          "Sums over all workers and the whole run."),
    _Part("spans", "transfers", "When did spans run?", _spans,
          "Times are seconds since the start of the measurement."),
    _Part("machines", "machines", "Were the machines busy?", _machines,
          "CPU, network and disk, summed over all workers, and the scheduler, which is one "
          "process."),
    _Part("problems", "trouble", "Were there problems during the run?", _problem_table,
          "Workers that were lost or restarted, tasks that raised an exception, and errors of the "
          "capture, of the whole run, for any window and task group."),
    _Part("tracebacks", "trouble", "What was raised, and where?", _tracebacks),
    _Part("logs", "trouble", "What did scheduler and workers warn of?", _logs),
    _Part("events", "trouble", "What happened to the cluster?", _events),
    _Part("facts", "facts", "What was measured?", _facts,
          "With the source and the specifications below it is enough to repeat the run."),
    _Part("source", "facts", "Which code ran?", _source),
    _Part("specifications", "facts", "With what did it run?", _specifications),
)  # fmt: skip


def sections(data: RunData, state: Mapping[str, str]) -> list[Section]:
    """Return the sections of the page."""
    view = _View(data, state)
    group = data.names.get(view.group, "a group")
    return [
        Section(
            part.title.replace("{group}", group),
            Later(partial(part.contents, view), part.is_slow),
            part.note,
            (part.tab, _TABS[part.tab]),
            part.key,
            partial(part.filters, view),
            _SELECTION if part.follows else (),
        )
        for part in _PARTS
    ]
