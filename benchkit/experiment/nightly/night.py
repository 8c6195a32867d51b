"""Result of a night: its runs, its events and the open regressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from benchkit.analysis.metric_limits import quality_warnings
from benchkit.analysis.regression.history import DEFAULT_METRICS, History, night_name
from benchkit.analysis.regression.nights import is_reported, night_notes
from benchkit.analysis.regression.regression import Regression, read_ledger
from benchkit.errors import UsageError
from benchkit.formatting import NO_FAILURE, counted
from benchkit.measure.secrets import redact_text
from benchkit.store.store import Store
from benchkit.table import Table
from benchkit.text import html_text
from benchkit.values import decode_json

#: Kinds of events that `Night.changes` returns, most important first; other kinds are internal.
CHANGE_KINDS = (
    "opened",
    "grown",
    "eased",
    "recovered",
    "ended",
    "improved",
    "set_aside",
    "tolerated",
    "dismissed",
    "undecided",
)


@dataclass(repr=False)
class Night:
    """Result of one nightly run."""

    night: str  # Time of the night (ISO 8601, UTC); the value of the `night` tag of its runs
    store: Store  # Store of the runs and the ledger
    # Records of the measured runs, in order.
    records: list[Mapping[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)  # Events added to the ledger
    # Events of earlier nights that were not yet judged, such as those of an import.
    earlier: list[dict[str, Any]] = field(default_factory=list)
    # All regressions in the ledger, newest first.
    regressions: list[Regression] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # Parts that failed, one line each
    interrupted: bool = False  # Whether Ctrl-C stopped the measurements early
    judged_before: bool = False  # Whether the ledger had the verdicts of this night already

    def add_failure(self, text: str) -> None:
        """Add a line, without secrets: it is published, posted and printed."""
        line = redact_text(text)
        if line not in self.failures:
            self.failures.append(line)

    @property
    def changes(self) -> list[dict[str, Any]]:
        """Events to report, most important first (see `CHANGE_KINDS`)."""
        events = [e for e in self.events if e["kind"] in CHANGE_KINDS and is_reported(e)]
        return sorted(events, key=lambda event: CHANGE_KINDS.index(event["kind"]))

    @property
    def worse(self) -> list[dict[str, Any]]:
        """Events of regressions that opened or grew in this night."""
        return [event for event in self.events if event["kind"] in ("opened", "grown")]

    @property
    def failed(self) -> list[Mapping[str, Any]]:
        """Records of the runs whose outcome is neither ok nor skipped."""
        return [record for record in self.records if record["outcome"] not in NO_FAILURE]

    @property
    def limits(self) -> list[str]:
        """Limits of the runs that a verdict on them must consider, a line each."""
        runs = pd.DataFrame(self.records)
        if not len(runs) or "environment" not in runs:
            return []
        return quality_warnings(dict(list(runs.groupby("environment"))), DEFAULT_METRICS)

    @property
    def notes(self) -> list[str]:
        """What could not be judged, and what became of suspects, a line each."""
        before = ["judged before: its verdicts are in the ledger"] * self.judged_before
        return [*self._earlier_notes, *before, *night_notes(self.events)]

    @property
    def _earlier_notes(self) -> list[str]:
        """What was judged of earlier nights, in one line or none."""
        nights = {event["seen"] for event in self.earlier}
        if not nights:
            return []
        kinds = [event["kind"] for event in self.earlier]
        counts = [f"{kinds.count(kind)} {kind}" for kind in ("opened", "grown", "recovered")]
        first, last = min(nights)[:10], max(nights)[:10]
        text = f"{counted(len(nights), 'earlier night')} ({first} to {last})"
        return [f"judged {text}, the first time: {', '.join(counts)}"]

    @property
    def sentence(self) -> str:
        """One-sentence summary of the night."""
        return f"Night {self.night[:16]}: {self.summary}."

    @property
    def summary(self) -> str:
        """Number of runs, of changes and of open regressions, as text."""
        kinds = [event["kind"] for event in self.events]
        counts = [
            f"{kinds.count(kind)} {label}"
            for kind, label in (
                ("opened", "opened"),
                ("grown", "grown"),
                ("recovered", "recovered"),
                ("improved", "improved"),
                ("set_aside", "caused by the machine"),
                ("tolerated", "below a threshold"),
                ("dismissed", "not reproduced"),
                ("undecided", "measured again and undecided"),
            )
            if kind in kinds
        ]
        n_open = sum(regression.is_open for regression in self.regressions)
        measured = f"{counted(len(self.records), 'run')}, {len(self.failed)} of them failed"
        parts = [measured if self.records else "nothing measured"]
        parts.append(f"regressions: {', '.join(counts) or 'nothing new'}; {n_open} open")
        if self.failures:
            parts.append(f"{counted(len(self.failures), 'part')} failed")
        return "; ".join(parts)

    def __repr__(self) -> str:
        lines = [self.sentence]
        lines += [
            f"  {regression.state:9}  {regression.title}"
            for regression in self.regressions
            if regression.is_open
        ]
        lines += [f"  {text}" for text in self.notes]
        lines += [f"  failed: {text}" for text in self.failures]
        return "\n".join([*lines, *(f"  limited: {text}" for text in self.limits)])

    def _repr_html_(self) -> str:
        rows = [
            {"state": regression.state, "regression": regression.title}
            for regression in self.regressions
            if regression.is_open
        ]
        rows += [{"state": "note", "regression": text} for text in self.notes]
        rows += [{"state": "failed", "regression": text} for text in self.failures]
        rows += [{"state": "limited", "regression": text} for text in self.limits]
        return f"<p>{html_text(self.sentence)}</p>{Table(rows).to_html() if rows else ''}"


def night_of(
    history: History,
    store: Store,
    events: Sequence[Mapping[str, Any]],
    marks: Sequence[Mapping[str, Any]],
) -> Night:
    """Return the last night of a history, with the regressions as they were then."""
    if not len(history.times):
        return Night("", store, regressions=read_ledger(events, marks))
    night = night_name(history.times[-1])
    return Night(
        night,
        store,
        records=[
            {str(k): v for k, v in row.items()} for row in history.last_runs.to_dict("records")
        ],
        events=[dict(event) for event in events if event.get("seen") == night],
        regressions=read_ledger(
            (event for event in events if str(event.get("seen") or "") <= night), marks
        ),
    )


def read_night(store: Store, night: str = "latest") -> Night:
    """Return an earlier night, read from the store."""
    events, marks = store.events(), store.marks()
    judged = sorted({str(event["seen"]) for event in events if event.get("seen")})
    if night == "latest" and judged:
        night = judged[-1]
    if night not in judged:
        last = f"; the last one is {judged[-1]}" if judged else ""
        raise UsageError(f"night {night!r} was not judged in {store.path}{last}")
    runs = store.runs()
    in_night = [decode_json(text).get("night") == night for text in runs["tags"]]
    return Night(
        night,
        store,
        records=[{str(k): v for k, v in row.items()} for row in runs[in_night].to_dict("records")],
        events=[event for event in events if event.get("seen") == night],
        regressions=read_ledger(events, marks),
    )
