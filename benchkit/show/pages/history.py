"""The page of a workload over nights: figures, changes, marks, runs and source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import pandas as pd

from benchkit.analysis.changepoints import ChangePoint
from benchkit.analysis.regression.history import History, night_name
from benchkit.analysis.regression.level_events import worse_direction
from benchkit.analysis.regression.regression import Regression
from benchkit.analysis.regression.status import reported_change, series_label
from benchkit.formatting import MISSING, NO_FAILURE, format_change, format_outcome, format_quantity
from benchkit.show.pages.page import (
    Cell,
    Column,
    Figure,
    Page,
    Row,
    Section,
    Table,
    Text,
    make_table,
    run_text,
    text_or_missing,
)
from benchkit.show.pages.regressions import regression_section, series_target
from benchkit.show.plots.history import build_changes, change_label, history_plot
from benchkit.store.filters import workload_matcher
from benchkit.store.schema import METRICS

#: Runs in the table; older ones are in the list of runs.
MAX_RUNS = 30


@dataclass(frozen=True)
class WorkloadNights:
    """The nights of one workload."""

    name: str
    history: History  # Series of this workload
    regressions: Sequence[Regression]  # Of every workload
    marks: Sequence[Mapping[str, Any]]  # The active marks
    owner: str = ""
    description: str = ""
    source: str = ""

    @property
    def metrics(self) -> list[str]:
        """Metrics with a value."""
        return list(dict.fromkeys(self.history.series["metric"]))


def page(data: WorkloadNights) -> Page:
    """Return the page of a workload."""
    series = data.history.series
    figures = [
        Section(
            series_label(about),
            figure(data, row),
            choice=(metric, METRICS[metric].long_name),
            key=metric,
        )
        for metric in data.metrics
        for row, about in enumerate(series.to_dict("records"))
        if about["metric"] == metric
    ]
    open_ = [
        regression_section(regression, data.owner)
        for regression in data.regressions
        if regression.workload == data.name and regression.is_open
    ]
    marks = [mark for mark in data.marks if _selects(mark, data.name)]
    runs = data.history.runs[data.history.runs["key"].isin(series["key"])]
    changes = replace(change_table(data.history, data.regressions), empty="No lasting change.")
    sections = [
        *open_,
        *figures,
        Section("What changed, and when?", changes, key="changes"),
        Section("Which marks apply?", make_table(MARKS, marks), key="marks"),
        run_section(runs, data.metrics),
        Section("What is measured?", [Text(data.source, "code")] if data.source else (),
                data.description, key="source"),
    ]  # fmt: skip
    lines = [f"Owner: {data.owner}" if data.owner else "", data.description]
    return Page(data.name, lines, [each for each in sections if each.has_content])


def figure(data: WorkloadNights, row: int) -> Figure:
    """Return the figure of a series."""
    return Figure(
        partial(
            history_plot,
            data.history,
            row,
            marks=data.marks,
            from_zero=False,
            regressions=data.regressions,
        )
    )


class _Change(NamedTuple):
    """A lasting change of a series."""

    about: Mapping[str, Any]
    change: ChangePoint
    night: str  # The first night of the new level
    seen: str  # The night of its detection
    builds: str  # What differs from the build of the night before


def change_table(history: History, regressions: Sequence[Regression]) -> Table:
    """Return the lasting changes of every series, newest first, with what differs in the build."""
    found = []
    builds_of = {key: build_changes(runs) for key, runs in history.runs.groupby("key")}
    for row, about in enumerate(history.series.to_dict("records")):
        for change in history.changes[row]:
            night, seen = (night_name(history.times[n]) for n in (change.index, change.detected_at))
            sized = reported_change(change, about, night, regressions)
            builds = builds_of[about["key"]].get(change.index, "")
            found.append(_Change(about, sized, night, seen, builds))
    found.sort(key=lambda each: (each.night, str(each.about["metric"])), reverse=True)
    is_one = history.series["workload"].nunique() == 1
    return make_table(_CHANGES[is_one:], found, _change_row)


def _change_row(each: _Change, cells: Sequence[Cell]) -> Row:
    return Row(cells, f"{each.about['workload']} {series_label(each.about)}", since=each.night)


def _size(each: _Change) -> Text:
    change = each.change
    is_worse = change.direction == worse_direction(str(each.about["metric"]))
    interval = f"({format_change(change.low)} to {format_change(change.high)})"
    tone = "bad" if is_worse else "good"
    return Text(change_label(change), tone, small=interval, order=change.ratio)


_CHANGES = (
    Column("workload", lambda each: Text(
        str(each.about["workload"]), target=series_target(each.about))),
    Column("night", lambda each: each.night[:10]),
    Column("change", _size),
    Column("metric", lambda each: METRICS[each.about["metric"]].long_name),
    Column("where", lambda each: series_label(each.about)),
    Column("detected", lambda each: each.seen[:10]),
    Column("changed packages", lambda each: each.builds),
)  # fmt: skip
#: Columns of a table of marks.
MARKS = (
    Column("kind", lambda mark: str(mark["kind"])),
    Column("by", lambda mark: str(mark.get("by") or "")),
    Column("reason", lambda mark: str(mark.get("reason") or "")),
    Column("runs", lambda mark: ", ".join(
        f"{name}={value}" for name, value in mark.items()
        if name not in ("id", "kind", "by", "reason"))),
)  # fmt: skip


def _selects(mark: Mapping[str, Any], workload: str) -> bool:
    """Return whether a mark can select runs of a workload."""
    pattern = mark.get("workload")
    return not pattern or workload_matcher(str(pattern))(workload)


def run_section(runs: pd.DataFrame, metrics: Sequence[str]) -> Section:
    """Return the newest runs with the values of metrics."""
    newest = runs.sort_values("started", ascending=False).head(MAX_RUNS)
    columns = [*_RUN, *(_metric_column(name) for name in metrics), *_BUILD]
    table = make_table(columns, newest.to_dict("records"))
    note = f"The last {MAX_RUNS} of {len(runs)}." if len(runs) > MAX_RUNS else ""
    return Section("Which runs are these?", table, note, key="runs")


def _outcome(run: Mapping[str, Any]) -> Text:
    small = "" if run["comparable"] else f"set aside: {run['reason']}"
    return Text(format_outcome(run), "" if run["outcome"] in NO_FAILURE else "bad", small=small)


def _metric_column(name: str) -> Column:
    def cell(run: Mapping[str, Any]) -> Text:
        value = run.get(name)
        if value is None or pd.isna(value):
            return Text(MISSING)
        return Text(format_quantity(float(value), METRICS[name].units), order=float(value))

    return Column(name.replace("_", " "), cell)


def _versions(run: Mapping[str, Any]) -> Text:
    dask, *others = (text_or_missing(run.get(name)) for name in ("dask", "distributed", "python"))
    return Text(dask, small="distributed {}, Python {}".format(*others))


_RUN = (
    Column("started (UTC)", run_text),
    Column("where", lambda run: Text(series_label(run), "whole")),
    Column("outcome", _outcome),
)  # fmt: skip
_BUILD = (
    Column("dask", _versions),
    # Enough of an id for `benchkit report run ID`.
    Column("run", lambda run: Text(str(run["id"])[:13], "whole", title=str(run["id"]))),
)
