"""Forms that write marks; shown only if the server allows marks.

Marks are written by `Store.mark`, as from the command line. Without the permission, neither the
form nor its callback exists.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import panel as pn

from benchkit.analysis.regression.history import SERIES_FIELDS
from benchkit.errors import BenchkitError
from benchkit.show.dashboard.components import components as parts
from benchkit.show.dashboard.state.cache import open_store
from benchkit.store.run import Run

__all__ = ["MARKS_VARIABLE", "mark_run", "mark_series"]

#: Set by `benchkit dashboard --allow-marks`.
MARKS_VARIABLE = "BENCHKIT_ALLOW_MARKS"


def _allowed() -> bool:
    return os.environ.get(MARKS_VARIABLE) == "1"


def mark_run(run: Run) -> list[Any]:
    """Return the form that excludes a run; an empty list if marks are not allowed."""
    if not _allowed():
        return []
    kinds = {"Exclude this run: it tells nothing": ("exclude", {"runs": [run.id]})}
    return _form(kinds, moment="")


def mark_series(about: Mapping[str, Any], metric: str) -> list[Any]:
    """Return the form that accepts a change or ends a history; empty if marks are not allowed.

    Parameters
    ----------
    about : mapping
        The series, by the names in `SERIES_FIELDS`; missing values match all runs.
    metric : str
        The metric shown.
    """
    if not _allowed():
        return []
    workload = str(about["workload"])
    where = {name: about[name] for name in SERIES_FIELDS[1:] if pd.notna(about[name])}
    every = {"workload": workload, "where": where}
    kinds = {
        f"Accept the change of {metric}: known and wanted": ("accept", {**every, "metric": metric}),
        "Bankruptcy: runs before a moment tell nothing about today": ("bankruptcy", every),
        "Exclude all runs before a moment": ("exclude", every),
    }
    return _form(kinds, moment="Moment (ISO 8601, or an age such as 7d)")


def _form(kinds: Mapping[str, tuple[str, dict[str, Any]]], *, moment: str) -> list[Any]:
    kind = pn.widgets.Select(name="Mark", options=list(kinds), width=440)
    reason = pn.widgets.TextInput(name="Reason", placeholder="why", width=300)
    user = str(pn.state.user or "")
    # A logged-in user cannot use another author name.
    author = pn.widgets.TextInput(name="Author", value=user, disabled=bool(user), width=160)
    when = pn.widgets.TextInput(name=moment, placeholder="now", width=290)
    write = pn.widgets.Button(name="Write the mark", button_type="primary", align="end")
    answer = pn.Column(sizing_mode="stretch_width")

    def written(event: Any) -> None:
        texts = [str(reason.value or ""), user or str(author.value or ""), str(when.value or "")]
        answer[:] = [_write(kinds[str(kind.value)], *texts)]

    write.on_click(written)
    fields = [kind, reason, author, *([when] if moment else []), write]
    return [
        parts.heading("Mark", "Nothing is deleted; a mark is applied whenever runs are read."),
        pn.FlexBox(*fields),
        answer,
    ]


def _write(what: tuple[str, dict[str, Any]], reason: str, author: str, when: str) -> Any:
    kind, about = what
    if not reason.strip() or not author.strip():
        return parts.words("A mark needs a reason and an author.", kind="bad")
    moments: dict[str, Callable[[str], dict[str, str]]] = {
        "accept": lambda text: {"at": text} if text else {},
        "bankruptcy": lambda text: {"before": text} if text else {},
        "exclude": lambda text: {} if "runs" in about else {"before": text or "0s"},
    }
    try:
        name = open_store().mark(
            kind, reason=reason.strip(), by=author.strip(), **about, **moments[kind](when.strip())
        )
    except BenchkitError as error:
        return parts.words(str(error), kind="bad")
    return parts.words(
        f"Marked as {kind}: {name}. `benchkit mark undo {name} -m WHY` takes it back.", kind="good"
    )
