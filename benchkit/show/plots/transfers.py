"""Matrices of the transfers between pairs of workers, and of their difference between two runs.

Input: runs; output: a Bokeh figure.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import xarray as xr
from bokeh.plotting import figure
from numpy.typing import NDArray

from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.formatting import MIB, format_bytes, format_quantity
from benchkit.show.plots.base import empty_figure, read_group, to_tree
from benchkit.show.plots.matrix import Cells, Matrix, Tips
from benchkit.store.run import Run
from benchkit.store.run_tables import worker_names

__all__ = ["TransferMatrix", "transfer_difference", "transfer_matrix"]

TITLE = "How much did workers send to each other?"
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
        self._indices: list[int] = []
        data = read_group(run, "transfers", "source")
        if data is None:
            self.figure = empty_figure(TITLE)
            return
        self._indices = [int(index) for index in data["source"].values]
        self._whole = _cells(data)
        self._matrix = Matrix(*self._contents(None), names=_worker_names(run, self._indices))
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
        places = {index: place for place, index in enumerate(self._indices) if index >= 0}
        of_worker = np.array(self._indices) >= 0
        empty = np.where(of_worker[:, None] & of_worker, 0.0, np.nan)
        cells = {name: empty.copy() for name in ("count", "seconds")}
        fetches = self._timeline.transfers(window)
        known = fetches["source"].isin(places) & fetches["destination"].isin(places)
        ends = [fetches.loc[known, end].map(places) for end in ("source", "destination")]
        for name, cell in cells.items():
            np.add.at(cell, tuple(end.to_numpy(int) for end in ends), fetches.loc[known, name])
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
        transfers = read_group(run, "transfers", "source")
        if transfers is None:
            return empty_figure(title, f"No transfers were recorded for {name}.")
        data.append(transfers)
        workers.append(_worker_names(run, transfers["source"].values))
    if not (set(workers[0]) & set(workers[1])) - {CLIENT}:
        workers = [_numbered(side) for side in workers]
    both = list(dict.fromkeys([*workers[0], *workers[1]]))
    both.sort(key=lambda name: name == CLIENT)  # last, as in each run
    sides = [
        {name: _expand(cell, own, both) for name, cell in _cells(each).items()}
        for own, each in zip(workers, data, strict=True)
    ]
    difference = {name: sides[1][name] - sides[0][name] for name in sides[0]}
    unit, _ = UNITS[value]
    total = float(np.nansum(difference[value]))
    sign = "+" if total > 0 else "−" if total else ""
    title = f"{title} ({sign}{_total_text(abs(total), unit)} in total)"
    cells = _to_units(difference, value)
    return Matrix(title, cells, unit, _DIFFERENCE_TIPS, names=both, signed=True).figure


def _cells(data: xr.Dataset) -> dict[str, NDArray[np.float64]]:
    return {name: data[name].values.astype(float) for name in UNITS}


def _to_units(cells: dict[str, NDArray[np.float64]], value: str) -> dict[str, NDArray[np.float64]]:
    """Return the values and tooltip columns of the cells of whole runs, in display units."""
    return {
        "value": cells[value] / UNITS[value][1],
        "count": cells["count"],
        "mib": cells["bytes"] / MIB,
        "wire": cells["bytes_compressed"] / MIB,
        "seconds": cells["seconds"],
    }


def _expand(cell: NDArray[np.float64], own: list[str], both: list[str]) -> NDArray[np.float64]:
    """Return a matrix over the names of both runs; workers missing in this run get 0."""
    places = [both.index(name) for name in own]
    matrix = np.zeros((len(both), len(both)))
    matrix[np.ix_(places, places)] = cell
    return matrix


def _numbered(names: list[str]) -> list[str]:
    return [name if name == CLIENT else f"worker {place}" for place, name in enumerate(names)]


def _total_text(total: float, unit: str) -> str:
    if not unit.startswith("MiB"):
        return format_quantity(total, unit)
    return format_bytes(total) + unit.removeprefix("MiB")


def _worker_names(run: Run | xr.DataTree, indices: Iterable[int]) -> list[str]:
    """Return the names of workers by index; negative indices are clients."""
    names = worker_names(to_tree(run))
    return [CLIENT if i < 0 else names[i] if i < len(names) else str(i) for i in indices]
