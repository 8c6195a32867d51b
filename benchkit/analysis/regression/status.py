"""Return the state of each series on a night, for the overview and the list of workloads.

Verdicts come from the ledger and the detector; this module adds labels and the order of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from benchkit.analysis.changepoints import ChangePoint
from benchkit.analysis.options import VERDICTS
from benchkit.analysis.regression.history import SERIES_FIELDS, History, night_name
from benchkit.analysis.regression.level_events import is_same, worse_direction
from benchkit.analysis.regression.regression import FAILING, Regression, read_ledger, series_name
from benchkit.formatting import NO_FAILURE, OUTCOME_WORDS
from benchkit.store.schema import METRICS

#: State -> symbol and label, in the order of rows.
STATES = {
    "failed": ("✗", "failed"),
    "regressed": ("▲", "regressed"),
    "unsure": ("?", "unsure"),
    "improved": ("▼", "improved"),
    "unchanged": ("=", "unchanged"),
    "short": ("…", "too few nights"),
    "absent": ("–", "not measured"),
}
#: States that need no attention.
QUIET = ("unchanged", "short", "absent")


@dataclass(frozen=True)
class SeriesStatus:
    """State of a series on a night."""

    row: int  # Position of the series in the history; -1 without an ok run
    # Fields of the series: workload, environment, host, scale, capture, metric.
    about: Mapping[str, Any]
    state: str  # One of `STATES`
    label: str  # Text of the state, such as `regressed, new`
    value: float  # Median of the night; NaN if not measured
    # ratio, low, high: The change and its 95 % interval: of the level if it regressed or improved,
    # else of the night relative to its reference.
    ratio: float
    low: float
    high: float
    units: float  # The change in noise units (standard deviations of the series)
    since: str  # First night of the new level, ISO 8601; empty without a change of level
    regression: Regression | None  # The latest regression of the series in the ledger

    @property
    def severity(self) -> tuple[int, float]:
        """Sort key: position of the state, then minus the change in noise units."""
        size = 0.0 if np.isnan(self.units) else abs(self.units)
        return list(STATES).index(self.state), -size


def series_label(about: Mapping[str, Any]) -> str:
    """Return environment, host, scale and capture of a series as text.

    Examples
    --------
    >>> series_label({"environment": "main", "host": "ci", "scale": 0.5, "capture": "full"})
    'main on ci, scale 0.5'
    """
    known = [str(about[name]) for name in ("environment", "host") if pd.notna(about[name])]
    parts = [" on ".join(known)]
    if pd.notna(about["scale"]) and about["scale"] != 1.0:
        parts.append(f"scale {about['scale']:g}")
    if pd.notna(about["capture"]) and about["capture"] != "full":
        parts.append(f"capture {about['capture']}")
    return ", ".join(parts)


def reported_change(
    change: ChangePoint, about: Mapping[str, Any], night: str, regressions: Iterable[Regression]
) -> ChangePoint:
    """Return a change with the size that the ledger has for it."""
    for regression in regressions:
        # The detector may place the change a few nights from where it was first placed.
        if is_same({**about, "night": night}, {**regression.about, "night": regression.night}):
            return replace(change, ratio=regression.ratio, low=regression.low, high=regression.high)
    return change


def workload_owners(runs: pd.DataFrame) -> dict[str, str]:
    """Return the owner of each workload that declares one, from its newest run."""
    if "owner" not in runs:
        return {}
    newest = runs.sort_values("started", ascending=False).drop_duplicates("workload")
    newest = newest[newest["owner"].fillna("") != ""]
    return dict(zip(newest["workload"], newest["owner"].astype(str), strict=True))


def improvements(events: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the improvements of a ledger, newest first.

    The ledger sets changes of the control and of the machine aside, for the better as for the
    worse: they are not among them.
    """
    # Two machines may have judged the same night; an event written by hand can lack fields.
    found = {
        (*series_name(event), str(event["night"])): event
        for event in events
        if event["kind"] == "improved"
        and {*SERIES_FIELDS, "night"} <= event.keys()
        and event.get("metric") in METRICS
    }
    by_name = [found[name] for name in sorted(found)]
    return sorted(by_name, key=lambda event: str(event["night"]), reverse=True)


def series_statuses(
    history: History,
    events: Sequence[Mapping[str, Any]] = (),
    marks: Sequence[Mapping[str, Any]] = (),
) -> list[SeriesStatus]:
    """Return the state of each series on the last night, most severe first."""
    if not len(history.times):
        return []
    night = night_name(history.times[-1])
    past_events = [event for event in events if str(event.get("seen") or "") <= night]
    ledger = read_ledger(past_events, marks)
    history = history.with_mended(ledger)
    regressions = {series_name(regression.about): regression for regression in reversed(ledger)}
    kinds: dict[tuple[str, ...], set[str]] = {}
    for event in past_events:
        if event.get("seen") == night and event.get("metric"):
            kinds.setdefault(series_name(event), set()).add(str(event["kind"]))
    latest = history.latest_night()
    statuses = []
    for row, about in enumerate(history.series.to_dict("records")):
        name = series_name(about)
        regression = regressions.get(name)
        ratio, units = float(latest.ratio[row]), float(latest.units[row])
        noise = abs(np.log(ratio) / units) if units and np.isfinite(units) else float("nan")
        change = history.changes[row][-1] if history.changes[row] else None
        outcome = str(history.outcomes[int(about["key"]), -1])
        state, label = _state(
            history,
            row,
            outcome,
            regression,
            change,
            kinds.get(name, set()),
            int(latest.suspect[row]),
            bool(np.isnan(units)),
        )
        half = float(ndtri((1 + VERDICTS.level) / 2)) * noise
        low, high = ratio * np.exp([-half, half])
        since = ""
        if state == "regressed" and regression is not None and regression.is_open:
            ratio, low, high = regression.ratio, regression.low, regression.high
            since = regression.night[:10]
        elif state in ("regressed", "improved") and change is not None:
            ratio, low, high = change.ratio, change.low, change.high
            since = str(history.times[change.index])[:10]
        if since and noise > 0:
            units = float(np.log(ratio) / noise)
        if state == "failed":
            ratio = low = high = units = float("nan")
            failure = regressions.get(series_name({**about, "metric": FAILING}))
            if failure is not None and failure.is_open:
                regression, since = failure, failure.night[:10]
        statuses.append(
            SeriesStatus(
                row,
                about,
                state,
                label,
                float(history.values[row, -1]),
                ratio,
                float(low),
                float(high),
                units,
                since,
                regression,
            )
        )
    return sorted(statuses, key=lambda status: (*status.severity, str(status.about["workload"])))


def never_ok_statuses(history: History, metric: str) -> list[SeriesStatus]:
    """Return the state of each workload without an ok run, which has no series.

    The fields `about` are those of its last run; the position `row` is -1.
    """
    runs = history.runs[~history.runs["key"].isin(history.series["key"])]
    runs = runs[~runs["outcome"].isin(NO_FAILURE)]
    nan, statuses = float("nan"), []
    for _, failed in runs.groupby("key", sort=False):
        about = {**failed.iloc[-1].to_dict(), "metric": metric}
        label = f"{OUTCOME_WORDS.get(about['outcome'], ('', about['outcome']))[1]}, never ok"
        since = night_name(history.times[failed["night"].min()])[:10]
        statuses.append(
            SeriesStatus(-1, about, "failed", label, nan, nan, nan, nan, nan, since, None)
        )
    return statuses


def _state(
    history: History,
    row: int,
    outcome: str,
    regression: Regression | None,
    change: ChangePoint | None,
    kinds: set[str],
    suspect: int,
    is_short: bool,
) -> tuple[str, str]:
    """Return the state of a series and its label."""
    last = len(history.times) - 1
    if outcome not in ("", *NO_FAILURE):
        return "failed", OUTCOME_WORDS.get(outcome, ("", outcome))[1]
    if regression is not None and regression.is_open:
        new = "new" if {"opened", "grown"} & kinds else "open"
        return "regressed", f"regressed, {new}"
    if not np.isfinite(history.values[row, -1]):
        return "absent", STATES["absent"][1]
    if "dismissed" in kinds:
        return "unchanged", "unchanged, measured twice"
    if "set_aside" in kinds:
        return "unsure", "set aside: machine changed"
    if "tolerated" in kinds:
        return "unchanged", "unchanged: below its threshold"
    if "recovered" in kinds:
        return "improved", "recovered"
    if change is not None and change.detected_at == last:
        worse = worse_direction(str(history.series["metric"].iloc[row]))
        return ("regressed", "regressed, not judged") if change.direction == worse else (
            "improved", "improved",
        )  # fmt: skip
    if "improved" in kinds:
        return "improved", "improved"
    if suspect:
        return "unsure", "unsure: one night"
    if is_short:
        return "short", STATES["short"][1]
    return "unchanged", STATES["unchanged"][1]
