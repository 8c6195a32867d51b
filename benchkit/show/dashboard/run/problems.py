"""Problems of a run: errors with tracebacks, cluster events and log lines."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import panel as pn

from benchkit.formatting import MISSING
from benchkit.show.dashboard.components import components as parts
from benchkit.show.event_text import format_event
from benchkit.show.plots.base import worker_names
from benchkit.store.run import Run

__all__ = ["trouble"]

#: Number of complete tracebacks; repeating the same error gives no further information.
MOST_TRACEBACKS = 5
#: Prefix of Dask's log lines; other columns of the table contain its values.
_LINE_HEAD = re.compile(r"^[\d-]+ [\d:,.]+ - (?:distributed\.)?(?P<logger>[\w.-]+) - [A-Z]+ - ")


def trouble(run: Run) -> Any:
    """Return errors, tracebacks, warnings and all events of the cluster."""
    names = pd.Series(worker_names(run.tree), dtype=object)
    content = [
        parts.words("Of the whole run, whatever the window and the task group."),
        *_wrong(run), *_tracebacks(run, names), *_logs(run, names), *_events(run, names),
    ]  # fmt: skip
    return pn.Column(*content, sizing_mode="stretch_width")


def _wrong(run: Run) -> list[Any]:
    found = run.problems()
    if found.empty:
        return [parts.message("Nothing went wrong", "No error, no lost worker.")]
    found["time (s)"] = found["time (s)"].round(3)
    found["message"] = found["message"].map(format_event)
    return [parts.table(found.set_index("what"), "what", long="message")]


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


def _logs(run: Run, names: pd.Series) -> list[Any]:
    logs = run.logs()
    if logs.empty:
        return []
    logs["time"] = logs["time"].round(3)
    logs["worker"] = logs["worker"].map(names).fillna(MISSING).astype(object)
    logs["text"] = [_LINE_HEAD.sub(r"\g<logger>: ", str(text)) for text in logs["text"]]
    shown = logs.rename(columns={"time": "time (s)"}).set_index("server")
    return [
        parts.heading("Warnings of scheduler and workers"),
        parts.table(shown[["time (s)", "level", "worker", "text"]], "server", long="text"),
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
            "what": events["message"].map(format_event).to_numpy(),
        }
    )
    shown = shown.set_index("event")
    return [parts.heading("Events", told), parts.table(shown, "event", long="what")]
