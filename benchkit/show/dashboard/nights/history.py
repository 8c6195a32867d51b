"""Page of one nightly series: metrics over months, changes with dates, builds and runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import panel as pn
from bokeh.models import Range1d
from panel.viewable import Viewable

from benchkit.analysis.regression.history import SERIES_FIELDS, History
from benchkit.analysis.regression.status import series_label
from benchkit.show.dashboard.components.mark_form import mark_series
from benchkit.show.dashboard.components.widgets import (
    CLICK_HELP,
    filtered,
    open_on_run_click,
    select,
)
from benchkit.show.dashboard.nights.regressions import no_nights
from benchkit.show.dashboard.state.cache import open_store
from benchkit.show.dashboard.state.nights import (
    left_out_nights,
    night_series,
    nights_of_workload,
    owners,
    regressions,
    shown_metrics,
)
from benchkit.show.dashboard.state.url import Debounced, address, href, write_address
from benchkit.show.pages.history import MAX_RUNS, run_section
from benchkit.show.pages.night import list_page
from benchkit.show.pages.page import (
    PERIODS,
    Filter,
    find_filter,
    metric_filter,
    metric_terms,
)
from benchkit.show.pages.regressions import regression_section
from benchkit.show.plots.history import history_plot, night_range
from benchkit.show.render import panel as ui
from benchkit.store.marks import active_marks
from benchkit.store.schema import METRICS

TITLE = "History"
#: Largest number of further metrics below the selected metric.
MAX_SMALL = 6


def view(state: dict[str, str]) -> Viewable:
    """Return the page of a nightly series."""
    metrics = shown_metrics()
    if not metrics:
        return no_nights("its history")
    if "workload" not in state:

        def filters(state: Mapping[str, str]) -> list[Filter]:
            return [metric_filter(state, metrics), find_filter(state, "workload or environment")]

        return filtered("history", filters, _list, state)
    history = nights_of_workload(state["workload"])
    matching = all_series = history.series.drop_duplicates("key")
    if matching.empty:
        text = f"There are no nightly runs of {state['workload']!r}."
        return ui.message("No such workload", text, back=True)
    unknown = []
    for name in SERIES_FIELDS[1:]:
        is_equal = matching[name].astype(str) == state.get(name, "")
        if is_equal.any():
            matching = matching[is_equal]
        elif state.get(name):
            unknown.append(f"{name} {state[name]}")
    series = {series_label(row): row for row in all_series.to_dict("records")}
    where = select("Where", list(series), series_label(matching.iloc[0].to_dict()), width=320)
    titles = {METRICS[name].long_name: name for name in metrics}
    metric = select("Metric", titles, state.get("metric"), width=300)
    period = select("Range", PERIODS, "", width=140)
    zero = pn.widgets.Checkbox(name="Axis from zero", value=state.get("zero") == "1")
    body, form = ui.column(), ui.column()
    days: Range1d

    def write() -> None:
        keys = {name: series[where.value][name] for name in SERIES_FIELDS}
        shown_days = dict(zip(("from", "to"), _shown_days(days), strict=True))
        from_zero = "1" if zero.value else ""
        write_address("history", {**keys, "metric": metric.value, "zero": from_zero, **shown_days})

    write_later = Debounced(write, lambda: days)

    def draw(*events: Any) -> None:
        nonlocal days
        selected = series[where.value]
        if not events or any(event.obj is where for event in events):
            days = _days(history, selected["key"], {} if events else state)
            period.value = ""
            for end in ("start", "end"):
                days.on_change(end, lambda attr, old, new: write_later())
        body[:] = ui.guard_parts(
            lambda: _body(history, selected, metric.value, metrics, bool(zero.value), days)
        )
        form[:] = ui.guard_parts(lambda: mark_series(selected, metric.value))
        if events:
            write()

    def show_period(event: Any) -> None:
        first, last = pd.Timestamp(days.reset_start), pd.Timestamp(days.reset_end)
        start = max(first, last - pd.Timedelta(days=int(event.new))) if event.new else first
        days.update(start=start, end=last)

    draw()
    period.param.watch(show_period, "value")
    for widget in (where, metric, zero):
        widget.param.watch(draw, "value")
    note = f"Never measured in {', '.join(unknown)}; this is another series."
    return ui.column(
        ui.page_head(str(state["workload"]), lines=[CLICK_HELP, *left_out_nights()]),
        *([ui.paragraph(note)] if unknown else []),
        pn.FlexBox(where, metric, period, zero),
        body,
        form,
    )


def _list(values: Mapping[str, str]) -> list[Viewable]:
    """Return the series of a metric, by name."""
    parts = ui.page_parts(list_page(night_series(values["metric"]), values), href)
    return [*parts, *(ui.paragraph(note) for note in left_out_nights())]


def _days(history: History, key: int, state: Mapping[str, str]) -> Range1d:
    """Return the time range of all figures: the days in the address, else all nights."""
    days = night_range(history, key)
    whole = days.reset_start, days.reset_end
    ends = pd.to_datetime(
        [state.get("from"), state.get("to")], errors="coerce", utc=True, format="ISO8601"
    ).tz_localize(None)
    is_valid = whole[0] < ends[1] and ends[0] < min(ends[1], whole[1])  # False for NaT
    if is_valid:
        days.update(start=max(ends[0], whole[0]), end=min(ends[1], whole[1]))
    return days


def _shown_days(days: Range1d) -> tuple[str, str]:
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
    series: dict[str, Any],
    metric: str,
    metrics: list[str],
    from_zero: bool,
    days: Range1d,
) -> list[Viewable]:
    content: list[Viewable] = [
        ui.section(regression_section(regression, owners().get(regression.workload, "")), href)
        for regression in regressions()
        if regression.is_open
        and all(regression.about[name] == series[name] for name in SERIES_FIELDS)
    ]
    others = [name for name in metrics if name != metric][:MAX_SMALL]
    row, *small_rows = (history.find({**series, "metric": name}) for name in (metric, *others))
    if row is None:
        text = f"{METRICS[metric].long_name} was not measured here."
        content.append(ui.message("Nothing to draw", text))
    else:
        marks = active_marks(open_store().marks())
        plot = open_on_run_click(
            history_plot(history, row, marks=marks, from_zero=from_zero, regressions=regressions())
        )
        if plot.xaxis[0].visible:
            plot.x_range = days
        content.append(ui.figure(plot))
    small = pn.GridBox(ncols=2, sizing_mode="stretch_width", tags=["loading"])

    def fill() -> None:
        plots = [
            open_on_run_click(
                history_plot(
                    history,
                    place,
                    from_zero=from_zero,
                    height=170,
                    small=True,
                    regressions=regressions(),
                )
            )
            for place in small_rows
            if place is not None
        ]
        # Share the range and one ticker: the figures move together, the browser renders faster.
        timed = [plot for plot in plots if plot.xaxis[0].visible]
        for plot in timed:
            plot.x_range, plot.xaxis[0].ticker = days, timed[0].xaxis[0].ticker
            plot.xaxis[0].formatter = timed[0].xaxis[0].formatter
        small.param.update(objects=[ui.figure(plot) for plot in plots], tags=[])

    pn.state.onload(fill)  # takes 5/6 of the time of the page: show the rest before
    links = {
        address("workloads", name=series["workload"]): "description, noise and source",
        address("environments", name=series["environment"]): (
            f"packages of {series['environment']}"
        ),
    }
    return [
        *content,
        small,
        *_runs(history, series, metric),
        ui.glossary(metric_terms([metric, *others]), "What the metrics mean"),
        ui.link_list(links),
    ]


def _runs(history: History, series: dict[str, Any], metric: str) -> list[Viewable]:
    runs = history.runs[history.runs["key"] == series["key"]]
    content = [ui.section(run_section(runs, [metric]), href)]
    if len(runs) > MAX_RUNS:
        keys = {name: series[name] for name in ("workload", "environment")}
        content.append(ui.link_line("Older", {address("runs", **keys): "the list of runs"}))
    return content
