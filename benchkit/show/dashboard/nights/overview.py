"""Overview: the page of a night, with filters in the address."""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np
import panel as pn
from panel.viewable import Viewable

from benchkit.analysis.regression.history import night_name
from benchkit.formatting import ROWS_SHOWN, counted
from benchkit.show.dashboard.components import tables
from benchkit.show.dashboard.components.widgets import filtered
from benchkit.show.dashboard.lists import runs
from benchkit.show.dashboard.nights.regressions import no_nights
from benchkit.show.dashboard.state.nights import (
    all_nights,
    left_out_nights,
    night_series,
    regressions,
    shown_metrics,
    shown_night,
)
from benchkit.show.dashboard.state.url import address, href
from benchkit.show.pages import night as pages
from benchkit.show.pages.page import Filter, metric_filter, minute, row_filters, select_filter
from benchkit.show.render import panel as ui
from benchkit.show.render.markdown import table_markdown

TITLE = "Overview"
#: With this many nights or more, the first page of a store shows nights instead of runs.
MIN_NIGHTS = 3
#: Label of a range -> value in the address: number of nights in the small figures.
_NIGHTS = {"60 nights": "", "30 nights": "30", "120 nights": "120", "365 nights": "365"}


def view(state: dict[str, str]) -> Viewable:
    """Return the page of a night, with the data of that time and the current marks."""
    metrics = shown_metrics()
    n_nights = len(all_nights().times)
    if not metrics or (n_nights < MIN_NIGHTS and not state.get("view")):
        few: dict[str, str] = {}
        if metrics:  # runs without a night are of the day on which they started
            has = f"This store has runs of {counted(n_nights, 'day')}; changes need {MIN_NIGHTS}."
            few = {"title": "Too few nights to compare", "before": has}
        message = no_nights("what changed; below are the runs", **few)
        return ui.column(message, runs.first_page())
    first, *others = (night_name(time) for time in reversed(all_nights().times))
    nights = {minute(first): "", **{minute(name): name for name in others}}

    def filters(state: Mapping[str, str]) -> list[Filter]:
        night = select_filter(state, "night", "Night (UTC)", nights)
        metric = metric_filter(state, metrics)
        is_small = len(night_series(metric.value, night.value).statuses) < ROWS_SHOWN
        return [
            night,
            metric,
            select_filter(state, "range", "Range", _NIGHTS),
            *row_filters(state, show="all" if is_small else "news"),
        ]

    return filtered("overview", filters, _body, state)


def _body(values: Mapping[str, str]) -> list[Viewable]:
    series = night_series(values["metric"], values["night"])

    def as_markdown() -> io.StringIO:
        return io.StringIO(table_markdown(pages.series_table(series, values)) + "\n")

    files = pn.FlexBox(
        tables.download_button(
            "overview.csv", lambda: pages.frame(series, values), "These rows as CSV", 180
        ),
        tables.download_button("overview.md", as_markdown, "As Markdown", 180),
        gap="0 8px",
    )
    head, *sections = ui.page_parts(pages.page(shown_night(series.history), [series], values), href)
    links = {address("regressions", days="30"): _last_month()}
    notes = [ui.paragraph(note) for note in left_out_nights()]
    return [head, *notes, ui.link_line("Over time", links), *sections, files]


def _last_month() -> str:
    """Return the number of regressions that are open, and that began in the last 30 days."""
    first = night_name(all_nights().times[-1] - np.timedelta64(30, "D"))
    every = regressions()
    n_new = sum(regression.night >= first for regression in every)
    n_open = sum(regression.is_open for regression in every)
    return f"{counted(n_open, 'open regression')}, {n_new} began in the last 30 days; improvements"
