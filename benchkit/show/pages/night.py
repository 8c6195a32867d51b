"""The page of a night: what changed, what failed, what is open, and each series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchkit.analysis.changepoint.rule import MAX_REFERENCE_NIGHTS
from benchkit.analysis.regression.history import SERIES_FIELDS, History, build_history, night_name
from benchkit.analysis.regression.level_events import worse_direction
from benchkit.analysis.regression.nights import COMMANDS, MAX_MODEL_ERROR, model_rows
from benchkit.analysis.regression.status import (
    QUIET,
    STATES,
    SeriesStatus,
    never_ok_statuses,
    series_label,
    series_statuses,
    workload_owners,
)
from benchkit.experiment.nightly.night import Night
from benchkit.formatting import (
    MISSING,
    NO_FAILURE,
    ROWS_SHOWN,
    counted,
    format_change,
    format_quantity,
)
from benchkit.show.pages.page import (
    Cell,
    Column,
    Figure,
    Page,
    Row,
    Section,
    Spark,
    Table,
    Target,
    Text,
    make_table,
    minute,
)
from benchkit.show.pages.regressions import regression_table, regression_target, series_target
from benchkit.show.plots.history import history_plot
from benchkit.store.schema import METRICS

#: State -> importance of its text.
_TONES = {"failed": "bad", "regressed": "bad", "improved": "good"}
#: Open regressions with a figure.
MAX_FIGURES = 6
#: Most characters of an error in a table.
_MAX_ERROR = 300


@dataclass(frozen=True)
class NightSeries:
    """The state of each series of one metric in the last night of a history."""

    history: History  # Until the night
    metric: str
    statuses: Sequence[SeriesStatus]  # Most severe first
    owners: Mapping[str, str]  # Workload -> owner, if it declares one

    def owner(self, status: SeriesStatus) -> str:
        """Return the owner of the workload of a series, else an empty text."""
        return self.owners.get(str(status.about["workload"]), "")

    @classmethod
    def judge(
        cls,
        history: History,
        metric: str,
        events: Sequence[Mapping[str, Any]],
        marks: Sequence[Mapping[str, Any]],
    ) -> NightSeries:
        """Return the series of a metric with their states, those that were never ok first."""
        own = history.select(metric=metric)
        statuses = [*never_ok_statuses(history, metric), *series_statuses(own, events, marks)]
        return cls(own, metric, statuses, workload_owners(history.runs))


def judged_series(night: Night, metrics: Sequence[str]) -> tuple[History, list[NightSeries]]:
    """Return the history of a store until a night, and the states of its series."""
    store = night.store
    events, marks = store.events(), store.marks()
    history = build_history(store.runs(), metrics=metrics, marks=marks)
    names = [night_name(time) for time in history.times]
    if night.night in names:
        history = history.before(names.index(night.night))
    measured = dict.fromkeys(history.series["metric"])
    return history, [NightSeries.judge(history, metric, events, marks) for metric in measured]


class SeriesRow(NamedTuple):
    """What a cell of the table of series shows."""

    data: NightSeries
    n_nights: int  # In the small figure
    status: SeriesStatus


def page(night: Night, series: Sequence[NightSeries], state: Mapping[str, str]) -> Page:
    """Return the page of a night; `state` has the filters of the tables of series."""
    open_ = [regression for regression in night.regressions if regression.is_open]
    owners = series[0].owners if series else {}
    sections = [
        Section("What changed?", _changes(night), key="changes"),
        Section("Which runs failed?", make_table(_FAILED, night.failed), key="failed"),
        Section("Which steps failed?", [Text(line, "bad") for line in night.failures], key="steps"),
        Section(
            "Which regressions are open?",
            regression_table(open_[:ROWS_SHOWN], owners),
            f"The last {ROWS_SHOWN} of {len(open_)}." if len(open_) > ROWS_SHOWN else "",
            key="open",
        ),
        *(_series_section(data, state) for data in series),
        Section("What limits the verdicts?", [Text(line) for line in night.limits], key="limits"),
        Section(
            "Which runs are predicted badly?",
            make_table(_MODEL, _badly_predicted(night)),
            key="model",
        ),
    ]
    title = f"Night of {minute(night.night)} UTC" if night.night else "No nights yet"
    lines = [f"{night.summary}.", *night.notes]
    return Page(title, lines, [section for section in sections if section.has_content])


def _series_section(data: NightSeries, state: Mapping[str, str]) -> Section:
    table = series_table(data, state)
    counts = Counter(status.state for status in data.statuses)
    note = ", ".join(f"{counts[name]} {STATES[name][1]}" for name in STATES if counts[name])
    n_hidden = len(data.statuses) - len(table.rows)
    if n_hidden:
        note += f"; {n_hidden} of {len(data.statuses)} hidden"
    name = METRICS[data.metric].long_name
    return Section(f"How was {name}?", table, note, (data.metric, name), data.metric)


def ledger_sections(night: Night, history: History) -> list[Section]:
    """Return a figure for each open regression, and the table of all regressions."""
    series = [
        (regression.title, row)
        for regression in night.regressions
        if regression.is_open and (row := history.find(regression.about)) is not None
    ]  # failures have no series
    figures = [
        Section(
            title,
            Figure(partial(history_plot, history, row, regressions=night.regressions)),
            key="figures",
        )
        for title, row in series[:MAX_FIGURES]
    ]
    table = regression_table(night.regressions, workload_owners(history.runs), empty="None.")
    return [*figures, Section("Which regressions are in the ledger?", table, key="regressions")]


def list_page(data: NightSeries, state: Mapping[str, str]) -> Page:
    """Return the page of all series by name."""
    statuses = [each for each in data.statuses if status_row(data, each).matches(state)]
    statuses.sort(key=lambda each: (str(each.about["workload"]), series_label(each.about)))
    table = series_table(replace(data, statuses=statuses), {"show": "all"})
    n_workloads = len({str(status.about["workload"]) for status in statuses})
    line = f"{counted(n_workloads, 'workload')} with nightly runs, newest night on the right."
    title = f"How has {METRICS[data.metric].long_name} changed?"
    return Page("Workloads over time", [line], [Section(title, table)])


def series_table(data: NightSeries, state: Mapping[str, str]) -> Table:
    """Return the table of the series that match the filters."""
    n_nights = int(state.get("range") or MAX_REFERENCE_NIGHTS)
    rows = [SeriesRow(data, n_nights, status) for status in data.statuses]
    empty = "Nothing needs attention."
    if state.get("find") or state.get("size") or state.get("show") != "news":
        empty = "No series matches the filters."
    table = make_table(SERIES, rows, _series_row, empty=empty, is_filtered=True)
    return table.filtered(state)


def _series_row(row: SeriesRow, cells: Sequence[Cell]) -> Row:
    return status_row(row.data, row.status, cells)


def status_row(data: NightSeries, status: SeriesStatus, cells: Sequence[Cell] = ()) -> Row:
    """Return the row of a series, which filters compare; failed ones have any size."""
    about, owner = status.about, data.owner(status)
    size = np.inf if status.state == "failed" else abs(status.ratio - 1)
    words = f"{about['workload']} {series_label(about)} {status.label} {owner}"
    return Row(cells, words, float(np.nan_to_num(size)), status.state in QUIET)


def frame(data: NightSeries, state: Mapping[str, str]) -> pd.DataFrame:
    """Return the series that match the filters, with values in the units of the metrics table."""
    rows = [
        {
            "state": status.label,
            **{name: status.about[name] for name in SERIES_FIELDS},
            "value": status.value,
            "change": status.ratio - 1,
            "low": status.low - 1,
            "high": status.high - 1,
            "noise_units": status.units,
            "since": status.since,
        }
        for status in data.statuses
        if status_row(data, status).matches(state)
    ]
    columns = ["state", *SERIES_FIELDS, "value", "change", "low", "high", "noise_units", "since"]
    night = night_name(data.history.times[-1])
    about = {"night": night, "metric": data.metric, "units": METRICS[data.metric].units}
    return pd.DataFrame(rows, columns=columns).assign(**about)


def _changes(night: Night) -> Table:
    """Return the events of a night."""
    by_id = {regression.id: regression for regression in night.regressions}
    events = [
        (event, by_id.get(str(event.get("regression"))))
        for event in night.changes
        # An event that was written by hand can lack both.
        if event.get("workload") and str(event.get("regression") or "") in {"", *by_id}
    ]
    return make_table(_EVENTS, events)


def _badly_predicted(night: Night) -> list[dict[str, Any]]:
    """Return the replayed runs for which an engine is off by more than a check allows."""
    return [
        row
        for row in model_rows(night.events)
        if max(abs(row.get(name, 0.0)) for name in COMMANDS) > MAX_MODEL_ERROR
    ]


def _model_error(engine: str, row: Mapping[str, Any]) -> str:
    return format_change(1 + row[engine]) if engine in row else ""


def _event_target(event: Mapping[str, Any], regression: Any) -> Target:
    if regression is not None:
        return regression_target(regression)
    return series_target(event)


def _event_kind(kind: str) -> Text:
    return Text(kind.replace("_", " "), "bad" if kind in ("opened", "grown") else "")


_EVENTS = (
    Column("event", lambda each: _event_kind(each[0]["kind"])),
    Column("workload", lambda each: Text(
        str(each[0]["workload"]), target=_event_target(*each))),
    Column("metric", lambda each: str(each[0].get("metric") or "").replace("_", " ")),
    Column("size", lambda each: each[1].size if each[1] else format_change(each[0].get("ratio"))),
    Column("environment", lambda each: str(each[0].get("environment") or "")),
    Column("cause", lambda each: str(
        (each[1] and each[1].facts.get("explanation")) or each[0].get("reason") or "")),
)  # fmt: skip
_MODEL = (
    Column("workload", lambda row: Text(
        str(row["workload"]), target=Target("run", {"id": row["run"]}))),
    *(Column(command, partial(_model_error, name),
             "duration of the run by its own replay, against the measured one")
      for name, command in COMMANDS.items()),
)  # fmt: skip
_FAILED = (
    Column("workload", lambda run: Text(
        str(run["workload"]), target=Target("run", {"id": run.get("id")}))),
    Column("environment", lambda run: str(run.get("environment") or "")),
    Column("outcome", lambda run: Text(str(run["outcome"]).replace("_", " "), "bad")),
    Column("error", lambda run: str(run.get("error") or "")[:_MAX_ERROR]),
)  # fmt: skip


def _value(row: SeriesRow) -> Text:
    status = row.status
    text = format_quantity(status.value, METRICS[row.data.metric].units)
    return Text("failed" if status.state == "failed" else text, order=status.value)


def _change(row: SeriesRow) -> Text:
    status = row.status
    since = f"since {status.since}" if status.since else ""
    interval = ""
    if np.isfinite(status.ratio):
        interval = f"95 % interval {format_change(status.low)} to {format_change(status.high)}"
    return Text(format_change(status.ratio), title=interval, small=since, order=status.ratio)


def _units(row: SeriesRow) -> Text:
    status = row.status
    text = f"{status.units:+.1f}".replace("-0.0", "+0.0") if np.isfinite(status.units) else MISSING
    return Text(text.replace("-", "−"), order=abs(status.units))


def spark(row: SeriesRow) -> Spark | str:
    """Return the last nights of a series, with changes of level and failures."""
    history, status = row.data.history, row.status
    if status.row < 0:  # never ok
        return ""
    values = history.values[status.row, -row.n_nights :]
    skipped = len(history.times) - values.size
    changes = [
        (change.index - skipped, change.direction)
        for change in history.changes[status.row]
        if change.index >= skipped
    ]
    outcomes = history.outcomes[int(status.about["key"]), -row.n_nights :]
    failed = np.flatnonzero(~np.isin(outcomes, ("", *NO_FAILURE))).tolist()
    label = f"{status.about['workload']}, {counted(values.size, 'night')}: {status.label}"
    if np.isfinite(status.ratio):
        label += f", {format_change(status.ratio)}"
    if status.since:
        label += f" since {status.since}"
    return Spark(values, changes, worse_direction(str(status.about["metric"])), failed, label)


def state_text(status: SeriesStatus) -> Text:
    """Return the state of a series."""
    tone = _TONES.get(status.state, "soft")
    order = float(list(STATES).index(status.state))
    return Text(f"{STATES[status.state][0]} {status.label}", tone, order=order)


def _workload(row: SeriesRow) -> Text:
    status = row.status
    target = series_target(status.about)
    if status.row < 0:
        target = Target("run", {"id": status.about.get("id")})
    return Text(str(status.about["workload"]), target=target)


#: Columns of the table of series: a column is one line.
SERIES = (
    Column("state", lambda row: state_text(row.status)),
    Column("workload", _workload),
    Column("where", lambda row: series_label(row.status.about)),
    Column("that night", _value, "the median of the runs of the night"),
    Column("change", _change, "of a new level against the previous level, else of the night "
           "against its reference; a change must last three nights, or be confirmed by measuring "
           "both builds again"),
    Column("in noise units", _units, "the change in standard deviations of the noise of the "
           "series: 1 is common, 3 is rare"),
    Column("who should look", lambda row: row.data.owner(row.status)),
    Column("nights", spark, "the last nights; a stroke is a new level, a cross a night without "
           "result"),
)  # fmt: skip
