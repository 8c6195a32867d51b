"""Judge a night: what its last column says about each series, and what that means for the ledger.

A history and the ledger so far in, events to be added out; nothing is written here. A change for
the worse is only *proposed*: whoever can measure again confirms or dismisses it first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchkit.analysis.changepoints import ChangePoint
from benchkit.analysis.fleet import FleetGroup, fleet_step
from benchkit.analysis.history import ABOUT, History
from benchkit.analysis.regressions import FAILING, Regression, read_ledger, regression_id
from benchkit.store.schema import METRICS

__all__ = ["Judgement", "judge", "worse_direction"]

#: Alarms per series and night on real series without a change: benchmarks/changepoints.py.
FALSE_ALARMS = 0.020 / 100
#: Nights before a change that tell the level before.
LEVEL_NIGHTS = 30
#: So many nights in a row, all nearer to the old level than a third of the change, are a recovery:
#: by chance, rarer than 1e-4 a night also for the smallest change that is ever reported.
RECOVERY_NIGHTS, RECOVERY_SHARE = 3, 1 / 3
#: A second change of a regression must add so much (log of a ratio) to be called grown.
GROWTH = 0.03
#: Nights by which the place of one and the same change may differ when seen twice.
SAME_PLACE = 3
#: A workload must have ended ok on so many nights before its failure is news, and as many as the
#: second after it to have recovered.
OK_BEFORE, OK_AFTER = 3, 2
_HARMLESS = ("", "ok", "skipped", "infrastructure")


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


def worse_direction(metric: str) -> int:
    """Return 1 if more of a metric is worse, -1 if less is, 0 if neither."""
    better = METRICS[metric].better if metric in METRICS else ""
    return {"lower": 1, "higher": -1}.get(better, 0)


def judge(
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
    night = _iso(history.times[-1])
    fresh = _fresh_groups(history, events)
    ledger = read_ledger(events, marks)
    known = {_name(one.about): one for one in ledger if one.closed is None}
    past = {_name(one.about): one for one in reversed(ledger) if one.state == "recovered"}
    judging = _Judging(history, night, fresh, known, past)
    alarms = judging.alarms()
    standing = history.tonight()
    units = np.where(judging.fresh_rows, standing.units, np.nan)
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
    over = judging.recoveries()
    closed = {str(event["regression"]) for event in over}
    found, proposed = judging.changes(alarms, fleet.cause, reasons, closed)
    proposed += judging.suspects(standing.suspect, standing.ratio, proposed)
    failed, others = judging.failures(control)
    found += over + others
    proposed += failed
    nights = _bookkeeping(history, night, fresh, found, proposed)
    return Judgement(night, found, proposed, nights, fleet.groups)


def _name(about: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(about[name]) for name in (*ABOUT, "metric"))


def _iso(time: np.datetime64) -> str:
    return str(pd.Timestamp(time).isoformat())


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
    night = _iso(history.times[-1])
    return {group: seen for group, seen in until.items() if seen < night}


@dataclass(frozen=True)
class _Judging:
    """The last night of a history, with what is known before."""

    history: History
    night: str
    fresh: Mapping[tuple[str, str], str]
    known: Mapping[tuple[str, ...], Regression]
    past: Mapping[tuple[str, ...], Regression]

    @property
    def fresh_rows(self) -> NDArray[np.bool_]:
        """Series that this night can say something about, shape (series,)."""
        return np.array([group in self.fresh for group in self._groups], bool)

    @property
    def _groups(self) -> list[tuple[str, str]]:
        series = self.history.series
        return list(zip(series["environment"].astype(str), series["host"].astype(str), strict=True))

    def alarms(self) -> list[ChangePoint | None]:
        """Return the newest change of each series that was not judged before."""
        found: list[ChangePoint | None] = []
        last = len(self.history.times) - 1
        for group, changes in zip(self._groups, self.history.changes, strict=True):
            new = None
            if group in self.fresh and changes:
                seen, until = changes[-1].detected_at, self.fresh[group]
                # The first night that is judged: what was seen before is history.
                known = _iso(self.history.times[seen]) <= until if until else seen < last
                new = None if known else changes[-1]
            found.append(new)
        return found

    def changes(
        self,
        alarms: Sequence[ChangePoint | None],
        cause: NDArray[np.str_],
        reasons: Mapping[int, str],
        closed: Collection[str] = (),
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return events for changes of level, and regressions to be opened."""
        events, proposed = [], []
        for row, change in enumerate(alarms):
            about = self.history.series.iloc[row]
            worse = worse_direction(about["metric"])
            if change is None or not worse:
                continue
            fact = self._fact(row, change.index, change.ratio, change.low, change.high)
            fact |= {"cause": str(cause[row]), "reason": reasons.get(row, "")}
            open_one = self.known.get(_name(about))
            if open_one is not None and not self._belongs(open_one, row):
                open_one = None
            if open_one is not None and open_one.id in closed:
                continue
            if open_one is not None:
                events += self._follow(open_one, fact, change.direction == worse)
            elif fact["cause"] == "infrastructure":
                events.append({**fact, "kind": "set_aside"})
            elif change.direction == worse:
                proposed.append({**fact, "kind": "opened", "suspect": False})
            elif not self._is_recovery(fact):
                events.append({**fact, "kind": "improved"})
        return events, proposed

    def _is_recovery(self, fact: Mapping[str, Any]) -> bool:
        """Whether a change for the better is what a regression's recovery was closed for."""
        one = self.past.get(_name(fact))
        if one is None or not (one.before > 0 and fact["after"] and one.night < fact["night"]):
            return False
        return bool(abs(np.log(fact["after"] / one.before)) < abs(np.log(one.ratio)) / 2)

    def _belongs(self, one: Regression, row: int) -> bool:
        """Whether a regression is about the segment that the series is in now."""
        start = self.history.segment_start(row, len(self.history.times) - 1)
        return one.night >= _iso(self.history.times[start])

    def _follow(self, one: Regression, fact: dict[str, Any], worse: bool) -> list[dict[str, Any]]:
        """Return what a new change makes of a regression that is open already."""
        total = fact["after"] / one.before if one.before else float("nan")
        follow = {**fact, "regression": one.id, "before": one.before}
        moved = np.log(total / one.ratio) * worse_direction(one.metric) if total > 0 else 0.0
        times = [_iso(time) for time in self.history.times]
        apart = abs(times.index(fact["night"]) - _position(times, one.night))
        if apart <= SAME_PLACE and worse:
            return [{**follow, "kind": "placed"}]
        share = total / fact["ratio"]  # the interval is of the new step, on top of the old one
        scaled = {"ratio": total, "low": fact["low"] * share, "high": fact["high"] * share}
        scaled["night"] = one.night  # it began when it began
        if worse and moved > GROWTH:
            return [{**follow, **scaled, "kind": "grown"}]
        if not worse and moved < -GROWTH:
            return [{**follow, **scaled, "kind": "eased"}]
        return []

    def suspects(
        self,
        suspect: NDArray[np.int64],
        ratio: NDArray[np.float64],
        proposed: Sequence[Mapping[str, Any]],
    ) -> list[dict[str, Any]]:
        """Return what one night alone makes worth measuring again at once."""
        taken = {_name(one) for one in proposed}
        last = len(self.history.times) - 1
        found = []
        for row in np.flatnonzero(suspect != 0).tolist():
            about = self.history.series.iloc[row]
            name, worse = _name(about), worse_direction(about["metric"])
            if not self.fresh_rows[row] or name in taken or name in self.known:
                continue
            if worse and suspect[row] == worse:
                fact = self._fact(row, last, float(ratio[row]), None, None)
                fact |= {"cause": "unclear", "reason": "one night, not measured again yet"}
                found.append({**fact, "kind": "opened", "suspect": True})
        return found

    def recoveries(self) -> list[dict[str, Any]]:
        """Return the regressions that are over, or that nobody can follow any more."""
        found = []
        for one in self.known.values():
            row = self.history.find(one.about) if one.metric != FAILING else None
            if row is None or not self.fresh_rows[row]:
                continue
            fact = {**one.about, "regression": one.id, "seen": self.night}
            if not self._belongs(one, row):
                reason = self._why_restarted(row)
                found.append({**fact, "kind": "ended", "reason": reason})
                continue
            times = [_iso(time) for time in self.history.times]
            values = self.history.values[row, _position(times, one.night) + 1 :]
            recent = values[np.isfinite(values)][-RECOVERY_NIGHTS:]
            if recent.size < RECOVERY_NIGHTS or not one.before > 0:
                continue
            left = np.log(recent / one.before) / np.log(one.ratio)
            if (left < RECOVERY_SHARE).all():
                after = float(np.median(recent))
                found.append({**fact, "kind": "recovered", "before": one.before, "after": after})
        return found

    def failures(self, control: str | None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return workloads that fail since tonight, and other news of those that failed.

        One that fails in the control environment too is not the doing of the code under test.
        """
        opened, others = [], []
        keys = self.history.runs.drop_duplicates("key").set_index("key")
        bad = ~np.isin(self.history.outcomes[:, -1], _HARMLESS)
        hit = keys.loc[[key for key in np.flatnonzero(bad) if key in keys.index]]
        in_control = set(hit.loc[hit["environment"] == control, "workload"])
        for key, outcomes in enumerate(self.history.outcomes):
            about = {**keys.loc[key, list(ABOUT)].to_dict(), "metric": FAILING}
            group = (str(about["environment"]), str(about["host"]))
            if group not in self.fresh or not outcomes[-1]:
                continue
            past = [outcome for outcome in outcomes if outcome not in ("", "infrastructure")]
            one = self.known.get(_name(about))
            fact = {**_plain(about), "seen": self.night}
            if one is not None:
                if past[-OK_AFTER:] == ["ok"] * OK_AFTER:
                    others.append({**fact, "regression": one.id, "kind": "recovered"})
            elif bad[key] and past[-OK_BEFORE - 1 : -1] == ["ok"] * OK_BEFORE:
                fact |= {"regression": regression_id(about, self.night), "night": self.night}
                fact["reason"] = f"ended {outcomes[-1]}, and ok on {OK_BEFORE} nights before"
                if about["workload"] in in_control:
                    fact["reason"] += f"; it fails in the control {control!r} too"
                    others.append({**fact, "kind": "set_aside", "cause": "infrastructure"})
                else:
                    opened.append({**fact, "kind": "opened", "suspect": False, "cause": "code"})
        return opened, others

    def _fact(
        self, row: int, index: int, ratio: float, low: float | None, high: float | None
    ) -> dict[str, Any]:
        """Return an event about a change of a series at a night, without its kind."""
        about = self.history.series.iloc[row][[*ABOUT, "metric"]].to_dict()
        values = self.history.values[row]
        start = max(self.history.segment_start(row, index), index - LEVEL_NIGHTS)
        before, after = (
            float(np.nanmedian(part)) if np.isfinite(part).any() else None
            for part in (values[start:index], values[index:])
        )
        night = _iso(self.history.times[index])
        return {
            **_plain(about),
            "regression": regression_id(about, night),
            "night": night,
            "seen": self.night,
            "ratio": float(ratio),
            "low": None if low is None else float(low),
            "high": None if high is None else float(high),
            "before": before,
            "after": after,
        }

    def _why_restarted(self, row: int) -> str:
        about, segments = self.history.series.iloc[row], self.history.segments
        mine = segments[
            (segments["key"] == about["key"]) & segments["metric"].isin(["", about["metric"]])
        ]
        return str(mine.sort_values("night")["reason"].iloc[-1]) if len(mine) else ""


def _position(times: Sequence[str], night: str) -> int:
    """Return the position of a night; one that is gone counts as the next one that is there."""
    return int(np.searchsorted(np.array(times), night))


def _plain(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return what names a series as JSON types."""
    return {name: v.item() if isinstance(v, np.generic) else v for name, v in about.items()}


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
