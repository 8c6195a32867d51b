"""The overview: how every workload stands on the last night, what matters most first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import panel as pn

from benchkit.analysis.history import ABOUT, History, night_name
from benchkit.analysis.levels import worse_direction
from benchkit.show.dashboard import parts
from benchkit.show.dashboard.address import address, remember
from benchkit.show.dashboard.data import all_nights, shown_metrics, standings_of
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
    "change": "of the level where there is a new one, else of the night against its reference",
    "in noise units": "the change in standard deviations of the series' own noise",
    "nights": "the last nights; a stroke is a new level, a cross a night without result",
}
_SHOWN = {"everything": "all", "what needs a look": "news"}


def view(state: dict[str, str]) -> Any:
    """Return the page of the last night, or of ``night`` as it was known then, but for the marks.

    `state` may hold ``metric``, ``find`` and ``show`` (all or news), too.
    """
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
    names = [night_name(time) for time in reversed(all_nights().times)]
    night = pn.widgets.Select(
        name="Night (UTC)",
        options={_minute(name): "" if place == 0 else name for place, name in enumerate(names)},
        value=state.get("night", "") if state.get("night") in names[1:] else "",
        width=180,
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
    return pn.Column(pn.FlexBox(night, choose, find, show), body, sizing_mode="stretch_width")


def _minute(night: str) -> str:
    return night[:16].replace("T", " ")


def _body(metric: str, find: str, show: str, chosen: str) -> list[Any]:
    history, ones = standings_of(metric, chosen)
    counts = Counter(one.state for one in ones)
    told = [f"{counts[name]} {STATES[name][1]}" for name in STATES if counts[name]]
    night = _minute(night_name(history.times[-1]))
    words = find.lower().split()
    kept = [
        one
        for one in ones
        if (show == "all" or one.state not in QUIET)
        and all(w in f"{one.about['workload']} {series_label(one.about)}".lower() for w in words)
    ]
    hidden = len(ones) - len(kept)
    lines = [", ".join(told) + (f"; {hidden} of {len(ones)} hidden" if hidden else "")]
    never = _never_ok(words, len(history.times) - 1)
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
        else parts.message("Nothing to show", "No series is what the filters ask for."),
        parts.glossary({**_TERMS, value: metric_term(metric)}),
    ]


def _never_ok(words: list[str], night: int) -> list[list[str]]:
    """Return the cells of what was tried by a night and never ended ok: it has no series."""
    history = all_nights().until(night)
    runs = history.runs[~history.runs["key"].isin(history.series["key"])]
    runs = runs[~runs["outcome"].isin(["ok", "skipped"])]
    cells = []
    for _, mine in runs.groupby("key", sort=False):
        last = mine.iloc[-1]
        where, since = series_label(last), night_name(history.times[mine["night"].min()])[:10]
        if not all(word in f"{last['workload']} {where}".lower() for word in words):
            continue
        link = address("run", id=last["id"])
        cells.append(
            [
                f"<span class='bad'>✗ {esc(str(last['outcome']))}, never ok</span>",
                f"<a href='{esc(link)}'>{esc(str(last['workload']))}</a>",
                esc(where),
                *("–", f"– <small>since {esc(since)}</small>", "–", ""),
            ]
        )
    return cells


def _row(one: Standing, history: History, metric: str) -> list[str]:
    """Return the cells of a row as markup, every text of a run escaped."""
    symbol = STATES[one.state][0]
    tone = {"failed": "bad", "regressed": "bad", "improved": "good"}.get(one.state, "soft")
    about = {name: one.about[name] for name in ABOUT}
    link = address("history", metric=metric, **about)
    change = "–"
    if np.isfinite(one.ratio):
        told = f"95 % interval {format_change(one.low)} to {format_change(one.high)}"
        change = f"<span title='{esc(told)}'>{esc(format_change(one.ratio))}</span>"
    if one.since:
        change += f" <small>since {esc(one.since)}</small>"
    units = "–" if not np.isfinite(one.units) else f"{one.units:+.1f}".replace("-0.0", "+0.0")
    units = units.replace("-", "−")
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
