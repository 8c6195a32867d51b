"""Transfers between workers of a run: matrix, fetches of a group, P2P shuffles, spans."""

from __future__ import annotations

from typing import Any

import pandas as pd
import panel as pn
from panel.viewable import Viewable

from benchkit.formatting import MISSING, format_quantity, format_seconds, short_names
from benchkit.show.dashboard.components import tables
from benchkit.show.dashboard.components.widgets import select
from benchkit.show.dashboard.state.time_window import NO_TIMES, Window
from benchkit.show.plots.transfers import TransferMatrix
from benchkit.show.render import panel as ui
from benchkit.store.run import Run, worker_names

#: Largest number of rows in the table of a group's transfers.
MAX_PAIRS = 500
#: Label of a cell value -> value in the address.
VALUES = {
    "bytes": "bytes", "bytes on the wire": "bytes_compressed", "number": "count",
    "time": "seconds",
}  # fmt: skip
_SPAN_TITLES = {
    "enqueued": "enqueued",
    "start": "first task started",
    "stop": "last task stopped",
    "active_cpu_seconds": "thread-seconds available",
}
_WINDOW_NOTE = (
    "Number and time of fetches are those within the window; bytes are recorded for the whole run "
    "only."
)
_WHOLE_NOTE = "The matrix is of the whole run, for any window: fetch times were not recorded."


def transfers(window: Window) -> pn.Column:
    """Return the transfer matrix within the window, and the other transfers between workers."""
    run = window.run
    pairs = ui.column(margin=0)

    def show() -> None:
        pairs[:] = _pairs(window) if window.group else []

    window.subscribe(show, now=True)
    content = [pairs, *_matrix(window), *_shuffles(run)]
    spans = run.spans()
    if len(spans):
        frame = pd.DataFrame({"span": spans["name"]})
        for name, title in _SPAN_TITLES.items():
            frame[title] = spans[name].map(format_seconds)
        content += [
            ui.heading("Spans", "Times are seconds since the start of the measurement."),
            tables.table(frame.set_index("span"), "span", sortable=False),
        ]
    return ui.column(*content)


def _shuffles(run: Run) -> list[Viewable]:
    """Return the fine metrics of P2P shuffles, which tasks and transfers do not contain."""
    fine = run.fine_metrics()
    if fine.empty or not (is_p2p := fine["context"] == "p2p").any():
        return []
    sums = fine[is_p2p].groupby(["activity", "prefix", "unit"], sort=True)["value"].sum().unstack()
    units = {"seconds": "s", "bytes": "B", "count": "1"}
    names = [name for name in units if name in sums]
    cells = [
        [activity, prefix, *(format_quantity(row[name], units[name]) for name in names)]
        for (activity, prefix), row in sums.iterrows()
    ]
    return [
        ui.heading("P2P shuffles", "Sums over all workers and the whole run."),
        tables.html_table(["activity", "where", *names], cells),
    ]


def _pairs(window: Window) -> list[Viewable]:
    """Return the transfers to tasks of the selected group within the window, by worker pair."""
    title = f"Fetched for {short_names(window.timeline.groups)[window.group]}"
    if not window.has_times:
        return [ui.heading(title, NO_TIMES)]
    pairs = window.timeline.transfers_of(window.group, window.part)
    if pairs.empty:
        return [ui.heading(title, "Its tasks fetched nothing within the window.")]
    names = pd.Series(worker_names(window.run.tree), dtype=object)
    for end in ("source", "destination"):
        pairs[end] = pairs[end].map(names).fillna(MISSING).astype(object)
    pairs = pairs.rename(columns={"source": "from worker", "destination": "to worker"})
    pairs = pairs.rename(columns={"count": "fetches", "seconds": "time (s)"}).round(4)
    below = "Within the window."
    if len(pairs) > MAX_PAIRS:
        below += f" The first {MAX_PAIRS} of {len(pairs)} pairs of workers."
    frame = pairs.head(MAX_PAIRS).set_index("from worker")
    return [ui.heading(title, below), tables.table(frame, "from worker")]


def _matrix(window: Window) -> list[Viewable]:
    """Return the transfer matrix with a select for the cell value."""
    matrix = TransferMatrix(window.run.tree, window.timeline)
    value = select("Cells show", VALUES, window.options["cells"], width=200)

    def show() -> None:
        matrix.show_window(window.part, str(value.value))

    def change_value(event: Any) -> None:
        show()
        window.set_options(cells="" if event.new == "bytes" else event.new)

    window.subscribe(show, now=True)
    value.param.watch(change_value, "value")
    note = ui.paragraph(_WINDOW_NOTE if matrix.has_windows else _WHOLE_NOTE)
    return [value, ui.figure(matrix.figure), note]
