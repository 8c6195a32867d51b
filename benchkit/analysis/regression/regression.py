"""Build `Regression` objects from events of the ledger and marks.

Events are only added, never changed: ledgers with the same events give the same regressions.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from benchkit.formatting import format_change, format_quantity
from benchkit.measure.errors import error_summary
from benchkit.measure.run_ids import id_time
from benchkit.store.filters import parse_moment, workload_matcher
from benchkit.store.marks import active_marks
from benchkit.store.schema import METRICS, SERIES_FIELDS

#: Metric of a regression in which the workload ends with an outcome other than `ok`.
FAILING = "outcome"
#: States of a regression; open and grown regressions are not closed.
STATES = ("open", "grown", "recovered", "accepted", "ended")
_OPEN = ("open", "grown")


@dataclass(frozen=True, repr=False)
class Regression:
    """A lasting change of one metric of one workload for the worse."""

    id: str  # Ten characters, a hash of series and night
    # workload, environment, host, capture, metric: Fields of the series. The metric `outcome` means
    # that the workload fails.
    workload: str
    environment: str
    host: str
    scale: float  # Scale of the workload's data, a field of the series
    capture: str
    metric: str
    state: str  # State after the last event
    night: str  # First night of the new level, ISO 8601, UTC
    seen: str  # Night of detection
    closed: str | None  # Night of the recovery, or of the end of the segment
    # ratio, low, high: Of the level now to the level before, with its 95 % interval; NaN for
    # failures.
    ratio: float
    low: float
    high: float
    # before, after: Levels before and after, in the unit of the metric; NaN for failures.
    before: float
    after: float
    cause: str  # Estimated from the other series of the night
    reason: str  # The cause in a sentence with its numbers
    # Whether an interleaved measurement of both builds confirmed it; None: not measured.
    confirmed: bool | None
    # Differences of the builds (`changed`), `explanation`, `runs` (ids on both sides), `bisect` (a
    # command) and `error`, as far as these are known.
    facts: Mapping[str, Any] = field(default_factory=dict)
    events: Sequence[Mapping[str, Any]] = ()  # Events of the ledger about it, oldest first
    # Marks `accept` and `decide` about it, oldest first: verdict, reason, by, evidence, date.
    decisions: Sequence[Mapping[str, Any]] = ()

    @property
    def is_open(self) -> bool:
        """Whether its state is open or grown."""
        return self.state in _OPEN

    @property
    def about(self) -> dict[str, Any]:
        """Fields of its series."""
        return {name: getattr(self, name) for name in (*SERIES_FIELDS, "metric")}

    @property
    def size(self) -> str:
        """Its size as text: ``+12.3 % (9.8 to 14.9), 10.2 s -> 11.5 s``."""
        if self.metric == FAILING:
            return str(self.facts.get("error") or "fails")
        units = METRICS[self.metric].units
        levels = (format_quantity(self.before, units), format_quantity(self.after, units))
        interval = ""
        if not (math.isnan(self.low) or math.isnan(self.high)):
            interval = f" ({100 * (self.low - 1):+.1f} to {100 * (self.high - 1):+.1f})"
        return f"{format_change(self.ratio)}{interval}, {levels[0]} -> {levels[1]}"

    @property
    def title(self) -> str:
        """One line of text: workload, metric, change and first night."""
        if self.metric == FAILING:
            return f"{self.workload}: fails since {self.night[:10]}"
        metric, change = METRICS[self.metric].long_name, format_change(self.ratio)
        return f"{self.workload}: {metric} {change} since {self.night[:10]}"

    def to_dict(self) -> dict[str, Any]:
        """Return the regression as a flat dict of JSON types."""
        flat = {
            name: getattr(self, name)
            for name in self.__dataclass_fields__
            if name not in ("facts", "events")
        }
        return {**flat, "size": self.size, "title": self.title, **self.facts}

    def __repr__(self) -> str:
        return f"<benchkit.Regression {self.id} {self.state}: {self.title}>"


def series_name(about: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the values of the fields that identify a series."""
    return tuple(str(about.get(name)) for name in (*SERIES_FIELDS, "metric"))


def regression_id(about: Mapping[str, Any], night: str) -> str:
    """Return the id of the regression of a series that began on a night."""
    text = "\n".join([*series_name(about), night[:19]])
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def read_ledger(
    events: Iterable[Mapping[str, Any]], marks: Iterable[Mapping[str, Any]] = ()
) -> list[Regression]:
    """Return the regressions of a ledger, last detected first."""
    events_of: dict[str, list[Mapping[str, Any]]] = {}
    seen: set[tuple[str, str, str]] = set()
    for event in events:
        name = event.get("regression")
        # Two machines may have judged the same night: skip equal events.
        key = (str(name), event["kind"], str(event.get("seen")))
        if name and key not in seen:
            seen.add(key)
            events_of.setdefault(str(name), []).append(event)
    decided = [mark for mark in active_marks(marks) if mark.get("kind") in ("accept", "decide")]
    regressions = []
    for name, history in events_of.items():
        if not any(event["kind"] == "opened" for event in history):
            continue
        # An import adds earlier nights later.
        history.sort(key=lambda event: str(event.get("seen") or ""))
        try:
            regression = _regression(name, history, decided)
            _check(regression)
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # written by hand
            reason = f"skipped: {error_summary(error)} in its events"
            warnings.warn(f"regression {name}: {reason}", stacklevel=2)
            continue
        regressions.append(regression)
    return sorted(regressions, key=lambda each: (each.seen, each.id), reverse=True)


def _regression(
    name: str, history: list[Mapping[str, Any]], decided: list[Mapping[str, Any]]
) -> Regression:
    """Return the regression that results from its events in order, and from marks."""
    first = next(event for event in history if event["kind"] == "opened")
    now = dict(first)
    state, closed = "open", None
    for event in history:
        if event["kind"] in ("placed", "grown", "eased"):
            updated = ("night", "ratio", "low", "high", "after", "facts")
            now |= {key: event[key] for key in updated if event.get(key) is not None}
        if event["kind"] == "grown":
            state = "grown"
        if event["kind"] in ("recovered", "ended"):
            state, closed = event["kind"], str(event["seen"])
    own = [mark for mark in decided if _is_about(mark, name, now)]
    if closed is None and any(mark["kind"] == "accept" for mark in own):
        state = "accepted"
    levels: dict[str, Any] = {
        key: _number(now.get(key)) for key in ("ratio", "low", "high", "before", "after")
    }
    return Regression(
        id=name,
        state=state,
        closed=closed,
        confirmed=now.get("confirmed"),
        **{key: now[key] for key in (*SERIES_FIELDS, "metric", "night", "seen", "cause", "reason")},
        **levels,
        facts=now.get("facts") or {},
        events=tuple(history),
        decisions=tuple(map(decision, own)),
    )


def decision(mark: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a mark says about a change: verdict, reason, by, evidence, date, mark."""
    verdict = "accepted" if mark["kind"] == "accept" else str(mark["verdict"])
    date = datetime.fromtimestamp(id_time(str(mark["id"])), timezone.utc).date().isoformat()
    texts = {name: str(mark.get(name) or "") for name in ("reason", "by")}
    evidence = [str(text) for text in mark.get("evidence") or []]
    return {"verdict": verdict, **texts, "evidence": evidence, "date": date, "mark": mark["id"]}


def decision_text(about: Mapping[str, Any]) -> str:
    """Return a decision as one line."""
    evidence = f" ({', '.join(map(str, about['evidence']))})" if about["evidence"] else ""
    return f"{about['verdict']}, {about['by']} on {about['date']}: {about['reason']}{evidence}"


def decisions(
    events: Iterable[Mapping[str, Any]], marks: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return a row per decision and change, the newest first."""
    marks = list(marks)
    regressions = read_ledger(events, marks)
    rows: list[dict[str, Any]] = []
    for mark in active_marks(marks):
        if mark.get("kind") not in ("accept", "decide"):
            continue
        row = decision(mark)
        about: list[dict[str, Any]] = [
            {"regression": each.id, "workload": each.workload, "metric": each.metric,
             "change": each.size}
            for each in regressions if row in each.decisions
        ]  # fmt: skip
        series = {"workload": str(mark["workload"]), "metric": str(mark.get("metric") or "")}
        rows += [{**row, **facts} for facts in about or [series]]
    return rows[::-1]


def _check(regression: Regression) -> None:
    """Raise if the facts of a regression cannot be shown."""
    if not (regression.title and regression.size):
        raise ValueError("no title")
    for name in ("changed", "parts"):
        for row in regression.facts.get(name) or []:
            if not isinstance(row, Mapping):
                raise TypeError(f"facts: {name} is no list of objects")


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _is_about(mark: Mapping[str, Any], name: str, event: Mapping[str, Any]) -> bool:
    """Return whether a mark is about a regression: by its id, or by series and time.

    One that accepts has no ``at``, or an ``at`` that is not before the first night; a decision is
    about the change of its night only.
    """
    if mark["kind"] == "decide" and mark.get("regression"):
        return bool(mark["regression"] == name)
    if not concerns(mark, event):
        return False
    if not mark.get("at"):
        return True
    at, night = parse_moment(mark["at"]), parse_moment(str(event["night"]))
    return at.date() == night.date() if mark["kind"] == "decide" else at >= night


def concerns(mark: Mapping[str, Any], about: Mapping[str, Any]) -> bool:
    """Return whether a mark is about the changes of a series or a regression."""
    if not workload_matcher(str(mark["workload"]))(str(about["workload"])):
        return False
    if mark.get("metric") not in (None, about.get("metric")):
        return False
    where = mark.get("where") or {}
    return all(str(about.get(name)) == str(value) for name, value in where.items())
