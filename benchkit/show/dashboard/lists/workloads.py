"""Page with the list of workloads: median, noise and failures of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import panel as pn

from benchkit.analysis.regression.status import STATES
from benchkit.formatting import MISSING, OUTCOME_WORDS, counted, format_quantity
from benchkit.show.dashboard.components import components as parts
from benchkit.show.dashboard.components.components import metric_term
from benchkit.show.dashboard.lists import workload
from benchkit.show.dashboard.state.cache import (
    all_nights,
    noise_of,
    runs_table,
    series_statuses_of,
    shown_metrics,
    workload_catalogue,
)
from benchkit.show.dashboard.state.url import address, remember
from benchkit.show.escape import escape
from benchkit.store.schema import METRICS

__all__ = ["TITLE", "Row", "view", "workload_rows"]

TITLE = "Workloads"
#: Usual largest number of runs per side; a workload that needs more for 5 % is noisy.
MANY_RUNS = 12
_NO_FAILURE = ("ok", "skipped")
_TITLES = (
    "workload", "category", "runs", "last run (UTC)", "ended", "last night", "failed",
    "usual", "noise", "runs for 5 %", "nights",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """Row of the list: one variant.

    Attributes
    ----------
    name, category : str
        Name and category of the variant.
    n_runs, n_failed : int
        Number of runs in the store, and number of failed runs. Skipped runs are not failures.
    last : mapping or None
        Record of the newest run; None if the variant has no run.
    state : str
        Most serious state (see `STATES`) of its series on the last night; empty without nights.
    level, noise : float
        Median and coefficient of variation of the newest set of comparable runs; NaN: unknown.
    needed : int
        Runs per side that detect a change of 5 %; 0: unknown, -1: more than 1000.
    """

    name: str
    category: str
    n_runs: int = 0
    n_failed: int = 0
    last: Mapping[str, Any] | None = field(default=None, repr=False)
    state: str = ""
    level: float = float("nan")
    noise: float = float("nan")
    needed: int = 0

    @property
    def failing(self) -> float:
        """Share of failed runs."""
        return self.n_failed / self.n_runs if self.n_runs else 0.0

    @property
    def is_noisy(self) -> bool:
        """Whether detecting a change of 5 % takes more runs than an experiment usually has."""
        return self.needed < 0 or self.needed > MANY_RUNS


#: Label of a filter -> value in the address, and condition on rows.
_SHOWN: dict[str, tuple[str, Callable[[Row], bool]]] = {
    "measured": ("", lambda row: row.n_runs > 0),
    "last run not ok": (
        "failing",
        lambda row: row.last is not None and row.last["outcome"] not in _NO_FAILURE,
    ),
    "too noisy for 5 %": ("noisy", lambda row: row.is_noisy),
    "never measured": ("never", lambda row: not row.n_runs),
    "everything": ("all", lambda row: True),
}
#: Label of an order -> value in the address, and sort key.
_ORDERS: dict[str, tuple[str, Callable[[Row], Any]]] = {
    "name": ("", lambda row: row.name),
    "noise, highest first": ("noise", lambda row: -np.nan_to_num(row.noise, nan=-1.0)),
    "failures, most first": ("failures", lambda row: (-row.failing, -row.n_runs)),
    "last run, newest first": (
        "newest",
        lambda row: -row.last["started"].timestamp() if row.last is not None else 0.0,
    ),
    "runs, most first": ("runs", lambda row: -row.n_runs),
}


def view(state: dict[str, str]) -> Any:
    """Return the list, or the page of one workload if the address contains a name.

    Keys: ``name``, or ``metric``, ``find``, ``category``, ``show`` and ``order``.
    """
    if state.get("name"):
        return workload.view(state)
    if runs_table().empty and not workload_catalogue().workloads:
        return parts.message(
            "No workloads yet",
            "Nothing was measured, and there is no folder of workloads here:",
            "benchkit run -k tag:quick",
        )
    metrics = _measured_metrics()
    metric = state["metric"] if state.get("metric") in metrics else metrics[0]
    rows = workload_rows(metric)
    categories = sorted({row.category for row in rows})
    choose = pn.widgets.Select(
        name="Metric", options={METRICS[name].long_name: name for name in metrics}, value=metric,
        width=270,
    )  # fmt: skip
    find = pn.widgets.TextInput(
        name="Find", placeholder="part of a name", value=state.get("find", ""), width=190
    )
    category = pn.widgets.Select(
        name="Category", options={"all": "", **{name: name for name in categories}},
        value=state.get("category") if state.get("category") in categories else "", width=150,
    )  # fmt: skip
    show = pn.widgets.Select(
        name="Show", options={words: key for words, (key, _) in _SHOWN.items()},
        value=_known(state.get("show"), _SHOWN), width=170,
    )  # fmt: skip
    order = pn.widgets.Select(
        name="Order", options={words: key for words, (key, _) in _ORDERS.items()},
        value=_known(state.get("order"), _ORDERS), width=190,
    )  # fmt: skip
    body = pn.Column(sizing_mode="stretch_width")
    widgets = {
        "metric": choose, "find": find, "category": category, "show": show, "order": order,
    }  # fmt: skip

    def draw(*events: Any) -> None:
        now = {name: widget.value or "" for name, widget in widgets.items()}
        body[:] = _body(now)
        if events:
            remember("workloads", now)

    draw()
    for widget in widgets.values():
        widget.param.watch(draw, "value")
    return pn.Column(pn.FlexBox(*widgets.values()), body, sizing_mode="stretch_width")


def _known(asked: str | None, among: Mapping[str, tuple[str, Any]]) -> str:
    return asked if asked in {key for key, _ in among.values()} and asked else ""


def _measured_metrics() -> list[str]:
    """Return the metrics measured by runs of the store; without runs, the wall time."""
    runs = runs_table()
    return [name for name in METRICS if name in runs and runs[name].notna().any()] or ["duration"]


def workload_rows(metric: str) -> list[Row]:
    """Return one row per variant of the store and of the catalogue, sorted by name."""
    runs, states = runs_table(), _states(metric)
    measured = noise_of(metric).drop_duplicates("workload") if len(runs) else pd.DataFrame()
    noise = {row["workload"]: row for row in measured.to_dict("records")}
    found: dict[str, Row] = {}
    if len(runs):
        grouped = runs.groupby("workload", sort=False)
        failed = (~runs["outcome"].isin(_NO_FAILURE)).groupby(runs["workload"]).sum()
        sizes = grouped.size()
        for last in grouped.head(1).to_dict("records"):  # newest run first
            name = str(last["workload"])
            own = noise.get(name, {})
            found[name] = Row(
                name,
                str(last.get("category") or name.partition(".")[0]),
                int(sizes[name]),
                int(failed[name]),
                last,
                states.get(name, ""),
                float(own.get("level", np.nan)),
                float(own.get("noise", np.nan)),
                int(own.get("needed_5", 0)),
            )
    for variant in workload_catalogue().variants():
        found.setdefault(variant.name, Row(variant.name, variant.workload.category))
    return [found[name] for name in sorted(found)]


def _states(metric: str) -> dict[str, str]:
    """Return the most serious state of each workload's series on the last night."""
    if metric not in shown_metrics():
        return {}
    _, ones = series_statuses_of(metric)
    return {str(one.about["workload"]): one.state for one in reversed(ones)}


def _body(state: Mapping[str, str]) -> list[Any]:
    metric = state["metric"]
    rows = workload_rows(metric)
    wanted = next(test for key, test in _SHOWN.values() if key == state["show"])
    order = next(test for key, test in _ORDERS.values() if key == state["order"])
    words = state["find"].lower().split()
    kept = [
        row
        for row in rows
        if wanted(row)
        and state["category"] in ("", row.category)
        and all(word in row.name.lower() for word in words)
    ]
    kept.sort(key=order)
    nights = set(all_nights().series["workload"])
    content: list[Any] = [parts.head(_count(rows), lines=_hidden(rows, kept))]
    if not kept:
        return [*content, parts.message("Nothing to show", "No workload matches the filters.")]
    return [
        *content,
        parts.rows(_TITLES, [_cells(row, metric, nights) for row in kept], tight=True),
        parts.glossary(_terms(metric)),
    ]


def _count(rows: list[Row]) -> str:
    n_measured = sum(row.n_runs > 0 for row in rows)
    return f"{counted(n_measured, 'workload')} measured"


def _hidden(rows: list[Row], kept: list[Row]) -> list[str]:
    """Return a line with the number of rows of each class, and how many are hidden."""
    classes = {
        "last run ok": [r for r in rows if r.last is not None and r.last["outcome"] == "ok"],
        "last run not ok": [r for r in rows if _SHOWN["last run not ok"][1](r)],
        "last run skipped": [
            r for r in rows if r.last is not None and r.last["outcome"] == "skipped"
        ],
        "never measured": [r for r in rows if not r.n_runs],
    }
    shown = {row.name for row in kept}
    told = []
    for name, members in classes.items():
        hidden = sum(row.name not in shown for row in members)
        if members:
            told.append(f"{len(members)} {name}" + (f" ({hidden} hidden)" if hidden else ""))
    return [", ".join(told)]


def _cells(row: Row, metric: str, nights: set[str]) -> list[str]:
    """Return the cells of a row as HTML, with all text from runs escaped."""
    name = f"<a href='{escape(address('workloads', name=row.name))}'>{escape(row.name)}</a>"
    if row.last is None:
        return [name, escape(row.category), "0", MISSING, "never measured", *[MISSING] * 5, ""]
    symbol, words = OUTCOME_WORDS.get(str(row.last["outcome"]), ("?", str(row.last["outcome"])))
    tone = "soft" if row.last["outcome"] in _NO_FAILURE else "bad"
    link = address("run", id=row.last["id"])
    history = ""
    if row.name in nights:
        to = address("history", workload=row.name, metric=metric)
        label = f"history of {escape(row.name)}"
        history = f"<a class='whole' href='{escape(to)}' aria-label='{label}'>history</a>"
    state = f"{STATES[row.state][0]} {STATES[row.state][1]}" if row.state else MISSING
    return [
        name,
        escape(row.category),
        str(row.n_runs),
        f"<a href='{escape(link)}'>{escape(str(row.last['started'])[:16])}</a>",
        f"<span class='{tone}'>{escape(symbol)} {escape(words)}</span>",
        escape(state),
        workload.share_text(row.n_failed, row.n_runs),
        escape(format_quantity(row.level, METRICS[metric].units)),
        workload.noise_text(row.noise),
        workload.needed_text(row.needed),
        history,
    ]


def _terms(metric: str) -> dict[str, str]:
    return {
        "ended": "how the newest run ended",
        "last night": "the most serious state of its series on the last night of the store",
        "failed": "runs that did not end ok, and their share of all; skipped ones do not count",
        "usual": f"median of its newest set of comparable runs: {metric_term(metric)}",
        **workload.NOISE_TERMS,
    }
