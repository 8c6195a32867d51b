"""The task stream: record each finished task in a flat list, convert the list to columns later.

A task costs a scheduler 40 to 100 µs. So the function that records its end is a closure over all
that it needs, and writes numbers and names to one flat list: a tuple per task, or the received
dictionaries, would live until the next flush and cost more in the memory allocator and the garbage
collector than the rest of the capture. The resulting columns take 50 B per task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from operator import add
from typing import Any

from benchkit.measure.capture.columns import ACTIONS, EVENT_COLUMNS, NAN, ROW, TASK_COLUMNS, packed
from benchkit.measure.capture.task_groups import Groups
from benchkit.measure.capture.transition_table import Wrap, ignores_the_rest

__all__ = ["Stream"]

#: With more tasks than this the stream stops and counts dropped tasks; group sums stay exact.
MAX_TASKS = 5_000_000
#: A task is released for other reasons too; these prefixes of stimulus ids mark a failure.
_FAILED_ATTEMPTS = ("task-erred", "run-spec-deserialize-failed", "execute-unknown-error")
#: Number of values per row in the flat list of task events.
PART = 5
_ACTION_IDS = {name: index for index, name in enumerate(ACTIONS)}


class Stream:
    """Keep a row per finished task and a row per transfer, spill and other event of each task.

    Parameters
    ----------
    scheduler : Scheduler
        The scheduler of the tasks.
    groups : Groups
        Receives the number of finished tasks in each group.
    workers : dict
        Worker index by address; it grows.
    note : callable
        ``note(where, what)`` records an error.
    failed : callable
        ``failed(task, address, error, traceback)`` is called for each task that raised.
    """

    def __init__(
        self,
        scheduler: Any,
        groups: Groups,
        workers: dict[Any, int],
        note: Callable[[str, Any], None],
        failed: Callable[..., None],
    ) -> None:
        self.scheduler, self.groups, self.workers = scheduler, groups, workers
        self.note, self.failed = note, failed
        self.n_tasks = self.n_dropped = 0
        #: Until the flush: rows of (group, key, worker, thread, bytes, begin, stop, ok), and rows
        #: of (place of the task, action, source, start, stop).
        self.rows: list[Any] = []
        self.parts: list[Any] = []
        self._fresh()

    def _fresh(self) -> None:
        self.tasks = {name: bytearray() for name in TASK_COLUMNS}
        self.events = {name: bytearray() for name in EVENT_COLUMNS}
        self.keys: list[Any] = []

    def wraps(self) -> dict[str, Wrap]:
        """Return the wrappers that record the end of a task, for `transition_table.install`.

        Each wrapper calls the scheduler's own function first and returns its result.
        """
        rows, parts, tasks = self.rows, self.parts, self.scheduler.tasks
        extend, spread, trouble = rows.extend, parts.extend, self._trouble

        def memory(inner: Callable[..., Any]) -> Callable[..., Any]:
            if not ignores_the_rest(inner):
                note = memory(_nothing)

                def both(*args: Any, **told: Any) -> Any:
                    result = inner(*args, **told)
                    note(*args, **told)
                    return result

                return both

            # All names are listed because Python is slower at passing arguments by **kwargs.
            def ended(
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
                **more: Any,
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
                    if task._state != "memory":  # its worker has just left
                        return result
                    begin = stop = NAN
                    for entry in startstops:  # `_add_events` inlined: a call costs too much
                        action = entry["action"]
                        if action == "compute":
                            begin, stop = entry["start"], entry["stop"]
                        elif action == "transfer":
                            source = entry["source"]
                            spread((len(rows), action, source, entry["start"], entry["stop"]))
                        else:
                            spread((len(rows), action, None, entry["start"], entry["stop"]))
                    extend((task.group, key, worker, thread, nbytes, begin, stop, 1))
                except Exception as error:
                    trouble(error)
                return result

            return ended

        def erred(inner: Callable[..., Any]) -> Callable[..., Any]:
            def ended(state: Any, key: Any, stimulus_id: str, **told: Any) -> Any:
                result = inner(state, key, stimulus_id, **told)
                try:
                    task = tasks[key]
                    if task.state == "erred":
                        self._left(task, told)
                        where = [told.get(name) for name in ("worker", "thread", "nbytes")]
                        span = self._spread(told.get("startstops") or ())
                        extend((task.group, key, *where, *span, 0))
                except Exception as error:
                    trouble(error)
                return result

            return ended

        def released(inner: Callable[..., Any]) -> Callable[..., Any]:
            def ended(state: Any, key: Any, stimulus_id: str, **told: Any) -> Any:
                try:
                    if stimulus_id.startswith(_FAILED_ATTEMPTS):
                        self.groups.counts[self.groups.number(tasks[key].group)][2] += 1
                except Exception as error:
                    trouble(error)
                return inner(state, key, stimulus_id, **told)

            return ended

        return {"memory": memory, "erred": erred, "released": released}

    def hook(self) -> Callable[..., None]:
        """Return a `transition` hook for releases without a supported transition table."""
        ends = {end: wrap(_nothing) for end, wrap in self.wraps().items()}
        trouble = self._trouble

        def transition(key: Any, start: str, finish: str, **told: Any) -> None:
            if start == "processing" and finish in ends:
                try:
                    ends[finish](None, key, told.pop("stimulus_id", ""), **told)
                except TypeError as error:  # unknown argument names
                    trouble(error)

        return transition

    def _spread(self, startstops: Any) -> tuple[float, float]:
        """Record events of the next row's task other than compute; return compute begin and end."""
        begin = stop = NAN
        for entry in startstops:
            if entry["action"] == "compute":
                begin, stop = entry["start"], entry["stop"]
            else:
                what = entry["action"], entry.get("source"), entry["start"], entry["stop"]
                self.parts.extend((len(self.rows), *what))
        return begin, stop

    def _trouble(self, error: Exception) -> None:
        """Count a task as dropped and remove its events, which would belong to the next row."""
        self.n_dropped += 1
        while self.parts and self.parts[-PART] == len(self.rows):
            del self.parts[-PART:]
        self.note("transition", error)

    def _left(self, task: Any, told: dict[str, Any]) -> None:
        self.groups.counts[self.groups.number(task.group)][1] += 1
        error, trace = told.get("exception_text"), told.get("traceback_text")
        self.failed(task, told.get("worker"), error or "", trace or "")

    def fold(self, at_least: int = 1) -> None:
        """Convert the flat lists to columns of numbers if they hold `at_least` tasks."""
        if len(self.rows) < at_least * ROW:
            return
        columns = [self.rows[place::ROW] for place in range(ROW)]
        parts = [self.parts[place::PART] for place in range(PART)]
        self.rows.clear()  # the wrappers hold these lists: clear, do not replace
        self.parts.clear()
        try:
            self._add(columns, parts)
        except Exception as error:
            self.n_dropped += len(columns[0])
            self.note("fold", error)

    def _add(self, columns: list[list], parts: list[list]) -> None:
        numbers = self._count(columns[0])
        kept: Any = range(len(columns[0]))
        if None in numbers.values():
            kept = [row for row in kept if numbers[columns[0][row]] is not None]
        if self.n_tasks + len(kept) > MAX_TASKS:
            room = MAX_TASKS - self.n_tasks
            self.n_dropped += len(kept) - room
            kept = kept[:room]
        if len(kept) < len(columns[0]):
            columns, parts = _only(kept, columns, parts)
        groups, keys, workers, threads, sizes, begins, stops, oks = columns
        if not groups:
            return
        known = {address: self.workers.get(address, -1) for address in set(workers)}
        tasks = packed(
            TASK_COLUMNS,
            (
                list(map(numbers.__getitem__, groups)),
                list(map(known.__getitem__, workers)),
                threads,
                oks,
                sizes,
                begins,
                stops,
            ),
        )
        events = packed(EVENT_COLUMNS, self._events(parts, workers))
        self.n_tasks += len(groups)
        self.keys.extend(keys)
        for table, fresh in ((self.tasks, tasks), (self.events, events)):
            for name, values in fresh.items():
                table[name] += values

    def _events(self, parts: list[list], workers: list) -> tuple:
        """Return the columns of task events other than compute."""
        places, actions, sources, starts, stops = parts
        seen = set(actions)
        if any(action[:4] == "disk" for action in seen):
            # Times of disk events are on the worker's clock; compute and transfer are converted
            # already.
            late = self._late([workers[place // ROW] for place in places], actions)
            starts, stops = list(map(add, starts, late)), list(map(add, stops, late))
        codes = {action: _ACTION_IDS.get(action, _ACTION_IDS["other"]) for action in seen}
        known = {address: self.workers.get(address, -1) for address in set(sources)}
        return (
            list(map((ROW * self.n_tasks).__add__, places)),
            list(map(codes.__getitem__, actions)),
            list(map(known.__getitem__, sources)),
            starts,
            stops,
        )

    def _late(self, workers: list, actions: list) -> list[float]:
        """Return the clock offset of each event: the worker's for disk events, 0 for others."""
        states = {worker: self.scheduler.workers.get(worker) for worker in set(workers)}
        delays = {w: 0.0 if state is None else state.time_delay for w, state in states.items()}
        return [
            delays[worker] if action[:4] == "disk" else 0.0
            for worker, action in zip(workers, actions, strict=True)
        ]

    def _count(self, groups: list) -> dict[Any, int | None]:
        """Add to the groups' counts; return group numbers, None for a group that failed."""
        numbers: dict[Any, int | None] = {}
        for group, count in Counter(groups).items():
            try:
                number = numbers[group] = self.groups.number(group)
                self.groups.counts[number][0] += count
            except Exception as error:
                numbers[group] = None
                self.n_dropped += count
                self.note("group", error)
        return numbers

    def take(self) -> dict[str, Any]:
        """Return the tables gathered since the last call as bytes."""
        self.fold()
        keys = "\n".join(map(str, self.keys))
        if keys.count("\n") >= max(1, len(self.keys)):  # a key contains a newline
            keys = "\n".join(str(key).replace("\n", "\\n") for key in self.keys)
        tables = {
            "tasks": {name: bytes(column) for name, column in self.tasks.items()},
            "keys": (keys + "\n" * bool(self.keys)).encode("utf-8", "backslashreplace"),
            "task_events": {name: bytes(column) for name, column in self.events.items()},
        }
        self._fresh()
        return tables


def _only(kept: Any, columns: list[list], parts: list[list]) -> tuple[list[list], list[list]]:
    """Return the rows in `kept` of the task columns, and the events of these tasks."""
    new = {old * ROW: place * ROW for place, old in enumerate(kept)}
    columns = [[column[row] for row in kept] for column in columns]
    chosen = [index for index, place in enumerate(parts[0]) if place in new]
    parts = [[column[index] for index in chosen] for column in parts]
    parts[0] = [new[place] for place in parts[0]]
    return columns, parts


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Replace the scheduler's own function where only the recording is needed."""
