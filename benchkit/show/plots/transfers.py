"""Matrices of the transfers between pairs of workers, and of their difference between two runs.

Input: DataTrees; output: a Bokeh figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from bokeh.plotting import figure
from numpy.typing import NDArray

from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.formatting import MIB, format_bytes, format_quantity
from benchkit.show.plots.base import empty_figure, has, part, to_tree, worker_names
from benchkit.show.plots.matrix import Matrix
from benchkit.store.run import Run

__all__ = ["TransferMatrix", "transfer_difference", "transfer_matrix"]

TITLE = "Who sent how much to whom?"
CLIENT = "client"
#: Value of a cell -> its unit, and the divisor from the recorded unit.
UNITS = {
    "bytes": ("MiB", MIB), "bytes_compressed": ("MiB on the wire", MIB),
    "count": ("transfers", 1), "seconds": ("s", 1),
}  # fmt: skip
_TIPS = (
    ("transfers", "@count{0,0}"),
    ("bytes", "@mib{0,0.0} MiB, @wire{0,0.0} on the wire"),
    ("took", "@seconds{0.00} s"),
)
_MORE_TIPS = (
    ("transfers", "@count{+0,0}"),
    ("bytes", "@mib{+0,0.0} MiB, @wire{+0,0.0} on the wire"),
    ("took", "@seconds{+0.00} s"),
)
_WINDOW_TIPS = (("transfers", "@count{0,0}"), ("took", "@seconds{0.00} s"))


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
    tree = to_tree(run)
    return TransferMatrix(tree, value=value).figure


class TransferMatrix:
    """Figure of the transfers of a run within a time window.

    Parameters
    ----------
    tree : DataTree
        A run.
    within : TaskTimeline, optional
        Tasks of the run; without them only the whole run can be drawn.
    value : {"bytes", "bytes_compressed", "count", "seconds"}
        The value of a cell when the whole run is drawn.

    Attributes
    ----------
    figure : figure
        The figure; `show_window` draws another time window into it.
    """

    def __init__(
        self, tree: xr.DataTree, within: TaskTimeline | None = None, *, value: str = "bytes"
    ) -> None:
        self._within, self._value = within, value
        self._matrix: Matrix | None = None
        self._indices: list[int] = []
        if not has(tree, "transfers", "source"):
            self.figure = empty_figure(TITLE)
            return
        data = part(tree, "transfers")
        self._indices = [int(index) for index in data["source"].values]
        self._whole = _cells(data)
        self._matrix = Matrix(*self._drawn(None), names=_names(tree, self._indices))
        self.figure = self._matrix.figure

    @property
    def has_windows(self) -> bool:
        """Whether the times at which tasks fetched their inputs were recorded."""
        return self._matrix is not None and self._within is not None and self._within.has_moves

    def show_window(self, window: tuple[float, float] | None, value: str = "") -> None:
        """Draw the transfers within a time window in s; None is the whole run.

        A window has counts and seconds of fetches between workers only; bytes are recorded for the
        whole run.
        """
        self._value = value or self._value
        if self._matrix is not None:
            title, cells, unit, tips = self._drawn(window)
            self._matrix.show(title, cells, unit, tips)

    def _drawn(self, window: tuple[float, float] | None) -> tuple[str, dict[str, Any], str, Any]:
        """Return the title, the cells, their unit and the tooltips of a pair."""
        if window is None or not self.has_windows:
            unit, _ = UNITS[self._value]
            total = float(np.nansum(self._whole[self._value]))
            title = f"{TITLE} ({_in_all(total, unit)} in all)"
            return title, _shown(self._whole, self._value), unit, _TIPS
        assert self._within is not None
        # Fetches of clients are recorded for the whole run only; -1 here is an unknown worker.
        places = {index: place for place, index in enumerate(self._indices) if index >= 0}
        of_worker = np.array(self._indices) >= 0
        empty = np.where(of_worker[:, None] & of_worker, 0.0, np.nan)
        cells = {name: empty.copy() for name in ("count", "seconds")}
        found = self._within.transfers(window)
        known = found["source"].isin(places) & found["destination"].isin(places)
        ends = [found.loc[known, end].map(places) for end in ("source", "destination")]
        for name, cell in cells.items():
            np.add.at(cell, tuple(end.to_numpy(int) for end in ends), found.loc[known, name])
        value = self._value if self._value == "count" else "seconds"
        unit, _ = UNITS[value]
        n_fetches = int(np.nansum(cells["count"]))
        title = f"Who fetched from whom within the window? ({n_fetches:,} fetches)"
        return title, {"value": cells[value], **cells}, unit, _WINDOW_TIPS


def transfer_difference(
    a: xr.DataTree, b: xr.DataTree, value: str = "bytes", *, names: Sequence[str] = ("A", "B")
) -> Any:
    """Draw the difference of the transfers between workers of two runs.

    Parameters
    ----------
    a, b : DataTree
        Runs. Workers are matched by name; if no name is in both runs, as on clusters with unique
        names, they are matched by position.
    value : {"bytes", "bytes_compressed", "count", "seconds"}
        The value of a cell, B − A.
    names : sequence of str, default ("A", "B")
        Names of the runs.

    Returns
    -------
    figure
        One cell per pair; a worker that is missing in a run counts as 0 there.
    """
    first, second = names
    title = f"Who sent more or less to whom in {second} than in {first}?"
    for tree, name in ((a, first), (b, second)):
        if not has(tree, "transfers", "source"):
            return empty_figure(title, f"Of {name} no transfers were recorded.")
    data = [part(tree, "transfers") for tree in (a, b)]
    workers = [_names(tree, each["source"].values) for tree, each in zip((a, b), data, strict=True)]
    if not (set(workers[0]) & set(workers[1])) - {CLIENT}:
        workers = [_numbered(side) for side in workers]
    both = list(dict.fromkeys([*workers[0], *workers[1]]))
    both.sort(key=lambda name: name == CLIENT)  # last, as in each run
    sides = [
        {name: _placed(cell, mine, both) for name, cell in _cells(each).items()}
        for mine, each in zip(workers, data, strict=True)
    ]
    more = {name: sides[1][name] - sides[0][name] for name in sides[0]}
    unit, _ = UNITS[value]
    total = float(np.nansum(more[value]))
    sign = "+" if total > 0 else "−" if total else ""
    title = f"{title} ({sign}{_in_all(abs(total), unit)} in all)"
    cells = _shown(more, value)
    return Matrix(title, cells, unit, _MORE_TIPS, names=both, signed=True).figure


def _cells(data: xr.Dataset) -> dict[str, NDArray[np.float64]]:
    return {name: data[name].values.astype(float) for name in UNITS}


def _shown(cells: dict[str, NDArray[np.float64]], value: str) -> dict[str, NDArray[np.float64]]:
    """Return the values and tooltip columns of the cells of whole runs, in display units."""
    return {
        "value": cells[value] / UNITS[value][1],
        "count": cells["count"],
        "mib": cells["bytes"] / MIB,
        "wire": cells["bytes_compressed"] / MIB,
        "seconds": cells["seconds"],
    }


def _placed(cell: NDArray[np.float64], mine: list[str], both: list[str]) -> NDArray[np.float64]:
    """Return a matrix over the names of both runs; workers missing in this run get 0."""
    at = [both.index(name) for name in mine]
    placed = np.zeros((len(both), len(both)))
    placed[np.ix_(at, at)] = cell
    return placed


def _numbered(names: list[str]) -> list[str]:
    return [name if name == CLIENT else f"worker {place}" for place, name in enumerate(names)]


def _in_all(total: float, unit: str) -> str:
    if not unit.startswith("MiB"):
        return format_quantity(total, unit)
    return format_bytes(total) + unit.removeprefix("MiB")


def _names(tree: xr.DataTree, indices: Any) -> list[str]:
    """Return the names of workers by index; negative indices are clients."""
    known = worker_names(tree)
    return [CLIENT if i < 0 else known[i] if i < len(known) else str(i) for i in indices]
