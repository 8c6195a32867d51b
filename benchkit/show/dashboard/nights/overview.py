"""Overview page: state of every series on the last night, most important first."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import panel as pn

from benchkit.analysis.regression.history import SERIES_FIELDS, History, night_name
from benchkit.analysis.regression.level_events import worse_direction
from benchkit.analysis.regression.status import STATES, SeriesStatus, series_label
from benchkit.formatting import format_change, format_quantity
from benchkit.show import markdown
from benchkit.show.dashboard.components import components as parts
from benchkit.show.dashboard.components.components import metric_term
from benchkit.show.dashboard.state.cache import all_nights, series_statuses_of, shown_metrics
from benchkit.show.dashboard.state.url import address, remember
from benchkit.show.escape import escape
from benchkit.show.plots.sparkline import sparkline
from benchkit.store.schema import METRICS

__all__ = ["TITLE", "view"]

TITLE = "Overview"
#: Largest number of nights in a sparkline; more would be too narrow to see.
SPARK_NIGHTS = 60
#: States that need no attention.
QUIET = ("unchanged", "short", "absent")
_TERMS = {
    "change": "of the level where there is a new one, else of the night against its reference",
    "in noise units": "the change in standard deviations of the series' own noise",
    "nights": "the last nights; a stroke is a new level, a cross a night without result",
}
_SHOWN = {"everything": "all", "what needs a look": "news"}
#: From this number of series on, the page first shows only those that need attention.
MANY = 30


def view(state: dict[str, str]) -> Any:
    """Return the page of the last night, or of ``night`` with the data of that time.

    Marks are always the current marks. Further keys: ``metric``, ``find`` and ``show`` (all or
    news); by default, a page with many series shows only those that need attention.
    """
    metrics = shown_metrics()
    if not metrics:
        return parts.message(
            "No nights yet",
            "Measure a selection every night, then this page says what changed:",
            "benchkit nightly -k profile:nightly",
        )
    metric = state["metric"] if state.get("metric") in metrics else metrics[0]
    choose = pn.widgets.Select(
        name="Metric", options={METRICS[name].long_name: name for name in metrics}, value=metric,
        width=300,
    )  # fmt: skip
    find = pn.widgets.TextInput(
        name="Find", placeholder="workload or environment", value=state.get("find", ""), width=260
    )
    names = [night_name(time) for time in reversed(all_nights().times)]
    night = pn.widgets.Select(
        name="Night (UTC)",
        options={_minute(name): "" if place == 0 else name for place, name in enumerate(names)},
        value=state.get("night", "") if state.get("night") in names[1:] else "",
        width=180,
    )
    begin = "all" if len(series_statuses_of(metric, night.value)[1]) < MANY else "news"
    asked = state.get("show")
    show = pn.widgets.Select(
        name="Show", options=_SHOWN, value=asked if asked in _SHOWN.values() else begin, width=200
    )
    body = pn.Column(sizing_mode="stretch_width")

    def draw(*events: Any) -> None:
        now = {
            "night": night.value, "metric": choose.value, "find": find.value, "show": show.value,
        }  # fmt: skip
        body[:] = _body(choose.value, find.value or "", show.value, night.value)
        if events:
            remember("overview", now)

    draw()
    for widget in (night, choose, find, show):
        widget.param.watch(draw, "value")

    def rows() -> pd.DataFrame:
        return _as_file(choose.value, find.value or "", show.value, night.value)

    return pn.Column(
        pn.FlexBox(night, choose, find, show),
        body,
        pn.FlexBox(
            parts.download("overview.csv", rows, "These rows as CSV", 180),
            parts.download("overview.md", lambda: _as_markdown(rows()), "As Markdown", 180),
            gap="0 8px",
        ),
        sizing_mode="stretch_width",
    )


def _minute(night: str) -> str:
    return night[:16].replace("T", " ")


def _kept(ones: Sequence[SeriesStatus], find: str, show: str) -> list[SeriesStatus]:
    """Return the series of a night that match the filters."""
    words = find.lower().split()
    return [
        one
        for one in ones
        if (show == "all" or one.state not in QUIET)
        and all(w in f"{one.about['workload']} {series_label(one.about)}".lower() for w in words)
    ]


def _body(metric: str, find: str, show: str, chosen: str) -> list[Any]:
    history, ones = series_statuses_of(metric, chosen)
    counts = Counter(one.state for one in ones)
    told = [f"{counts[name]} {STATES[name][1]}" for name in STATES if counts[name]]
    night = _minute(night_name(history.times[-1]))
    kept = _kept(ones, find, show)
    hidden = len(ones) - len(kept)
    lines = [", ".join(told) + (f"; {hidden} of {len(ones)} hidden" if hidden else "")]
    never = [_never_cells(run, since) for run, since in _never_ok(find, len(history.times) - 1)]
    if never:
        lines.append(f"{len(never)} never ended ok and have no series.")
    value = "that night" if chosen else "last night"
    rows = [*never, *(_row(one, history, metric) for one in kept)]
    return [
        parts.head(f"Night of {night} UTC", lines=lines),
        parts.rows(
            ["state", "workload", "where", value, "change", "in noise units", "nights"],
            rows,
        )
        if rows
        else _nothing(find, show),
        parts.glossary({**_TERMS, value: metric_term(metric)}),
    ]


def _nothing(find: str, show: str) -> Any:
    if find or show == "all":
        return parts.message("Nothing to show", "No series matches the filters.")
    return parts.message("Nothing needs a look", "Choose to show everything to see all series.")


def _as_file(metric: str, find: str, show: str, chosen: str) -> pd.DataFrame:
    """Return the shown rows, with values in the units of the metrics table."""
    history, ones = series_statuses_of(metric, chosen)
    night = night_name(history.times[-1])
    rows: list[dict[str, Any]] = [
        {
            "state": f"{run['outcome']}, never ok",
            **{n: run[n] for n in SERIES_FIELDS},
            "since": since,
        }
        for run, since in _never_ok(find, len(history.times) - 1)
    ]
    rows += [
        {
            "state": one.label,
            **{name: one.about[name] for name in SERIES_FIELDS},
            "value": one.value,
            "change": one.ratio - 1,
            "low": one.low - 1,
            "high": one.high - 1,
            "noise_units": one.units,
            "since": one.since,
        }
        for one in _kept(ones, find, show)
    ]
    columns = ["state", *SERIES_FIELDS, "value", "change", "low", "high", "noise_units", "since"]
    about = {"night": night, "metric": metric, "units": METRICS[metric].units}
    return pd.DataFrame(rows, columns=columns).assign(**about)


def _as_markdown(rows: pd.DataFrame) -> io.StringIO:
    """Return rows as a Markdown table with rounded values, for issues and chats."""
    cells = [
        [
            *(markdown.text(row[name]) for name in ("state", "workload", "environment", "host")),
            format_quantity(row["value"], row["units"]),
            format_change(1 + row["change"]),
            markdown.text(row["since"]),
        ]
        for row in rows.to_dict("records")
    ]
    titles = ["state", "workload", "environment", "host", "value", "change", "since"]
    return io.StringIO("\n".join(markdown.table(titles, cells)) + "\n")


def _never_ok(find: str, night: int) -> list[tuple[dict[str, Any], str]]:
    """Return last run and first night of each workload without an ok run until a night."""
    history = all_nights().before(night)
    runs = history.runs[~history.runs["key"].isin(history.series["key"])]
    runs = runs[~runs["outcome"].isin(["ok", "skipped"])]
    found = []
    for _, mine in runs.groupby("key", sort=False):
        last = mine.iloc[-1].to_dict()
        name = f"{last['workload']} {series_label(last)}".lower()
        if all(word in name for word in find.lower().split()):
            found.append((last, night_name(history.times[mine["night"].min()])[:10]))
    return found


def _never_cells(run: dict[str, Any], since: str) -> list[str]:
    """Return the HTML cells of a workload without an ok run, all text from runs escaped."""
    link = address("run", id=run["id"])
    return [
        f"<span class='bad'>✗ {escape(str(run['outcome']))}, never ok</span>",
        f"<a href='{escape(link)}'>{escape(str(run['workload']))}</a>",
        escape(series_label(run)),
        *("–", f"– <small>since {escape(since)}</small>", "–", ""),
    ]


def _row(one: SeriesStatus, history: History, metric: str) -> list[str]:
    """Return the cells of a row as HTML, with all text from runs escaped."""
    symbol = STATES[one.state][0]
    tone = {"failed": "bad", "regressed": "bad", "improved": "good"}.get(one.state, "soft")
    about = {name: one.about[name] for name in SERIES_FIELDS}
    link = address("history", metric=metric, **about)
    change = "–"
    if np.isfinite(one.ratio):
        told = f"95 % interval {format_change(one.low)} to {format_change(one.high)}"
        change = f"<span title='{escape(told)}'>{escape(format_change(one.ratio))}</span>"
    if one.since:
        change += f" <small>since {escape(one.since)}</small>"
    units = "–" if not np.isfinite(one.units) else f"{one.units:+.1f}".replace("-0.0", "+0.0")
    units = units.replace("-", "−")
    return [
        f"<span class='{tone}'>{escape(symbol)} {escape(one.label)}</span>",
        f"<a href='{escape(link)}'>{escape(one.about['workload'])}</a>",
        escape(series_label(one.about)),
        escape(format_quantity(one.value, METRICS[metric].units))
        if np.isfinite(one.value)
        else "–",
        change,
        units,
        _spark(one, history, metric),
    ]


def _spark(one: SeriesStatus, history: History, metric: str) -> str:
    values = history.values[one.row, -SPARK_NIGHTS:]
    skipped = len(history.times) - values.size
    changes: Sequence[tuple[int, int]] = [
        (change.index - skipped, change.direction)
        for change in history.changes[one.row]
        if change.index >= skipped
    ]
    outcomes = history.outcomes[int(one.about["key"]), -SPARK_NIGHTS:]
    failed = np.flatnonzero(~np.isin(outcomes, ("", "ok", "skipped"))).tolist()
    label = f"{one.about['workload']}, {values.size} nights: {one.label}"
    if np.isfinite(one.ratio):
        label += f", {format_change(one.ratio)}"
    if one.since:
        label += f" since {one.since}"
    worse = worse_direction(metric)
    return sparkline(values, changes, worse=worse, failed=failed, label=label)
