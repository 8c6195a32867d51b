"""Frisky: a scheduler in Rust, in the processes of a Dask cluster.

`frisky.hijack` starts its scheduler inside Dask's scheduler and a worker inside each of Dask's
workers. It records spans of all that it does, in ns of the clock of each process, and serves them
at the address of the dashboard. Spans have keys of tasks and no dependencies: these are read from
what the client submits.
"""

from __future__ import annotations

import json
import pickle
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from dask.base import is_dask_collection, persist
from dask.utils import key_split
from distributed import default_client

from benchkit.formatting import counted
from benchkit.measure.capture.worker_log import INCOMING
from benchkit.measure.engines.engine import Engine
from benchkit.measure.engines.graph import UNKNOWN, Submission, SubmittedTask
from benchkit.measure.engines.tables import Activity, Task, free_thread, task_tables
from benchkit.measure.errors import UsageError
from benchkit.measure.recording import Recording

if TYPE_CHECKING:
    from benchkit.measure.capture_client import ClientPhases
    from benchkit.measure.cluster.running import RunningCluster

#: Releases whose spans and methods of the client were checked.
KNOWN_RELEASES = ("0.7.",)

#: Spans of the execution of a task: before its function is called, the call, and after it.
_BEFORE = {"worker.exec.gil": "other", "worker.exec.deserialize": "deserialize"}
_CALL = "worker.exec.call"
_ACCEPTED = "worker.receive_task"
#: Spans of the result of a task without error: of two, as now and then one is lost.
_STORED = frozenset({"worker.store_data", "worker.task_complete"})
#: A transfer at its receiver; its sender has a span that starts at the same moment.
_RECEIVED = "worker.transfer.recv"
_SENT = "tcp.send.write"
#: The scheduler handles a submitted graph.
_HANDLED = "scheduler.handle_update_graph"
#: Seconds between two requests for spans, which workers send to the scheduler now and then.
POLL_S = 0.5
#: Seconds that the scheduler has to answer a request.
POLL_TIMEOUT_S = 15.0
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
    unreported = ("sizes of results", "releases of results", "threads of tasks")
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

    def __init__(self) -> None:
        super().__init__()
        #: Workers of Frisky's own cluster, as the table of workers has them.
        self._own: list[dict[str, Any]] = []

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

    def host(self) -> Any:
        """Return the current client of Dask if Frisky runs in the processes of its workers."""
        try:
            client = default_client()
        except ValueError:
            return None
        return client if all(_addresses(client).values()) else None

    def connect(self, client: Any, dask_client: Any) -> None:
        """Find out where the spans are, and which worker of Frisky is in which of Dask's."""
        import frisky

        if not frisky.__version__.startswith(KNOWN_RELEASES):
            known = " and ".join(f"{release}x" for release in KNOWN_RELEASES)
            self.warnings.append(f"frisky {frisky.__version__} is not known, but {known}")
        self._url = client.dashboard_address
        if dask_client is not None:
            self._workers = _addresses(dask_client)
        else:
            frisky.enable_tracing()  # of workers in this process; others trace from their start
            self._own = _own_workers(self._url)
            self._workers = {info["address"]: info["address"] for info in self._own}
        self._submitted = _Submitted(client)

    def description(self) -> dict[str, Any]:
        """Return workers and threads of Frisky's own cluster."""
        return {
            "class": "frisky",
            "workers": "as found",
            "n_workers": len(self._own),
            "n_threads": sum(info["nthreads"] for info in self._own),
            "memory_limit": sum(info["memory_limit"] for info in self._own),
        }

    def start(self, phases: ClientPhases) -> None:
        """Record what the client submits."""
        self._submitted.start(phases)

    def stop(self) -> None:
        """Restore the methods of the client."""
        self._submitted.stop()

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

    def tables(self, path: Path, t_on: float, client_ahead: float) -> dict[str, Any]:
        """Return tasks and graphs, and the transfers between each pair of workers."""
        spans, recording = self._spans(t_on), Recording.read(path)
        ahead = recording.last("state", {}).get("clock_ahead", {})
        places = {
            self._workers[info["address"]]: (info["worker"], ahead.get(str(info["worker"]), 0.0))
            for info in self._own or recording.last("workers", [])
            if info["address"] in self._workers
        }
        tasks, n_lost = _tasks(spans, places)
        tasks = [task for task in tasks if task.begin >= t_on]
        if n_lost:
            self.warnings.append(
                f"it lost the spans of {counted(n_lost, 'call')}: these tasks count, but most of "
                "their seconds are not known"
            )
        _add_transfers(tasks, spans, places)
        submissions = self._submitted.submissions(client_ahead)
        _add_handling(submissions, spans)
        addresses = {own: address for address, own in self._workers.items()}
        tables = task_tables(recording, tasks, submissions)
        if self._submitted.error:
            self.warnings.append(self._submitted.error)
        if tasks and "nodes" not in tables:
            tables["unreported"] = [
                "dependencies, because tasks ran that its client did not submit"
            ]
        if self._own:
            tables |= {"state": {}, "workers": self._own}
        return {**tables, "told": _transfers(spans, places, addresses)}

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
    """Return the address of Frisky's worker in the process of each of Dask's workers, or ""."""

    def address(dask_worker: Any) -> str:
        plugin = dask_worker.plugins.get("frisky-worker")
        return str(plugin.worker.address) if plugin else ""

    return dict(client.run(address))


def _own_workers(url: str) -> list[dict[str, Any]]:
    """Return the workers of a cluster of Frisky, as the table of workers has them."""
    progress = _get_json(url, "progress")
    workers = progress["workers"]
    if any(worker["address"].startswith("inproc:") for worker in workers):
        raise UsageError(
            "record: Frisky does not report which of the workers in this process ran a task: give "
            "frisky.LocalCluster(processes=True)"
        )
    return [
        {
            "worker": number,
            "address": worker["address"],
            "name": str(number),
            "host": "",
            "nthreads": progress["total_threads"] // len(workers),
            "memory_limit": int(worker.get("memory_limit") or 0),
            "joined": time.time(),  # or before
            "left": None,
        }
        for number, worker in enumerate(workers)
    ]


def _get_json(url: str, path: str) -> Any:
    """Return what the dashboard of the scheduler replies."""
    with urlopen(f"{url.removesuffix('/')}/api/{path}", timeout=POLL_TIMEOUT_S) as reply:
        return json.load(reply)


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


class _Submitted:
    """Record what a client of Frisky submits: keys and dependencies, not functions and data."""

    def __init__(self, client: Any) -> None:
        self.client = client
        #: Times are those of this process.
        self.graphs: list[Submission] = []
        #: Expressions that the scheduler expands, as they were sent, with the keys of the results.
        self.expressions: list[tuple[float, bytes, list[str]]] = []
        #: Why a submission could not be read; the workload goes on.
        self.error = ""
        self._wrapped: list[tuple[Any, str, Any]] = []

    def start(self, phases: ClientPhases) -> None:
        """Wrap the methods that submit tasks, until `stop`."""
        import frisky.dask

        def translate_graph(original: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(*args: Any, **options: Any) -> Any:
                phases.serialise()
                return original(*args, **options)

            return wrapped

        self._wrap(frisky.dask, "translate_graph", translate_graph)
        for name in ("submit", "map", "submit_graph", "submit_tasks", "submit_expression"):
            if hasattr(self.client, name):
                self._wrap(self.client, name, self._wrapper(name, phases))

    def stop(self) -> None:
        """Restore the wrapped functions."""
        for owner, name, original in reversed(self._wrapped):
            if owner is self.client:
                vars(owner).pop(name, None)
            else:
                setattr(owner, name, original)
        self._wrapped.clear()

    def _wrap(self, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
        original = getattr(owner, name)
        self._wrapped.append((owner, name, original))
        setattr(owner, name, wrapper(original))

    def _wrapper(self, name: str, phases: ClientPhases) -> Callable[..., Any]:
        read = getattr(self, f"_read_{name}")

        def wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(*args: Any, **options: Any) -> Any:
                begin = time.time()
                if name != "submit_graph":  # of which `translate_graph` is the beginning
                    phases.serialise()
                if name == "map":
                    args = (args[0], *_finite(args[1:]))
                result = original(*args, **options)
                phases.send()
                try:
                    read(begin, result, *args, **options)
                except Exception as error:
                    self.error = f"{name}: {type(error).__name__}: {error}"
                return result

            return wrapped

        return wrapper

    def _add(self, sent: float, tasks: Sequence[SubmittedTask], wanted: Sequence[str],
             options: Mapping[str, Any] | None = None) -> None:  # fmt: skip
        self.graphs.append(Submission(sent, sent, tasks, wanted, options or {}))

    def _read_submit_graph(
        self, sent: float, _: Any, tasks: Any, keys: Sequence[str], **options: Any
    ) -> None:
        self._add(sent, [SubmittedTask(each[0], each[2], each[3]) for each in tasks], list(keys))

    def _read_submit_tasks(
        self, sent: float, _: Any, records: Any, keys: Sequence[str], **options: Any
    ) -> None:
        self._add(sent, _tasks_of_records(records), list(keys))

    def _read_submit_expression(
        self, sent: float, _: Any, expression: bytes, keys: Sequence[str], **options: Any
    ) -> None:
        self.expressions.append((sent, expression, list(keys)))

    def _read_submit(self, sent: float, future: Any, _: Any, *args: Any, **options: Any) -> None:
        task = SubmittedTask(future.key, _keys_in((args, options), type(future)), 0)
        self._add(sent, [task], [future.key], _placement(options))

    def _read_map(self, sent: float, futures: Any, _: Any, *iterables: Any, **options: Any) -> None:
        if not futures:
            return
        kind = type(futures[0])
        common = _keys_in(options, kind)
        # Most arguments hold no future: looking at the types of a column costs least.
        holders = (kind, Mapping, list, tuple, set)
        columns = [
            column
            for column in iterables
            if any(issubclass(each, holders) for each in set(map(type, column)))
        ]
        rows = zip(*columns, strict=True) if columns else repeat(())
        keys = [future.key for future in futures]
        tasks = [
            SubmittedTask(key, [*_keys_in(row, kind), *common] if row else common, number)
            for number, (key, row) in enumerate(zip(keys, rows, strict=False))
        ]
        self._add(sent, tasks, keys, _placement(options))

    def submissions(self, client_ahead: float) -> list[Submission]:
        """Return all submissions, with times of the scheduler's clock."""
        graphs = [*self.graphs]
        for sent, expression, keys in self.expressions:
            # It came from this process, and the scheduler has expanded it in the same way.
            records = pickle.loads(expression).__frisky_graph__()
            graphs.append(Submission(sent, sent, _tasks_of_records(records), keys))
        for each in graphs:
            each.received += client_ahead
            each.started += client_ahead
        return sorted(graphs, key=lambda each: each.received)


def _finite(iterables: Sequence[Any]) -> list[list[Any]]:
    """Return the iterables of `map` as lists of the same length: iterators can be read once."""
    rows = list(zip(*iterables, strict=False))
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in iterables]


def _tasks_of_records(records: Iterable[Any]) -> list[SubmittedTask]:
    """Return the tasks of records: (key, function, arguments, keyword arguments, dependencies)."""
    return [
        SubmittedTask(str(record[0]), [str(key) for key in record[4]], number)
        for number, record in enumerate(records)
    ]


def _placement(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `submit` and `map` that say when and where tasks run."""
    return {name: options[name] for name in ("priority", "retries", "workers") if options.get(name)}


def _keys_in(item: Any, kind: type) -> list[str]:
    """Return the keys of the futures in arguments."""
    if isinstance(item, kind):
        return [str(item.key)]  # type: ignore[attr-defined]
    if isinstance(item, Mapping):
        item = item.values()
    elif not isinstance(item, (list, tuple, set)):
        return []
    return [key for each in item for key in _keys_in(each, kind)]


def _add_handling(submissions: Sequence[Submission], spans: Iterable[_Span]) -> None:
    """Set when the scheduler received each submission, and when it had handled it."""
    handled = sorted(
        (span["start_ns"] * 1e-9, span["end_ns"] * 1e-9)
        for span in spans
        if span["name"] == _HANDLED
    )
    place = 0
    for each in submissions:
        while place < len(handled) and handled[place][1] < each.received:
            place += 1
        if place < len(handled):
            each.received, each.started = max(handled[place][0], each.received), handled[place][1]
            place += 1


def _tasks(
    spans: Iterable[_Span], places: Mapping[str, tuple[int, float]]
) -> tuple[list[Task], int]:
    """Return the executions of tasks, and of how many the span of the call was lost.

    `places`: index and clock offset in s of each worker.
    """
    tasks: list[Task] = []
    newest: dict[tuple[str, str], Task] = {}
    before: dict[tuple[str, str], list[Activity]] = {}
    free: dict[str, list[float]] = {}  # worker -> time at which each of its threads is free
    n_lost = 0
    for span in spans:
        worker, name = span["worker"], span["name"]
        if worker not in places or not span["keys"]:
            continue
        place, ahead = places[worker]
        begin, stop = span["start_ns"] * 1e-9 + ahead, span["end_ns"] * 1e-9 + ahead
        own = worker, span["keys"][0]
        if name == _ACCEPTED:
            before.setdefault(own, [])
        elif name in _BEFORE:
            before.setdefault(own, []).append(Activity(_BEFORE[name], begin, stop))
        is_lost = name in _STORED and own in before and (own not in newest or newest[own].ok)
        if name == _CALL or is_lost:
            activities = before.pop(own, [])
            call = begin, stop
            if is_lost:
                n_lost += 1
                call = max((each.stop for each in activities), default=begin), begin
            thread = free_thread(free.setdefault(worker, []), *call)
            newest[own] = Task(own[1], place, thread, *call, ok=False, activities=activities)
            tasks.append(newest[own])
        if name in _STORED and own in newest:
            newest[own].ok = True
            newest[own].activities.append(Activity("other", begin, stop))
    return tasks, n_lost


def _add_transfers(
    tasks: Iterable[Task], spans: Iterable[_Span], places: Mapping[str, tuple[int, float]]
) -> None:
    """Add each transfer to the next task of its consumer on the same worker.

    Frisky names the prefix of the consumer, not its key.
    """
    starts: dict[tuple[int, str], list[Task]] = {}
    for task in sorted(tasks, key=lambda task: task.begin):
        starts.setdefault((task.worker, key_split(task.key)), []).append(task)
    sent = _sends(spans)
    for span in spans:
        if span["name"] != _RECEIVED or span["worker"] not in places:
            continue
        place, ahead = places[span["worker"]]
        prefix = dict(span["metadata"]).get("consumer_prefixes", "").partition(",")[0]
        consumers = starts.get((place, prefix), [])
        begin, stop = span["start_ns"] * 1e-9 + ahead, span["end_ns"] * 1e-9 + ahead
        index = bisect_left(consumers, begin, key=lambda task: task.begin)
        if consumers:
            source = sent.get((span["start_ns"], *span["keys"]), {}).get("worker", "")
            transfer = Activity("transfer", begin, stop, places.get(source, (UNKNOWN, 0.0))[0])
            consumers[min(index, len(consumers) - 1)].activities.append(transfer)


def _sends(spans: Iterable[_Span]) -> dict[tuple[Any, ...], _Span]:
    """Return the sender's span of each transfer, by what it has in common with the receiver's."""
    return {(span["start_ns"], *span["keys"]): span for span in spans if span["name"] == _SENT}


def _transfers(
    spans: Iterable[_Span], places: Mapping[str, tuple[int, float]], addresses: Mapping[str, str]
) -> list[Any]:
    """Return a report of each worker about what it received, as the capture's workers send it."""
    sent = _sends(spans)
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
