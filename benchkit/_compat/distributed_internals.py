"""Private names of distributed that the virtual cluster needs.

Checked with distributed 2023.4.1 to 2026.8.0. `check_internals` refuses releases that lack a name;
differences between ranges of releases are in `Internals`.
"""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: Unix time in s of virtual time 0; a float resolves 0.1 µs there.
EPOCH = 1_000_000_000.0
CLIENT = "virtual-client"
#: Module, class and names that the virtual cluster uses.
_REQUIRED = (
    ("distributed.scheduler", "Scheduler", "_TRANSITIONS_TABLE add_worker heartbeat_worker "
     "client_releases_keys update_graph start_http_server handle_worker"),
    ("distributed.scheduler", "", "BatchedSend heartbeat_interval version_module setproctitle "
     "normalize_address"),
    ("distributed.worker_state_machine", "WorkerState", "handle_stimulus"),
    ("distributed.worker_state_machine", "TaskState", "__hash__"),
    ("distributed.worker_state_machine", "", "CancelComputeEvent AcquireReplicasEvent "
     "ComputeTaskEvent FreeKeysEvent RemoveReplicasEvent StealRequestEvent RefreshWhoHasEvent "
     "ExecuteSuccessEvent GatherDepSuccessEvent GatherDepBusyEvent RetryBusyWorkerEvent "
     "RetryBusyWorkerLater SendMessageToScheduler Execute GatherDep"),
    ("distributed.client", "Client", "get _graph_to_futures _send_to_scheduler "
     "_get_computation_code"),
    ("distributed.client", "", "Future"),
    ("distributed.protocol", "", "serialize deserialize"),
    ("distributed.metrics", "", "time monotonic"),
)  # fmt: skip
_OPERATIONS = (
    "cancel-compute",
    "acquire-replicas",
    "compute-task",
    "free-keys",
    "remove-replicas",
    "steal-request",
    "refresh-who-has",
)
#: Configuration of a virtual scheduler: no logs, no servers, no limits of silence.
_CONFIG = {
    "distributed.admin.low-level-log-length": 0,
    "distributed.admin.log-length": 0,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.scheduler.events-log-length": 0,
    "distributed.scheduler.http.routes": [],
    "distributed.scheduler.idle-timeout": None,
    "distributed.scheduler.transition-log-length": 0,
    "distributed.scheduler.validate": False,
    "distributed.scheduler.worker-ttl": None,
}


class UnsupportedRelease(RuntimeError):
    """Raised for a release of distributed whose internals are not those that are needed."""


def check_internals() -> None:
    """Refuse a release of distributed whose internals differ."""
    import importlib

    import distributed

    for module, owner, names in _REQUIRED:
        holder: Any = importlib.import_module(module)
        holder = getattr(holder, owner, None) if owner else holder
        for name in names.split():
            if not hasattr(holder, name):
                raise UnsupportedRelease(
                    f"distributed {distributed.__version__}: has no {owner or module}.{name}: "
                    "virtual clusters are checked with releases 2023.4.1 to 2026.8.0"
                )


class Internals:
    """Private names of the installed release, with virtual time in place of its clocks."""

    def __init__(self, now: Callable[[], float], new_stream: Callable[[], Any]) -> None:
        import distributed.client
        import distributed.scheduler
        import distributed.worker  # loads all modules whose clocks are replaced
        import distributed.worker_state_machine

        self.now, self.new_stream = now, new_stream
        self.scheduler_module: Any = distributed.scheduler
        self.worker_module: Any = distributed.worker_state_machine
        self.client_module: Any = distributed.client
        events = self.worker_module
        self.event_types = {
            name: getattr(events, name.title().replace("-", "") + "Event") for name in _OPERATIONS
        }
        self._compute_fields = _parameters(events.ComputeTaskEvent)
        self._success_fields = _parameters(events.ExecuteSuccessEvent)
        self._state_options = _parameters(events.WorkerState.__init__)

    @property
    def as_text(self) -> Callable[[Any], str] | None:
        """Function that converts keys to text; None from release 2023.9.2 on, which keep them."""
        return getattr(self.scheduler_module, "stringify", None)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replace clocks, servers and streams of distributed within the `with` statement."""
        import dask

        replaced: list[tuple[Any, str, Any]] = []

        def replace(owner: Any, name: str, value: Any) -> None:
            replaced.append((owner, name, getattr(owner, name)))
            setattr(owner, name, value)

        known = {k: v for k, v in _CONFIG.items() if dask.config.get(k, _CONFIG) is not _CONFIG}
        try:
            with dask.config.set(known):
                self._replace_clocks(replace)
                self._replace_servers(replace)
                yield
        finally:
            for owner, name, value in reversed(replaced):
                setattr(owner, name, value)

    def _replace_clocks(self, replace: Callable[[Any, str, Any], None]) -> None:
        metrics: Any = sys.modules["distributed.metrics"]
        clocks = {metrics.time, metrics.monotonic, time.time, time.monotonic}

        def virtual_time() -> float:
            return EPOCH + self.now()

        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == "distributed":
                for clock in ("time", "monotonic"):
                    value = getattr(module, clock, None)
                    if callable(value) and value in clocks:
                        replace(module, clock, virtual_time)

    def _replace_servers(self, replace: Callable[[Any, str, Any], None]) -> None:
        module, client = self.scheduler_module, self.client_module

        async def nothing(*args: Any, **kwargs: Any) -> None:
            pass

        async def call(function: Any, *args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        replace(module.Scheduler, "start_http_server", lambda *args, **kwargs: None)
        replace(module.Scheduler, "handle_worker", nothing)  # would read messages for ever
        replace(module, "BatchedSend", lambda interval, loop=None: self.new_stream())
        replace(module, "setproctitle", lambda title: None)
        # Keep the object: its hash is the same in all processes, that of a new text is not.
        replace(module, "normalize_address", lambda address: address)
        if hasattr(module, "offload"):  # not in 2023.4.1
            replace(module, "offload", call)
        versions = module.version_module.get_versions()
        replace(module.version_module, "get_versions", lambda *args, **kwargs: versions)
        replace(module.version_module, "error_message", lambda *args, **kwargs: {})
        # The default hash is the address in memory: the order of sets would be random.
        replace(self.worker_module.TaskState, "__hash__", lambda task: hash(task.key))
        replace(client, "Future", lambda key, *args, **kwargs: key)
        for owner in (client, module):
            if hasattr(owner, "validate_key"):  # accepts no subclass of str
                replace(owner, "validate_key", lambda key: None)
        # Graphs go to the scheduler as objects.
        for owner in (sys.modules["distributed.protocol"], client, module):
            if owner is not module and hasattr(owner, "serialize"):
                replace(owner, "serialize", lambda x, **kwargs: ({"object": _content(x)}, []))
            if hasattr(owner, "deserialize"):
                replace(owner, "deserialize", lambda header, frames: header["object"])

    # -- workers ------------------------------------------------------------------------------

    def new_worker_state(self, **options: Any) -> Any:
        """Return a state machine of a worker."""
        known = {name: value for name, value in options.items() if name in self._state_options}
        return self.worker_module.WorkerState(validate=False, **known)

    def event_of(self, message: dict[str, Any]) -> Any:
        """Return the event of a message of the scheduler to a worker."""
        message = {name: _plain(value) for name, value in message.items()}
        operation = message.pop("op")
        if operation == "compute-task":
            # Until 2023 the message has no function and arguments of a task that is not pickled.
            message.update(dict.fromkeys(self._compute_fields - message.keys()))
        return self.event_types[operation](**message)

    def success_event(self, **fields: Any) -> Any:
        """Return the event of a finished task."""
        known = {name: value for name, value in fields.items() if name in self._success_fields}
        return self.worker_module.ExecuteSuccessEvent(**known)

    @staticmethod
    def call_handler(handler: Callable[..., Any], **message: Any) -> None:
        """Call a handler of the scheduler; some are coroutines that never wait."""
        result = handler(**message)
        if inspect.iscoroutine(result):
            try:
                result.send(None)
            except StopIteration:
                return
            result.close()
            raise UnsupportedRelease(f"{handler.__name__} waits, which virtual time does not have")

    # -- the client ---------------------------------------------------------------------------

    def new_client(self, on_message: Callable[[dict[str, Any]], None] | None = None) -> Any:
        """Return a client without connection."""
        client_class: Any = self.client_module.Client

        class UnconnectedClient(client_class):
            asynchronous = on_message is None  # collections refuse to compute otherwise

            def __init__(self) -> None:
                self._refcount_lock = threading.RLock()
                self.messages: list[dict[str, Any]] = []
                self.id, self.status, self.scheduler, self.cluster = CLIENT, "running", None, None

            def _get_computation_code(self, *args: Any, **kwargs: Any) -> Any:
                return ()

            def _send_to_scheduler(self, message: dict[str, Any]) -> None:
                (on_message or self.messages.append)({k: _plain(v) for k, v in message.items()})

            def __del__(self) -> None:
                pass

        return UnconnectedClient()

    def new_graph(
        self,
        keys: list[Any],
        dependencies: dict[Any, list[Any]],
        producers: set[Any],
        options: dict[Any, dict[str, Any]],
    ) -> Any:
        """Return a graph of tasks without work, with options of tasks by key."""
        graph = self._tasks(keys, dependencies, producers)
        if options.keys().isdisjoint(graph):
            return graph
        from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

        parts: dict[str, dict[Any, Any]] = {}
        for key, task in graph.items():
            parts.setdefault(repr(options.get(key)), {})[key] = task
        layers = {
            name: MaterializedLayer(part, annotations=options.get(next(iter(part))))
            for name, part in parts.items()
        }
        return HighLevelGraph(layers, {name: set() for name in layers})

    def _tasks(
        self, keys: list[Any], dependencies: dict[Any, list[Any]], producers: set[Any]
    ) -> dict[Any, Any]:
        if not hasattr(self.scheduler_module, "GraphNode"):  # until 2024.10
            from distributed.utils_comm import WrappedKey

            here = set(keys)
            return {
                key: (_nothing, *(d if d in here else WrappedKey(d) for d in dependencies[key]))
                for key in keys
            }
        from dask._task_spec import Task, TaskRef

        has_flag = "_data_producer" in _parameters(Task.__init__)
        return {
            key: Task(
                key,
                _nothing,
                *map(TaskRef, dependencies[key]),
                **({"_data_producer": True} if has_flag and key in producers else {}),
            )
            for key in keys
        }


def _parameters(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters)


def _nothing(*args: Any) -> None:
    return None


def _content(value: Any) -> Any:
    """Return what `deserialize` would return: the content of a `Serialize`."""
    return value.data if type(value).__name__ == "Serialize" else value


def _plain(value: Any) -> Any:
    """Return a value as after its way over a connection."""
    return value.data if type(value).__name__ in ("ToPickle", "Serialize") else value
