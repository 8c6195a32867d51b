"""The stream of tasks: what each ended with, noted as it comes, made columns a moment later.

A scheduler calls `transition` five times in the life of a task, and a task costs it 40 to 100 µs in
all. So the hook is a function of its own with what it needs in its closure; four times it returns
after one comparison. The fifth time it keeps numbers and names in one flat list: a tuple a task, or
the dictionaries that came, would live until the next look, and what they cost the memory allocator
and the garbage collector is more than all else. The columns made of it take 45 B a task.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable
from operator import add, sub
from typing import Any

from benchkit.measure.capture.columns import ACTIONS, EVENT_COLUMNS, NAN, TASK_COLUMNS, typed
from benchkit.measure.capture.groups import Groups

__all__ = ["Stream"]

#: Beyond this many tasks the stream stops and counts what it drops; sums by group stay exact.
MAX_TASKS = 5_000_000
#: A task is released for other reasons, too; that it failed shows in what caused it.
_FAILED_ATTEMPTS = ("task-erred", "run-spec-deserialize-failed", "execute-unknown-error")
#: How many values of the flat lists are one row.
ROW, PART = 8, 6
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
        self.lanes: dict[Any, dict[Any, int]] = {}
        self.n_tasks = self.n_dropped = self.n_lanes = 0
        #: Row after row of (group, key, worker, thread, bytes, begin, stop, ok), until folded;
        #: and of (place of its task, worker, action, source, start, stop).
        self.rows: list[Any] = []
        self.parts: list[Any] = []
        self._fresh()

    def _fresh(self) -> None:
        self.tasks: dict[str, Any] = {name: array(code) for name, code in TASK_COLUMNS.items()}
        self.events: dict[str, Any] = {name: array(code) for name, code in EVENT_COLUMNS.items()}
        self.keys: list[Any] = []

    def hook(self) -> Callable[..., None]:
        """Return the function to be called at each transition of a task."""
        rows, parts, tasks = self.rows, self.parts, self.scheduler.tasks
        extend, spread, left, note = rows.extend, parts.extend, self._left, self.note

        def transition(
            key: Any,
            start: str,
            finish: str,
            stimulus_id: str = "",
            worker: Any = None,
            thread: Any = None,
            nbytes: Any = None,
            startstops: Any = (),
            # Not used; but a name that a function does not list takes Python longer to pass.
            type: Any = None,
            typename: Any = None,
            metadata: Any = None,
            **more: Any,
        ) -> None:
            if start != "processing":
                return
            try:
                if finish == "memory":
                    ok = 1
                elif finish == "erred":
                    ok = 0
                    left(tasks[key], worker, more)
                elif finish == "released" and stimulus_id.startswith(_FAILED_ATTEMPTS):
                    self.groups.counts[self.groups.number(tasks[key].group)][2] += 1
                    return
                else:
                    return
                group, begin, stop = tasks[key].group, NAN, NAN
                for entry in startstops or ():
                    action = entry["action"]
                    if action == "compute":
                        begin, stop = entry["start"], entry["stop"]
                    else:
                        ends = entry["start"], entry["stop"]
                        spread((len(rows), worker, action, entry.get("source"), *ends))
                extend((group, key, worker, thread, nbytes, begin, stop, ok))
            except Exception as error:
                self.n_dropped += 1
                note("transition", error)

        return transition

    def _left(self, task: Any, worker: Any, more: dict) -> None:
        self.groups.counts[self.groups.number(task.group)][1] += 1
        error, trace = more.get("exception_text"), more.get("traceback_text")
        self.failed(task, worker, error or "", trace or "")

    def fold(self) -> None:
        """Turn what was noted into columns of numbers."""
        rows, parts = self.rows[:], self.parts[:]
        self.rows.clear()  # not new lists: the hook holds these
        self.parts.clear()
        if not rows:
            return
        count = len(rows) // ROW
        try:
            self._add(
                [rows[place::ROW] for place in range(ROW)],
                [parts[place::PART] for place in range(PART)],
            )
        except Exception as error:
            self.n_dropped += count
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
        tasks = typed(
            TASK_COLUMNS,
            (
                map(numbers.__getitem__, groups),
                map(known.__getitem__, workers),
                self._lanes(workers, threads),
                oks,
                sizes if None not in sizes else [-1 if size is None else size for size in sizes],
                begins,
                map(sub, stops, begins),
            ),
        )
        events = typed(EVENT_COLUMNS, self._events(parts))
        self.n_tasks += len(groups)
        self.keys.extend(keys)
        for table, fresh in ((self.tasks, tasks), (self.events, events)):
            for name, values in fresh.items():
                table[name].extend(values)

    def _events(self, parts: list[list]) -> tuple:
        """Return the columns of what tasks did beside computing."""
        places, workers, actions, sources, starts, stops = parts
        delays = {}
        for worker in set(workers):
            state = self.scheduler.workers.get(worker)
            delays[worker] = state.time_delay if state is not None else 0.0
        # Disk is still on the worker's clock; compute and transfer were shifted already.
        late = [
            delays[worker] if action[:4] == "disk" else 0.0
            for worker, action in zip(workers, actions, strict=True)
        ]
        return (
            [self.n_tasks + place // ROW for place in places],
            [_ACTION_IDS.get(action, 5) for action in actions],
            [self.workers.get(source, -1) for source in sources],
            map(add, starts, late),
            map(add, stops, late),
        )

    def _lanes(self, workers: list, threads: list) -> list[int]:
        """Return the number of each worker's thread, a new one for a new thread."""
        lanes = self.lanes
        try:
            return [lanes[worker][thread] for worker, thread in zip(workers, threads, strict=True)]
        except KeyError:
            for worker, thread in set(zip(workers, threads, strict=True)):
                of_worker = lanes.setdefault(worker, {})
                if thread not in of_worker:
                    of_worker[thread] = self.n_lanes
                    self.n_lanes += 1
        return self._lanes(workers, threads)

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
            "tasks": {name: column.tobytes() for name, column in self.tasks.items()},
            "keys": (keys + "\n" * bool(self.keys)).encode("utf-8", "backslashreplace"),
            "task_events": {name: column.tobytes() for name, column in self.events.items()},
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
