"""Collect the data of the published site from a store, as plain values, once per build.

Numbers are rounded, because a site holds every run of months. Page templates escape the texts.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from benchkit.analysis.changepoint.rule import MAX_REFERENCE_NIGHTS
from benchkit.analysis.changepoints import ChangePoint
from benchkit.analysis.regression.history import History, build_history, night_name
from benchkit.analysis.regression.level_events import worse_direction
from benchkit.analysis.regression.nights import is_reported
from benchkit.analysis.regression.regression import Regression, read_ledger, series_name
from benchkit.analysis.regression.status import (
    QUIET,
    STATES,
    improvements,
    reported_change,
    series_label,
    series_statuses,
)
from benchkit.errors import UnreadableRun
from benchkit.formatting import format_change
from benchkit.store.filters import workload_matcher
from benchkit.store.marks import active_marks
from benchkit.store.runfile import read_attribute
from benchkit.store.schema import METRICS
from benchkit.store.storage import run_name
from benchkit.store.store import Store
from benchkit.values import json_safe


def distinct_rows(table: pd.DataFrame) -> tuple[list[list[Any]], list[int]]:
    """Return the distinct rows of a table and, for each row, the index of its distinct row."""
    # places: For each row of `table`, its position in `rows`.
    rows = [tuple(json_safe(value) for value in row) for row in table.itertuples(index=False)]
    distinct = list(dict.fromkeys(rows))
    places = {row: place for place, row in enumerate(distinct)}
    return [list(row) for row in distinct], [places[row] for row in rows]


def short_numbers(values: Any) -> list[float | None]:
    """Return values with five digits."""
    numbers = np.asarray(pd.to_numeric(pd.Series(values), errors="coerce"), float)
    return [short_number(value) for value in numbers.tolist()]


def short_number(value: float, digits: int = 5) -> float | None:
    """Return a value with few digits, whole numbers as integers."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def seconds(time: np.datetime64) -> int:
    """Return a moment as seconds since 1970."""
    return int(time.astype("datetime64[s]").astype(int))


#: Metrics with a separate figure on the page of a workload.
SITE_METRICS = (
    "duration",
    "memory_peak",
    "memory_mean",
    "compute_time",
    "transfer_time",
    "network_bytes",
    "spilled_peak",
)
#: Columns that identify the build of a run; each combination is stored once.
_BUILD = ("python", "dask", "distributed", "git_commit", "packages_hash")
#: Fields without which an event cannot be shown.
_SERIES = {"workload", "environment", "host"}
#: Number of nights on the page of failures.
FAILURE_NIGHTS = 90


@dataclass(frozen=True)
class SiteData:
    """All data that the site shows."""

    store: Store  # The store from which the data were read
    history: History  # Series of the shown metrics
    regressions: list[Regression]  # Regressions in the ledger, newest first
    marks: Sequence[Mapping[str, Any]]  # The active marks
    events: Sequence[Mapping[str, Any]]  # All events of the ledger, as they are stored
    metrics: Sequence[str]  # Metrics with figures, in the order of the menu

    @cached_property
    def nights(self) -> list[Mapping[str, Any]]:
        """Events of kind "night": one for each environment and host of a judged night."""
        return [event for event in self.events if event["kind"] == "night"]

    @cached_property
    def news(self) -> list[Mapping[str, Any]]:
        """Events of the last judged night, without the kinds "night" and "placed"."""
        last = max((str(e["seen"]) for e in self.events if e.get("seen")), default="")
        left_out = {str(e.get("regression")) for e in self.events if e["kind"] == "opened"}
        left_out -= {regression.id for regression in self.regressions}
        return [
            event
            for event in self.events
            if event.get("seen") == last
            and is_reported(event)
            and _SERIES <= event.keys()
            and str(event.get("regression")) not in left_out
        ]

    @cached_property
    def workloads(self) -> list[str]:
        """Names of the workloads, sorted."""
        return sorted(self.history.runs["workload"].unique())

    def workload(self, name: str) -> dict[str, Any]:
        """Return the data of the page of a workload."""
        runs = self._by_workload[name]
        keys = sorted(runs["key"].unique())
        series = [self._about(key) for key in keys]
        places = {key: place for place, key in enumerate(keys)}
        builds, build = distinct_rows(runs[list(_BUILD)])
        outcomes = list(dict.fromkeys(runs["outcome"]))
        return {
            "workload": name,
            "series": series,
            "metrics": _metric_terms(self._metrics(runs)),
            "nights": [seconds(time) for time in self.history.times],
            "runs": {
                "id": runs["id"].tolist(),
                "series": [places[key] for key in runs["key"]],
                "night": runs["night"].tolist(),
                "outcome": [outcomes.index(outcome) for outcome in runs["outcome"]],
                "counts": runs["comparable"].astype(int).tolist(),
                "build": build,
                "values": {metric: short_numbers(runs[metric]) for metric in self._metrics(runs)},
            },
            "outcomes": outcomes,
            "builds": builds,
            "changes": self._changes(keys),
            "segments": [
                [places[row.key], row.night, row.metric, row.reason]
                for row in self.history.segments.itertuples()
                if row.key in places
            ],
            "regressions": [
                {field: getattr(regression, field) for field in ("id", "title", "state", "metric")}
                for regression in self.regressions
                if regression.workload == name
            ],
            "marks": [
                {
                    **{field: str(mark.get(field) or "") for field in ("kind", "by", "reason")},
                    "at": str(mark.get("at") or mark.get("before") or ""),
                }
                for mark in self.marks
                if _selects(mark, name)
            ],
        }

    def source(self, name: str) -> dict[str, str]:
        """Return the source code and the description of a workload, from its last readable run."""
        attributes = ("source", "description")
        for run_id in reversed(self._by_workload[name]["id"].tolist()):
            path = self.store.files.path(run_name(run_id))
            try:
                # Read attributes only: opening the whole run takes 0.2 s for each workload.
                return {key: read_attribute(path, key) or "" for key in attributes}
            except UnreadableRun:  # pruned or damaged: try an older run
                continue
        return dict.fromkeys(attributes, "")

    def overview(self) -> dict[str, Any]:
        """Return the data of the overview."""
        last = len(self.history.times) - 1
        rows: dict[int, dict[str, Any]] = {}
        statuses = series_statuses(self.history, self.events, self.marks)
        for status in sorted(statuses, key=lambda status: status.row):
            about, regression = status.about, status.regression
            key, metric = int(about["key"]), str(about["metric"])
            row = rows.setdefault(key, {**self._about(key), "page": page_name(about["workload"])})
            values = self.history.values[status.row, -MAX_REFERENCE_NIGHTS:]
            changes = self._reported(status.row)
            row.setdefault("metrics", {})[metric] = {
                "state": status.state,
                "label": f"{STATES[status.state][0]} {status.label}",
                "spark": short_numbers(values),
                "steps": [
                    [change.index - (last + 1 - values.size), change.direction]
                    for change in changes
                    if change.index > last - values.size
                ],
                "now": short_number(status.value),
                "ratio": short_number(status.ratio),
                "units": short_number(status.units, 2),
                "change": self._last_change(about, changes[-1]) if changes else None,
                "regression": regression.id if regression and regression.is_open else None,
                "worse": worse_direction(metric),
            }
            row["outcome"] = str(self.history.outcomes[key, -1])
        names = {metric for row in rows.values() for metric in row["metrics"]}
        return {
            "rows": sorted(rows.values(), key=lambda row: (row["workload"], row["environment"])),
            "metrics": _metric_terms(name for name in self.metrics if name in names),
            "states": list(STATES),
            "quiet": QUIET,
        }

    def improvements(self) -> list[dict[str, str]]:
        """Return the lasting changes for the better as text."""
        return [
            {
                "change": format_change(change.ratio),
                "workload": about["workload"],
                "what": f"{METRICS[about['metric']].long_name} in {series_label(about)}",
                "night": night,
            }
            for night, about, change in improvements(self.history, self.events)
        ]

    def failures(self) -> dict[str, Any]:
        """Return the outcomes by night of each series in which at least one run failed."""
        outcomes = self.history.outcomes[:, -FAILURE_NIGHTS:]
        bad = ~np.isin(outcomes, ("", "ok", "skipped"))
        rows = [
            {**self._about(int(key)), "outcomes": outcomes[key].tolist(), "n": int(bad[key].sum())}
            for key in np.flatnonzero(bad.any(axis=1))
        ]
        nights = [str(time)[:10] for time in self.history.times[-FAILURE_NIGHTS:]]
        return {"nights": nights, "rows": sorted(rows, key=lambda row: -row["n"])}

    def machines(self) -> list[dict[str, Any]]:
        """Return the data of the page of machines."""
        rows = []
        for host, runs in self.history.runs.groupby("host", sort=True):
            nights = [night for night in self.nights if night.get("host") == host]
            aside = [e for e in self.events if e["kind"] == "set_aside" and e.get("host") == host]
            rows.append(
                {
                    "host": str(host),
                    "runs": len(runs),
                    "nights": int(runs["night"].nunique()),
                    "environments": sorted(map(str, runs["environment"].unique())),
                    "first": str(runs["started"].min())[:10],
                    "last": str(runs["started"].max())[:10],
                    "failed": int((~runs["outcome"].isin(["ok", "skipped"])).sum()),
                    "alarms": sum(int(night.get("n_alarms", 0)) for night in nights),
                    "aside": len(aside),
                    "aside_nights": sorted({str(e["seen"])[:10] for e in aside})[-10:],
                    "dismissed": sum(int(night.get("n_dismissed", 0)) for night in nights),
                    "expected": round(sum(n.get("expected_false_alarms", 0) for n in nights), 2),
                    "judged": len(nights),
                }
            )
        return rows

    @cached_property
    def _by_workload(self) -> dict[str, pd.DataFrame]:
        return {str(name): runs for name, runs in self.history.runs.groupby("workload")}

    @cached_property
    def _keys(self) -> pd.DataFrame:
        names = ["workload", "category", "environment", "host", "scale", "capture"]
        return self.history.runs.drop_duplicates("key").set_index("key")[names]

    def _about(self, key: int) -> dict[str, Any]:
        about = {str(name): json_safe(value) for name, value in self._keys.loc[key].items()}
        return {**about, "label": series_label(about)}

    def _metrics(self, runs: pd.DataFrame) -> list[str]:
        return [name for name in self.metrics if name in runs and runs[name].notna().any()]

    def _changes(self, keys: Sequence[int]) -> list[list[Any]]:
        rows = self.history.series
        changes = []
        for place in np.flatnonzero(rows["key"].isin(keys)).tolist():
            about = rows.iloc[place]
            for change in self._reported(place):
                size = [short_number(ratio) for ratio in (change.ratio, change.low, change.high)]
                seen = [change.index, change.detected_at]
                worse = change.direction == worse_direction(about["metric"])
                machine = int(self._is_machine(about, change))
                series = keys.index(about["key"])
                changes.append([series, about["metric"], *seen, *size, int(worse), machine])
        return changes

    def _reported(self, place: int) -> list[ChangePoint]:
        """Return the changes of a series with the sizes of the ledger."""
        about, times = self.history.series.iloc[place].to_dict(), self.history.times
        return [
            reported_change(change, about, night_name(times[change.index]), self.regressions)
            for change in self.history.changes[place]
        ]

    def _last_change(self, about: Mapping[str, Any], change: ChangePoint) -> dict[str, Any]:
        size = {name: short_number(getattr(change, name)) for name in ("ratio", "low", "high")}
        night = str(self.history.times[change.index])[:10]
        return {"night": night, **size, "machine": self._is_machine(about, change)}

    def _is_machine(self, about: Mapping[str, Any], change: ChangePoint) -> bool:
        """Return whether the ledger set a change aside because the machine caused it."""
        night = night_name(self.history.times[change.index])
        return (*series_name(about), night) in self._aside

    @cached_property
    def _aside(self) -> set[tuple[str, ...]]:
        events = (event for event in self.events if event["kind"] == "set_aside")
        return {(*series_name(event), str(event.get("night"))) for event in events}


def collect_site(store: Store, *, metrics: Sequence[str] = SITE_METRICS) -> SiteData:
    """Collect the data of the site from a store."""
    events, marks = store.events(), store.marks()
    history = build_history(store.runs(), metrics=metrics, marks=marks)
    return SiteData(
        store, history, read_ledger(events, marks), active_marks(marks), events, metrics
    )


def page_name(workload: str) -> str:
    """Return the file name of the page of a workload, without its suffix.

    Examples
    --------
    >>> page_name("array.sum[k=1]").startswith("array.sum-k-1--")
    True
    """
    stem = re.sub(r"[^\w.]+", "-", workload).strip("-.")[:80]
    return f"{stem}--{hashlib.sha256(workload.encode()).hexdigest()[:6]}"


def _metric_terms(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the unit and the long name of metrics."""
    return {name: {"unit": METRICS[name].units, "name": METRICS[name].long_name} for name in names}


def _selects(mark: Mapping[str, Any], workload: str) -> bool:
    """Return whether a mark can select runs of a workload."""
    pattern = mark.get("workload")
    return not pattern or workload_matcher(str(pattern))(workload)
