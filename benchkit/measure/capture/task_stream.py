"""The task stream: record each finished task in a flat list, convert the list to columns later.

A task costs a scheduler 40 to 100 µs. So the function that records its end is a closure over all
that it needs, and writes numbers and names to one flat list: a tuple per task, or the received
dictionaries, would live until the next flush and cost more in the memory allocator and the garbage
collector than the rest of the capture. The resulting columns take 50 B per task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import repeat
from operator import add
from typing import Any

from benchkit.measure.capture.columns import (
    ACTIONS,
    EVENT_COLUMNS,
    NAN,
    ROW,
    TASK_COLUMNS,
    pack_columns,
)
from benchkit.measure.capture.task_groups import TaskGroups
from benchkit.measure.capture.transition_table import Wrapper, ignores_extra_arguments

#: With more tasks than this the stream stops and counts dropped tasks; group sums stay exact.
MAX_TASKS = 5_000_000
#: A task is released for other reasons too; these prefixes of stimulus ids mark a failure.
_FAILED_ATTEMPTS = ("task-erred", "run-spec-deserialize-failed", "execute-unknown-error")
#: Number of values per row in the flat list of task events.
EVENT_ROW = 5
_ACTION_IDS = {name: index for index, name in enumerate(ACTIONS)}


class TaskStream:
    """Collect a row per finished task, and per transfer, spill and other event of a task."""

    def __init__(
        self,
        scheduler: Any,
        groups: TaskGroups,
        workers: dict[Any, int],
        add_error: Callable[[str, Any], None],
        add_failure: Callable[..., None],
    ) -> None:
        self.scheduler, self.groups, self.workers = scheduler, groups, workers
        self.add_error, self.add_failure = add_error, add_failure
        #: Number of each key's node in the task graph, see `TaskGraph`.
        self.nodes: dict[Any, int] = {}
        self.n_tasks = self.n_dropped = 0
        #: Until the flush: rows of (group, key, worker, thread, bytes, begin, stop, ok), and rows
        #: of (place of the task, action, source, start, stop).
        self.rows: list[Any] = []
        self.event_values: list[Any] = []
        self._reset()

    def _reset(self) -> None:
        self.tasks = {name: bytearray() for name in TASK_COLUMNS}
        self.events = {name: bytearray() for name in EVENT_COLUMNS}
        self.keys: list[Any] = []

    def wrappers(self) -> dict[str, Wrapper]:
        """Return the wrappers that record the end of a task."""
        rows, event_values, tasks = self.rows, self.event_values, self.scheduler.tasks
        extend = rows.extend
        add_event = event_values.extend
        drop_task = self._drop_task

        def memory(inner: Callable[..., Any]) -> Callable[..., Any]:
            if inner is not _no_op and not ignores_extra_arguments(inner):
                record = memory(_no_op)

                def call_both(*args: Any, **arguments: Any) -> Any:
                    result = inner(*args, **arguments)
                    record(*args, **arguments)
                    return result

                return call_both

            # All names are listed because Python is slower at passing arguments by **kwargs.
            def call_and_record(
                state: Any,
                key: Any,
                stimulus_id: str,
                *,
                nbytes: Any,
                type: Any,
                typename: Any,
                worker: Any,
                startstops: Any,
                thread: Any = None,
                metadata: Any = None,
                **extra: Any,
            ) -> Any:
                result = inner(
                    state,
                    key,
                    stimulus_id,
                    nbytes=nbytes,
                    type=type,
                    typename=typename,
                    worker=worker,
                    startstops=startstops,
                )
                try:
                    task = tasks[key]
                    if task._state != "memory":  # the worker of this task has just left
                        return result
                    begin = stop = NAN
                    for entry in startstops:  # `_add_events` inlined: a call costs too much
                        action = entry["action"]
                        if action == "compute":
                            begin, stop = entry["start"], entry["stop"]
                        elif action == "transfer":
                            source = entry["source"]
                            add_event((len(rows), action, source, entry["start"], entry["stop"]))
                        else:
                            add_event((len(rows), action, None, entry["start"], entry["stop"]))
                    extend((task.group, key, worker, thread, nbytes, begin, stop, 1))
                except Exception as error:
                    drop_task(error)
                return result

            return call_and_record

        def erred(inner: Callable[..., Any]) -> Callable[..., Any]:
            def call_and_record(state: Any, key: Any, stimulus_id: str, **arguments: Any) -> Any:
                result = inner(state, key, stimulus_id, **arguments)
                try:
                    task = tasks[key]
                    if task.state == "erred":
                        self._count_failure(task, arguments)
                        where = [arguments.get(name) for name in ("worker", "thread", "nbytes")]
                        span = self._add_events(arguments.get("startstops") or ())
                        extend((task.group, key, *where, *span, 0))
                except Exception as error:
                    drop_task(error)
                return result

            return call_and_record

        def released(inner: Callable[..., Any]) -> Callable[..., Any]:
            def call_and_record(state: Any, key: Any, stimulus_id: str, **arguments: Any) -> Any:
                try:
                    if stimulus_id.startswith(_FAILED_ATTEMPTS):
                        self.groups.counts[self.groups.number(tasks[key].group)][2] += 1
                except Exception as error:
                    drop_task(error)
                return inner(state, key, stimulus_id, **arguments)

            return call_and_record

        return {"memory": memory, "erred": erred, "released": released}

    def transition_hook(self) -> Callable[..., None]:
        """Return a plugin hook for releases without a supported transition table."""
        ends = {end: wrapper(_no_op) for end, wrapper in self.wrappers().items()}
        drop_task = self._drop_task

        def transition(key: Any, start: str, finish: str, **arguments: Any) -> None:
            if start == "processing" and finish in ends:
                try:
                    ends[finish](None, key, arguments.pop("stimulus_id", ""), **arguments)
                except TypeError as error:  # unknown argument names
                    drop_task(error)

        return transition

    def _add_events(self, startstops: Any) -> tuple[float, float]:
        """Record events of the next row's task other than compute; return compute begin and end."""
        begin = stop = NAN
        for entry in startstops:
            if entry["action"] == "compute":
                begin, stop = entry["start"], entry["stop"]
            else:
                event = entry["action"], entry.get("source"), entry["start"], entry["stop"]
                self.event_values.extend((len(self.rows), *event))
        return begin, stop

    def _drop_task(self, error: Exception) -> None:
        """Count a task as dropped and remove its events, which would belong to the next row."""
        self.n_dropped += 1
        while self.event_values and self.event_values[-EVENT_ROW] == len(self.rows):
            del self.event_values[-EVENT_ROW:]
        self.add_error("transition", error)

    def _count_failure(self, task: Any, arguments: dict[str, Any]) -> None:
        self.groups.counts[self.groups.number(task.group)][1] += 1
        error, trace = arguments.get("exception_text"), arguments.get("traceback_text")
        self.add_failure(task, arguments.get("worker"), error or "", trace or "")

    def flush(self, at_least: int = 1) -> None:
        """Convert the flat lists to columns of numbers."""
        if len(self.rows) < at_least * ROW:
            return
        columns = [self.rows[place::ROW] for place in range(ROW)]
        event_values = [self.event_values[place::EVENT_ROW] for place in range(EVENT_ROW)]
        self.rows.clear()  # the wrappers hold these lists: clear, do not replace
        self.event_values.clear()
        try:
            self._append_columns(columns, event_values)
        except Exception as error:
            self.n_dropped += len(columns[0])
            self.add_error("flush", error)

    def _append_columns(self, columns: list[list[Any]], event_values: list[list[Any]]) -> None:
        numbers = self._count_ended(columns[0])
        kept: Any = range(len(columns[0]))
        if None in numbers.values():
            kept = [row for row in kept if numbers[columns[0][row]] is not None]
        if self.n_tasks + len(kept) > MAX_TASKS:
            room = MAX_TASKS - self.n_tasks
            self.n_dropped += len(kept) - room
            kept = kept[:room]
        if len(kept) < len(columns[0]):
            columns, event_values = _select_rows(kept, columns, event_values)
        groups, keys, workers, threads, sizes, begins, stops, oks = columns
        if not groups:
            return
        indices = {address: self.workers.get(address, -1) for address in set(workers)}
        tasks = pack_columns(
            TASK_COLUMNS,
            (
                list(map(numbers.__getitem__, groups)),
                list(map(indices.__getitem__, workers)),
                threads,
                oks,
                sizes,
                begins,
                stops,
                list(map(self.nodes.get, keys, repeat(-1))),
            ),
        )
        events = pack_columns(EVENT_COLUMNS, self._event_columns(event_values, workers))
        self.n_tasks += len(groups)
        self.keys.extend(keys)
        for table, new_columns in ((self.tasks, tasks), (self.events, events)):
            for name, values in new_columns.items():
                table[name] += values

    def _event_columns(self, event_values: list[list[Any]], workers: list[Any]) -> tuple[Any, ...]:
        """Return the columns of task events other than compute."""
        places, actions, sources, starts, stops = event_values
        seen = set(actions)
        if any(action[:4] == "disk" for action in seen):
            # Times of disk events are on the worker's clock; compute and transfer are converted
            # already.
            offsets = self._clock_offsets([workers[place // ROW] for place in places], actions)
            starts, stops = list(map(add, starts, offsets)), list(map(add, stops, offsets))
        codes = {action: _ACTION_IDS.get(action, _ACTION_IDS["other"]) for action in seen}
        indices = {address: self.workers.get(address, -1) for address in set(sources)}
        return (
            list(map((ROW * self.n_tasks).__add__, places)),
            list(map(codes.__getitem__, actions)),
            list(map(indices.__getitem__, sources)),
            starts,
            stops,
        )

    def _clock_offsets(self, workers: list[Any], actions: list[Any]) -> list[float]:
        """Return the clock offset of each event: the worker's for disk events, 0 for others."""
        states = {worker: self.scheduler.workers.get(worker) for worker in set(workers)}
        delays = {w: 0.0 if state is None else state.time_delay for w, state in states.items()}
        return [
            delays[worker] if action[:4] == "disk" else 0.0
            for worker, action in zip(workers, actions, strict=True)
        ]

    def _count_ended(self, groups: list[Any]) -> dict[Any, int | None]:
        """Add to the groups' counts; return group numbers, None for a group that failed."""
        numbers: dict[Any, int | None] = {}
        for group, count in Counter(groups).items():
            try:
                number = numbers[group] = self.groups.number(group)
                self.groups.counts[number][0] += count
            except Exception as error:
                numbers[group] = None
                self.n_dropped += count
                self.add_error("group", error)
        return numbers

    def drain(self) -> dict[str, Any]:
        """Return the tables gathered since the last call."""
        self.flush()
        keys = "\n".join(map(str, self.keys))
        if keys.count("\n") >= max(1, len(self.keys)):  # a key contains a newline
            keys = "\n".join(str(key).replace("\n", "\\n") for key in self.keys)
        tables = {
            "tasks": {name: bytes(column) for name, column in self.tasks.items()},
            "keys": (keys + "\n" * bool(self.keys)).encode("utf-8", "backslashreplace"),
            "task_events": {name: bytes(column) for name, column in self.events.items()},
        }
        self._reset()
        return tables


def _select_rows(
    kept: Any, columns: list[list[Any]], event_values: list[list[Any]]
) -> tuple[list[list[Any]], list[list[Any]]]:
    """Return the rows in `kept` of the task columns, and the events of these tasks."""
    new = {old * ROW: place * ROW for place, old in enumerate(kept)}
    columns = [[column[row] for row in kept] for column in columns]
    chosen = [index for index, place in enumerate(event_values[0]) if place in new]
    event_values = [[column[index] for index in chosen] for column in event_values]
    event_values[0] = [new[place] for place in event_values[0]]
    return columns, event_values


def _no_op(*args: Any, **kwargs: Any) -> None:
    """Replace the scheduler's own function where only the recording is needed."""
