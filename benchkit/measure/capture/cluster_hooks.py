"""Hooks of the scheduler plugin: for workers, events and calls of methods; its list of errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dask.utils import key_split
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.metrics import time
from distributed.utils import key_split_group

from benchkit.measure.capture.cluster_events import EventLog
from benchkit.measure.capture.columns import text
from benchkit.measure.capture.task_stream import TaskStream

#: Different errors of the capture that are kept: each hook rarely fails in more than one way.
MAX_ERRORS = 20


class ClusterHooks(SchedulerPlugin):
    """Record the workers and events of a cluster.

    The scheduler calls the hooks before and after the clock runs, the poller in between.
    """

    errors: list[str]
    #: Worker index by address, including workers that left.
    workers: dict[Any, int]
    worker_info: list[dict[str, Any]]
    event_log: EventLog
    stream: TaskStream
    scheduler: Any
    #: Largest number of other captures on the scheduler at a sample.
    n_other_captures = 0
    _n_handlers = 0

    def add_error(self, where: str, what: Any) -> None:
        """Record an error of the capture itself, up to `MAX_ERRORS` different errors."""
        if isinstance(what, BaseException):
            what = f"{type(what).__name__}: {what}".rstrip(": ")
        line = f"{where}: {text(what, 300)}"
        if line not in self.errors and len(self.errors) < MAX_ERRORS:
            self.errors.append(line)

    def _guarded(self, method: Any, *args: Any) -> None:
        try:
            method(*args)
        except Exception as error:
            self.add_error(method.__name__.strip("_"), error)

    def add_worker(self, scheduler: Any, worker: str, moment: float | None = None) -> None:
        """Assign an index to a worker that joins."""
        if worker in self.workers:  # another worker may reuse the address
            self._guarded(self.stream.flush)
        self._guarded(self._register_worker, worker, scheduler.workers[worker], moment)
        self._guarded(self.event_log.add_event, "add-worker", worker, {}, moment)

    def remove_worker(
        self, scheduler: Any, worker: str, moment: float | None = None, **kwargs: Any
    ) -> None:
        """Record the time at which a worker left."""
        index = self.workers.get(worker, -1)
        if index >= 0:
            self.worker_info[index]["left"] = moment or time()
        self._guarded(self.event_log.add_event, "remove-worker", worker, {}, moment)

    def restart(self, scheduler: Any) -> None:
        """Mark the workers that the restart retires: they do not count as lost."""
        self.event_log.retired |= set(scheduler.workers)
        self._guarded(self.event_log.add_event, "restart", None, {})

    def log_event(self, topic: Any, msg: Any) -> None:
        """Record the scheduler events that the analysis of a run needs."""
        self._guarded(self.event_log.add_scheduler_event, topic, msg)

    def _register_worker(self, address: str, state: Any, moment: float | None = None) -> None:
        self.event_log.retired.discard(address)
        index = self.workers[address] = len(self.worker_info)
        self.worker_info.append(
            {
                "worker": index,
                "address": address,
                "name": text(state.name),
                "host": state.host,
                "nthreads": state.nthreads,
                "memory_limit": state.memory_limit or 0,
                "joined": moment or time(),
                "left": None,
            }
        )

    def _count_captures(self) -> None:
        """Count the other captures on the scheduler: the largest number at a sample."""
        handlers = self.scheduler.handlers
        if len(handlers) != self._n_handlers:
            self._n_handlers = len(handlers)
            n_captures = sum(op.endswith("_drain") for op in handlers) - 1
            self.n_other_captures = max(self.n_other_captures, n_captures)


# -- calls of the methods of a scheduler ----------------------------------------------------------

#: Attribute of the scheduler: by method, the listeners by capture name, because several clients may
#: measure at once.
_LISTENERS = "benchkit_listeners_of_calls"
#: Entries of the scheduler's tables of handlers that lead to a method.
_HANDLERS = {
    "update_data": (("handlers", "update_data"), ("stream_handlers", "update-data")),
    "heartbeat_worker": (("handlers", "heartbeat_worker"),),
}


def listen(
    scheduler: Any, method: str, name: str, listener: Callable[[dict[str, Any]], None]
) -> None:
    """Call a listener before each call of a method, until `stop_listening`."""
    listeners = vars(scheduler).setdefault(_LISTENERS, {}).setdefault(method, {})
    listeners[name] = listener
    if len(listeners) > 1:
        return
    original = getattr(scheduler, method)

    def wrapped(*args: Any, **arguments: Any) -> Any:
        for each in list(listeners.values()):
            with suppress(Exception):
                each(arguments)
        return original(*args, **arguments)

    _replace(scheduler, method, wrapped)


def stop_listening(scheduler: Any, method: str, name: str) -> None:
    """Remove a listener; safe to call twice."""
    own = vars(scheduler)
    listeners = own.get(_LISTENERS, {}).get(method, {})
    if listeners.pop(name, None) is not None and not listeners:
        del own[_LISTENERS][method], own[method]
        _replace(scheduler, method, None)
        if not own[_LISTENERS]:
            del own[_LISTENERS]


def _replace(scheduler: Any, method: str, function: Callable[..., Any] | None) -> None:
    """Set a method and its handlers; None: the class's own method."""
    if function is not None:
        vars(scheduler)[method] = function
    for table, op in _HANDLERS[method]:
        handlers = getattr(scheduler, table, {})
        if op in handlers:
            handlers[op] = getattr(scheduler, method)


class ScatteredData:
    """Bytes of scattered data, and numbers of their keys by the names of prefix and group."""

    def __init__(self, scheduler: Any, name: str) -> None:
        self.scheduler, self.name = scheduler, name
        self.by_prefix: Counter[str] = Counter()
        self.by_group: Counter[str] = Counter()
        self.nbytes = 0
        listen(scheduler, "update_data", name, self._count)

    def _count(self, arguments: dict[str, Any]) -> None:
        """Count the copies of all keys in bytes, and the keys that are not yet in memory."""
        for key, workers in arguments["who_has"].items():
            self.nbytes += len(workers) * (arguments["nbytes"].get(key) or 0)
            task = self.scheduler.tasks.get(key)
            if task is None or task.state != "memory":
                self.by_prefix[key_split(key)] += 1
                self.by_group[key_split_group(key)] += 1

    def remove(self) -> None:
        """Stop counting."""
        stop_listening(self.scheduler, "update_data", self.name)
