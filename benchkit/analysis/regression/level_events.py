"""Turn changes of level into events of the ledger: new regressions and updates of open ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchkit.analysis.changepoint.detect import ChangePoint
from benchkit.analysis.regression.history import SERIES_FIELDS, History, night_name
from benchkit.analysis.regression.regression import FAILING, Regression, regression_id, series_name
from benchkit.formatting import json_safe
from benchkit.store.schema import METRICS

__all__ = ["NightLevels", "worse_direction"]

#: Nights before a change whose median is the level before.
LEVEL_NIGHTS = 30
#: Consecutive nights near the old level that are a recovery: by chance rarer than 1e-4 per night,
#: also for the smallest change that is reported.
RECOVERY_NIGHTS = 3
#: Largest distance of these nights from the old level, as a share of the change.
RECOVERY_SHARE = 1 / 3
#: Smallest further change (logarithm of a ratio) for which a regression is called grown.
GROWTH = 0.03
#: Nights by which two estimates of the position of the same change may differ.
SAME_PLACE = 3


def worse_direction(metric: str) -> int:
    """Return 1 if more of a metric is worse, -1 if less is, 0 if neither."""
    better = METRICS[metric].better if metric in METRICS else ""
    return {"lower": 1, "higher": -1}.get(better, 0)


@dataclass(frozen=True)
class NightLevels:
    """The last night of a history, and the regressions of earlier nights.

    Parameters
    ----------
    history : History
        Up to the night in question.
    night : str
        Its name.
    fresh : mapping of (environment, host) to str
        Measured and not yet judged groups -> name of the last judged night.
    known, past : mapping of series name to Regression
        Regressions that are not closed; last recovered regression of each series.
    control : str or None
        The control environment, whose software never changes.
    """

    history: History
    night: str
    fresh: Mapping[tuple[str, str], str]
    known: Mapping[tuple[str, ...], Regression]
    past: Mapping[tuple[str, ...], Regression]
    control: str | None = None

    @property
    def fresh_rows(self) -> NDArray[np.bool_]:
        """Series of groups that are not yet judged on this night, shape (series,)."""
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
                # On the first judged night, changes detected earlier give no events.
                known = night_name(self.history.times[seen]) <= until if until else seen < last
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
            fact |= self._control_cause(row, change)
            open_one = self.known.get(series_name(about))
            if open_one is not None and not self._belongs(open_one, row):
                open_one = None
            if open_one is not None and open_one.id in closed:
                continue
            if fact["cause"] == "infrastructure":
                events.append({**fact, "kind": "set_aside"})
            elif open_one is not None:
                events += self._follow(open_one, fact, change.direction == worse)
            elif change.direction == worse:
                proposed.append({**fact, "kind": "opened", "suspect": False})
            elif not self._is_recovery(fact):
                events.append({**fact, "kind": "improved"})
        return events, proposed

    def _control_cause(self, row: int, change: ChangePoint) -> dict[str, str]:
        """Return cause and reason from the control's change of level over the same nights.

        All nights of the new level are used: with one night, a coincidence of two noisy nights
        would exclude a true regression permanently.
        """
        series = self.history.series
        about = series.iloc[row]
        if self.control is None or about["environment"] == self.control:
            return {}
        pinned = np.ones(len(series), bool)
        for name in ("host", "metric", "scale", "capture"):
            pinned &= (series[name] == about[name]).to_numpy()
        pinned &= (series["environment"] == self.control).to_numpy()
        same = pinned & (series["workload"] == about["workload"]).to_numpy()
        rows = np.flatnonzero(same if same.any() else pinned)
        start = self._reference_start(row, change.index)
        shifts = np.array([self._shift(at, start, change.index) for at in rows.tolist()])
        shifts = shifts[np.isfinite(shifts)]
        if not shifts.size or not 0 < change.ratio < np.inf:
            return {}
        went = float(np.median(shifts))
        moved = went * change.direction >= abs(np.log(change.ratio)) / 2
        which = "the same workload" if same.any() else f"the median of {shifts.size} series"
        return {
            "cause": "infrastructure" if moved else "code",
            "reason": f"in the control {self.control!r} {which} went {100 * np.expm1(went):+.1f} % "
            "over the same nights",
        }

    def _reference_start(self, row: int, index: int) -> int:
        """Return the first reference night of a change: not before the previous change."""
        earlier = [change.index for change in self.history.changes[row] if change.index < index]
        return max(self.history.segment_start(row, index), index - LEVEL_NIGHTS, *earlier[-1:], 0)

    def _shift(self, row: int, start: int, index: int) -> float:
        """Return the change of level of a series at a night, as logarithm of a ratio."""
        values = self.history.values[row]
        parts = [part[part > 0] for part in (values[start:index], values[index:])]
        if not all(part.size for part in parts):
            return float("nan")
        return float(np.log(np.median(parts[1]) / np.median(parts[0])))

    def _is_recovery(self, fact: Mapping[str, Any]) -> bool:
        """Whether a change for the better is the recovery of a closed regression."""
        one = self.past.get(series_name(fact))
        if one is None or not (one.before > 0 and fact["after"] and one.night < fact["night"]):
            return False
        return bool(abs(np.log(fact["after"] / one.before)) < abs(np.log(one.ratio)) / 2)

    def _belongs(self, one: Regression, row: int) -> bool:
        """Whether a regression began in the current segment of the series."""
        start = self.history.segment_start(row, len(self.history.times) - 1)
        return one.night >= night_name(self.history.times[start])

    def _follow(self, one: Regression, fact: dict[str, Any], worse: bool) -> list[dict[str, Any]]:
        """Return the events that a new change adds to an open regression."""
        total = fact["after"] / one.before if one.before else float("nan")
        follow = {**fact, "regression": one.id, "before": one.before}
        moved = np.log(total / one.ratio) * worse_direction(one.metric) if total > 0 else 0.0
        times = [night_name(time) for time in self.history.times]
        apart = abs(times.index(fact["night"]) - _position(times, one.night))
        if apart <= SAME_PLACE and worse:
            return [{**follow, "kind": "placed"}]
        share = total / fact["ratio"]  # the interval is of the new step, on top of the old one
        scaled = {"ratio": total, "low": fact["low"] * share, "high": fact["high"] * share}
        scaled["night"] = one.night  # the first night does not change
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
        """Return suspected regressions of one night, which need a second measurement."""
        taken = {series_name(one) for one in proposed}
        last = len(self.history.times) - 1
        found = []
        for row in np.flatnonzero(suspect != 0).tolist():
            about = self.history.series.iloc[row]
            name, worse = series_name(about), worse_direction(about["metric"])
            if not self.fresh_rows[row] or name in taken or name in self.known:
                continue
            if worse and suspect[row] == worse:
                fact = self._fact(row, last, float(ratio[row]), None, None)
                fact |= {"cause": "unclear", "reason": "one night, not measured again yet"}
                found.append({**fact, "kind": "opened", "suspect": True})
        return found

    def recoveries(self) -> list[dict[str, Any]]:
        """Return events for regressions that recovered, or whose segment ended."""
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
            times = [night_name(time) for time in self.history.times]
            values = self.history.values[row, _position(times, one.night) + 1 :]
            recent = values[np.isfinite(values)][-RECOVERY_NIGHTS:]
            if recent.size < RECOVERY_NIGHTS or not one.before > 0:
                continue
            left = np.log(recent / one.before) / np.log(one.ratio)
            if (left < RECOVERY_SHARE).all():
                after = float(np.median(recent))
                found.append({**fact, "kind": "recovered", "before": one.before, "after": after})
        return found

    def _fact(
        self, row: int, index: int, ratio: float, low: float | None, high: float | None
    ) -> dict[str, Any]:
        """Return an event about a change of a series at a night, without its kind."""
        about = self.history.series.iloc[row][[*SERIES_FIELDS, "metric"]].to_dict()
        values = self.history.values[row]
        start = self._reference_start(row, index)
        before, after = (
            float(np.nanmedian(part)) if np.isfinite(part).any() else None
            for part in (values[start:index], values[index:])
        )
        night = night_name(self.history.times[index])
        return {
            **json_safe(about),
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
    """Return the position of a night, or of the next night if it is missing."""
    return int(np.searchsorted(np.array(times), night))
