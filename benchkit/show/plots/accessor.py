"""The accessor `Run.plot`: the plot functions of one run as methods.

`benchkit.store.run.Run.plot` finds it by its entry point, because `store` imports no plots.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from benchkit.show.plots import flame, run_metrics, thread_activity, transfers
from benchkit.store.run import Run

T = TypeVar("T")


def _method(draw: Callable[..., T]) -> Callable[..., T]:
    """Return a plot function as a method, with its documentation."""

    @wraps(draw)
    def method(self: RunPlots, *arguments: Any, **options: Any) -> T:
        return draw(self._run, *arguments, **options)

    return method


class RunPlots:
    """Plots of one run; each method calls the function of `benchkit.plots` with the same name.

    Parameters
    ----------
    run : Run
        The run to plot, which is the first argument of the functions.

    Examples
    --------
    >>> from benchkit import plots  # doctest: +SKIP
    >>> run.plot.memory_by_kind(worker=0)  # doctest: +SKIP
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    busy_threads = _method(thread_activity.busy_threads)
    flame_graph = _method(flame.flame_graph)
    limits_over_time = _method(thread_activity.limits_over_time)
    memory_by_kind = _method(run_metrics.memory_by_kind)
    memory_by_worker = _method(run_metrics.memory_by_worker)
    scheduler_load = _method(run_metrics.scheduler_load)
    task_group_bars = _method(run_metrics.task_group_bars)
    task_stream = _method(thread_activity.task_stream)
    transfer_matrix = _method(transfers.transfer_matrix)
    worker_heat = _method(run_metrics.worker_heat)
    worker_load = _method(run_metrics.worker_load)
