"""Page of regressions and improvements: what changed in a period, where, and who the owner is."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from panel.viewable import Viewable

from benchkit.analysis.regression.history import night_name
from benchkit.analysis.regression.status import improvements
from benchkit.show.dashboard.components.widgets import filtered
from benchkit.show.dashboard.state.cache import open_store
from benchkit.show.dashboard.state.nights import (
    all_nights,
    left_out_nights,
    nights_of,
    owners,
    regressions,
    shown_metrics,
)
from benchkit.show.dashboard.state.url import href
from benchkit.show.pages.history import change_table
from benchkit.show.pages.page import PERIODS, Filter, find_filter, metric_filter, select_filter
from benchkit.show.pages.regressions import page
from benchkit.show.render import panel as ui

TITLE = "Regressions"
_STATES = {"open and closed": "", "open": "open", "closed": "closed"}


def view(state: dict[str, str]) -> Viewable:
    """Return the page."""
    metrics = shown_metrics()
    if not metrics:
        return no_nights("regressions and improvements")

    def filters(state: Mapping[str, str]) -> list[Filter]:
        return [
            select_filter(state, "days", "Period", PERIODS),
            select_filter(state, "state", "State", _STATES),
            find_filter(state, "workload, environment, owner"),
            metric_filter(state, metrics),
        ]

    return filtered("regressions", filters, _body, state)


def _body(values: Mapping[str, str]) -> list[Viewable]:
    worse, better = regressions(), improvements(open_store().events())
    changes = change_table(nights_of(values["metric"]), worse)
    filters = {**values, "since": _since(values["days"])}
    head, *sections = ui.page_parts(page(worse, better, changes, owners(), filters), href)
    return [head, *(ui.paragraph(note) for note in left_out_nights()), *sections]


def _since(days: str) -> str:
    """Return the first night of a period that ends with the last night."""
    times = all_nights().times
    if not days or not len(times):
        return ""
    return night_name(times[-1] - np.timedelta64(int(days), "D"))


def no_nights(shows: str, *, title: str = "No nights yet", before: str = "") -> Viewable:
    """Return the message with the command that measures a night."""
    text = f"{before} Measure a selection every night, then this page shows {shows}:".strip()
    return ui.message(title, text, "benchkit nightly -k profile:nightly")
