"""The overview: how every workload stands on the last night, what matters most first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import panel as pn

from benchkit.analysis.history import History
from benchkit.analysis.levels import worse_direction
from benchkit.show.dashboard import parts
from benchkit.show.dashboard.address import address, remember
from benchkit.show.dashboard.data import nights_of, shown_metrics, standings_of
from benchkit.show.dashboard.standing import STATES, Standing, series_label
from benchkit.show.dashboard.terms import metric_term
from benchkit.show.escape import esc
from benchkit.show.plots.sparkline import sparkline
from benchkit.store.schema import METRICS
from benchkit.store.text import format_change, format_quantity

__all__ = ["TITLE", "view"]

TITLE = "Overview"
#: Nights in a sparkline; more are too narrow to see.
SPARK_NIGHTS = 60
#: States that nobody needs to look at.
QUIET = ("unchanged", "young", "absent")
_TERMS = {
    "change": "of the level where there is a new one, else of last night against its reference",
    "in noise units": "the change in standard deviations of the series' own noise",
    "nights": "the last nights; a stroke is a new level, a cross a night without result",
}
_SHOWN = {"everything": "all", "what needs a look": "news"}


def view(state: dict[str, str]) -> Any:
    """Return the page; `state` may hold ``metric``, ``find`` and ``show`` (all or news)."""
    metrics = shown_metrics()
    if not metrics:
        return parts.message(
            "No nights yet",
            "Measure a selection every night, then this page says what changed:",
            "benchkit nightly -k profile:nightly",
        )
    metric = state.get("metric") if state.get("metric") in metrics else metrics[0]
    choose = pn.widgets.Select(
        name="Metric", options={METRICS[name].long_name: name for name in metrics}, value=metric,
        width=300,
    )  # fmt: skip
    find = pn.widgets.TextInput(
        name="Find", placeholder="workload or environment", value=state.get("find", ""), width=260
    )
    show = pn.widgets.Select(
        name="Show", options=_SHOWN, value="news" if state.get("show") == "news" else "all",
        width=200,
    )  # fmt: skip
    body = pn.Column(sizing_mode="stretch_width")

    def draw(*events: Any) -> None:
        body[:] = _body(choose.value, find.value or "", show.value)
        if events:
            remember("overview", {"metric": choose.value, "find": find.value, "show": show.value})

    draw()
    for widget in (choose, find, show):
        widget.param.watch(draw, "value")
    return pn.Column(pn.Row(choose, find, show), body, sizing_mode="stretch_width")


def _body(metric: str, find: str, show: str) -> list[Any]:
    history = nights_of(metric)
    ones = standings_of(metric)
    counts = Counter(one.state for one in ones)
    told = [f"{counts[name]} {STATES[name][1]}" for name in STATES if counts[name]]
    night = str(history.times[-1])[:16].replace("T", " ")
    words = find.lower().split()
    kept = [
        one
        for one in ones
        if (show == "all" or one.state not in QUIET)
        and all(w in f"{one.about['workload']} {series_label(one.about)}".lower() for w in words)
    ]
    hidden = len(ones) - len(kept)
    lines = [", ".join(told) + (f"; {hidden} of {len(ones)} hidden" if hidden else "")]
    return [
        parts.head(f"Night of {night} UTC", lines=lines),
        parts.rows(
            ["state", "workload", "where", "last night", "change", "in noise units", "nights"],
            [_row(one, history, metric) for one in kept],
        )
        if kept
        else parts.message("Nothing to show", "No series is what the filters ask for."),
        parts.glossary({**_TERMS, "last night": metric_term(metric)}),
    ]


def _row(one: Standing, history: History, metric: str) -> list[str]:
    """Return the cells of a row as markup, every text of a run escaped."""
    symbol = STATES[one.state][0]
    tone = {"failed": "bad", "regressed": "bad", "improved": "good"}.get(one.state, "soft")
    about = {name: one.about[name] for name in ("workload", "environment", "host")}
    link = address("history", metric=metric, **about)
    change = "–"
    if np.isfinite(one.ratio):
        change = esc(format_change(one.ratio))
        if one.since:
            change += f" <small>since {esc(one.since)}</small>"
    units = "–" if not np.isfinite(one.units) else f"{one.units:+.1f}".replace("-0.0", "+0.0")
    return [
        f"<span class='{tone}'>{esc(symbol)} {esc(one.words)}</span>",
        f"<a href='{esc(link)}'>{esc(one.about['workload'])}</a>",
        esc(series_label(one.about)),
        esc(format_quantity(one.value, METRICS[metric].units)) if np.isfinite(one.value) else "–",
        change,
        units,
        _spark(one, history, metric),
    ]


def _spark(one: Standing, history: History, metric: str) -> str:
    values = history.values[one.row, -SPARK_NIGHTS:]
    skipped = len(history.times) - values.size
    changes: Sequence[tuple[int, int]] = [
        (change.index - skipped, change.direction)
        for change in history.changes[one.row]
        if change.index >= skipped
    ]
    outcomes = history.outcomes[int(one.about["key"]), -SPARK_NIGHTS:]
    failed = np.flatnonzero(~np.isin(outcomes, ("", "ok", "skipped"))).tolist()
    label = f"{one.about['workload']}, {values.size} nights"
    worse = worse_direction(metric)
    return sparkline(values, changes, worse=worse, failed=failed, label=label)
