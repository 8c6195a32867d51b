"""Measure how long conclusions take: ``python benchmarks/insight.py [--tasks N] [--repeats 3]``.

Makes runs with N tasks, of which a third joins two of the others: "near" ones, in the order in
which Dask sends them, or "random" ones after all others, which miss the processor's caches.
Prints processor seconds (median of the repeats) of reading the graph, the critical path,
`Run.limits` with the blame walk, the diagnosis, a replay, and a prediction for another cluster.
Needs a checkout, for the tests' synthetic runs.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from heapq import heapreplace
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

import numpy as np  # noqa: E402
from validation.graph_runs import MadeTask, graph_run  # noqa: E402

from benchkit.analysis.insight.blame import critical_path  # noqa: E402
from benchkit.analysis.insight.diagnose import diagnose  # noqa: E402
from benchkit.analysis.insight.limits import run_limits  # noqa: E402
from benchkit.predict.replay import replay  # noqa: E402
from benchkit.predict.whatif import WhatIf  # noqa: E402
from benchkit.store.run import Run  # noqa: E402
from benchkit.store.task_graph import TaskGraph  # noqa: E402

#: Workers and threads of each: of the run, and of the cluster to predict.
SHAPE, OTHER_SHAPE = (8, 2), (4, 2)
#: Seconds between two tasks of a thread.
DELAY_S = 1e-4
#: Processor seconds for a million tasks.
GOALS = {"critical path": 1.0, "diagnose": 10.0, "replay": 3.0}


def joined_pairs(n_tasks: int, folder: Path, *, near: bool) -> Run:
    """Return a run in which a third of the tasks need two results of the others."""
    random = np.random.default_rng(0)
    n_joins = n_tasks // 3
    inputs = np.arange(2 * n_joins) if near else random.permutation(2 * n_joins)
    order = []
    for number, pair in enumerate(inputs.reshape(-1, 2).tolist()):
        keys = [f"load-{place}" for place in sorted(pair)]
        order += [*((key, ()) for key in keys), (f"join-{number}", keys)]
    if not near:
        order.sort(key=lambda task: len(task[1]))
    stops: dict[str, float] = {}
    threads = [(0.0, number) for number in range(SHAPE[0] * SHAPE[1])]
    tasks = []
    for (key, needs), seconds in zip(order, random.gamma(2.0, 0.01, len(order)), strict=True):
        free, thread = threads[0]
        start = max([free, *(stops[name] for name in needs)]) + DELAY_S
        stops[key] = start + float(seconds)
        heapreplace(threads, (stops[key], thread))
        place, nbytes = divmod(thread, SHAPE[1]), 8 if needs else 8_000_000
        tasks.append(MadeTask(key, start, stops[key], needs, *place, nbytes=nbytes))
    end = max(stops.values())
    return graph_run(folder, tasks, duration=end, n_workers=SHAPE[0], nthreads=SHAPE[1])


def steps(run: Run) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield what is measured."""
    yield "reading the graph", lambda: TaskGraph.of(run.tree)
    graph = run.task_graph()
    seconds = np.nan_to_num(graph.duration)
    yield "critical path", lambda: critical_path(graph.indptr, graph.indices, seconds)
    yield "limits with blame walk", lambda: run_limits(run)
    yield "diagnose", lambda: diagnose(run)
    model = WhatIf(run)
    yield "replay", lambda: replay(model.given, *SHAPE)
    yield (
        "prediction of another cluster",
        lambda: model.predict(
            workers=OTHER_SHAPE[0],
            memory="1TB",  # random pairs hold all results
        ),
    )


def main() -> None:
    """Print the seconds of each step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    for near in (True, False):
        print(f"{given.tasks:,} tasks, {'near' if near else 'random'} dependencies")
        with tempfile.TemporaryDirectory() as folder:
            run = joined_pairs(given.tasks, Path(folder), near=near)
        for name, step in steps(run):
            times = []
            for _ in range(given.repeats):
                began = time.process_time()
                step()
                times.append(time.process_time() - began)
            goal = f"  (goal {GOALS[name]:g} s)" if name in GOALS else ""
            print(f"  {name:<32}{statistics.median(times):>6.2f} s{goal}")


if __name__ == "__main__":
    main()
