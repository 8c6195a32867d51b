"""Forms that write marks; shown only if the server allows marks.

Marks are written by `Store.mark`, as from the command line. Without the permission, neither the
form nor its callback exists.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pandas as pd
import panel as pn
from panel.viewable import Viewable

from benchkit.analysis.regression.history import SERIES_FIELDS
from benchkit.errors import BenchkitError
from benchkit.show.dashboard.state.cache import open_store
from benchkit.show.render import panel as ui
from benchkit.store.run import Run

#: Set by `benchkit dashboard --allow-marks`.
MARKS_VARIABLE = "BENCHKIT_ALLOW_MARKS"


def _allowed() -> bool:
    return os.environ.get(MARKS_VARIABLE) == "1"


def mark_run(run: Run) -> list[Viewable]:
    """Return the form that excludes a run."""
    if not _allowed():
        return []
    return _form({"Exclude this run: its values are not valid": ("exclude", {"runs": [run.id]})})


def mark_series(about: Mapping[str, Any], metric: str) -> list[Viewable]:
    """Return the form that accepts a change or ends a history."""
    if not _allowed():
        return []
    workload = str(about["workload"])
    where = {name: about[name] for name in SERIES_FIELDS[1:] if pd.notna(about[name])}
    series = {"workload": workload, "where": where}
    kinds = {
        f"Accept the change of {metric}: intended": ("accept", {**series, "metric": metric}),
        "Bankruptcy: a new history begins at a time": ("bankruptcy", series),
        "Exclude all runs before a time": ("exclude", series),
    }
    return _form(kinds, time="Time (ISO 8601, or an age such as 7d)")


def _form(kinds: Mapping[str, tuple[str, dict[str, Any]]], *, time: str = "") -> list[Viewable]:
    """Return the form; `time` is the label of the field for a time, if there is one."""
    kind = pn.widgets.Select(name="Mark", options=list(kinds), width=440)
    reason = pn.widgets.TextInput(name="Reason", placeholder="why", width=300)
    user = str(pn.state.user or "")
    # A logged-in user cannot use another author name.
    author = pn.widgets.TextInput(name="Author", value=user, disabled=bool(user), width=160)
    when = pn.widgets.TextInput(name=time, placeholder="now", width=290)
    button = pn.widgets.Button(name="Write the mark", button_type="primary", align="end")
    result = ui.column()

    def write(event: Any) -> None:
        texts = [str(reason.value or ""), user or str(author.value or ""), str(when.value or "")]
        result[:] = [_write(*kinds[str(kind.value)], *(text.strip() for text in texts))]

    button.on_click(write)
    return [
        ui.heading("Mark", "A mark deletes nothing; it is applied when runs are read."),
        pn.FlexBox(kind, reason, author, *([when] if time else []), button),
        result,
    ]


def _write(
    kind: str, about: Mapping[str, Any], reason: str, author: str, when: str
) -> pn.pane.HTML:
    """Write a mark and return a message about it."""
    if not reason or not author:
        return ui.paragraph("A mark needs a reason and an author.", kind="bad")
    times: dict[str, str] = {}
    if kind == "exclude" and "runs" not in about:
        times = {"before": when or "0s"}
    elif when:
        times = {"before" if kind == "bankruptcy" else "at": when}
    try:
        name = open_store().mark(kind, reason=reason, by=author, **about, **times)
    except BenchkitError as error:
        return ui.paragraph(str(error), kind="bad")
    return ui.paragraph(
        f"Marked as {kind}: {name}. Undo: `benchkit mark undo {name} -m WHY`.", kind="good"
    )
