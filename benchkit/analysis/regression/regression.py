"""Regressions: what the events of the ledger amount to, with what people said about them.

Events and marks in, `Regression` objects out. Events are only ever added, so a regression is what
its events say up to now; two ledgers that hold the same events agree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from benchkit.analysis.regression.history import SERIES_FIELDS, accepts
from benchkit.formatting import format_change, format_quantity
from benchkit.store.index.query import parse_moment
from benchkit.store.marks import active_marks
from benchkit.store.schema import METRICS

__all__ = [
    "FAILING",
    "STATES",
    "Regression",
    "read_ledger",
    "regression_id",
    "series_name",
    "to_table",
]

#: The metric of a regression that is no number: the workload ends in another way than `ok`.
FAILING = "outcome"
#: Open and grown ones are news; the others are closed.
STATES = ("open", "grown", "recovered", "accepted", "ended")
_OPEN = ("open", "grown")


@dataclass(frozen=True, repr=False)
class Regression:
    """A lasting change for the worse of one metric of one workload.

    Attributes
    ----------
    id : str
        Ten characters, the same wherever the same ledger is read.
    workload, environment, host, capture, metric : str
    scale : float
        What it is about. The metric `outcome` stands for a workload that fails.
    state : {"open", "grown", "recovered", "accepted", "ended"}
    night : str
        First night of the new level, ISO 8601, UTC.
    seen : str
        Night on which it was seen.
    closed : str or None
        Night on which it recovered or ended.
    ratio, low, high : float
        Level now / level before, with its 95 % interval; NaN for failures.
    before, after : float
        The levels in the metric's unit; NaN for failures.
    cause : {"code", "unclear", "infrastructure"}
        As far as the other series of the night tell.
    confirmed : bool or None
        Whether measuring both builds again, interleaved, showed it; None: not tried.
    facts : mapping
        What `benchkit.analysis.regression.diagnosis` found out: ``changed`` (what differs between the builds),
        ``explanation``, ``runs`` (ids on both sides), ``bisect`` (a command), ``error``.
    events : sequence of mapping
        What happened, oldest first.
    """

    id: str
    workload: str
    environment: str
    host: str
    scale: float
    capture: str
    metric: str
    state: str
    night: str
    seen: str
    closed: str | None
    ratio: float
    low: float
    high: float
    before: float
    after: float
    cause: str
    reason: str
    confirmed: bool | None
    facts: Mapping[str, Any] = field(default_factory=dict)
    events: Sequence[Mapping[str, Any]] = ()

    @property
    def is_open(self) -> bool:
        """Whether it is still there and nobody accepted it."""
        return self.state in _OPEN

    @property
    def about(self) -> dict[str, Any]:
        """Return what names its series."""
        return {name: getattr(self, name) for name in (*SERIES_FIELDS, "metric")}

    @property
    def size(self) -> str:
        """Its size in words: ``+12.3 % (9.8 to 14.9), 10.2 s -> 11.5 s``."""
        if self.metric == FAILING:
            return str(self.facts.get("error") or "fails")
        units = METRICS[self.metric].units
        levels = (format_quantity(self.before, units), format_quantity(self.after, units))
        interval = ""
        if pd.notna(self.low) and pd.notna(self.high):
            interval = f" ({100 * (self.low - 1):+.1f} to {100 * (self.high - 1):+.1f})"
        return f"{format_change(self.ratio)}{interval}, {levels[0]} -> {levels[1]}"

    @property
    def title(self) -> str:
        """One line that says what happened to what."""
        if self.metric == FAILING:
            return f"{self.workload}: fails since {self.night[:10]}"
        word = METRICS[self.metric].long_name
        change = format_change(self.ratio)
        return f"{self.workload}: {word} {change} since {self.night[:10]}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as one flat object of JSON types."""
        flat = {
            name: getattr(self, name)
            for name in self.__dataclass_fields__
            if name not in ("facts", "events")
        }
        return {**flat, "size": self.size, "title": self.title, **self.facts}

    def __repr__(self) -> str:
        return f"<benchkit.Regression {self.id} {self.state}: {self.title}>"


def series_name(about: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what tells a series, or the regression of one, from all others."""
    return tuple(str(about[name]) for name in (*SERIES_FIELDS, "metric"))


def regression_id(about: Mapping[str, Any], night: str) -> str:
    """Return the id of the regression of a series that was seen on a night."""
    text = "\n".join([*series_name(about), night[:19]])
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def read_ledger(
    events: Iterable[Mapping[str, Any]], marks: Iterable[Mapping[str, Any]] = ()
) -> list[Regression]:
    """Return the regressions that events tell of, the one seen last first.

    Parameters
    ----------
    events : iterable of mapping
        As `Store.events` gives them.
    marks : iterable of mapping
        As `Store.marks` gives them. One that accepts a workload (and metric) accepts those of
        its regressions that it was made after, or whose night it names.
    """
    told: dict[str, list[Mapping[str, Any]]] = {}
    seen: set[tuple[str, str, str]] = set()
    for event in events:
        name = event.get("regression")
        # Two machines may have judged the same night.
        once = (str(name), event["kind"], str(event.get("seen")))
        if name and once not in seen:
            seen.add(once)
            told.setdefault(str(name), []).append(event)
    accepting = [mark for mark in active_marks(marks) if mark.get("kind") == "accept"]
    found = [
        _fold(name, story, accepting)
        for name, story in told.items()
        if any(event["kind"] == "opened" for event in story)
    ]
    return sorted(found, key=lambda one: (one.seen, one.id), reverse=True)


def _fold(
    name: str, story: list[Mapping[str, Any]], accepting: list[Mapping[str, Any]]
) -> Regression:
    first = next(event for event in story if event["kind"] == "opened")
    now = dict(first)
    state, closed = "open", None
    for event in story:
        if event["kind"] in ("placed", "grown", "eased"):
            kept = ("night", "ratio", "low", "high", "after", "facts")
            now |= {key: event[key] for key in kept if event.get(key) is not None}
        if event["kind"] == "grown":
            state = "grown"
        if event["kind"] in ("recovered", "ended"):
            state, closed = event["kind"], str(event["seen"])
    if closed is None:
        for mark in accepting:
            if accepts(mark, now) and _covers(mark, now):
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
        events=tuple(story),
    )


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _covers(mark: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Whether a mark that names a moment names one at which the regression was there."""
    if not mark.get("at"):
        return True
    return parse_moment(mark["at"]) >= parse_moment(str(event["night"]))


def to_table(regressions: Sequence[Regression]) -> pd.DataFrame:
    """Return regressions as a table, a row each."""
    rows = [one.to_dict() for one in regressions]
    columns = ["id", "state", "workload", "metric", "environment", "host", "night", "size", "cause"]
    return pd.DataFrame(rows, columns=columns)
