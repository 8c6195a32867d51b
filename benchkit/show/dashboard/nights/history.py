"""Page of one nightly series: metrics over months, changes with dates, builds and runs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import pandas as pd
import panel as pn
from bokeh.models import Range1d

from benchkit.analysis.regression.history import SERIES_FIELDS, History
from benchkit.analysis.regression.regression import Regression
from benchkit.analysis.regression.status import series_label
from benchkit.formatting import OUTCOME_WORDS, counted, format_quantity
from benchkit.show.dashboard.components import components as parts
from benchkit.show.dashboard.components.clicks import CLICKS, linked
from benchkit.show.dashboard.components.components import metric_terms
from benchkit.show.dashboard.components.mark_form import mark_series
from benchkit.show.dashboard.state.cache import (
    all_nights,
    nights_of_workload,
    open_store,
    regressions,
    shown_metrics,
)
from benchkit.show.dashboard.state.table_state import Debounced
from benchkit.show.dashboard.state.url import address, remember
from benchkit.show.escape import escape
from benchkit.show.plots.history import history_plot
from benchkit.store.marks import active_marks
from benchkit.store.schema import METRICS

__all__ = ["TITLE", "view"]

TITLE = "History"
#: Largest number of further metrics below the selected metric, and of runs in the table.
MOST_SMALL, MOST_RUNS = 6, 60


def view(state: dict[str, str]) -> Any:
    """Return the page of the series that `SERIES_FIELDS` and ``metric`` in the address select.

    ``zero=1`` starts the value axis at 0; ``from`` and ``to`` are the first and last day shown.
    """
    metrics = shown_metrics()
    if not metrics:
        return parts.message(
            "No nights yet",
            "Measure a selection every night, then this page shows how it went:",
            "benchkit nightly -k profile:nightly",
        )
    if "workload" not in state:
        return _list(sorted(all_nights().series["workload"].unique()))
    history = nights_of_workload(state["workload"])
    mine = keys = history.series.drop_duplicates("key")
    if mine.empty:
        return parts.message(
            "No such workload",
            f"There are no nightly runs of {state['workload']!r}.",
            back=True,
        )
    gone = []
    for name in SERIES_FIELDS[1:]:
        named = mine[name].astype(str) == state.get(name, "")
        if named.any():
            mine = mine[named]
        elif state.get(name):
            gone.append(f"{name} {state[name]}")
    about = mine.iloc[0].to_dict()
    places = {series_label(row): row for row in keys.to_dict("records")}
    where = pn.widgets.Select(
        name="Where", options=list(places), value=series_label(about), width=320
    )
    metric = state.get("metric") if state.get("metric") in metrics else metrics[0]
    choose = pn.widgets.Select(
        name="Metric", options={METRICS[name].long_name: name for name in metrics}, value=metric,
        width=300,
    )  # fmt: skip
    zero = pn.widgets.Checkbox(name="Axis from zero", value=state.get("zero") == "1")
    body = pn.Column(sizing_mode="stretch_width")
    form = pn.Column(sizing_mode="stretch_width")
    days: list[Range1d] = []

    def note() -> None:
        kept = {name: places[where.value][name] for name in SERIES_FIELDS}
        zoomed = dict(zip(("from", "to"), _zoomed(days[0]), strict=True))
        from_zero = "1" if zero.value else ""
        remember("history", {**kept, "metric": choose.value, "zero": from_zero, **zoomed})

    rested = Debounced(note, lambda: days[0])

    def draw(*events: Any) -> None:
        chosen = places[where.value]
        if not days or any(event.obj is where for event in events):
            days[:] = [_days(history, chosen["key"], {} if events else state)]
            for end in ("start", "end"):
                days[0].on_change(end, lambda attr, old, new: rested())
        body[:] = _body(history, chosen, choose.value, metrics, bool(zero.value), days[0])
        form[:] = mark_series(chosen, choose.value)
        if events:
            note()

    draw()
    for widget in (where, choose, zero):
        widget.param.watch(draw, "value")
    return pn.Column(
        parts.head(str(state["workload"]), lines=[CLICKS]),
        *([parts.words(f"Never measured in {', '.join(gone)}: another series.")] if gone else []),
        pn.Row(where, choose, zero),
        body,
        form,
        sizing_mode="stretch_width",
    )


def _list(workloads: list[str]) -> Any:
    content = [
        parts.head(
            "Workloads over time",
            lines=[f"{counted(len(workloads), 'workload')} with nightly runs."],
        )
    ]
    for category, names in groupby(sorted(workloads), lambda name: name.partition(".")[0]):
        links = {address("history", workload=name): name for name in names}
        content += [parts.heading(category), parts.links(links)]
    return pn.Column(*content, sizing_mode="stretch_width")


def _days(history: History, key: int, state: Mapping[str, str]) -> Range1d:
    """Return the time range of all figures: the days in the address, else all nights."""
    nights = history.runs.loc[history.runs["key"] == key, "night"]
    first, last = (pd.Timestamp(history.times[night]) for night in (nights.min(), nights.max()))
    margin = max((last - first) * 0.02, pd.Timedelta(hours=12))
    whole = (first - margin, last + margin)
    asked = pd.to_datetime(
        [state.get("from"), state.get("to")], errors="coerce", utc=True, format="ISO8601"
    ).tz_localize(None)
    fits = whole[0] < asked[1] and asked[0] < min(asked[1], whole[1])  # False for NaT
    left, right = (max(asked[0], whole[0]), min(asked[1], whole[1])) if fits else whole
    ends = {"reset_start": whole[0], "reset_end": whole[1]}
    return Range1d(start=left, end=right, **ends, bounds=whole)


def _zoomed(days: Range1d) -> tuple[str, str]:
    """Return the first and last day shown, in address format; empty strings for all days."""
    left, right, first, last = (
        pd.Timestamp(end, unit="ms") if isinstance(end, (int, float)) else pd.Timestamp(end)
        for end in (days.start, days.end, days.reset_start, days.reset_end)
    )
    if left <= first and right >= last:
        return "", ""
    return f"{left:%Y-%m-%dT%H:%M}", f"{right:%Y-%m-%dT%H:%M}"


def _body(
    history: History,
    about: dict[str, Any],
    metric: str,
    metrics: list[str],
    from_zero: bool,
    days: Range1d,
) -> list[Any]:
    row = history.find({**about, "metric": metric})
    marks = active_marks(open_store().marks())
    content: list[Any] = [_regression(one) for one in _regressions(about)]
    large: Any = None
    if row is None:
        title = "Nothing to draw"
        content.append(parts.message(title, f"{METRICS[metric].long_name} was not measured here."))
    else:
        large = linked(history_plot(history, row, marks=marks, from_zero=from_zero))
        if large.xaxis[0].visible:
            large.x_range = days
        content.append(parts.figure(large))
    others = [name for name in metrics if name != metric][:MOST_SMALL]
    places = [history.find({**about, "metric": name}) for name in others]
    small = pn.GridBox(ncols=2, sizing_mode="stretch_width", tags=["coming"])
    content.append(small)

    def fill() -> None:
        drawn = [
            history_plot(history, place, from_zero=from_zero, height=170, small=True)
            for place in places
            if place is not None
        ]
        # Share one range and ticker: the figures move together, the browser renders faster.
        timed = [one for one in (large, *drawn) if one is not None and one.xaxis[0].visible]
        for one in timed:
            one.x_range, one.xaxis[0].ticker = days, timed[0].xaxis[0].ticker
            one.xaxis[0].formatter = timed[0].xaxis[0].formatter
        for one in drawn:
            linked(one)
        small.param.update(objects=[parts.figure(one) for one in drawn], tags=[])

    pn.state.onload(fill)  # 5/6 of the work: render the page before
    content += _runs(history, about, metric)
    ways = {
        address("workloads", name=about["workload"]): "what it does, its noise and its source",
        address("environments", name=about["environment"]): f"packages of {about['environment']}",
    }
    content.append(parts.glossary(metric_terms([metric, *others]), "What the metrics mean"))
    return [*content, parts.links(ways)]


def _regressions(about: dict[str, Any]) -> list[Regression]:
    return [
        one
        for one in regressions()
        if one.is_open and all(one.about[name] == about[name] for name in SERIES_FIELDS)
    ]


def _regression(one: Regression) -> Any:
    facts = {
        "size when found": one.size,
        "first night": one.night[:16].replace("T", " "),
        "cause": f"{one.cause}: {one.reason}" if one.reason else one.cause,
        "explanation": one.facts.get("explanation"),
        "find it": one.facts.get("bisect"),
    }
    return pn.Column(
        parts.words(f"▲ {one.title}", kind="bad"),
        parts.facts({name: value for name, value in facts.items() if value}),
        sizing_mode="stretch_width",
    )


def _runs(history: History, about: dict[str, Any], metric: str) -> list[Any]:
    runs = history.runs[history.runs["key"] == about["key"]]
    shown = runs.sort_values("started", ascending=False).head(MOST_RUNS)
    cells = []
    for run in shown.to_dict("records"):
        symbol, words = OUTCOME_WORDS.get(str(run["outcome"]), ("?", str(run["outcome"])))
        value = run.get(metric)
        text = format_quantity(float(value), METRICS[metric].units) if value == value else "–"
        aside = "" if run["comparable"] else f"set aside: {run['reason']}"
        link = address("run", id=run["id"])
        cells.append(
            [
                f"<a href='{escape(link)}'>{escape(str(run['started'])[:16])}</a>",
                escape(f"{symbol} {words}"),
                escape(text),
                escape(run.get("dask") or ""),
                escape(run.get("distributed") or ""),
                escape(run.get("python") or ""),
                escape(aside),
            ]
        )
    titles = [
        "started (UTC)",
        "outcome",
        metric.replace("_", " "),
        "dask",
        "distributed",
        "python",
        "note",
    ]
    table = [parts.heading("Runs", "The newest first."), parts.rows(titles, cells)]
    if len(runs) > len(shown):
        where = {name: about[name] for name in ("workload", "environment")}
        older = {address("runs", **where): "older ones are in the list of runs"}
        table.append(parts.way(f"The last {len(shown)} of {len(runs)}", older))
    return table
