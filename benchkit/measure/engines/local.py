"""Dask's local schedulers: what a run takes without a cluster, so that its overhead can be seen.

The graph runs in threads of the client's process, as many as the cluster has; the cluster's own
processes are idle. A task begins when the scheduler hands it to a thread and ends when the
scheduler has its result.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
from dask.base import persist
from dask.callbacks import Callback

from benchkit.measure.engines.engine import Engine
from benchkit.measure.engines.graph import UNKNOWN
from benchkit.measure.engines.tables import Task, task_tables
from benchkit.measure.recording import Recording

if TYPE_CHECKING:
    from benchkit.measure.cluster.running import RunningCluster


#: What Dask selects where there is no client; the client of the idle cluster would make it P2P.
_SHUFFLES = {"dataframe.shuffle.method": "disk", "array.rechunk.method": "tasks"}


class Threads(Engine):
    """Dask's threaded scheduler in the client's process."""

    name = "threads"
    has_client = False
    unreported = ("sizes of results", "dependencies", "failed tasks")
    client_methods: Mapping[str, frozenset[str]] = {}
    imports = frozenset[str]()

    def __init__(self) -> None:
        super().__init__()
        self._recorder = _Recorder()

    @contextmanager
    def open(self, cluster: RunningCluster) -> Iterator[Any]:
        """Let the local scheduler compute all graphs; a workload that needs a client is refused."""
        n_threads = cluster.description["n_threads"]
        options = {"scheduler": self.name, "num_workers": n_threads, **_SHUFFLES}
        with dask.config.set(options), self._recorder:
            yield None

    def wait(self, result: Any) -> Any:
        """Compute the Dask collections in a result."""
        (result,) = persist(result)
        return result

    def tables(self, path: Path, t_on: float, client_ahead: float) -> dict[str, Any]:
        """Return the executed tasks."""
        tasks = [task for task in self._recorder.tasks if task.begin + client_ahead >= t_on]
        for task in tasks:
            task.begin, task.stop = task.begin + client_ahead, task.stop + client_ahead
        return task_tables(Recording.read(path), tasks)


class Synchronous(Threads):
    """Dask's synchronous scheduler: the thread of the workload computes all tasks."""

    name = "synchronous"


class _Recorder(Callback):
    """Record the begin and the end of each task."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self._begins: dict[Any, float] = {}

    def _pretask(self, key: Any, dsk: Any, state: Any) -> None:
        self._begins[key, threading.get_ident()] = time.time()

    def _posttask(self, key: Any, result: Any, dsk: Any, state: Any, worker_id: Any) -> None:
        begin = self._begins.pop((key, threading.get_ident()), None)
        if begin is not None:
            thread = worker_id if isinstance(worker_id, int) else UNKNOWN
            self.tasks.append(Task(str(key), UNKNOWN, thread, begin, time.time()))
