"""Matrices of the transfers between pairs of workers, and of their difference between two runs.

Input: runs; output: a Bokeh figure.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from bokeh.plotting import figure
from numpy.typing import NDArray

from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.formatting import MIB, format_bytes, format_quantity
from benchkit.show.plots.base import empty_figure, to_tree
from benchkit.show.plots.matrix import Cells, Matrix, Tips
from benchkit.store.run import Run, worker_names

__all__ = ["TransferMatrix", "transfer_difference", "transfer_matrix"]

TITLE = "How much did workers send to each other?"
#: Maximum number of rows: with more workers, neighbours share a row. An image of 300 x 300 pairs
#: with its tooltips is 1.8 MB of a page.
MAX_ROWS = 300
#: Name of the receiver of results that a client fetched.
CLIENT = "client"
#: Value of a cell -> its unit, and the divisor from the recorded unit.
UNITS = {
    "bytes": ("MiB", MIB), "bytes_compressed": ("MiB on the wire", MIB),
    "count": ("transfers", 1), "seconds": ("s", 1),
}  # fmt: skip
_TIPS = (
    ("transfers", "@count{0,0}"),
    ("bytes", "@mib{0,0.0} MiB, @wire{0,0.0} on the wire"),
    ("duration", "@seconds{0.00} s"),
)
_DIFFERENCE_TIPS = (
    ("transfers", "@count{+0,0}"),
    ("bytes", "@mib{+0,0.0} MiB, @wire{+0,0.0} on the wire"),
    ("duration", "@seconds{+0.00} s"),
)
_WINDOW_TIPS = (("transfers", "@count{0,0}"), ("duration", "@seconds{0.00} s"))


def transfer_matrix(run: Run | xr.DataTree, value: str = "bytes") -> figure:
    """Draw transfers of task results, senders down, receivers across.

    Parameters
    ----------
    run : Run or DataTree
        A run.
    value : {"bytes", "bytes_compressed", "count", "seconds"}
        The value of a cell.

    Returns
    -------
    figure
        One cell per pair. Hatched (blank with hundreds of workers): no data from either end.
    """
    return TransferMatrix(run, value=value).figure


class TransferMatrix:
    """Figure of the transfers of a run within a time window.

    Parameters
    ----------
    run : Run or DataTree
        A run.
    timeline : TaskTimeline, optional
        Tasks of the run; without them only the whole run can be drawn.
    value : {"bytes", "bytes_compressed", "count", "seconds"}
        The value of a cell when the whole run is drawn.

    Attributes
    ----------
    figure : figure
        The figure; `show_window` draws another time window into it.
    """

    def __init__(
        self,
        run: Run | xr.DataTree,
        timeline: TaskTimeline | None = None,
        *,
        value: str = "bytes",
    ) -> None:
        self._timeline, self._value = timeline, value
        self._matrix: Matrix | None = None
        self._rows: list[int] = []
        self._names: list[str] = []
        data = _transfers(run)
        if data is None:
            self.figure = empty_figure(TITLE)
            return
        self._rows, self._names = _rows(_names(run, data))
        self._whole = _cells(data, self._rows, len(self._names))
        self._matrix = Matrix(*self._contents(None), names=self._names)
        self.figure = self._matrix.figure

    @property
    def has_windows(self) -> bool:
        """Whether the times at which tasks fetched their inputs were recorded."""
        return (
            self._matrix is not None and self._timeline is not None and self._timeline.has_transfers
        )

    def show_window(self, window: tuple[float, float] | None, value: str = "") -> None:
        """Draw the transfers within a time window in s; None is the whole run.

        A window has counts and seconds of fetches between workers only; bytes are recorded for the
        whole run.

        Parameters
        ----------
        window : tuple of float or None
            First and last time in s after clock on.
        value : {"", "bytes", "bytes_compressed", "count", "seconds"}
            The value of a cell when the whole run is drawn; "" keeps the current value.
        """
        self._value = value or self._value
        if self._matrix is not None:
            title, cells, unit, tips = self._contents(window)
            self._matrix.show(title, cells, unit, tips)

    def _contents(self, window: tuple[float, float] | None) -> tuple[str, Cells, str, Tips]:
        """Return the title, the cells, their unit and the tooltips of a pair."""
        if window is None or not self.has_windows:
            unit, _ = UNITS[self._value]
            total = float(np.nansum(self._whole[self._value]))
            title = f"{TITLE} ({_total_text(total, unit)} in total)"
            return title, _to_units(self._whole, self._value), unit, _TIPS
        assert self._timeline is not None
        # Fetches of clients are recorded for the whole run only; -1 here is an unknown worker.
        is_worker = np.array([name != CLIENT for name in self._names])
        empty = np.where(is_worker[:, None] & is_worker, 0.0, np.nan)
        cells = {name: empty.copy() for name in ("count", "seconds")}
        fetches = self._timeline.transfers(window)
        known = (fetches[["source", "destination"]] >= 0).all(axis=1)
        row_of = np.array(self._rows, int)
        ends = [row_of[fetches.loc[known, end]] for end in ("source", "destination")]
        for name, cell in cells.items():
            np.add.at(cell, tuple(ends), fetches.loc[known, name])
        value = self._value if self._value == "count" else "seconds"
        unit, _ = UNITS[value]
        n_fetches = int(np.nansum(cells["count"]))
        title = f"How much did workers fetch within the window? ({n_fetches:,} fetches)"
        return title, {"value": cells[value], **cells}, unit, _WINDOW_TIPS


def transfer_difference(
    a: Run | xr.DataTree,
    b: Run | xr.DataTree,
    value: str = "bytes",
) -> figure:
    """Draw the difference of the transfers between workers of two runs.

    Parameters
    ----------
    a, b : Run or DataTree
        Runs. Workers are matched by name; if no name is in both runs, as on clusters with unique
        names, they are matched by position.
    value : {"bytes", "bytes_compressed", "count", "seconds"}
        The value of a cell, B − A.

    Returns
    -------
    figure
        One cell per pair; a worker that is missing in a run counts as 0 there.
    """
    title = "Which workers sent more or less in B than in A?"
    data, workers = [], []
    for run, name in ((a, "A"), (b, "B")):
        transfers = _transfers(run)
        if transfers is None:
            return empty_figure(title, f"No transfers were recorded for {name}.")
        data.append(transfers)
        workers.append(_names(run, transfers))
    if not (set(workers[0]) & set(workers[1])) - {CLIENT}:
        workers = [_numbered(side) for side in workers]
    both = list(dict.fromkeys([*workers[0], *workers[1]]))
    both.sort(key=lambda name: name == CLIENT)  # last, as in each run
    shared, names = _rows(both)
    row_of = dict(zip(both, shared, strict=True))
    sides = [
        _cells(each, [row_of[name] for name in own], len(names))
        for own, each in zip(workers, data, strict=True)
    ]
    difference = {name: sides[1][name] - sides[0][name] for name in sides[0]}
    unit, _ = UNITS[value]
    total = float(np.nansum(difference[value]))
    sign = "+" if total > 0 else "−" if total else ""
    title = f"{title} ({sign}{_total_text(abs(total), unit)} in total)"
    cells = _to_units(difference, value)
    return Matrix(title, cells, unit, _DIFFERENCE_TIPS, names=names, signed=True).figure


def _transfers(run: Run | xr.DataTree) -> xr.Dataset | None:
    """Return the transfers of a run; None if no end of any transfer reported."""
    tree = to_tree(run)
    if "transfers" not in tree.children:
        return None
    data = Run(tree).transfers()
    n_workers = tree["workers"].sizes["worker"]
    silent = not data.sizes["pair"] and data.sizes["incomplete_report"] == n_workers
    return None if silent else data


def _names(run: Run | xr.DataTree, data: xr.Dataset) -> list[str]:
    """Return the names of the workers, and that of the clients if they fetched."""
    return [*worker_names(to_tree(run)), *([CLIENT] if _has_client(data) else [])]


def _has_client(data: xr.Dataset) -> bool:
    return bool((data["source"].values < 0).any() or (data["destination"].values < 0).any())


def _rows(names: list[str]) -> tuple[list[int], list[str]]:
    """Return the row of each name in the matrix, and the names of the rows.

    Neighbours share a row if there are many workers; the client has its own.
    """
    workers = [name for name in names if name != CLIENT]
    step = max(1, -(-len(workers) // MAX_ROWS))
    blocks = [workers[first : first + step] for first in range(0, len(workers), step)]
    rows = [place // step for place in range(len(workers))]
    labels = [block[0] if len(block) == 1 else f"{block[0]} to {block[-1]}" for block in blocks]
    if CLIENT in names:
        return [*rows, len(labels)], [*labels, CLIENT]
    return rows, labels


def _cells(data: xr.Dataset, rows: list[int], n_rows: int) -> dict[str, NDArray[np.float64]]:
    """Return sums by pair of rows, in which `rows` is the row of each worker, then the client.

    NaN if no worker of the pair reported. A row without workers has 0: they are in the other run.
    """
    places = np.array(rows, int)
    reported = np.ones(len(rows), bool)
    reported[data["incomplete"].values] = False
    if _has_client(data):
        reported[-1] = False
    known = np.ones(n_rows, bool)
    known[places] = False
    known[places[reported]] = True
    source, destination = (places[data[end].values] for end in ("source", "destination"))
    pair = source * n_rows + destination

    def sums(weights: NDArray[Any]) -> NDArray[np.float64]:
        flat = np.bincount(pair, weights.astype(float), n_rows**2).astype(float)
        return flat.reshape(n_rows, n_rows)

    cells = {}
    for name in UNITS:
        values = data[name].values.astype(float)
        finite = np.isfinite(values)
        # Only senders know the bytes on the wire.
        either = known[:, None] | (known & (name != "bytes_compressed"))
        unknown = (~either | (sums(~finite) > 0)) & (sums(finite) == 0)
        cells[name] = np.where(unknown, np.nan, sums(np.where(finite, values, 0.0)))
    return cells


def _to_units(cells: dict[str, NDArray[np.float64]], value: str) -> dict[str, NDArray[np.float64]]:
    """Return the values and tooltip columns of the cells of whole runs, in display units."""
    return {
        "value": cells[value] / UNITS[value][1],
        "count": cells["count"],
        "mib": cells["bytes"] / MIB,
        "wire": cells["bytes_compressed"] / MIB,
        "seconds": cells["seconds"],
    }


def _numbered(names: list[str]) -> list[str]:
    return [name if name == CLIENT else f"worker {place}" for place, name in enumerate(names)]


def _total_text(total: float, unit: str) -> str:
    if not unit.startswith("MiB"):
        return format_quantity(total, unit)
    return format_bytes(total) + unit.removeprefix("MiB")
