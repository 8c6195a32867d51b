"""The accessor `Run.plot`: the plot functions of one run as methods.

`benchkit.store.run.Run.plot` finds it by its entry point, because `store` imports no plots.
"""

from __future__ import annotations

from bokeh.plotting import figure

from benchkit.show.plots.flame import flame_graph
from benchkit.show.plots.run_metrics import (
    memory_by_kind,
    memory_by_worker,
    scheduler_load,
    task_group_bars,
    worker_load,
)
from benchkit.show.plots.task_stream import task_stream
from benchkit.show.plots.thread_activity import busy_threads
from benchkit.show.plots.transfers import transfer_matrix
from benchkit.show.plots.worker_heat import worker_heat
from benchkit.store.run import Run

__all__ = ["RunPlots"]


class RunPlots:
    """Plots of one run; each method calls the function of `benchkit.plots` with the same name.

    Parameters
    ----------
    run : Run
        The run to plot.

    Examples
    --------
    >>> from benchkit import plots  # doctest: +SKIP
    >>> run.plot.memory_by_kind(worker=0)  # doctest: +SKIP
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def busy_threads(self) -> figure:
        """Draw the number of busy threads over time by activity."""
        return busy_threads(self._run)

    def flame_graph(self, prefix: str | None = None, find: str = "") -> figure:
        """Draw the call stacks of tasks."""
        return flame_graph(self._run, prefix, find)

    def memory_by_kind(self, worker: int | None = None) -> figure:
        """Draw memory over time by kind, of the cluster or of one worker."""
        return memory_by_kind(self._run, worker)

    def memory_by_worker(self) -> figure:
        """Draw the process memory of each worker over time."""
        return memory_by_worker(self._run)

    def scheduler_load(self) -> list[figure]:
        """Draw CPU, event loop delay and number of tasks of the scheduler over time."""
        return scheduler_load(self._run)

    def task_group_bars(self) -> figure:
        """Draw thread-seconds by task group and activity."""
        return task_group_bars(self._run)

    def task_stream(self) -> figure:
        """Draw each task on the lane of its thread."""
        return task_stream(self._run)

    def transfer_matrix(self, value: str = "bytes") -> figure:
        """Draw the transfers between each pair of workers."""
        return transfer_matrix(self._run, value)

    def worker_heat(self, name: str = "process") -> figure:
        """Draw a variable of each worker over time as colours."""
        return worker_heat(self._run, name)

    def worker_load(self) -> list[figure]:
        """Draw CPU, network and disk rates over time, summed over the workers."""
        return worker_load(self._run)
