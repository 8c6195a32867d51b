"""Judge the last night of a history and return new events of the ledger.

Nothing is written. A change for the worse is *proposed*: the caller may measure again and confirm
or dismiss it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from benchkit.analysis.changepoint.candidates import LatestNight
from benchkit.analysis.changepoint.rule import MIN_NIGHTS
from benchkit.analysis.regression.fleet import fleet_step
from benchkit.analysis.regression.history import SERIES_FIELDS, History, night_name
from benchkit.analysis.regression.level_events import NOT_ATTEMPTED, NightLevels, worse_direction
from benchkit.analysis.regression.regression import (
    FAILING,
    Regression,
    read_ledger,
    regression_id,
    series_name,
)
from benchkit.formatting import format_change
from benchkit.store.marks import threshold_mark
from benchkit.values import json_safe

#: False regressions per series and night on real series without a change, opened by the detector or
#: by re-runs of suspects, from benchmarks/detection.py: without re-runs, and with re-runs.
FALSE_ALARMS = 0.020 / 100
FALSE_ALARMS_WITH_RERUNS = 0.0121 / 100
#: Consecutive nights that ended ok before a failure counts as recovered.
OK_NIGHTS_AFTER = 2
_HARMLESS_OUTCOMES = ("ok", *NOT_ATTEMPTED)


@dataclass(frozen=True)
class Judgement:
    """New events of a night."""

    night: str  # Name of the night, ISO 8601
    # Events that need no confirmation: grown, eased, recovered, ended, improved, set_aside.
    events: list[dict[str, Any]]
    # Regressions to open unless another measurement contradicts them. `suspect` is true for those
    # that are based on one night; open them only after confirmation.
    proposed: list[dict[str, Any]]
    # An event of kind `night`, with counts, for each judged environment and host.
    nights: list[dict[str, Any]]


def judge_night(
    history: History,
    events: Iterable[Mapping[str, Any]] = (),
    *,
    marks: Iterable[Mapping[str, Any]] = (),
    control: str | None = None,
) -> Judgement:
    """Judge the last night of a history.

    Notes
    -----
    The cause of a change of level is that of the control over the same nights; where there is no
    control, all series of the night show it (`fleet.fleet_step`). A regression recovers when three
    consecutive measured nights are within a third of the change from the level before. On the
    first night that a ledger judges, changes detected on earlier nights give no events.
    """
    events, marks = list(events), list(marks)
    if not len(history.times):
        return Judgement("", [], [], [])
    night = night_name(history.times[-1])
    unjudged = _unjudged_groups(history, events)
    ledger = read_ledger(events, marks)
    history = history.with_mended(ledger)
    active = {
        series_name(regression.about): regression
        for regression in ledger
        if regression.closed is None
    }
    recovered = {
        series_name(regression.about): regression
        for regression in reversed(ledger)
        if regression.state == "recovered"
    }
    aside = _last_nights(events, "set_aside")
    levels = NightLevels(history, night, unjudged, active, recovered, control, aside)
    alarms = levels.alarms()
    latest = history.latest_night()
    units = np.where(levels.unjudged_rows, latest.units, np.nan)
    causes = levels.control_causes(alarms)
    alarm = [c.direction if c and row not in causes else 0 for row, c in enumerate(alarms)]
    causes |= fleet_step(
        alarm,
        units,
        machine=history.series["host"].astype(str),
        environment=history.series["environment"].astype(str),
        metric=history.series["metric"].astype(str),
        workload=history.series["workload"].astype(str),
        recent=latest.recent_units,
        since=[change.index if change else 0 for change in alarms],
    )
    recoveries = levels.recoveries()
    closed = {str(event["regression"]) for event in recoveries}
    changes, proposed = levels.changes(alarms, causes, closed)
    changes += levels.present_sizes([*changes, *recoveries])
    proposed += levels.suspects(latest, proposed, _last_nights(events, "dismissed", "undecided"))
    proposed, tolerated = _above_thresholds(proposed, marks)
    failures, other_events = _judge_outcomes(history, night, unjudged, active, control)
    new_events = changes + tolerated + recoveries + other_events
    proposed += failures
    nights = _night_events(history, night, unjudged, new_events, proposed, latest)
    return Judgement(night, new_events, proposed, nights)


def unjudged_nights(history: History, events: Iterable[Mapping[str, Any]]) -> list[int]:
    """Return the positions of the nights on which an environment and host were not judged."""
    judged = {
        (str(event.get("environment")), str(event.get("host")), str(event.get("seen")))
        for event in events
        if event["kind"] == "night"
    }
    names = [night_name(time) for time in history.times]
    measured = history.runs[["environment", "host", "night"]].drop_duplicates()
    return sorted(
        {
            int(night)
            for environment, host, night in measured.itertuples(index=False)
            if (str(environment), str(host), names[night]) not in judged
        }
    )


def _above_thresholds(
    proposed: Sequence[dict[str, Any]], marks: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the changes to propose, and events for those below the threshold of a team.

    A suspect below it is left out: only lasting changes are reported.
    """
    kept, tolerated = [], []
    for event in proposed:
        mark = threshold_mark(marks, {n: event[n] for n in (*SERIES_FIELDS, "metric")})
        if mark is None or not abs(event["ratio"] - 1) < mark["size"]:
            kept.append(event)
        elif not event["suspect"]:
            limit = f"below the threshold of {mark['by']}, {format_change(1 + mark['size'])}"
            reason = f"{limit}: {mark['reason']}"
            tolerated.append({**event, "kind": "tolerated", "reason": reason})
    return kept, tolerated


def _unjudged_groups(
    history: History, events: Sequence[Mapping[str, Any]]
) -> dict[tuple[str, str], str]:
    """Return (environment, host) measured on the last night -> name of the last judged night.

    Groups that were judged on the last night are not included.
    """
    last = history.last_runs
    measured = set(zip(last["environment"].astype(str), last["host"].astype(str), strict=True))
    last_judged = dict.fromkeys(measured, "")
    night = night_name(history.times[-1])
    for event in events:
        group = (str(event.get("environment")), str(event.get("host")))
        seen = str(event.get("seen"))
        # A night of the future, of a wrong clock, must not end the judgement of all others.
        if event["kind"] == "night" and group in last_judged and seen <= night:
            last_judged[group] = max(last_judged[group], seen)
    return {group: judged for group, judged in last_judged.items() if judged < night}


def _last_nights(events: Sequence[Mapping[str, Any]], *kinds: str) -> dict[tuple[str, ...], str]:
    """Return the last night of each series on which it has an event of some kinds."""
    nights: dict[tuple[str, ...], str] = {}
    for event in events:
        if event["kind"] in kinds:
            name, seen = series_name(event), str(event["seen"])
            nights[name] = max(nights.get(name, ""), seen)
    return nights


def _night_events(
    history: History,
    night: str,
    unjudged: Mapping[tuple[str, str], str],
    events: Sequence[Mapping[str, Any]],
    proposed: Sequence[Mapping[str, Any]],
    latest: LatestNight,
) -> list[dict[str, Any]]:
    """Return an event with counts for each environment and host."""
    series = history.series
    measured = np.isfinite(history.values[:, -1]) if len(history) else np.zeros(0, bool)
    judged = np.array([worse_direction(metric) != 0 for metric in series["metric"]], bool)
    nights = []
    for environment, host in sorted(unjudged):
        here = ((series["environment"] == environment) & (series["host"] == host)).to_numpy(bool)
        here = here & measured & judged
        n_series = int(here.sum())
        short = here & latest.is_short
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
                "n_short": int(short.sum()),
                "short_nights": int(latest.n_before[short].max(initial=0)),
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
    unjudged: Mapping[tuple[str, str], str],
    active: Mapping[tuple[str, ...], Regression],
    control: str | None,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return proposed regressions of workloads that began to fail, and other events of failures.

    A failure that also occurs in the control environment is not caused by the code under test.
    """
    proposed, others = [], []
    keys = history.last_runs.drop_duplicates("key").set_index("key")
    failed = ~np.isin(history.outcomes[:, -1], _HARMLESS_OUTCOMES)
    failures = keys[failed[keys.index]]
    in_control = set(failures.loc[failures["environment"] == control, "workload"])
    for key, fields in keys[list(SERIES_FIELDS)].to_dict("index").items():
        about: dict[str, Any] = {**fields, "metric": FAILING}
        group = (str(about["environment"]), str(about["host"]))
        if group not in unjudged:
            continue
        attempts = (o for o in history.outcomes[key, ::-1] if o not in ("", "infrastructure"))
        past = [*islice(attempts, MIN_NIGHTS + 1)][::-1]
        regression = active.get(series_name(about))
        fact = {**json_safe(about), "seen": night}
        if regression is not None:
            if past[-OK_NIGHTS_AFTER:] == ["ok"] * OK_NIGHTS_AFTER:
                others.append({**fact, "regression": regression.id, "kind": "recovered"})
        elif failed[key] and past[:-1] == ["ok"] * MIN_NIGHTS:
            fact |= {"regression": regression_id(about, night), "night": night}
            fact["reason"] = (
                f"ended {history.outcomes[key, -1]}, and ok on {MIN_NIGHTS} nights before"
            )
            if about["workload"] in in_control:
                fact["reason"] += f"; it fails in the control {control!r} too"
                others.append({**fact, "kind": "set_aside", "cause": "infrastructure"})
            else:
                proposed.append({**fact, "kind": "opened", "suspect": False, "cause": "code"})
    return proposed, others
