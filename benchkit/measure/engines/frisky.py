"""Frisky: a scheduler in Rust, in the processes of a Dask cluster.

`frisky.hijack` starts its scheduler inside Dask's scheduler and a worker inside each of Dask's
workers. It records spans of all that it does, in ns of the clock of each process, and serves them
at the address of the dashboard.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dask.base import is_dask_collection, persist
from dask.utils import key_split

from benchkit.measure.capture.worker_log import INCOMING
from benchkit.measure.engines.engine import Engine
from benchkit.measure.engines.tables import Task, free_thread, task_tables
from benchkit.measure.recording import Recording

if TYPE_CHECKING:
    from benchkit.measure.cluster.running import RunningCluster

#: Spans of the execution of a task: before its function is called, the call, and after it.
_BEFORE = {"worker.exec.gil": "other", "worker.exec.deserialize": "deserialize"}
_CALL = "worker.exec.call"
_STORED = "worker.store_data"
#: A transfer at its receiver; its sender has a span that starts at the same moment.
_RECEIVED = "worker.transfer.recv"
_SENT = "tcp.send.write"
#: Seconds between two requests for spans, which workers send to the scheduler now and then.
POLL_S = 0.5
#: Requests until the spans are taken as they are.
MAX_POLLS = 20
#: More than the 1,000,000 that Frisky keeps by default.
MAX_SPANS = 10_000_000

#: Options of Dask's `submit` that Frisky passes on to the function, or ignores.
_OPTIONS = frozenset(
    {"actor", "actors", "allow_other_workers", "fifo_timeout", "pure", "resources"}
)
_Span = dict[str, Any]


class Frisky(Engine):
    """Frisky's scheduler and workers inside those of Dask."""

    name = "frisky"
    unreported = ("sizes of results", "dependencies", "retries", "threads of tasks")
    client_methods: Mapping[str, frozenset[str]] = {
        "compute": _OPTIONS | {"priority", "retries", "workers"},
        "gather": frozenset({"direct", "errors", "asynchronous"}),
        "get": frozenset(),
        "map": _OPTIONS | {"batch_size", "workers"},
        "persist": _OPTIONS | {"priority", "retries", "workers"},
        "scatter": frozenset({"hash"}),
        "submit": _OPTIONS,
    }
    imports = frozenset[str]()

    @contextmanager
    def open(self, cluster: RunningCluster) -> Iterator[Any]:
        """Start Frisky in the processes of a cluster; Dask's collections compute there."""
        import frisky

        client = frisky.hijack(cluster.client)
        try:
            self.connect(client, cluster.client)
            yield client
        finally:
            client.close()

    def connect(self, client: Any, dask_client: Any) -> None:
        """Find out where the spans are, and which worker of Frisky is in which of Dask's."""
        self._url = client.dashboard_address
        self._workers = _addresses(dask_client)

    def wait(self, result: Any) -> Any:
        """Persist the collections in a result, wait for all its futures, raise the first error."""
        import frisky

        (result,) = persist(result)
        futures = list(_futures(result, frisky.Future))
        if futures:
            frisky.wait(futures)
            for future in futures:
                if future.status == "error":
                    future.result()
        return result

    def tables(self, path: Path, t_on: float) -> dict[str, Any]:
        """Return the tasks, and the transfers between each pair of workers, from Frisky's spans."""
        spans, recording = self._spans(t_on), Recording.read(path)
        ahead = recording.last("state", {}).get("clock_ahead", {})
        places = {
            self._workers[info["address"]]: (info["worker"], ahead.get(str(info["worker"]), 0.0))
            for info in recording.last("workers", [])
            if info["address"] in self._workers
        }
        tasks = [task for task in _tasks(spans, places) if task.begin >= t_on]
        _add_transfer_seconds(tasks, spans, places)
        addresses = {own: address for address, own in self._workers.items()}
        return {
            **task_tables(recording, tasks),
            "told": _transfers(spans, places, addresses),
        }

    def _spans(self, t_on: float) -> list[_Span]:
        """Return all spans after a time in s, when no more arrive."""
        import frisky

        spans: list[_Span] = []
        n_before = -1
        for _ in range(MAX_POLLS):
            spans = frisky.query_spans(
                start_ns=int(t_on * 1e9), limit=MAX_SPANS, dashboard_url=self._url
            )
            n_tasks = sum(span["name"] == _CALL for span in spans)
            if n_tasks == n_before:
                break
            n_before = n_tasks
            time.sleep(POLL_S)
        return spans


def _addresses(client: Any) -> dict[str, str]:
    """Return the address of Frisky's worker in the process of each of Dask's workers."""

    def address(dask_worker: Any) -> str:
        return str(dask_worker.plugins["frisky-worker"].worker.address)

    return dict(client.run(address))


def _futures(result: Any, kind: type) -> Iterator[Any]:
    """Yield the futures in a result, and those in the graphs of its collections."""
    if isinstance(result, kind):
        yield result
    elif is_dask_collection(result):
        yield from _futures(list(result.__dask_graph__().values()), kind)
    elif isinstance(result, Mapping):
        yield from _futures(list(result.values()), kind)
    elif isinstance(result, (list, tuple, set)):
        for item in result:
            yield from _futures(item, kind)


def _tasks(spans: Iterable[_Span], places: Mapping[str, tuple[int, float]]) -> list[Task]:
    """Return the executions of tasks; `places`: index and clock offset in s of each worker."""
    tasks: list[Task] = []
    newest: dict[tuple[str, str], Task] = {}
    before: dict[tuple[str, str], dict[str, float]] = {}
    free: dict[str, list[float]] = {}  # worker -> time at which each of its threads is free
    for span in spans:
        worker, name = span["worker"], span["name"]
        if worker not in places or not span["keys"]:
            continue
        place, ahead = places[worker]
        begin, stop = span["start_ns"] * 1e-9 + ahead, span["end_ns"] * 1e-9 + ahead
        own = worker, span["keys"][0]
        if name in _BEFORE:
            seconds = before.setdefault(own, {})
            seconds[_BEFORE[name]] = seconds.get(_BEFORE[name], 0.0) + stop - begin
        elif name == _CALL:
            thread = free_thread(free.setdefault(worker, []), begin, stop)
            seconds = before.pop(own, {})
            newest[own] = Task(own[1], place, thread, begin, stop, ok=False, seconds=seconds)
            tasks.append(newest[own])
        elif name == _STORED and own in newest:  # only the result of a task without error is stored
            newest[own].ok = True
            seconds = newest[own].seconds
            seconds["other"] = seconds.get("other", 0.0) + stop - begin
    return tasks


def _add_transfer_seconds(
    tasks: Iterable[Task], spans: Iterable[_Span], places: Mapping[str, tuple[int, float]]
) -> None:
    """Add the seconds of each transfer to the next task of its consumer on the same worker.

    Frisky names the prefix of the consumer, not its key.
    """
    starts: dict[tuple[int, str], list[Task]] = {}
    for task in sorted(tasks, key=lambda task: task.begin):
        starts.setdefault((task.worker, key_split(task.key)), []).append(task)
    for span in spans:
        if span["name"] != _RECEIVED or span["worker"] not in places:
            continue
        place, ahead = places[span["worker"]]
        prefix = dict(span["metadata"]).get("consumer_prefixes", "").partition(",")[0]
        consumers = starts.get((place, prefix), [])
        index = bisect_left(consumers, span["start_ns"] * 1e-9 + ahead, key=lambda task: task.begin)
        if consumers:
            seconds = consumers[min(index, len(consumers) - 1)].seconds
            seconds["transfer"] = seconds.get("transfer", 0.0) + span["duration_ns"] * 1e-9


def _transfers(
    spans: Iterable[_Span], places: Mapping[str, tuple[int, float]], addresses: Mapping[str, str]
) -> list[Any]:
    """Return a report of each worker about what it received, as the capture's workers send it."""
    sent = {(span["start_ns"], *span["keys"]): span for span in spans if span["name"] == _SENT}
    totals: dict[tuple[str, str], list[float]] = {}
    for span in spans:
        source = sent.get((span["start_ns"], *span["keys"]))
        if span["name"] != _RECEIVED or span["worker"] not in places or source is None:
            continue
        nbytes = dict(source["metadata"])
        total = totals.setdefault((span["worker"], source["worker"]), [0, 0, 0, 0.0])
        total[0] += len(span["keys"])
        total[1] += int(nbytes.get("uncompressed_bytes", 0))
        total[2] += int(nbytes.get("compressed_bytes", 0))
        total[3] += span["duration_ns"] * 1e-9
    return [
        [places[worker][0], {"transfers": [[INCOMING, addresses.get(source, ""), *total]]}]
        for (worker, source), total in totals.items()
    ]
