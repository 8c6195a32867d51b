"""Runs of workloads that `benchkit ab` measured on clusters of several shapes.

::

    benchkit ab one two wide WORKLOAD... --no-null -n 3 --no-report --store S --environments E

The environments differ in ``n_workers`` and ``threads_per_worker`` only; the memory of all workers
together is the same, or the data would differ.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import benchkit

Shape = tuple[int, int]


def runs_by_shape(store: Path) -> dict[str, dict[Shape, list[benchkit.Run]]]:
    """Return the successful runs of each workload by workers and threads of a worker.

    Parameters
    ----------
    store : path
        The store.

    Returns
    -------
    dict
        Runs by workload and shape.
    """
    opened = benchkit.Store(store, create=False)
    found: dict[str, dict[Shape, list[benchkit.Run]]] = defaultdict(lambda: defaultdict(list))
    frame = opened.runs(outcome="ok")
    for row in frame.sort_values(["workload", "id"]).itertuples():
        run = opened.open(row.id)
        workers = run.tree["workers"].dataset
        shape = (workers.sizes["worker"], int(workers["nthreads"].values[0]))
        found[row.workload][shape].append(run)
    return found


def median_run(runs: list[benchkit.Run]) -> benchkit.Run:
    """Return the run with the median duration, the shorter one of two.

    Parameters
    ----------
    runs : list of Run
        At least one run.

    Returns
    -------
    Run
        One of the runs.
    """
    return sorted(runs, key=lambda run: run.duration)[(len(runs) - 1) // 2]


def same_graph(run: benchkit.Run, other: benchkit.Run) -> bool:
    """Return whether two runs had the same number of tasks, to 1 %.

    Parameters
    ----------
    run, other : Run
        Runs of a workload.

    Returns
    -------
    bool
        False where the graph depends on the number of workers or threads.
    """
    counts = [run.metrics["n_tasks"], other.metrics["n_tasks"]]
    return abs(counts[0] - counts[1]) <= 0.01 * max(counts)
