"""Transfers between workers of a run: matrix, fetches of a group, P2P shuffles, spans."""

from __future__ import annotations

from typing import Any

import pandas as pd
import panel as pn

from benchkit.formatting import format_quantity, format_seconds, short_names
from benchkit.show.dashboard.components import components as parts
from benchkit.show.dashboard.state.time_window import NO_TIMES, Window
from benchkit.show.escape import escape
from benchkit.show.plots.base import worker_names
from benchkit.show.plots.transfers import TransferMatrix
from benchkit.store.run import Run

__all__ = ["transfers"]

#: Largest number of rows in the table of a group's transfers.
MOST_PAIRS = 500
VALUES = {
    "bytes": "bytes", "bytes on the wire": "bytes_compressed", "number": "count",
    "time": "seconds",
}  # fmt: skip
_SPAN_TITLES = {
    "enqueued": "enqueued",
    "start": "first task began",
    "stop": "last task ended",
    "active_cpu_seconds": "thread-seconds available",
}
OF_WINDOW = (
    "Within a window it is known how often workers fetched and how long that took; bytes are known "
    "of the whole run only."
)
OF_WHOLE = "The matrix is of the whole run, whatever the window: when tasks fetched is not known."


def transfers(window: Window) -> Any:
    """Return the transfer matrix within the window, and the other transfers between workers."""
    run = window.run
    pairs = pn.Column(sizing_mode="stretch_width", margin=0)

    def show() -> None:
        pairs[:] = _pairs(window) if window.group else []

    show()
    window.follow(show)
    content: list[Any] = [pairs, *_matrix(window), *_shuffles(run)]
    spans = run.spans()
    if len(spans):
        shown = pd.DataFrame({"span": spans["name"]})
        for name, title in _SPAN_TITLES.items():
            shown[title] = spans[name].map(format_seconds)
        told = parts.table(shown.set_index("span"), "span", sortable=False)
        content += [parts.heading("Spans", "Times are since the clock was on."), told]
    return pn.Column(*content, sizing_mode="stretch_width")


def _shuffles(run: Run) -> list[Any]:
    """Return the fine metrics of P2P shuffles, which tasks and transfers do not contain."""
    fine = run.fine_metrics()
    if fine.empty or not (mine := fine["context"] == "p2p").any():
        return []
    sums = fine[mine].groupby(["activity", "prefix", "unit"], sort=True)["value"].sum().unstack()
    units = {"seconds": "s", "bytes": "B", "count": "1"}
    known = [name for name in units if name in sums]
    cells = [
        [
            escape(activity),
            escape(where),
            *(format_quantity(row[name], units[name]) for name in known),
        ]
        for (activity, where), row in sums.iterrows()
    ]
    return [
        parts.heading("P2P shuffles", "Summed over all workers and the whole run."),
        parts.rows(["activity", "where", *known], cells),
    ]


def _pairs(window: Window) -> list[Any]:
    """Return the transfers to tasks of the selected group within the window, by worker pair."""
    title = f"Fetched for {short_names(window.within.groups)[window.group]}"
    if not window.has_times:
        return [parts.heading(title, NO_TIMES)]
    found = window.within.transfers_of(window.group, window.part)
    if found.empty:
        return [parts.heading(title, "Nothing was fetched for its tasks within the window.")]
    names = pd.Series(worker_names(window.run.tree), dtype=object)
    for end in ("source", "destination"):
        found[end] = found[end].map(names).fillna("–").astype(object)
    found = found.rename(columns={"source": "from worker", "destination": "to worker"})
    found = found.rename(columns={"count": "fetches", "seconds": "took (s)"}).round(4)
    told = "Within the window."
    if len(found) > MOST_PAIRS:
        told += f" The first {MOST_PAIRS} of {len(found)} pairs of workers."
    shown = found.head(MOST_PAIRS).set_index("from worker")
    return [parts.heading(title, told), parts.table(shown, "from worker")]


def _matrix(window: Window) -> list[Any]:
    """Return the transfer matrix with a select for the cell value."""
    matrix = TransferMatrix(window.run.tree, window.within)
    asked = window.words["cells"]
    value = pn.widgets.Select(
        name="Cells show", options=VALUES, value=asked if asked in VALUES.values() else "bytes",
        width=200,
    )  # fmt: skip

    def show() -> None:
        matrix.show_window(window.part, str(value.value))

    def chosen(event: Any) -> None:
        show()
        window.note(cells="" if event.new == "bytes" else event.new)

    show()
    window.follow(show)
    value.param.watch(chosen, "value")
    told = parts.words(OF_WINDOW if matrix.has_windows else OF_WHOLE)
    return [value, parts.figure(matrix.figure), told]
