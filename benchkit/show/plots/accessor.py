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
    worker_heat,
    worker_load,
)
from benchkit.show.plots.task_stream import task_stream
from benchkit.show.plots.thread_activity import busy_threads, limits_over_time
from benchkit.show.plots.transfers import transfer_matrix
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
        """Draw the number of busy threads over time by activity.

        Returns
        -------
        figure
            Time in s, number of threads.
        """
        return busy_threads(self._run)

    def flame_graph(self, prefix: str | None = None, find: str = "") -> figure:
        """Draw the call stacks of tasks.

        Parameters
        ----------
        prefix : str, optional
            Only tasks of this prefix.
        find : str, optional
            Mark frames with this text in their function or file.

        Returns
        -------
        figure
            A box per frame, as wide as its share of the samples.
        """
        return flame_graph(self._run, prefix, find)

    def limits_over_time(self) -> figure:
        """Draw what bound the run over time.

        Returns
        -------
        figure
            Time in s, share of the time in % by cause.
        """
        return limits_over_time(self._run)

    def memory_by_kind(self, worker: int | None = None) -> figure:
        """Draw memory over time by kind, of the cluster or of one worker.

        Parameters
        ----------
        worker : int, optional
            Index of one worker; by default the whole cluster.

        Returns
        -------
        figure
            Time in s, memory in GiB.
        """
        return memory_by_kind(self._run, worker)

    def memory_by_worker(self) -> figure:
        """Draw the process memory of each worker over time.

        Returns
        -------
        figure
            Time in s, memory in GiB.
        """
        return memory_by_worker(self._run)

    def scheduler_load(self) -> list[figure]:
        """Draw CPU, event loop delay and number of tasks of the scheduler over time.

        Returns
        -------
        list of figure
            CPU in %, delay in ms, number of tasks.
        """
        return scheduler_load(self._run)

    def task_group_bars(self) -> figure:
        """Draw thread-seconds by task group and activity.

        Returns
        -------
        figure
            A bar per task group, in s.
        """
        return task_group_bars(self._run)

    def task_stream(self) -> figure:
        """Draw each task on the lane of its thread.

        Returns
        -------
        figure
            Time in s, one lane per thread.
        """
        return task_stream(self._run)

    def transfer_matrix(self, value: str = "bytes") -> figure:
        """Draw the transfers between each pair of workers.

        Parameters
        ----------
        value : {"bytes", "bytes_compressed", "count", "seconds"}
            The value of a cell.

        Returns
        -------
        figure
            A cell per pair of workers.
        """
        return transfer_matrix(self._run, value)

    def worker_heat(self, name: str = "process") -> figure:
        """Draw a variable of each worker over time as colours.

        Parameters
        ----------
        name : {"process", "cpu", "executing"}
            Process memory in GiB, CPU in % of a core, or the number of executing tasks.

        Returns
        -------
        figure
            Time in s, one row per worker.
        """
        return worker_heat(self._run, name)

    def worker_load(self) -> list[figure]:
        """Draw CPU, network and disk rates over time, summed over the workers.

        Returns
        -------
        list of figure
            CPU in %, network and disk in MiB/s.
        """
        return worker_load(self._run)
