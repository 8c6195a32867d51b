"""Assign runs to nights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchkit.analysis.changepoint.rule import MIN_REFERENCE_NIGHTS
from benchkit.analysis.metric_limits import decode_column
from benchkit.analysis.run.baseline import is_simulated
from benchkit.formatting import ROWS_SHOWN, counted, format_change

#: Tags of runs that belong to no night, as simulated runs: confirmations and bisections.
NON_NIGHTLY_TAGS = ("confirm", "bisect")
#: Median error of the replays of a night above which an engine of predictions fails its check, and
#: fewest runs for that: one odd run says nothing of the engine.
MAX_MODEL_ERROR, MIN_MODEL_RUNS = 0.1, 3
#: Engine of predictions -> its command.
COMMANDS = {"replay": "whatif", "simulation": "simulate"}


class ModelError(NamedTuple):
    """By how much an engine of predictions is off if it replays runs of a night."""

    engine: str
    error: float  # Median of the errors without their sign, as a share of the duration
    n_runs: int

    @property
    def is_large(self) -> bool:
        """Whether the engine fails its check."""
        return self.n_runs >= MIN_MODEL_RUNS and self.error > MAX_MODEL_ERROR

    def __str__(self) -> str:
        limit = f", more than {100 * MAX_MODEL_ERROR:.0f} %" if self.is_large else ""
        return f"{COMMANDS[self.engine]} is off by {100 * self.error:.1f} %{limit}"


def nightly_runs(runs: pd.DataFrame, columns: Iterable[str] = ()) -> pd.DataFrame:
    """Return the runs that belong to nights."""
    runs = runs.copy(deep=False)  # only whole columns are replaced
    for name in (*columns, "arm", "experiment"):
        if name not in runs:
            runs[name] = None
    if "comparable" not in runs:
        runs["comparable"] = True
    runs["comparable"] = runs["comparable"].astype(bool)
    codes, tags = decode_column(runs["tags"])
    tagged = np.array(["night" in t for t in tags], bool)[codes]
    excluded = np.array([any(name in t for name in NON_NIGHTLY_TAGS) for t in tags], bool)[codes]
    n_arms = runs.groupby("experiment")["arm"].transform("nunique").fillna(0).to_numpy()
    excluded |= is_simulated(runs).to_numpy()
    keep = ~excluded & (tagged | (n_arms <= 1))
    runs = runs.copy(deep=False) if keep.all() else runs[keep].copy()
    runs["moment"] = _night_times(runs)
    return runs.reset_index(drop=True)


def future_nights(moments: pd.Series) -> pd.Series:
    """Return which runs are of a night in the future: the clock of their machine was wrong."""
    now = pd.Timestamp.now("UTC").tz_localize(None)
    future = moments > now + pd.Timedelta(days=1)  # clocks differ a little
    # If as many nights are in the future, the clock of this machine is wrong.
    n_future, n_past = moments[future].nunique(), moments[~future].nunique()
    return future if n_future < n_past else future & False


def is_reported(event: Mapping[str, Any]) -> bool:
    """Return whether an event of the ledger is reported, not only counted in its night."""
    small = event.get("suspect") and not event.get("large")
    hidden = ("night", "placed", *(("dismissed", "set_aside") if small else ()))
    return event["kind"] not in hidden


def night_notes(events: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what could not be judged, what became of suspects, and which task groups changed."""
    events = list(events)
    nights = [event for event in events if event["kind"] == "night"]

    def total(name: str) -> int:
        return sum(int(night.get(name) or 0) for night in nights)

    notes = []
    if total("n_short"):
        most = max(int(night.get("short_nights") or 0) for night in nights)
        notes.append(
            f"judged {total('n_series') - total('n_short')} of {total('n_series')} series: "
            f"{most} of {MIN_REFERENCE_NIGHTS} nights of history"
        )
    fates = {name: total(f"n_{name}") for name in ("confirmed", "dismissed", "undecided")}
    if any(fates.values()):
        counts = [
            f"{n} {name}{_named([event for event in events if _fate(event) == name])}"
            for name, n in fates.items()
            if n
        ]
        notes.append(f"suspects measured again: {', '.join(counts)}")
    if total("n_not_measured"):
        suspects = [row for night in nights for row in night.get("not_measured") or ()]
        notes.append(f"suspects not measured again: {total('n_not_measured')}{_named(suspects)}")
    if total("n_set_aside"):
        notes.append(f"changes attributed to the machine: {total('n_set_aside')}")
    notes += [str(row["sentence"]) for night in nights for row in night.get("groups") or ()]
    if errors := model_errors(nights):
        n_runs = max(each.n_runs for each in errors)
        notes.append(f"{counted(n_runs, 'run')} replayed: {'; '.join(map(str, errors))} (median)")
    return notes


def _fate(event: Mapping[str, Any]) -> str:
    """Return what a re-run said of an event: confirmed, dismissed, undecided or nothing."""
    if event["kind"] in ("dismissed", "undecided"):
        return str(event["kind"])
    return "confirmed" if event["kind"] == "opened" and event.get("confirmed") is True else ""


def _named(suspects: Sequence[Mapping[str, Any]]) -> str:
    """Return the names and sizes of suspects, in brackets."""
    names = [
        f"{each['workload']} {each['metric']} {format_change(each.get('ratio'))}"
        for each in suspects
    ]
    more = [f"{len(names) - ROWS_SHOWN} more"] if len(names) > ROWS_SHOWN else []
    return f" ({'; '.join([*names[:ROWS_SHOWN], *more])})" if names else ""


def model_rows(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the runs of a night that were replayed, with the error of each engine."""
    return [row for event in events if event["kind"] == "night" for row in event.get("model") or ()]


def model_errors(events: Iterable[Mapping[str, Any]]) -> list[ModelError]:
    """Return by how much each engine of predictions was off in a night."""
    rows = model_rows(events)
    errors = {name: [abs(row[name]) for row in rows if name in row] for name in COMMANDS}
    return [ModelError(name, float(np.median(each)), len(each)) for name, each in errors.items()
            if each]  # fmt: skip


def _night_times(runs: pd.DataFrame) -> pd.Series:
    """Return the night of each run: its tag ``night``, else the UTC day of its start."""
    codes, tags = decode_column(runs["tags"])
    nights = pd.Series([t.get("night") for t in tags], dtype=object)
    moments = pd.to_datetime(nights, utc=True, errors="coerce", format="ISO8601")
    moments = moments.take(codes).set_axis(runs.index)
    return moments.fillna(runs["started"].dt.floor("D")).dt.tz_localize(None)
