"""The stream of tasks: what each ended with, noted as it comes, made columns a moment later.

A task costs a scheduler 40 to 100 µs in all. So what notes its end is a function of its own with
what it needs in its closure. It keeps numbers and names in one flat list: a tuple a task, or the
dictionaries that came, would live until the next look, and what they cost the memory allocator and
the garbage collector is more than all else. The columns made of it take 50 B a task.
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

#: Beyond this many tasks the stream stops and counts what it drops; sums by group stay exact.
MAX_TASKS = 5_000_000
#: A task is released for other reasons, too; that it failed shows in what caused it.
_FAILED_ATTEMPTS = ("task-erred", "run-spec-deserialize-failed", "execute-unknown-error")
#: How many values of the other flat list are one row.
PART = 5
_ACTION_IDS = {name: index for index, name in enumerate(ACTIONS)}


class Stream:
    """Keeps a row per task that ended and a row per transfer, spill and so on of each.

    Parameters
    ----------
    scheduler : Scheduler
        Whose tasks they are.
    groups : Groups
        Told how many tasks ended in each.
    workers : dict
        The number of each worker by address; it grows.
    note : callable
        ``note(where, what)`` for what goes wrong.
    failed : callable
        ``failed(task, address, error, traceback)`` for each task that raised.
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
        #: Row after row of (group, key, worker, thread, bytes, begin, stop, ok), until folded;
        #: and of (place of its task, action, source, start, stop).
        self.rows: list[Any] = []
        self.parts: list[Any] = []
        self._fresh()

    def _fresh(self) -> None:
        self.tasks = {name: bytearray() for name in TASK_COLUMNS}
        self.events = {name: bytearray() for name in EVENT_COLUMNS}
        self.keys: list[Any] = []

    def wraps(self) -> dict[str, Wrap]:
        """Return what notes the end of a task, for `transitions.listen`.

        Each calls the scheduler's own function first and gives back what that returned.
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

            # All names are there because Python takes longer to pass what is not listed.
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
                    for entry in startstops:  # as `_spread`, without what calling it takes
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
        """Return the same as a plugin's hook, for a release whose transitions nobody can hear."""
        ends = {end: wrap(_nothing) for end, wrap in self.wraps().items()}
        trouble = self._trouble

        def transition(key: Any, start: str, finish: str, **told: Any) -> None:
            if start == "processing" and finish in ends:
                try:
                    ends[finish](None, key, told.pop("stimulus_id", ""), **told)
                except TypeError as error:  # other words than we know
                    trouble(error)

        return transition

    def _spread(self, startstops: Any) -> tuple[float, float]:
        """Note what the next row's task did beside computing; return when that began and ended."""
        begin = stop = NAN
        for entry in startstops:
            if entry["action"] == "compute":
                begin, stop = entry["start"], entry["stop"]
            else:
                what = entry["action"], entry.get("source"), entry["start"], entry["stop"]
                self.parts.extend((len(self.rows), *what))
        return begin, stop

    def _trouble(self, error: Exception) -> None:
        """Note what went wrong with a task; what it left of itself must not become another's."""
        self.n_dropped += 1
        while self.parts and self.parts[-PART] == len(self.rows):
            del self.parts[-PART:]
        self.note("transition", error)

    def _left(self, task: Any, told: dict[str, Any]) -> None:
        self.groups.counts[self.groups.number(task.group)][1] += 1
        error, trace = told.get("exception_text"), told.get("traceback_text")
        self.failed(task, told.get("worker"), error or "", trace or "")

    def fold(self, at_least: int = 1) -> None:
        """Turn what was noted into columns of numbers, if it is so many tasks or more."""
        if len(self.rows) < at_least * ROW:
            return
        columns = [self.rows[place::ROW] for place in range(ROW)]
        parts = [self.parts[place::PART] for place in range(PART)]
        self.rows.clear()  # not new lists: who notes holds these
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
        """Return the columns of what the tasks of these workers did beside computing."""
        places, actions, sources, starts, stops = parts
        seen = set(actions)
        if any(action[:4] == "disk" for action in seen):
            # Disk is still on the worker's clock; compute and transfer were shifted already.
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
        """Return by how much the clock of a worker is behind, for what it timed itself."""
        states = {worker: self.scheduler.workers.get(worker) for worker in set(workers)}
        delays = {w: 0.0 if state is None else state.time_delay for w, state in states.items()}
        return [
            delays[worker] if action[:4] == "disk" else 0.0
            for worker, action in zip(workers, actions, strict=True)
        ]

    def _count(self, groups: list) -> dict[Any, int | None]:
        """Add to the groups' counts; return their numbers, None for one that has none."""
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
        """Return the tables of what was kept since the last time, as bytes."""
        self.fold()
        keys = "\n".join(map(str, self.keys))
        if keys.count("\n") >= max(1, len(self.keys)):  # a key with a line of its own in it
            keys = "\n".join(str(key).replace("\n", "\\n") for key in self.keys)
        tables = {
            "tasks": {name: bytes(column) for name, column in self.tasks.items()},
            "keys": (keys + "\n" * bool(self.keys)).encode("utf-8", "backslashreplace"),
            "task_events": {name: bytes(column) for name, column in self.events.items()},
        }
        self._fresh()
        return tables


def _only(kept: Any, columns: list[list], parts: list[list]) -> tuple[list[list], list[list]]:
    """Return columns with the rows of `kept` alone, and the parts of those tasks."""
    new = {old * ROW: place * ROW for place, old in enumerate(kept)}
    columns = [[column[row] for row in kept] for column in columns]
    chosen = [index for index, place in enumerate(parts[0]) if place in new]
    parts = [[column[index] for index in chosen] for column in parts]
    parts[0] = [new[place] for place in parts[0]]
    return columns, parts


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Stand where the scheduler's own function would."""
