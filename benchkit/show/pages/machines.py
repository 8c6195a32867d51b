"""Pages of failures by night, and of machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchkit.analysis.regression.history import History
from benchkit.analysis.regression.nights import COMMANDS, model_errors
from benchkit.analysis.regression.status import series_label
from benchkit.formatting import NO_FAILURE, counted
from benchkit.show.pages.history import MARKS
from benchkit.show.pages.page import Column, Page, Section, Spark, Text, cells_table, make_table
from benchkit.show.pages.regressions import series_target

#: Number of nights on the page of failures.
FAILURE_NIGHTS = 90
#: Outcome -> symbol on the page of failures.
_SYMBOLS = {
    "": " ",
    "ok": "·",
    "failed": "✕",
    "wrong_answer": "≠",
    "timeout": "T",
    "lost_workers": "L",
    "infrastructure": "i",
    "skipped": "s",
}


def failures_page(history: History) -> Page:
    """Return the outcomes by night of each series in which at least one run failed."""
    outcomes = history.outcomes[:, -FAILURE_NIGHTS:]
    bad = ~np.isin(outcomes, ("", *NO_FAILURE))
    about = history.runs.drop_duplicates("key").set_index("key", drop=False)
    rows = [
        (about.loc[key].to_dict(), outcomes[key].tolist(), int(bad[key].sum()))
        for key in np.flatnonzero(bad.any(axis=1)).tolist()
    ]
    rows.sort(key=lambda row: -row[2])
    nights = [str(time)[:10] for time in history.times[-FAILURE_NIGHTS:]]
    columns = (
        Column("workload", lambda row: Text(
            str(row[0]["workload"]), target=series_target({**row[0], "metric": ""}))),
        Column("where", lambda row: series_label(row[0])),
        Column("failures", lambda row: str(row[2])),
        Column("last failure", lambda row: _last_failure(nights, row[1])),
        Column("nights", lambda row: Text("".join(_SYMBOLS[each] for each in row[1]), "nights")),
    )  # fmt: skip
    table = make_table(columns, rows, empty="No run failed.")
    legend = ", ".join(f"{symbol} {name.replace('_', ' ')}" for name, symbol in _SYMBOLS.items()
                       if name)  # fmt: skip
    period = f"{nights[0]} to {nights[-1]}, oldest on the left: " if rows else ""
    title = "Which workloads failed, and when?"
    return Page("Failures", [], [Section(title, table, f"{period}{legend}; blank: not measured.")])


def _last_failure(nights: Sequence[str], outcomes: Sequence[str]) -> str:
    last = max(i for i, outcome in enumerate(outcomes) if outcome not in ("", *NO_FAILURE))
    return f"{nights[last]}: {outcomes[last].replace('_', ' ')}"


def machines_page(
    history: History, events: Sequence[Mapping[str, Any]], marks: Sequence[Mapping[str, Any]]
) -> Page:
    """Return the runs by machine, and how often a machine, not the code, caused a change."""
    nights = [event for event in events if event["kind"] == "night"]
    aside = [event for event in events if event["kind"] == "set_aside"]
    rows = [_machine(str(host), runs, nights, aside) for host, runs in history.runs.groupby("host")]
    machines = cells_table(rows, _TERMS, empty="No machine yet.")
    table = make_table(MARKS, marks)
    checks = make_table(_CHECKS, _model_series(nights))
    marked = "Comments on runs; marked runs are never deleted."
    sections = [Section("How often was it the machine?", machines)]
    sections += [Section("Which marks are there?", table, marked)] if marks else []
    sections += [Section("How far are predictions off?", checks)] if checks.rows else []
    return Page("Machines", [], sections)


class _ModelSeries(NamedTuple):
    """The errors of an engine of predictions on the nights on which it was checked."""

    command: str
    errors: NDArray[np.float64]


def _model_series(nights: Sequence[Mapping[str, Any]]) -> list[_ModelSeries]:
    by_night: dict[str, list[Mapping[str, Any]]] = {}
    for event in nights:
        by_night.setdefault(str(event["seen"]), []).append(event)
    found = [error for night in sorted(by_night) for error in model_errors(by_night[night])]
    return [
        _ModelSeries(command, np.array([each.error for each in found if each.engine == name]))
        for name, command in COMMANDS.items()
        if any(each.engine == name for each in found)
    ]


_CHECKS = (
    Column("command", lambda series: series.command),
    Column("last check", lambda series: f"{100 * series.errors[-1]:.1f} %",
           "median error of replays of up to ten runs of a night"),
    Column("median of all", lambda series: f"{100 * np.median(series.errors):.1f} %"),
    Column("nights", lambda series: Spark(series.errors[-FAILURE_NIGHTS:], (), 1, (),
           f"{series.command}, {counted(len(series.errors), 'night')}")),
)  # fmt: skip
_TERMS = {
    "expected false": "alarms expected from noise alone in the judged nights",
    "dismissed": "not confirmed when measured again at once",
    "set aside": "attributed to the machine, because the control or most workloads of the night "
    "changed too",
}


def _machine(
    host: str,
    runs: pd.DataFrame,
    nights: Sequence[Mapping[str, Any]],
    aside: Sequence[Mapping[str, Any]],
) -> dict[str, str]:
    own = [night for night in nights if night.get("host") == host]
    mine = [event for event in aside if event.get("host") == host]
    expected = sum(night.get("expected_false_alarms", 0) for night in own)
    return {
        "host": host,
        "runs": str(len(runs)),
        "nights": str(runs["night"].nunique()),
        "environments": ", ".join(sorted(map(str, runs["environment"].unique()))),
        "from": str(runs["started"].min())[:10],
        "to": str(runs["started"].max())[:10],
        "failed runs": str(int((~runs["outcome"].isin(NO_FAILURE)).sum())),
        "nights judged": str(len(own)),
        "alarms": str(sum(int(night.get("n_alarms", 0)) for night in own)),
        "expected false": f"{expected:.2f}",
        "dismissed": str(sum(int(night.get("n_dismissed", 0)) for night in own)),
        "set aside": str(len(mine)),
        "on the nights": ", ".join(sorted({str(event["seen"])[:10] for event in mine})[-10:]),
    }
