"""Page with the list of workloads: median, noise and failures of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from panel.viewable import Viewable

from benchkit.analysis.regression.status import STATES
from benchkit.formatting import MISSING, counted, format_quantity
from benchkit.show.dashboard.components import tables, ui
from benchkit.show.dashboard.components.markup import (
    NO_FAILURE,
    link,
    metric_term,
    outcome_text,
    run_link,
    span,
    tone_of_outcome,
)
from benchkit.show.dashboard.components.widgets import (
    filtered,
    find_field,
    has_words,
    metric_select,
    select,
)
from benchkit.show.dashboard.lists import workload
from benchkit.show.dashboard.state.cache import (
    MAX_RUNS_READ,
    newest_since,
    noise_of,
    runs_table,
    stored_metrics,
    workload_catalogue,
)
from benchkit.show.dashboard.state.nights import all_nights, series_statuses_of, shown_metrics
from benchkit.show.dashboard.state.url import address
from benchkit.store.schema import METRICS

__all__ = ["TITLE", "Row", "view", "workload_rows"]

TITLE = "Workloads"
#: Columns of the runs that the list reads.
_COLUMNS = ("id", "started", "workload", "category", "outcome")
#: Usual largest number of runs per side; a workload that needs more for 5 % is noisy.
MANY_RUNS = 12
_TITLES = (
    "workload", "category", "runs", "last run (UTC)", "state", "failed",
    "usual", "noise", "runs for 5 %", "nights",
)  # fmt: skip


_TERMS = {
    "state": "outcome of the newest run; if that is ok and the workload has nightly runs, the most "
    "serious state of its environments on the last night",
    "failed": "runs that are not ok, and their share of all runs; skipped runs are no failures",
    "usual": "median of its newest set of comparable runs",
}


@dataclass(frozen=True)
class Row:
    """Row of the list: one variant."""

    name: str  # name, category: Name and category of the variant
    category: str
    # n_runs, n_failed: Number of runs in the store, and number of failed runs. Skipped runs are not
    # failures.
    n_runs: int = 0
    n_failed: int = 0
    # Record of the newest run; None if the variant has no run.
    last: Mapping[str, Any] | None = field(default=None, repr=False)
    # Most serious state (see `STATES`) of its series on the last night; empty without nights.
    state: str = ""
    # level, noise: Median and coefficient of variation of the newest set of comparable runs; NaN:
    # unknown.
    level: float = float("nan")
    noise: float = float("nan")
    needed: int = 0  # Runs per side that detect a change of 5 %; 0: unknown, -1: more than 1000

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
        lambda row: row.last is not None and row.last["outcome"] not in NO_FAILURE,
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


def view(state: dict[str, str]) -> Viewable:
    """Return the list, or the page of one workload."""
    if state.get("name"):
        return workload.view(state)
    if runs_table(_COLUMNS).empty and not workload_catalogue().workloads:
        return ui.message(
            "No workloads yet",
            "There are no runs, and there is no folder of workloads here:",
            "benchkit run -k tag:quick",
        )
    metrics = stored_metrics() or ["duration"]
    metric = metric_select(metrics, state.get("metric"), width=270)
    categories = sorted({row.category for row in workload_rows(metric.value)})
    category = {"all": "", **{name: name for name in categories}}
    show = {label: key for label, (key, _) in _SHOWN.items()}
    order = {label: key for label, (key, _) in _ORDERS.items()}
    widgets = {
        "metric": metric,
        "find": find_field(state),
        "category": select("Category", category, state.get("category"), width=150),
        "show": select("Show", show, state.get("show"), width=170),
        "order": select("Order", order, state.get("order"), width=190),
    }
    return filtered("workloads", widgets, _body)


def workload_rows(metric: str) -> list[Row]:
    """Return the rows of the list."""
    # returned: One row per variant of the store and of the catalogue, sorted by name.
    runs, states = runs_table(_COLUMNS), _states(metric)
    sets = noise_of(metric).drop_duplicates("workload") if len(runs) else pd.DataFrame()
    noise = {row["workload"]: row for row in sets.to_dict("records")}
    rows: dict[str, Row] = {}
    if len(runs):
        grouped = runs.groupby("workload", sort=False)
        n_failed = (~runs["outcome"].isin(NO_FAILURE)).groupby(runs["workload"]).sum()
        n_runs = grouped.size()
        for last in grouped.head(1).to_dict("records"):  # newest run first
            name = str(last["workload"])
            newest_set = noise.get(name, {})
            rows[name] = Row(
                name,
                str(last["category"] if pd.notna(last["category"]) else name.partition(".")[0]),
                int(n_runs[name]),
                int(n_failed[name]),
                last,
                states.get(name, ""),
                float(newest_set.get("level", np.nan)),
                float(newest_set.get("noise", np.nan)),
                int(newest_set.get("needed_5", 0)),
            )
    for variant in workload_catalogue().variants():
        rows.setdefault(variant.name, Row(variant.name, variant.workload.category))
    return [rows[name] for name in sorted(rows)]


def _states(metric: str) -> dict[str, str]:
    """Return the most serious state of each workload's series on the last night."""
    if metric not in shown_metrics():
        return {}
    _, statuses = series_statuses_of(metric)
    return {str(status.about["workload"]): status.state for status in reversed(statuses)}


def _body(values: Mapping[str, str]) -> list[Viewable]:
    metric = values["metric"]
    rows = workload_rows(metric)
    is_shown = next(test for key, test in _SHOWN.values() if key == values["show"])
    order = next(test for key, test in _ORDERS.values() if key == values["order"])
    shown = [
        row
        for row in rows
        if is_shown(row)
        and values["category"] in ("", row.category)
        and has_words(row.name, values["find"])
    ]
    shown.sort(key=order)
    title = f"{counted(sum(row.n_runs > 0 for row in rows), 'workload')} measured"
    lines = [_classes(rows, shown)]
    if newest_since() is not None:
        lines.append(f"Usual values and noise are of the newest {MAX_RUNS_READ:,} runs.")
    head = ui.page_head(title, lines=lines)
    if not shown:
        return [head, ui.message("Nothing to show", "No workload matches the filters.")]
    nightly = set(all_nights().series["workload"])
    terms = {**_TERMS, "usual": f"{_TERMS['usual']}: {metric_term(metric)}", **workload.NOISE_TERMS}
    return [
        head,
        tables.html_table(_TITLES, [_cells(row, metric, nightly) for row in shown], tight=True),
        tables.glossary(terms),
    ]


def _classes(rows: list[Row], shown: list[Row]) -> str:
    """Return the number of rows of each class, and how many are hidden."""

    def last_outcome_is(outcome: str) -> Callable[[Row], bool]:
        return lambda row: row.last is not None and row.last["outcome"] == outcome

    classes = {
        "last run ok": last_outcome_is("ok"),
        "last run not ok": _SHOWN["last run not ok"][1],
        "last run skipped": last_outcome_is("skipped"),
        "never measured": _SHOWN["never measured"][1],
    }
    names = {row.name for row in shown}
    texts = []
    for label, test in classes.items():
        members = [row.name for row in rows if test(row)]
        n_hidden = sum(name not in names for name in members)
        if members:
            texts.append(f"{len(members)} {label}" + (f" ({n_hidden} hidden)" if n_hidden else ""))
    return ", ".join(texts)


def _cells(row: Row, metric: str, nightly: set[str]) -> list[str]:
    """Return the cells of a row."""
    name = link(row.name, address("workloads", name=row.name))
    if row.last is None:
        return [name, row.category, "0", MISSING, "never measured", *[MISSING] * 4, ""]
    history = ""
    if row.name in nightly:
        target = address("history", workload=row.name, metric=metric)
        history = link("history", target, label=f"history of {row.name}", kind="whole")
    outcome = row.last["outcome"]
    state = span(outcome_text(outcome), tone_of_outcome(outcome))
    if row.state and outcome in NO_FAILURE:
        is_bad = row.state in ("failed", "regressed")
        state = span(" ".join(STATES[row.state]), "bad" if is_bad else "soft")
    return [
        name,
        row.category,
        str(row.n_runs),
        run_link(row.last),
        state,
        workload.share_text(row.n_failed, row.n_runs),
        format_quantity(row.level, METRICS[metric].units),
        workload.noise_text(row.noise),
        workload.needed_text(row.needed),
        history,
    ]
