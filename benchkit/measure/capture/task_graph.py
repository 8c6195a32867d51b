"""Record the graph that clients submit: tasks, dependencies, and the results that are requested.

Everything is read when a graph arrives, nothing at a transition. A number per task (node) in the
order of creation, a row per submission; dependencies are the scheduler's own, so a fused task is
one node.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from inspect import iscoroutinefunction
from itertools import chain, compress
from struct import pack
from typing import Any

from distributed.metrics import time
from distributed.utils import nbytes

from benchkit.measure.capture.columns import GRAPH_COLUMNS, NAN, pack_columns, text
from benchkit.measure.capture.poller import topic_log
from benchkit.measure.capture.task_groups import TaskGroups

#: Attribute of the scheduler with the wrappers, because several clients may measure.
_HOOKS = "benchkit_task_graphs"
_SUBMIT, _RELEASE = "update-graph", "client-releases-keys"
#: With more tasks than this the graph is not recorded further.
MAX_NODES = 5_000_000
#: Tasks whose columns are made at once: few enough to stay in the processor's cache.
CHUNK = 512
#: Value of `order` of nodes that have no place in the order of a submission: scattered data.
NO_ORDER = -1
#: Annotations of a task that change where and when it runs.
_OPTIONS = ("priority", "retries", "workers", "resources", "allow_other_workers")


class TaskGraph:
    """Number the tasks of a run and record their dependencies."""

    def __init__(
        self,
        scheduler: Any,
        name: str,
        groups: TaskGroups,
        before_reuse: Callable[[], object],
        add_error: Callable[[str, Any], None],
    ) -> None:
        self.scheduler, self.name, self.groups = scheduler, name, groups
        self.before_reuse, self.add_error = before_reuse, add_error
        #: Number of the newest node of each key.
        self.numbers: dict[Any, int] = {}
        self.n_nodes = self.n_dropped = 0
        #: Since 2025 a task says whether it makes data, which the scheduler then queues.
        self.has_producers = hasattr(_task_spec_class(), "data_producer")
        self._reset()

    def _reset(self) -> None:
        self.tables = {
            table: {name: bytearray() for name in columns}
            for table, columns in GRAPH_COLUMNS.items()
        }
        self.dependencies = bytearray()
        self.wanted: list[int] = []
        self.producers: list[int] = []
        self.options: list[tuple[int, str]] = []

    def start(self) -> None:
        """Wrap the scheduler's handlers for submissions, until `stop`.

        The tasks that the scheduler has are recorded too: they may be computed again.
        """
        hooks = vars(self.scheduler).get(_HOOKS)
        if hooks is None:
            hooks = vars(self.scheduler)[_HOOKS] = _Hooks(self.scheduler)
        hooks.flush()
        hooks.graphs[self.name] = self
        self.guarded(self.add_nodes, list(self.scheduler.tasks.values()))

    def stop(self) -> None:
        """Undo what `start` changed on the scheduler; safe to call twice."""
        hooks = vars(self.scheduler).get(_HOOKS)
        if hooks is not None and self.name in hooks.graphs:
            hooks.flush()
            hooks.graphs.pop(self.name, None)  # an error in `flush` has called `stop` too
            if not hooks.graphs:
                hooks.remove()

    def guarded(self, method: Callable[..., None], *args: Any) -> None:
        """Call a method; an error ends the recording."""
        try:
            method(*args)
        except Exception as error:
            self.add_error("task graph", error)
            self.numbers.clear()
            self.stop()

    def add_submission(
        self,
        received: float,
        started: float,
        first_node: int,
        wanted: Iterable[Any],
        size: int | None,
    ) -> None:
        """Record a submission after its tasks were added."""
        # size: Size of the graph as it arrived, in B; None: unknown.
        known = self.numbers.get
        nodes = [node for node in map(known, wanted) if node is not None]
        self.wanted += nodes
        phases = _phases(self.scheduler, received)
        row = (received, *phases, started, first_node, len(nodes), size)
        self._add_rows("submissions", *([value] for value in row))

    def add_nodes(self, created: list[Any]) -> None:
        """Assign numbers to new tasks and record their dependencies."""
        if self.n_nodes + len(created) > MAX_NODES:
            self.n_dropped += len(created)
            return
        first, self.n_nodes = self.n_nodes, self.n_nodes + len(created)
        numbers = dict(zip([task.key for task in created], range(first, self.n_nodes), strict=True))
        if not self.numbers.keys().isdisjoint(numbers):
            self.before_reuse()
        self.numbers.update(numbers)
        # The identity of an existing object is a unique number; keys take longer to hash.
        by_identity = dict(zip(map(id, created), range(first, self.n_nodes), strict=True))
        earlier: list[Any] = []
        for place in range(0, len(created), CHUNK):
            tasks = created[place : place + CHUNK]
            self._append(tasks, first + place, by_identity, earlier)
        if earlier:
            groups = self._numbers_of_groups([task.group for task in earlier])
            self._add_rows("nodes", groups, [0] * len(groups), [NO_ORDER] * len(groups))

    def _append(
        self, tasks: list[Any], first: int, by_identity: dict[int, int], earlier: list[Any]
    ) -> None:
        """Add a row per task; tasks from before the clock started are added to `earlier`.

        The scheduler waits for this, so there is a comprehension per column.
        """
        all_dependencies = [task.dependencies for task in tasks]
        identities = map(id, chain.from_iterable(all_dependencies))
        try:
            dependencies = list(map(by_identity.__getitem__, identities))
        except KeyError:  # dependencies that the scheduler had before
            dependencies = [
                by_identity[id(task)] if id(task) in by_identity else self._number_of(task, earlier)
                for task in chain.from_iterable(all_dependencies)
            ]
        groups = self._numbers_of_groups([task.group for task in tasks])
        orders = [task.priority[-1] if task.priority else NO_ORDER for task in tasks]
        self._add_rows("nodes", groups, list(map(len, all_dependencies)), orders)
        self.dependencies += pack(f"{len(dependencies)}i", *dependencies)
        numbers = range(first, first + len(tasks))
        for node in compress(numbers, [task.annotations or task.actor for task in tasks]):
            self._add_options(node, tasks[node - first])
        if self.has_producers:
            specs = [task.run_spec for task in tasks]
            self.producers += compress(numbers, [spec and spec.data_producer for spec in specs])

    def _numbers_of_groups(self, groups: list[Any]) -> list[int]:
        for group in dict.fromkeys(groups):
            self.groups.number(group)
        return list(map(self.groups.numbers.__getitem__, groups))

    def _number_of(self, task: Any, earlier: list[Any]) -> int:
        """Return the number of a task; one from before the clock started is added to `earlier`."""
        number = self.numbers.get(task.key)
        if number is None:
            number = self.numbers[task.key] = self.n_nodes
            self.n_nodes += 1
            earlier.append(task)
        return number

    def _add_options(self, node: int, task: Any) -> None:
        annotations = task.annotations or {}
        options = {name: annotations[name] for name in _OPTIONS if name in annotations}
        if task.actor:
            options["actor"] = True
        if options:
            self.options.append((node, json.dumps(options, default=text)))

    def add_releases(self, keys: Iterable[Any]) -> None:
        """Record that a client released results."""
        nodes = [node for node in map(self.numbers.get, keys) if node is not None]
        self._add_rows("releases", [time()] * len(nodes), nodes)

    def _add_rows(self, table: str, *columns: list[Any]) -> None:
        for name, values in pack_columns(GRAPH_COLUMNS[table], columns).items():
            self.tables[table][name] += values

    def drain(self) -> dict[str, Any]:
        """Return the tables gathered since the last call."""
        hooks = vars(self.scheduler).get(_HOOKS)
        if hooks is not None:
            hooks.flush()
        tables: dict[str, Any] = {
            table: {name: bytes(column) for name, column in columns.items()}
            for table, columns in self.tables.items()
        }
        tables["dependencies"] = bytes(self.dependencies)
        tables["wanted"] = pack(f"{len(self.wanted)}i", *self.wanted)
        tables["producers"] = pack(f"{len(self.producers)}i", *self.producers)
        tables["node_options"] = self.options
        self._reset()
        return tables


def _phases(scheduler: Any, received: float) -> tuple[float, float]:
    """Return when the graph that has just been handled was materialized, and when it was ordered.

    Unix times in s; NaN in releases that do not log them (before 2024.5). The log has durations;
    those after the first have the wrong sign in releases up to 2026.8.
    """
    events, _ = topic_log(scheduler, "scheduler")
    if not events:
        return NAN, NAN
    message = events[-1][1]
    metrics = message.get("metrics") if isinstance(message, dict) else None
    if not metrics or metrics.get("start_timestamp_seconds", 0.0) < received:
        return NAN, NAN
    begin = metrics["start_timestamp_seconds"]
    materialized = begin + abs(metrics["materialization_duration_seconds"])
    return materialized, materialized + abs(metrics["ordering_duration_seconds"])


def _sent_bytes(arguments: dict[str, Any]) -> int | None:
    """Return the size of a graph from the arguments of its submission, in B; None: unknown."""
    graph = arguments.get("expr_ser")  # since 2025.4; before, its parts were arguments
    header = getattr(graph, "header", arguments.get("graph_header"))
    frames = getattr(graph, "frames", arguments.get("graph_frames"))
    return None if header is None or frames is None else sum(map(nbytes, [header, *frames]))


def _task_spec_class() -> Any:
    try:
        from dask._task_spec import GraphNode
    except ImportError:  # before 2024.12
        return None
    return GraphNode


class _Hooks:
    """The wrappers on a scheduler, shared by all captures on it."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.graphs: dict[str, TaskGraph] = {}
        self.created: list[Any] = []
        create, add_created = scheduler.new_task, self.created.append
        submit, release = scheduler.update_graph, scheduler.client_releases_keys

        def new_task(key: Any, spec: Any, state: str, computation: Any = None) -> Any:
            task = create(key, spec, state, computation)
            add_created(task)
            return task

        def update_graph(*args: Any, **arguments: Any) -> None:
            received, size = time(), _sent_bytes(arguments)
            self.flush()
            submit(*args, **arguments)
            self.add_submission(received, arguments.get("keys") or (), size)

        async def update_graph_async(*args: Any, **arguments: Any) -> None:
            received, size = time(), _sent_bytes(arguments)
            self.flush()
            await submit(*args, **arguments)
            self.add_submission(received, arguments.get("keys") or (), size)

        def client_releases_keys(*args: Any, **arguments: Any) -> Any:
            for graph in list(self.graphs.values()):
                graph.guarded(graph.add_releases, arguments.get("keys") or ())
            return release(*args, **arguments)

        vars(scheduler)["new_task"] = new_task
        scheduler.stream_handlers |= {
            _SUBMIT: update_graph_async if iscoroutinefunction(submit) else update_graph,
            _RELEASE: client_releases_keys,
        }

    def flush(self) -> None:
        """Add the tasks created since the last call to all graphs."""
        created = self.created[:]
        self.created.clear()  # `new_task` holds this list: clear, do not replace
        if created:
            for graph in list(self.graphs.values()):
                graph.guarded(graph.add_nodes, created)

    def add_submission(self, received: float, keys: Any, size: int | None) -> None:
        """Add a submission that the scheduler has handled to all graphs."""
        started = time()
        first = {name: graph.n_nodes for name, graph in self.graphs.items()}
        self.flush()
        for name, graph in list(self.graphs.items()):
            graph.guarded(
                graph.add_submission, received, started, first.get(name, graph.n_nodes), keys, size
            )

    def remove(self) -> None:
        """Restore the scheduler's own functions."""
        own = vars(self.scheduler)
        own.pop(_HOOKS, None)
        own.pop("new_task", None)
        self.scheduler.stream_handlers |= {
            _SUBMIT: self.scheduler.update_graph,
            _RELEASE: self.scheduler.client_releases_keys,
        }
