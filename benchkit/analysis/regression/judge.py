"""Judge the last night of a history and return new events of the ledger.

Nothing is written. A change for the worse is *proposed*: the caller may measure again and confirm
or dismiss it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchkit.analysis.regression.fleet import FleetGroup, fleet_step
from benchkit.analysis.regression.history import SERIES_FIELDS, History, night_name
from benchkit.analysis.regression.level_events import NightLevels, worse_direction
from benchkit.analysis.regression.regression import (
    FAILING,
    Regression,
    read_ledger,
    regression_id,
    series_name,
)
from benchkit.formatting import json_safe

__all__ = ["Judgement", "judge_night"]

#: Alarms per series and night on real series without a change: benchmarks/detection.py.
FALSE_ALARMS = 0.020 / 100
#: Consecutive nights that ended ok before a failure is reported as new.
OK_NIGHTS_BEFORE = 3
#: Consecutive nights that ended ok before a failure counts as recovered.
OK_NIGHTS_AFTER = 2
_HARMLESS_OUTCOMES = ("", "ok", "skipped", "infrastructure")


@dataclass(frozen=True)
class Judgement:
    """Events that follow from a night.

    Parameters
    ----------
    night : str
        Name of the night, ISO 8601.
    events : list of dict
        Events that need no confirmation: grown, eased, recovered, ended, improved, set_aside.
    proposed : list of dict
        Regressions to open unless a new measurement contradicts them. `suspect` is true for those
        that are based on one night, which must not be opened without confirmation.
    nights : list of dict
        One event ``night``, with counts, for each environment and host that was judged.
    groups : tuple of FleetGroup
        Groups of alarms with a common cause.
    """

    night: str
    events: list[dict[str, Any]]
    proposed: list[dict[str, Any]]
    nights: list[dict[str, Any]]
    groups: tuple[FleetGroup, ...] = ()


def judge_night(
    history: History,
    events: Iterable[Mapping[str, Any]] = (),
    *,
    marks: Iterable[Mapping[str, Any]] = (),
    control: str | None = None,
) -> Judgement:
    """Judge the last night of a history.

    Parameters
    ----------
    history : History
        Up to the night in question.
    events : iterable of mapping
        Events of the ledger. An environment on a host is not judged twice for the same night.
    marks : iterable of mapping
        As returned by `Store.marks`.
    control : str, optional
        The control environment, whose software never changes: separates machine from code.

    Returns
    -------
    Judgement
        Empty if the history has no nights.

    Notes
    -----
    Changes of level come from `changepoints.detect_many`, groups of alarms from
    `fleet.fleet_step`. A regression recovers when three consecutive measured nights are within a
    third of the change from the level before. On the first night that a ledger judges, changes
    detected on earlier nights give no events.
    """
    events, marks = list(events), list(marks)
    if not len(history.times):
        return Judgement("", [], [], [])
    night = night_name(history.times[-1])
    fresh = _fresh_groups(history, events)
    ledger = read_ledger(events, marks)
    known = {
        series_name(regression.about): regression
        for regression in ledger
        if regression.closed is None
    }
    past = {
        series_name(regression.about): regression
        for regression in reversed(ledger)
        if regression.state == "recovered"
    }
    levels = NightLevels(history, night, fresh, known, past, control)
    alarms = levels.alarms()
    latest = history.latest_night()
    units = np.where(levels.fresh_rows, latest.units, np.nan)
    fleet = fleet_step(
        np.array([np.sign(change.direction) if change else 0 for change in alarms], int),
        units,
        machine=history.series["host"].astype(str),
        environment=history.series["environment"].astype(str),
        metric=history.series["metric"].astype(str),
        workload=history.series["workload"].astype(str),
        control=control,
    )
    reasons = {int(row): group.reason for group in fleet.groups for row in group.members}
    ended = levels.recoveries()
    closed = {str(event["regression"]) for event in ended}
    found, proposed = levels.changes(alarms, fleet.cause, reasons, closed)
    proposed += levels.suspects(latest.suspect, latest.ratio, proposed)
    failed, others = _judge_outcomes(history, night, fresh, known, control)
    found += ended + others
    proposed += failed
    nights = _night_events(history, night, fresh, found, proposed)
    return Judgement(night, found, proposed, nights, fleet.groups)


def _fresh_groups(
    history: History, events: Sequence[Mapping[str, Any]]
) -> dict[tuple[str, str], str]:
    """Return (environment, host) measured on the last night -> last night judged."""
    last = history.runs[history.runs["night"] == len(history.times) - 1]
    measured = set(zip(last["environment"].astype(str), last["host"].astype(str), strict=True))
    last_judged = dict.fromkeys(measured, "")
    for event in events:
        group = (str(event.get("environment")), str(event.get("host")))
        if event["kind"] == "night" and group in last_judged:
            last_judged[group] = max(last_judged[group], str(event["seen"]))
    night = night_name(history.times[-1])
    return {group: seen for group, seen in last_judged.items() if seen < night}


def _night_events(
    history: History,
    night: str,
    fresh: Mapping[tuple[str, str], str],
    events: Sequence[Mapping[str, Any]],
    proposed: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Return one event with counts for each environment and host."""
    series = history.series
    measured = np.isfinite(history.values[:, -1]) if len(history) else np.zeros(0, bool)
    judged = np.array([worse_direction(metric) != 0 for metric in series["metric"]], bool)
    nights = []
    for environment, host in sorted(fresh):
        here = ((series["environment"] == environment) & (series["host"] == host)).to_numpy(bool)
        n_series = int((here & measured & judged).sum())
        related = [
            event
            for event in (*events, *proposed)
            if str(event["environment"]) == environment and str(event["host"]) == host
        ]
        kinds = [event["kind"] for event in related]
        suspects = [event["suspect"] for event in related if event["kind"] == "opened"]
        nights.append(
            {
                "kind": "night",
                "seen": night,
                "environment": environment,
                "host": host,
                "n_series": n_series,
                "n_alarms": sum(not suspect for suspect in suspects),
                "n_suspects": sum(bool(suspect) for suspect in suspects),
                "n_set_aside": kinds.count("set_aside"),
                "n_recovered": kinds.count("recovered"),
                "expected_false_alarms": round(n_series * FALSE_ALARMS, 5),
            }
        )
    return nights


def _judge_outcomes(
    history: History,
    night: str,
    fresh: Mapping[tuple[str, str], str],
    known: Mapping[tuple[str, ...], Regression],
    control: str | None,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return proposed regressions of workloads that began to fail, and other events of failures.

    A failure that also occurs in the control environment is not caused by the code under test.
    """
    opened, others = [], []
    keys = history.runs.drop_duplicates("key").set_index("key")
    bad = ~np.isin(history.outcomes[:, -1], _HARMLESS_OUTCOMES)
    hit = keys.loc[[key for key in np.flatnonzero(bad) if key in keys.index]]
    in_control = set(hit.loc[hit["environment"] == control, "workload"])
    for key, outcomes in enumerate(history.outcomes):
        about = {**keys.loc[key, list(SERIES_FIELDS)].to_dict(), "metric": FAILING}
        group = (str(about["environment"]), str(about["host"]))
        if group not in fresh or not outcomes[-1]:
            continue
        past = [outcome for outcome in outcomes if outcome not in ("", "infrastructure")]
        regression = known.get(series_name(about))
        fact = {**json_safe(about), "seen": night}
        if regression is not None:
            if past[-OK_NIGHTS_AFTER:] == ["ok"] * OK_NIGHTS_AFTER:
                others.append({**fact, "regression": regression.id, "kind": "recovered"})
        elif bad[key] and past[-OK_NIGHTS_BEFORE - 1 : -1] == ["ok"] * OK_NIGHTS_BEFORE:
            fact |= {"regression": regression_id(about, night), "night": night}
            fact["reason"] = f"ended {outcomes[-1]}, and ok on {OK_NIGHTS_BEFORE} nights before"
            if about["workload"] in in_control:
                fact["reason"] += f"; it fails in the control {control!r} too"
                others.append({**fact, "kind": "set_aside", "cause": "infrastructure"})
            else:
                opened.append({**fact, "kind": "opened", "suspect": False, "cause": "code"})
    return opened, others
