"""What happened to a run besides its work: errors with tracebacks, events, logged lines."""

from __future__ import annotations

from typing import Any

import pandas as pd
import panel as pn

from benchkit.show.dashboard import parts
from benchkit.show.plots.busy import worker_names
from benchkit.store.run import Run

__all__ = ["trouble"]

#: Tracebacks that are shown whole; the same error a thousand times tells nothing more.
MOST_TRACEBACKS = 5


def trouble(run: Run) -> Any:
    """Return what went wrong, tracebacks, warnings and all events of the cluster."""
    names = pd.Series(worker_names(run), dtype=object)
    content = [*_wrong(run), *_tracebacks(run, names), *_logs(run), *_events(run, names)]
    return pn.Column(*content, sizing_mode="stretch_width")


def _wrong(run: Run) -> list[Any]:
    found = run.trouble()
    if found.empty:
        return [parts.message("Nothing went wrong", "No error, no lost worker.")]
    found["time (s)"] = found["time (s)"].round(3)
    return [parts.table(found.set_index("what"), "what")]


def _tracebacks(run: Run, names: pd.Series) -> list[Any]:
    content: list[Any] = []
    trace = str(run.tree.attrs.get("traceback") or "")
    if trace:
        content += [parts.heading("Traceback"), parts.source_text(trace)]
    errors = run.errors()
    if errors.empty or "traceback" not in errors:
        return content
    told = errors[errors["traceback"].astype(str) != ""].drop_duplicates("traceback")
    for error in told.head(MOST_TRACEBACKS).itertuples():
        where = f"{error.exception} on worker {names.get(error.worker, '–')}, {error.time:.3f} s"
        content += [
            parts.heading(f"Task {error.key} raised", where),
            parts.source_text(error.traceback),
        ]
    if len(told) > MOST_TRACEBACKS:
        content.append(parts.words(f"{len(told) - MOST_TRACEBACKS} more tracebacks differ."))
    return content


def _logs(run: Run) -> list[Any]:
    logs = run.logs()
    if logs.empty:
        return []
    logs["time"] = logs["time"].round(3)
    shown = logs.rename(columns={"time": "time (s)"}).set_index("server")
    return [
        parts.heading("Warnings of scheduler and workers"),
        parts.table(shown[["time (s)", "level", "worker", "text"]], "server"),
    ]


def _events(run: Run, names: pd.Series) -> list[Any]:
    events = run.events()
    if events.empty:
        return []
    counts = events["topic"].value_counts()
    told = ", ".join(f"{count} × {topic}" for topic, count in counts.items())
    shown = pd.DataFrame(
        {
            "event": events["topic"].to_numpy(),
            "time (s)": events["time"].round(3).to_numpy(),
            "worker": events["worker"].map(names).fillna("–").astype(object).to_numpy(),
            "what": events["message"].to_numpy(),
        }
    )
    return [parts.heading("Events", told), parts.table(shown.set_index("event"), "event")]
