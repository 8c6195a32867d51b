"""Overview page: state of every series on the last night, most important first."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import panel as pn
from markupsafe import Markup
from panel.viewable import Viewable

from benchkit.analysis.regression.history import SERIES_FIELDS, History, night_name
from benchkit.analysis.regression.status import QUIET, STATES, SeriesStatus, series_label
from benchkit.formatting import MISSING, ROWS_SHOWN, counted, format_change, format_quantity
from benchkit.show.dashboard.components import tables, ui
from benchkit.show.dashboard.components.markup import NO_FAILURE, link, metric_term, span
from benchkit.show.dashboard.components.widgets import (
    filtered,
    find_field,
    has_words,
    metric_select,
    select,
)
from benchkit.show.dashboard.lists import runs
from benchkit.show.dashboard.nights.parts import SPARK_NIGHTS, no_nights, series_sparkline
from benchkit.show.dashboard.state.nights import (
    all_nights,
    left_out_nights,
    regressions,
    series_statuses_of,
    shown_metrics,
)
from benchkit.show.dashboard.state.url import address, history_address
from benchkit.store.schema import METRICS
from benchkit.table import Table
from benchkit.text import escape, markdown_text

TITLE = "Overview"
#: With this many nights or more, the first page of a store shows nights instead of runs.
MIN_NIGHTS = 3
#: Label of a range -> value in the address: number of nights in the small figures.
_NIGHTS = {"60 nights": "", "30 nights": "30", "120 nights": "120", "365 nights": "365"}
#: Label of a smallest change -> value in the address, in percent.
_SIZES = {"of any size": "", "1 % or more": "1", "5 % or more": "5", "10 % or more": "10"}
_TERMS = {
    "change": "of a new level against the previous level, else of the night against its reference",
    "in noise units": "the change in standard deviations of the noise of the series",
    "nights": "the last nights; a stroke is a new level, a cross a night without result",
}
_SHOWN = {"everything": "all", "what needs attention": "news"}


def view(state: dict[str, str]) -> Viewable:
    """Return the page of a night, with the data of that time and the current marks."""
    metrics = shown_metrics()
    n_nights = len(all_nights().times)
    if not metrics or (n_nights < MIN_NIGHTS and not state.get("view")):
        title = {"title": "Too few nights to compare"} if metrics else {}
        has = f"This store has {counted(n_nights, 'night')}."
        message = no_nights("what changed; below are the runs", before=has, **title)
        return ui.column(message, runs.first_page())
    first, *others = (night_name(time) for time in reversed(all_nights().times))
    nights = {_minute(first): "", **{_minute(name): name for name in others}}
    night = select("Night (UTC)", nights, state.get("night"), width=180)
    metric = metric_select(metrics, state.get("metric"))
    is_small = len(series_statuses_of(metric.value, night.value)[1]) < ROWS_SHOWN
    widgets = {
        "night": night,
        "metric": metric,
        "range": select("Range", _NIGHTS, state.get("range"), width=130),
        "find": find_field(state, "workload or environment", 260),
        "size": select("Changes", _SIZES, state.get("size"), width=140),
        "show": select(
            "Show", _SHOWN, state.get("show"), width=200, default="all" if is_small else "news"
        ),
    }

    def rows() -> pd.DataFrame:
        return _as_file({name: str(widget.value or "") for name, widget in widgets.items()})

    page = filtered("overview", widgets, _body)
    page.append(
        pn.FlexBox(
            tables.download_button("overview.csv", rows, "These rows as CSV", 180),
            tables.download_button("overview.md", lambda: _as_markdown(rows()), "As Markdown", 180),
            gap="0 8px",
        )
    )
    return page


def _minute(night: str) -> str:
    return night[:16].replace("T", " ")


def _filtered(statuses: Sequence[SeriesStatus], values: Mapping[str, str]) -> list[SeriesStatus]:
    """Return the series of a night that match the filters; failed ones have any size."""
    size = float(values["size"] or 0) / 100
    return [
        status
        for status in statuses
        if (values["show"] == "all" or status.state not in QUIET)
        and (not size or status.state == "failed" or abs(status.ratio - 1) >= size)
        and has_words(f"{status.about['workload']} {series_label(status.about)}", values["find"])
    ]


def _body(values: Mapping[str, str]) -> list[Viewable]:
    metric, find, show, chosen = (values[name] for name in ("metric", "find", "show", "night"))
    history, statuses = series_statuses_of(metric, chosen)
    counts = Counter(status.state for status in statuses)
    summary = ", ".join(f"{counts[name]} {STATES[name][1]}" for name in STATES if counts[name])
    shown = _filtered(statuses, values)
    n_hidden = len(statuses) - len(shown)
    lines = [summary + (f"; {n_hidden} of {len(statuses)} hidden" if n_hidden else "")]
    failed_rows = [_never_ok_cells(*item) for item in _never_ok(find, len(history.times) - 1)]
    if failed_rows:
        lines.append(f"{counted(len(failed_rows), 'workload')} without an ok run: no series.")
    lines += left_out_nights()
    value = "that night" if chosen else "last night"
    n_shown = int(values["range"] or SPARK_NIGHTS)
    titles = ["state", "workload", "where", value, "change", "in noise units", "nights"]
    rows = [*failed_rows, *(_cells(status, history, metric, n_shown) for status in shown)]
    if rows:
        table = tables.html_table(titles, rows)
    elif find or values["size"] or show == "all":
        table = ui.message("Nothing to show", "No series matches the filters.")
    else:
        table = ui.message("Nothing needs attention", "Select everything to see all series.")
    return [
        ui.page_head(f"Night of {_minute(night_name(history.times[-1]))} UTC", lines=lines),
        ui.link_line("Over time", {address("regressions", days="30"): _last_month()}),
        table,
        ui.glossary({**_TERMS, value: metric_term(metric)}),
    ]


def _last_month() -> str:
    """Return the number of regressions that are open, and that began in the last 30 days."""
    first = night_name(all_nights().times[-1] - np.timedelta64(30, "D"))
    every = regressions()
    n_new = sum(regression.night >= first for regression in every)
    n_open = sum(regression.is_open for regression in every)
    return f"{counted(n_open, 'open regression')}, {n_new} began in the last 30 days; improvements"


def _as_file(values: Mapping[str, str]) -> pd.DataFrame:
    """Return the shown rows, with values in the units of the metrics table."""
    metric = values["metric"]
    history, statuses = series_statuses_of(metric, values["night"])
    rows: list[dict[str, Any]] = [
        {
            "state": f"{run['outcome']}, never ok",
            **{name: run[name] for name in SERIES_FIELDS},
            "since": since,
        }
        for run, since in _never_ok(values["find"], len(history.times) - 1)
    ]
    rows += [
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
        for status in _filtered(statuses, values)
    ]
    columns = ["state", *SERIES_FIELDS, "value", "change", "low", "high", "noise_units", "since"]
    night = night_name(history.times[-1])
    about = {"night": night, "metric": metric, "units": METRICS[metric].units}
    return pd.DataFrame(rows, columns=columns).assign(**about)


def _as_markdown(rows: pd.DataFrame) -> io.StringIO:
    """Return rows as a Markdown table with rounded values, for issues and chats."""
    names = ("state", "workload", "environment", "host", "value", "change", "since")
    cells = [
        {
            **{name: markdown_text(row[name]) for name in names},
            "value": format_quantity(row["value"], row["units"]),
            "change": format_change(1 + row["change"]),
        }
        for row in rows.to_dict("records")
    ]
    return io.StringIO(Table(cells, names).to_markdown(escape=False) + "\n")


def _never_ok(find: str, night: int) -> list[tuple[dict[str, Any], str]]:
    """Return last run and first night of each workload without an ok run until a night."""
    history = all_nights().before(night)
    runs = history.runs[~history.runs["key"].isin(history.series["key"])]
    runs = runs[~runs["outcome"].isin(NO_FAILURE)]
    series = []
    for _, failed in runs.groupby("key", sort=False):
        last = failed.iloc[-1].to_dict()
        if has_words(f"{last['workload']} {series_label(last)}", find):
            series.append((last, night_name(history.times[failed["night"].min()])[:10]))
    return series


def _never_ok_cells(run: dict[str, Any], since: str) -> list[str]:
    """Return the cells of a workload without an ok run."""
    return [
        span(f"✗ {run['outcome']}, never ok", "bad"),
        link(str(run["workload"]), address("run", id=run["id"])),
        series_label(run),
        MISSING,
        _since(MISSING, since),
        MISSING,
        "",
    ]


def _since(change: str, since: str) -> Markup:
    return Markup(f"{change} <small>since {escape(since)}</small>" if since else change)


def _cells(status: SeriesStatus, history: History, metric: str, n_nights: int) -> list[str]:
    """Return the cells of a row."""
    tone = {"failed": "bad", "regressed": "bad", "improved": "good"}.get(status.state, "soft")
    change = MISSING
    if np.isfinite(status.ratio):
        interval = f"95 % interval {format_change(status.low)} to {format_change(status.high)}"
        change = span(format_change(status.ratio), title=interval)
    units = f"{status.units:+.1f}".replace("-0.0", "+0.0") if np.isfinite(status.units) else MISSING
    value = format_quantity(status.value, METRICS[metric].units)
    return [
        span(f"{STATES[status.state][0]} {status.label}", tone),
        link(status.about["workload"], history_address(status.about, metric)),
        series_label(status.about),
        "failed" if status.state == "failed" else value,
        _since(change, status.since),
        units.replace("-", "−"),
        series_sparkline(status, history, n_nights),
    ]
