"""How long the threads of a run ran and waited for a processor."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr

from benchkit.store.run import Run


class Processors:
    """The samples of the threads of a run; no thread waits if none were recorded."""

    def __init__(self, run: Run) -> None:
        data = (
            run.tree["thread_times"].to_dataset()
            if "thread_times" in run.tree.children
            else xr.Dataset()
        )
        #: By server, role, and number of the task's thread or of the worker: times of the samples,
        #: and columns of seconds waited and ran until then.
        self.curves: dict[tuple[str, str, int], tuple[np.ndarray, np.ndarray]] = {}
        self.are_known = bool(data.sizes.get("sample"))
        if not self.are_known:
            return
        thread, times = data["sample_thread"].values, data["sample_time"].values
        seconds = np.column_stack([data["waited"].values, data["ran"].values])
        for number, (server, role) in enumerate(
            zip(data["server"].values.tolist(), data["role"].values.tolist(), strict=True)
        ):
            place = data["task_thread" if role == "task" else "worker"].values[number]
            own = np.flatnonzero(thread == number)
            own = own[np.argsort(times[own], kind="stable")]
            if len(own):
                self.curves[server, role, int(place)] = times[own], seconds[own]

    def of_tasks(
        self, threads: np.ndarray, start: np.ndarray, stop: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return for how long threads of tasks waited, and ran, in intervals of each."""
        waited, ran = np.zeros(len(start)), np.zeros(len(start))
        for number, rows in _by_value(threads):
            curve = self.curves.get(("worker", "task", number))
            if curve is not None:
                waited[rows], ran[rows] = _grown(curve, start[rows], stop[rows])
        return waited, ran

    def of_worker_loops(
        self, workers: np.ndarray, start: np.ndarray, stop: np.ndarray
    ) -> np.ndarray:
        """Return for how long event loops of workers waited in intervals of each."""
        waited = np.zeros(len(start))
        for number, rows in _by_value(workers):
            curve = self.curves.get(("worker", "loop", number))
            if curve is not None:
                waited[rows] = _grown(curve, start[rows], stop[rows])[0]
        return waited

    def of_scheduler(self, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
        """Return for how long the event loop of the scheduler waited in intervals."""
        return self._waited("scheduler", "loop", start, stop)

    def of_client(self, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
        """Return the same of the threads of the client: the one that waited longest."""
        both = (self._waited("client", role, start, stop) for role in ("loop", "main"))
        longest: np.ndarray = np.maximum(*both)
        return longest

    def _waited(self, server: str, role: str, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
        curve = self.curves.get((server, role, -1))
        return np.zeros(len(start)) if curve is None else _grown(curve, start, stop)[0]


def _by_value(numbers: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each value, and its places."""
    order = np.argsort(numbers, kind="stable")
    values, first = np.unique(numbers[order], return_index=True)
    if len(values):
        yield from zip(values.tolist(), np.split(order, first[1:]), strict=True)


def _grown(
    curve: tuple[np.ndarray, np.ndarray], start: np.ndarray, stop: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Return by how much each column of a curve grew in intervals."""
    times, columns = curve
    return tuple(np.interp(stop, times, c) - np.interp(start, times, c) for c in columns.T)
