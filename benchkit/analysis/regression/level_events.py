"""Turn changes of level into events of the ledger: new regressions and updates of open ones."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from benchkit.analysis.changepoint.candidates import LatestNight
from benchkit.analysis.changepoint.rule import (
    MIN_NIGHTS,
    MIN_REFERENCE_NIGHTS,
    autocorrelation_factor,
)
from benchkit.analysis.changepoint.scan import MEDIAN_ERROR
from benchkit.analysis.changepoints import INFINITE_CHANGE, LOG_OF_ZERO, ChangePoint
from benchkit.analysis.options import DETECTION, VERDICTS
from benchkit.analysis.regression.fleet import COMMON_SERIES, Cause
from benchkit.analysis.regression.history import SERIES_FIELDS, History, night_name
from benchkit.analysis.regression.regression import FAILING, Regression, regression_id, series_name
from benchkit.analysis.stats.log_scale import MIN_NOISE, SD_OF_MAD
from benchkit.store.schema import METRICS
from benchkit.values import json_safe

#: Nights for which a series that was measured again without a result is not measured again: then
#: the nights alone show a level.
REST_NIGHTS = MIN_NIGHTS
#: Largest error of the estimated first night of a change, in nights. The last good build is as much
#: earlier: a re-run of a build that has the change dismisses it.
MARGIN_NIGHTS = 3

#: Outcomes of a night that say nothing about the workload.
NOT_ATTEMPTED = ("", "skipped", "infrastructure")

#: Largest number of nights before a change whose median is the level before.
LEVEL_NIGHTS = 30
#: Largest distance of the last nights from the level before, as a share of the change, if they are
#: a recovery: for three nights by chance rarer than 1e-4 per night, also for the smallest change.
RECOVERY_SHARE = 1 / 3

#: Standard errors by which the control must have moved to be subtracted, and by which what is left
#: must differ from nothing to be code: a machine that changes opens one in 700 of its series.
SHIFT_ERRORS = 3.0
#: Smallest change of the control that is subtracted, as logarithm of a ratio: smaller ones do not
#: change what a person does.
MIN_SHIFT = 0.01
#: Nights whose median is the present level of an open regression: a week has each season once.
PRESENT_NIGHTS = 7
#: Standard errors of its size by which it must have changed to be reported: each night looks again.
REPORT_ERRORS = 5.0


def worse_direction(metric: str) -> int:
    """Return the direction in which a metric becomes worse.

    Examples
    --------
    >>> worse_direction("duration"), worse_direction("n_tasks")
    (1, 0)
    """
    better = METRICS[metric].better if metric in METRICS else ""
    return {"lower": 1, "higher": -1}.get(better, 0)


def is_same(about: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two estimates of a change of a series may be of the same change."""
    first, second = (np.datetime64(str(each["night"])[:10]) for each in (about, other))
    near = abs((first - second).astype(int)) <= MARGIN_NIGHTS
    return bool(near) and series_name(about) == series_name(other)


@dataclass(frozen=True)
class NightLevels:
    """The last night of a history, and the regressions of earlier nights."""

    history: History  # Ends with the night to judge
    night: str  # Name of that night
    # Measured and not yet judged groups -> name of the last judged night.
    unjudged: Mapping[tuple[str, str], str]
    # active, recovered: Regressions that are not closed; last recovered regression of each series.
    active: Mapping[tuple[str, ...], Regression]
    recovered: Mapping[tuple[str, ...], Regression]
    control: str | None = None  # The control environment, whose software never changes
    # Last night on which suspects of a series were set aside as the machine's.
    aside: Mapping[tuple[str, ...], str] = field(default_factory=dict)

    @cached_property
    def unjudged_rows(self) -> NDArray[np.bool_]:
        """Mask of the series that are not yet judged on this night, shape (series,)."""
        return np.array([group in self.unjudged for group in self._groups], bool)

    @property
    def _groups(self) -> list[tuple[str, str]]:
        series = self.history.series
        return list(zip(series["environment"].astype(str), series["host"].astype(str), strict=True))

    def alarms(self) -> list[ChangePoint | None]:
        """Return the newest change of each series that was not judged before."""
        alarms: list[ChangePoint | None] = []
        last = len(self.history.times) - 1
        for group, changes in zip(self._groups, self.history.changes, strict=True):
            new = None
            if group in self.unjudged and changes:
                detected, judged = changes[-1].detected_at, self.unjudged[group]
                name = night_name(self.history.times[detected])
                new = changes[-1] if (name > judged if judged else detected >= last) else None
            alarms.append(new)
        return alarms

    def changes(
        self,
        alarms: Sequence[ChangePoint | None],
        causes: Mapping[int, Cause],
        closed: Collection[str] = (),
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return events for changes of level, and proposed regressions."""
        # causes: Probable cause of each alarm, by position of the series.
        events, proposed = [], []
        for row, change in enumerate(alarms):
            about = self.history.series.iloc[row]
            worse = worse_direction(about["metric"])
            if change is None or not change.direction or not worse:
                continue
            cause = causes[row]
            fact = self._fact(row, change.index, *_without_shift(change, cause), cause.shift)
            fact |= {"cause": cause.cause, "reason": cause.reason}
            regression = self.active.get(series_name(about))
            if regression is not None and not self._in_current_segment(regression, row):
                regression = None
            if regression is not None and regression.id in closed:
                continue
            if fact["cause"] == "infrastructure":
                events.append({**fact, "kind": "set_aside"})
            elif regression is not None:
                events += self._update(regression, fact, change.direction == worse)
            elif change.direction == worse:
                fact["good_until"] = self._good_until(row, change.index)
                seen = self.aside.get(series_name(about), "")
                fact |= {"aside": seen} if seen >= fact["night"] else {}
                proposed.append({**fact, "kind": "opened", "suspect": False})
            elif not self._is_recovery(fact) and not self._fails_more(row, change.index):
                events.append({**fact, "kind": "improved"})
        return events, proposed

    def control_causes(self, alarms: Sequence[ChangePoint | None]) -> dict[int, Cause]:
        """Return the causes that the control shows, by position of the series."""
        if self.control is None:
            return {}
        causes = {
            row: self._control_cause(row, change) for row, change in enumerate(alarms) if change
        }
        return {row: cause for row, cause in causes.items() if cause}

    def _control_cause(self, row: int, change: ChangePoint) -> Cause | None:
        """Return the cause from what is left of a change without that of the control.

        All nights of the new level are used: with one night, a coincidence of two noisy nights
        would exclude a true regression permanently.
        """
        about = self.history.series.iloc[row]
        if about["environment"] == self.control:
            text = f"in the control {self.control!r}, whose software never changes"
            return Cause("infrastructure", text)
        shared = {name: about[name] for name in ("host", "metric", "scale", "capture")}
        in_control = self.history.matching({**shared, "environment": self.control})
        same = in_control & self.history.matching({"workload": about["workload"]})
        rows = np.flatnonzero(same if same.any() else in_control)
        start = self._reference_start(row, change.index)
        pairs = [self._shift(at, start, change.index) for at in rows.tolist()]
        pairs = [pair for pair in pairs if math.isfinite(pair[0])]
        if not pairs:
            return None
        shifts, errors = np.array(pairs).T
        shift, error = float(np.median(shifts)), float(np.median(errors))
        if not same.any():
            # Workloads differ in how much the machine affects them.
            spread = SD_OF_MAD * float(np.median(np.abs(shifts - shift)))
            error = math.hypot(error, spread) if shifts.size >= COMMON_SERIES else math.inf
        finite = 0 < change.ratio < math.inf
        size = abs(math.log(change.ratio)) if finite else INFINITE_CHANGE
        left = size - shift * change.direction
        is_certain = left >= max(
            DETECTION.min_change, SHIFT_ERRORS * math.hypot(error, _log_error(change))
        )
        # After a slow week of a machine some series end lower: only what is worse must not be lost.
        is_certain &= change.direction == worse_direction(about["metric"])
        is_code = left > size / 2 or is_certain
        what = "the same workload" if same.any() else f"the median of {shifts.size} series"
        if abs(shift) > INFINITE_CHANGE:
            moved = "rose from zero" if shift > 0 else "fell to zero"
        else:
            moved = f"changed by {100 * np.expm1(shift):+.1f} %"
        text = f"in the control {self.control!r}, {what} {moved} over the same nights"
        if not is_code:
            return Cause("infrastructure", text)
        if not finite or abs(shift) < max(SHIFT_ERRORS * error, MIN_SHIFT):
            return Cause("code", text)
        return Cause("code", f"{text}; the change is without that", shift, error)

    def _reference_start(self, row: int, index: int) -> int:
        """Return the first reference night of a change: not before the previous change."""
        return max(self._stretch_start(row, index), index - LEVEL_NIGHTS)

    def _stretch_start(self, row: int, index: int) -> int:
        """Return the night of the change, or of the start of a segment, before a night."""
        earlier = [change.index for change in self.history.changes[row] if change.index < index]
        return max(self.history.segment_start(row, index), *earlier[-1:], 0)

    def _good_until(self, row: int, first: int) -> str:
        """Return the night before which builds are good, if a change begins about a night."""
        earliest = min(self._reference_start(row, first) + 1, first)
        return night_name(self.history.times[max(first - MARGIN_NIGHTS, earliest)])

    def _shift(self, row: int, start: int, index: int) -> tuple[float, float]:
        """Return the change of level of a series at a night and its error, in logarithms."""
        logs = np.log(np.maximum(self.history.values[row], np.exp(LOG_OF_ZERO)))
        return _change_of_level(logs[start:index], logs[index:])

    def _fails_more(self, row: int, index: int) -> bool:
        """Return whether runs fail on a larger share of nights since a night than before it."""
        outcomes = self.history.outcomes[int(self.history.series["key"].iloc[row])]
        shares = []
        for part in (outcomes[self._reference_start(row, index) : index], outcomes[index:]):
            attempted = part[~np.isin(part, NOT_ATTEMPTED)]
            shares.append((attempted != "ok").sum() / max(attempted.size, 1))
        return bool(shares[1] > shares[0])

    def _is_recovery(self, fact: Mapping[str, Any]) -> bool:
        """Return whether a change for the better is the recovery of a closed regression."""
        past = self.recovered.get(series_name(fact))
        if past is None or not (past.before > 0 and fact["after"] and past.night < fact["night"]):
            return False
        return bool(abs(np.log(fact["after"] / past.before)) < abs(np.log(past.ratio)) / 2)

    def _in_current_segment(self, regression: Regression, row: int) -> bool:
        """Return whether a regression began in the current segment of its series."""
        start = self.history.segment_start(row, len(self.history.times) - 1)
        return regression.night >= night_name(self.history.times[start])

    def _position(self, night: str) -> int:
        """Return the position of a night, or of the next night if it is missing."""
        return int(np.searchsorted(self.history.times, np.datetime64(night)))

    def _update(
        self, regression: Regression, fact: dict[str, Any], worse: bool
    ) -> list[dict[str, Any]]:
        """Return the events that a new change adds to an open regression."""
        before, first = regression.before, regression.night
        total = fact["after"] / before if before else fact["ratio"]
        event = {**fact, "regression": regression.id, "before": before}
        # The interval is that of the new step: scale it to the whole change.
        share = total / fact["ratio"] if 0 < fact["ratio"] < math.inf else 1.0
        event |= {"ratio": total, "low": fact["low"] * share, "high": fact["high"] * share}
        growth = np.log(total / regression.ratio) if total > 0 else 0.0
        growth *= worse_direction(regression.metric)
        distance = abs(self._position(fact["night"]) - self._position(first))
        if worse and distance <= MARGIN_NIGHTS and not growth > DETECTION.min_change:
            return [{**event, "kind": "placed"}]
        event["night"] = first
        if worse and growth > DETECTION.min_change:
            return [{**event, "kind": "grown"}]
        if not worse and growth < -DETECTION.min_change:
            return [{**event, "kind": "eased"}]
        return []

    def suspects(
        self,
        latest: LatestNight,
        proposed: Sequence[Mapping[str, Any]],
        measured_again: Mapping[tuple[str, ...], str],
    ) -> list[dict[str, Any]]:
        """Return suspected regressions, which need a second measurement."""
        taken = {series_name(event) for event in proposed}
        last = len(self.history.times) - 1
        is_jump = latest.is_jump
        events = []
        for row in np.flatnonzero((latest.candidate != 0) & self.unjudged_rows).tolist():
            about = self.history.series.iloc[row]
            name, worse = series_name(about), worse_direction(about["metric"])
            if name in taken or name in self.active or latest.candidate[row] != worse or not worse:
                continue
            again = measured_again.get(name)
            since = night_name(self.history.times[latest.since[row]])
            if again is not None and not self._may_repeat(
                again, since, float(latest.units[row]), bool(is_jump[row])
            ):
                continue
            has_reference = bool(np.isfinite(latest.units[row]))
            first = int(latest.since[row]) if has_reference else last
            if is_jump[row] and has_reference:
                first = _first_of_jump(latest.recent_units[row])
            fact = self._fact(row, first, float(latest.ratio[row]), None, None)
            reason = "one night" if first == last else f"{last - first + 1} nights"
            if not has_reference:
                reason = f"{latest.n_before[row]} of {MIN_REFERENCE_NIGHTS} nights of history"
            fact |= {"cause": "unclear", "reason": f"{reason}, not confirmed yet"}
            large = not has_reference or abs(latest.units[row]) >= DETECTION.suspect_units
            units = float(latest.units[row]) if has_reference else None
            fact |= {"good_until": self._good_until(row, int(latest.since[row]))}
            fact |= {"units": units, "large": bool(large)}
            events.append({**fact, "kind": "opened", "suspect": True})
        return events

    def _may_repeat(self, again: str, since: str, units: float, is_jump: bool) -> bool:
        """Return whether a series that was measured again on a night is measured again now."""
        distance = len(self.history.times) - 1 - self._position(again)
        rests = distance <= REST_NIGHTS and not abs(units) >= DETECTION.suspect_units
        return not rests and (is_jump or since > again)

    def _measured(self) -> Iterator[tuple[Regression, int]]:
        """Yield the active changes of level, and the rows of their series, that are not judged."""
        for regression in self.active.values():
            failing = regression.metric == FAILING
            row = None if failing else self.history.find(regression.about)
            if row is not None and self.unjudged_rows[row]:
                yield regression, row

    def present_sizes(self, events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return events for regressions that slowly became larger, where there is a control.

        Without one, a slow week of the machine would look the same.
        """
        # events: Those of the night: a regression has one of them or none.
        others = {event.get("regression") for event in events}
        if self.control is None:
            return []
        return [
            event
            for regression, row in self._measured()
            if regression.id not in others and self._in_current_segment(regression, row)
            for event in self._present_size(regression, row)
        ]

    def _present_size(self, regression: Regression, row: int) -> list[dict[str, Any]]:
        """Return an event if the last week of a regression has another size than it, or none."""
        levels = self._without_control(row)
        if levels is None or not (0 < regression.ratio < math.inf and regression.before > 0):
            return []
        worse, first = worse_direction(regression.metric), self._position(regression.night)
        now = levels[first:][np.isfinite(levels[first:])][-PRESENT_NIGHTS:]
        before = self._before_growth(levels, row, first, worse)
        if now.size < PRESENT_NIGHTS or np.isfinite(before).sum() < MIN_REFERENCE_NIGHTS:
            return []
        size, error = _change_of_level(before, now, slow=True)
        if not abs(size - math.log(regression.ratio)) >= max(SHIFT_ERRORS * error, MIN_SHIFT):
            return []
        reported = [
            e["ratio"] for e in regression.events if e["kind"] != "placed" and e.get("ratio")
        ]
        # The first size of a change is often too large: a smaller one is noted, and no news.
        growth = worse * (size - math.log(float(reported[-1])))
        is_news = growth > max(DETECTION.min_change, REPORT_ERRORS * error)
        kind = "grown" if is_news else "placed"
        half = float(ndtri((1 + VERDICTS.level) / 2)) * error
        ratio, low, high = (math.exp(size + step) for step in (0.0, -half, half))
        return [
            {
                **json_safe(regression.about),
                "kind": kind,
                "regression": regression.id,
                "night": regression.night,
                "seen": self.night,
                **{"ratio": ratio, "low": low, "high": high},
                **{"before": regression.before, "after": regression.before * ratio},
                "cause": "code",
                "reason": f"the last {PRESENT_NIGHTS} nights, without what the same workload "
                f"changed in the control {self.control!r}",
            }
        ]

    def _without_control(self, row: int) -> NDArray[np.float64] | None:
        """Return the logarithms of a series without those of its workload in the control."""
        # returned: (nights,), NaN where one of them was not measured; None without a control.
        about = self.history.series.iloc[row].to_dict()
        if self.control is None or about["environment"] == self.control:
            return None
        control = self.history.find({**about, "environment": self.control})
        if control is None:
            return None
        values = self.history.values[[row, control]]
        logs = np.log(np.where(values > 0, values, np.nan))
        difference: NDArray[np.float64] = logs[0] - logs[1]
        return difference

    def _before_growth(
        self, levels: NDArray[np.float64], row: int, first: int, worse: int
    ) -> NDArray[np.float64]:
        """Return the nights of the level before a change, or before the slow rise to it."""
        oldest, stop = self._stretch_start(row, first), first
        begin = max(oldest, stop - LEVEL_NIGHTS)
        while begin - oldest >= MIN_REFERENCE_NIGHTS:
            earlier = max(oldest, begin - LEVEL_NIGHTS)
            gap, error = _change_of_level(levels[earlier:begin], levels[begin:stop], slow=True)
            if not worse * gap >= max(SHIFT_ERRORS * error, MIN_SHIFT):
                break
            begin, stop = earlier, begin
        return levels[begin:stop]

    def recoveries(self) -> list[dict[str, Any]]:
        """Return events for regressions that recovered, or whose segment ended."""
        events = []
        for regression, row in self._measured():
            fact = {**regression.about, "regression": regression.id, "seen": self.night}
            if not self._in_current_segment(regression, row):
                reasons = self.history.segments_of(row)["reason"].tolist()
                events.append({**fact, "kind": "ended", "reason": "".join(reasons[-1:])})
                continue
            before = regression.before
            values = self.history.values[row, self._position(regression.night) + 1 :]
            recent = values[np.isfinite(values)][-MIN_NIGHTS:]
            if recent.size < MIN_NIGHTS or not before > 0:
                continue
            remaining = np.log(recent / before) / np.log(regression.ratio)
            if (remaining < RECOVERY_SHARE).all():
                after = float(np.median(recent))
                events.append({**fact, "kind": "recovered", "before": before, "after": after})
        return events

    def _fact(
        self,
        row: int,
        index: int,
        ratio: float,
        low: float | None,
        high: float | None,
        shift: float = 0.0,
    ) -> dict[str, Any]:
        """Return an event about a change of a series at a night, without its kind."""
        # shift: Change of the machine, as logarithm of a ratio: the level before has it, too.
        about = self.history.series.iloc[row][[*SERIES_FIELDS, "metric"]].to_dict()
        values = self.history.values[row]
        start = self._reference_start(row, index)
        before, after = (
            float(np.nanmedian(part)) if np.isfinite(part).any() else None
            for part in (values[start:index], values[index:])
        )
        before = before and before * math.exp(shift)
        if before and np.isfinite(ratio):
            after = before * float(ratio)  # the levels give the change of the same row
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


def _change_of_level(
    before: NDArray[np.float64], after: NDArray[np.float64], *, slow: bool = False
) -> tuple[float, float]:
    """Return the difference of the medians of nights and its error, both NaN without nights."""
    # before, after: (nights,), logarithms; NaN is missing.
    # slow: whether the error is that of noise that lasts several nights, as far as it does.
    before, after = (part[np.isfinite(part)] for part in (before, after))
    if not before.size or not after.size:
        return float("nan"), float("nan")
    level = float(np.median(before))
    noise = max(SD_OF_MAD * float(np.median(np.abs(before - level))), MIN_NOISE)
    error = MEDIAN_ERROR * noise * math.sqrt(1 / before.size + 1 / after.size)
    if slow:
        units = (before - level)[None] / noise
        error *= float(autocorrelation_factor(units, np.array([after.size]))[0])
    return float(np.median(after)) - level, error


def _log_error(change: ChangePoint) -> float:
    """Return the standard error of a change, in logarithms; 0 from or to zero."""
    if not (change.low > 0 and math.isfinite(change.high)):
        return 0.0
    return math.log(change.high / change.low) / 2 / float(ndtri((1 + VERDICTS.level) / 2))


def _without_shift(change: ChangePoint, cause: Cause) -> tuple[float, float, float]:
    """Return ratio and interval of a change without that of the machine."""
    if not cause.shift:
        return change.ratio, change.low, change.high
    error = math.hypot(_log_error(change), cause.error)
    half = float(ndtri((1 + VERDICTS.level) / 2)) * error
    ratio = change.ratio * math.exp(-cause.shift)
    return ratio, ratio * math.exp(-half), ratio * math.exp(half)


def _first_of_jump(units: NDArray[np.float64]) -> int:
    """Return the first of the last nights that all are more than half as far as the last one."""
    near = ~(units / units[-1] > 0.5)
    return int(np.flatnonzero(near)[-1]) + 1 if near.any() else 0
