"""Page of regressions and improvements: what changed in a period, where, and who the owner is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from panel.viewable import Viewable

from benchkit.analysis.regression.history import night_name
from benchkit.analysis.regression.regression import FAILING, Regression
from benchkit.analysis.regression.status import improvements, series_label, workload_owners
from benchkit.formatting import counted, format_change
from benchkit.show.dashboard.components import tables, ui
from benchkit.show.dashboard.components.markup import Markup, link, span
from benchkit.show.dashboard.components.widgets import (
    filtered,
    find_field,
    has_words,
    metric_select,
    select,
)
from benchkit.show.dashboard.nights.parts import no_nights
from benchkit.show.dashboard.state.cache import open_store, runs_table
from benchkit.show.dashboard.state.nights import (
    all_nights,
    left_out_nights,
    nights_of,
    regressions,
    shown_metrics,
)
from benchkit.show.dashboard.state.url import history_address
from benchkit.store.schema import METRICS
from benchkit.text import escape

TITLE = "Regressions"
#: Label of a period before the last night -> number of days in the address.
DAYS = {"all nights": "", "7 days": "7", "30 days": "30", "90 days": "90", "365 days": "365"}
_STATES = {"open and closed": "", "open": "open", "closed": "closed"}
_TERMS = {
    "size": "the new level against the level before with its 95 % interval, as in the ledger: the "
    "same on all pages and in issues",
    "who should look": "the owner that the workload declares (`owner=`), and the changes between "
    "the builds before and after",
    "improvements": "lasting changes for the better, as the detector found them in the history",
}


def view(state: dict[str, str]) -> Viewable:
    """Return the page."""
    metrics = shown_metrics()
    if not metrics:
        return no_nights("regressions and improvements")
    widgets = {
        "days": select("Period", DAYS, state.get("days"), width=150),
        "state": select("State", _STATES, state.get("state"), width=170),
        "find": find_field(state, "workload, environment, owner", 260),
        "metric": metric_select(metrics, state.get("metric")),
    }
    return filtered("regressions", widgets, _body)


def _body(values: Mapping[str, str]) -> list[Viewable]:
    since = _since(values["days"])
    owners = workload_owners(runs_table(["workload", "started", "owner"]))
    found = [
        regression
        for regression in regressions()
        if regression.night >= since
        and values["state"] in ("", "open" if regression.is_open else "closed")
        and has_words(
            f"{regression.title} {regression.environment} {owners.get(regression.workload, '')}",
            values["find"],
        )
    ]
    found.sort(key=lambda regression: (regression.is_open, regression.night), reverse=True)
    better = [
        cells
        for name, cells in _improvements(values["metric"], since, owners)
        if has_words(" ".join([name, *cells]), values["find"])
    ]
    n_open = sum(regression.is_open for regression in found)
    summary = (
        f"{n_open} open, {len(found) - n_open} closed; "
        f"{counted(len(better), 'improvement')} of the {METRICS[values['metric']].long_name}."
    )
    titles = ["state", "regression", "size", "where", "since", "who should look"]
    rows = [_cells(regression, owners.get(regression.workload, "")) for regression in found]
    better_titles = ["change", "workload", "where", "since", "owner"]
    return [
        ui.page_head(TITLE, lines=[summary, *left_out_nights()]),
        tables.html_table(titles, rows, empty="No regressions."),
        ui.heading("Improvements"),
        tables.html_table(better_titles, better, empty="No improvements."),
        ui.glossary(_TERMS),
    ]


def _since(days: str) -> str:
    """Return the first night of a period that ends with the last night."""
    times = all_nights().times
    if not days or not len(times):
        return ""
    return night_name(times[-1] - np.timedelta64(int(days), "D"))


def _cells(regression: Regression, owner: str) -> list[str]:
    metric = None if regression.metric == FAILING else regression.metric
    title = regression.title.removesuffix(f" since {regression.night[:10]}")
    return [
        span(("▲ " if regression.is_open else "") + regression.state,
             "bad whole" if regression.is_open else "soft whole"),
        link(title, history_address(regression.about, metric)),
        regression.size[:120],
        span(series_label(regression.about), "whole"),
        span(regression.night[:10], "whole"),
        _who(regression, owner),
    ]  # fmt: skip


def _who(regression: Regression, owner: str) -> Markup:
    """Return the owner of the workload, and links to the changes between the builds."""
    parts = [escape(owner)] if owner else []
    parts += [
        link(f"changes of {change['name']}", str(change["link"]))
        for change in regression.facts.get("changed") or []
        if str(change.get("link") or "").startswith("https://")
    ]
    return Markup("<br>".join(parts)) or span("no owner declared", "soft")


def _improvements(
    metric: str, since: str, owners: Mapping[str, str]
) -> list[tuple[str, list[str]]]:
    """Return name and cells of each improvement in a period, newest first."""
    return [
        (str(about["workload"]), _improvement(about, change, night, owners))
        for night, about, change in improvements(nights_of(metric), open_store().events())
        if night >= since
    ]


def _improvement(
    about: Mapping[str, Any], change: Any, night: str, owners: Mapping[str, str]
) -> list[str]:
    name = str(about["workload"])
    interval = f"95 % interval {format_change(change.low)} to {format_change(change.high)}"
    return [
        span(f"▼ {format_change(change.ratio)}", "good", title=interval),
        link(name, history_address(about, about["metric"])),
        series_label(about),
        night[:10],
        owners.get(name, ""),
    ]
