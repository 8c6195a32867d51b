"""Judge a night: what its last column says about each series, and what that means for the ledger.

A history and the ledger so far in, events to be added out; nothing is written here. A change for
the worse is only *proposed*: whoever can measure again confirms or dismisses it first.
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
    """What a night says.

    Attributes
    ----------
    night : str
        Moment of the night, ISO 8601.
    events : list of dict
        Events that need no confirmation: grown, eased, recovered, ended, improved, set_aside.
    proposed : list of dict
        Regressions to be opened, unless measuring again says otherwise; `suspect` is true for
        those that rest on one night alone and must not be opened unconfirmed.
    nights : list of dict
        One event ``night`` for each environment and host that was judged: the bookkeeping.
    groups : tuple of FleetGroup
        What the night's alarms have in common.
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
        The ledger so far. An environment on a host whose night was judged is not judged again.
    marks : iterable of mapping
        As `Store.marks` gives them.
    control : str, optional
        The environment that nobody changes, which tells machines from code.

    Returns
    -------
    Judgement

    Notes
    -----
    Changes of level come from `changepoints.detect_many`, what the night has in common from
    `fleet.fleet_step`. A regression recovers when three measured nights in a row are nearer to
    the level before than a third of the change. On the first night that a ledger judges,
    everything that was seen earlier is history and no event.
    """
    events, marks = list(events), list(marks)
    if not len(history.times):
        return Judgement("", [], [], [])
    night = night_name(history.times[-1])
    fresh = _fresh_groups(history, events)
    ledger = read_ledger(events, marks)
    known = {series_name(one.about): one for one in ledger if one.closed is None}
    past = {series_name(one.about): one for one in reversed(ledger) if one.state == "recovered"}
    levels = NightLevels(history, night, fresh, known, past, control)
    alarms = levels.alarms()
    standing = history.latest_night()
    units = np.where(levels.fresh_rows, standing.units, np.nan)
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
    over = levels.recoveries()
    closed = {str(event["regression"]) for event in over}
    found, proposed = levels.changes(alarms, fleet.cause, reasons, closed)
    proposed += levels.suspects(standing.suspect, standing.ratio, proposed)
    failed, others = _judge_outcomes(history, night, fresh, known, control)
    found += over + others
    proposed += failed
    nights = _bookkeeping(history, night, fresh, found, proposed)
    return Judgement(night, found, proposed, nights, fleet.groups)


def _fresh_groups(
    history: History, events: Sequence[Mapping[str, Any]]
) -> dict[tuple[str, str], str]:
    """Return environments and hosts measured on the last night, and when they were judged last."""
    last = history.runs[history.runs["night"] == len(history.times) - 1]
    measured = set(zip(last["environment"].astype(str), last["host"].astype(str), strict=True))
    until = dict.fromkeys(measured, "")
    for event in events:
        group = (str(event.get("environment")), str(event.get("host")))
        if event["kind"] == "night" and group in until:
            until[group] = max(until[group], str(event["seen"]))
    night = night_name(history.times[-1])
    return {group: seen for group, seen in until.items() if seen < night}


def _bookkeeping(
    history: History,
    night: str,
    fresh: Mapping[tuple[str, str], str],
    events: Sequence[Mapping[str, Any]],
    proposed: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Return one event for each environment and host: what was looked at, and what came of it."""
    series = history.series
    measured = np.isfinite(history.values[:, -1]) if len(history) else np.zeros(0, bool)
    judged = np.array([worse_direction(metric) != 0 for metric in series["metric"]], bool)
    nights = []
    for environment, host in sorted(fresh):
        here = ((series["environment"] == environment) & (series["host"] == host)).to_numpy(bool)
        n_series = int((here & measured & judged).sum())
        mine = [
            one
            for one in (*events, *proposed)
            if str(one["environment"]) == environment and str(one["host"]) == host
        ]
        kinds = [one["kind"] for one in mine]
        nights.append(
            {
                "kind": "night",
                "seen": night,
                "environment": environment,
                "host": host,
                "n_series": n_series,
                "n_alarms": sum(one["kind"] == "opened" and not one["suspect"] for one in mine),
                "n_suspects": sum(one["kind"] == "opened" and one["suspect"] for one in mine),
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
    """Return workloads that fail since tonight, and other news of those that failed.

    One that fails in the control environment too is not the doing of the code under test.
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
        one = known.get(series_name(about))
        fact = {**json_safe(about), "seen": night}
        if one is not None:
            if past[-OK_NIGHTS_AFTER:] == ["ok"] * OK_NIGHTS_AFTER:
                others.append({**fact, "regression": one.id, "kind": "recovered"})
        elif bad[key] and past[-OK_NIGHTS_BEFORE - 1 : -1] == ["ok"] * OK_NIGHTS_BEFORE:
            fact |= {"regression": regression_id(about, night), "night": night}
            fact["reason"] = f"ended {outcomes[-1]}, and ok on {OK_NIGHTS_BEFORE} nights before"
            if about["workload"] in in_control:
                fact["reason"] += f"; it fails in the control {control!r} too"
                others.append({**fact, "kind": "set_aside", "cause": "infrastructure"})
            else:
                opened.append({**fact, "kind": "opened", "suspect": False, "cause": "code"})
    return opened, others
