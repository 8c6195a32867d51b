"""Problems of a run: errors with tracebacks, cluster events and log lines."""

from __future__ import annotations

import re

import pandas as pd
import panel as pn
from panel.viewable import Viewable

from benchkit.formatting import MISSING
from benchkit.show.dashboard.components import tables, ui
from benchkit.show.event_text import format_event
from benchkit.store.run import Run, worker_names

__all__ = ["problems"]

#: Number of complete tracebacks; repeating the same error gives no further information.
MAX_TRACEBACKS = 5
#: Prefix of Dask's log lines; other columns of the table contain its values.
_LINE_HEAD = re.compile(r"^[\d-]+ [\d:,.]+ - (?:distributed\.)?(?P<logger>[\w.-]+) - [A-Z]+ - ")


def problems(run: Run) -> pn.Column:
    """Return errors, tracebacks, warnings and all events of the cluster."""
    names = pd.Series(worker_names(run.tree), dtype=object)
    return ui.column(
        ui.paragraph("Of the whole run, for any window and task group."),
        _summary(run),
        *_tracebacks(run, names),
        *_logs(run, names),
        *_events(run, names),
    )


def _summary(run: Run) -> Viewable:
    frame = run.problems()
    if frame.empty:
        return ui.message("No problems", "No error, no lost worker.")
    frame["time (s)"] = frame["time (s)"].round(3)
    frame["message"] = frame["message"].map(format_event)
    return tables.table(frame.set_index("what"), "what", long="message")


def _tracebacks(run: Run, names: pd.Series) -> list[Viewable]:
    content: list[Viewable] = []
    trace = str(run.tree.attrs.get("traceback") or "")
    if trace:
        content += [ui.heading("Traceback"), ui.code_block(trace)]
    errors = run.errors()
    if errors.empty or "traceback" not in errors:
        return content
    distinct = errors[errors["traceback"].astype(str) != ""].drop_duplicates("traceback")
    for error in distinct.head(MAX_TRACEBACKS).itertuples():
        worker = names.get(error.worker, MISSING)
        where = f"{error.exception} on worker {worker}, {error.time:.3f} s"
        content += [
            ui.heading(f"Task {error.key} raised", where),
            ui.code_block(error.traceback),
        ]
    if len(distinct) > MAX_TRACEBACKS:
        n_hidden = len(distinct) - MAX_TRACEBACKS
        content.append(ui.paragraph(f"{n_hidden} other tracebacks are not shown."))
    return content


def _logs(run: Run, names: pd.Series) -> list[Viewable]:
    logs = run.logs()
    if logs.empty:
        return []
    logs["time"] = logs["time"].round(3)
    logs["worker"] = logs["worker"].map(names).fillna(MISSING).astype(object)
    logs["text"] = [_LINE_HEAD.sub(r"\g<logger>: ", str(text)) for text in logs["text"]]
    shown = logs.rename(columns={"time": "time (s)"}).set_index("server")
    return [
        ui.heading("Warnings of scheduler and workers"),
        tables.table(shown[["time (s)", "level", "worker", "text"]], "server", long="text"),
    ]


def _events(run: Run, names: pd.Series) -> list[Viewable]:
    events = run.events()
    if events.empty:
        return []
    counts = events["topic"].value_counts()
    summary = ", ".join(f"{count} × {topic}" for topic, count in counts.items())
    shown = pd.DataFrame(
        {
            "event": events["topic"].to_numpy(),
            "time (s)": events["time"].round(3).to_numpy(),
            "worker": events["worker"].map(names).fillna(MISSING).astype(object).to_numpy(),
            "what": events["message"].map(format_event).to_numpy(),
        }
    )
    shown = shown.set_index("event")
    return [ui.heading("Events", summary), tables.table(shown, "event", long="what")]
