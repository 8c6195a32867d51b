"""Poll the scheduler's own state for what plugin hooks would otherwise report.

The scheduler calls each plugin at every transition, five times per task, and these calls cost more
than the rest of the capture. Therefore the capture unregisters its plugin while the clock runs and
polls the event log and the set of workers four times a second. At level "light" it also polls
failed tasks and new task groups. Sums come from the task groups at both levels; the number of
finished tasks is the scheduler's own count.

A group that begins and ends between two polls is visible only in the counters of its prefix, which
never decrease: the difference between a prefix and its observed groups becomes a row named after
the prefix.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import islice
from typing import Any

from dask.utils import key_split
from distributed.metrics import time
from distributed.utils import key_split_group

from benchkit.measure.capture.cluster_events import EventLog
from benchkit.measure.capture.cluster_hooks import ScatteredData
from benchkit.measure.capture.columns import text
from benchkit.measure.capture.task_groups import TaskGroups, row_of

TOPICS = ("all", "stealing", "worker-fail-hard", "worker-restart-memory")
#: Seconds; a smaller rest comes from rounding each duration to a microsecond.
MIN_REST_S = 1e-3


def topic_log(scheduler: Any, topic: str) -> tuple[Any, int]:
    """Return the events of a topic of the scheduler's event log."""
    broker = getattr(scheduler, "_broker", None)  # since 2024.7
    if broker is not None:
        entry = broker._topics.get(topic)
        return (entry.events, entry.count) if entry is not None else ((), 0)
    return scheduler.events.get(topic, ()), scheduler.event_counts.get(topic, 0)


class SchedulerPoller:
    """Find and record changes of the scheduler's state since the last poll."""

    def __init__(
        self,
        scheduler: Any,
        plugin: Any,
        groups: TaskGroups,
        event_log: EventLog,
        scattered: ScatteredData,
        *,
        tasks: bool,
    ) -> None:
        self.scheduler, self.plugin, self.tasks = scheduler, plugin, tasks
        self.groups, self.event_log = groups, event_log
        self.n_unseen = 0
        self.scattered = scattered
        #: Number of failed tasks by name of their group, of tasks that were released meanwhile.
        self.released_failures: Counter[str] = Counter()
        # The capture's topic is read first: a worker that logged there that it closes is not lost.
        self.topics = (event_log.name, *TOPICS)
        self.started = time()
        self.n_read = {
            topic: topic_log(self.scheduler, topic)[1]
            for topic in (*self.topics, *scheduler.workers)
        }
        self.last_failure = next(iter(scheduler.erred_tasks), None)
        self.workers_before = dict(scheduler.workers)
        self.ended_before = {group: _ended(group) for group in groups.members}
        self.prefixes_before = {
            prefix: (prefix.state_counts["memory"], dict(prefix.all_durations))
            for prefix in scheduler.task_prefixes.values()
        }

    def poll(self) -> None:
        """Record everything that changed since the last call."""
        scheduler, plugin = self.scheduler, self.plugin
        workers = dict(scheduler.workers)
        joined = [
            address
            for address, state in workers.items()
            if self.workers_before.get(address) is not state
        ]
        # The same address may now belong to another worker.
        left = [
            address
            for address in self.workers_before
            if address not in workers or address in joined
        ]
        times = self._worker_event_times() if joined or left else {}
        for address in joined:
            if address in left:
                plugin.remove_worker(scheduler, address, moment=times.get(("remove", address)))
            plugin.add_worker(scheduler, address, moment=times.get(("add", address)))
        # A status change of a worker is logged under its address.
        for topic in (
            *self.topics,
            *workers,
            *(address for address in left if address not in workers),
        ):
            self._read_log(topic)
        for address in left:
            if address not in workers:
                plugin.remove_worker(scheduler, address, moment=times.get(("remove", address)))
        self.workers_before = workers
        self.poll_tasks()

    def poll_tasks(self) -> None:
        """Record new task groups and failed tasks, of which the scheduler keeps the last 100."""
        if self.tasks and self.event_log.counting:
            self._poll_groups()
            self._poll_failures()

    def _worker_event_times(self) -> dict[tuple[str, Any], float]:
        """Return times at which workers joined ("add") and left ("remove") since the last poll."""
        _, new = self._new_events("all")
        return {
            (action.removesuffix("-worker"), msg.get("worker")): moment
            for moment, msg in new
            if isinstance(msg, dict)
            and (action := msg.get("action")) in ("add-worker", "remove-worker")
        }

    def _new_events(self, topic: str) -> tuple[int, list[Any]]:
        """Return the number of new events of a topic, and those that the scheduler still has."""
        events, count = topic_log(self.scheduler, topic)
        new = count - self.n_read.get(topic, 0)
        return new, [*islice(reversed(events), new)][::-1] if new else []

    def _read_log(self, topic: str) -> None:
        new, events = self._new_events(topic)
        if not new:
            return
        self.n_read[topic] = self.n_read.get(topic, 0) + new
        self.event_log.n_dropped += max(0, new - len(events))
        for moment, msg in events:
            if moment >= self.started:  # a returning worker has old events
                self.event_log.add_scheduler_event(topic, msg, moment)

    def _poll_groups(self) -> None:
        new = []
        for group in reversed(self.scheduler.task_groups.values()):  # newest last
            if group in self.groups.numbers:
                break
            new.append(group)
        for group in reversed(new):
            self.groups.number(group)

    def _poll_failures(self) -> None:
        new = []
        for failure in self.scheduler.erred_tasks:  # newest first
            if failure is self.last_failure:
                break
            new.append(failure)
        else:
            # If all entries of a full deque are new, at least one was overwritten.
            self.n_unseen += len(new) == self.scheduler.erred_tasks.maxlen
        if not new:
            return
        self.last_failure = new[0]
        # Also groups that the scheduler has forgotten.
        observed = {group.name: group for group in self.groups.members}
        for failure in reversed(new):
            task = self.scheduler.tasks.get(failure.key)
            name = key_split_group(failure.key)
            group = self.scheduler.task_groups.get(name) or observed.get(name)
            if task is not None:
                group = task.group
            if group is not None:
                self.groups.counts[self.groups.number(group)][1] += 1
            else:
                self.released_failures[name] += 1
            address = next(iter(failure.erred_on), None)
            self.event_log.add_failure(
                failure if task is None else task,
                address,
                failure.exception_text,
                failure.traceback_text,
            )

    # -- counts of tasks ----------------------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of task groups."""
        self._count()
        unattributed = self._unattributed_rows()
        released = [
            {**row_of(text(name), {}, [n, n, 0], retries=False), "prefix": text(key_split(name))}
            for name, n in self.released_failures.items()
        ]
        return [*self.groups.rows(retries=False), *unattributed, *released]

    def _count(self) -> None:
        for number, group in enumerate(self.groups.members):
            counts = self.groups.counts[number]
            counts[0] = _ended(group) - self.ended_before.get(group, 0)
            if hasattr(group, "_types"):
                counts[0] += counts[1]
            if not hasattr(group, "_types"):
                counts[0] -= self.scattered.by_group[group.name]

    def _unattributed_rows(self) -> list[dict[str, Any]]:
        numbers: dict[Any, list[Any]] = defaultdict(list)
        for number, group in enumerate(self.groups.members):
            numbers[group.prefix].append(number)
        rows = []
        # A restart clears the scheduler's task_prefixes.
        prefixes = dict.fromkeys(self.prefixes_before)
        prefixes.update(dict.fromkeys([*self.scheduler.task_prefixes.values(), *numbers]))
        for prefix in prefixes:
            count_before, before = self.prefixes_before.get(prefix, (0, {}))
            count = prefix.state_counts["memory"] - count_before
            count -= self.scattered.by_prefix[prefix.name]
            if not count and not numbers[prefix]:
                continue
            seconds = {
                action: value - before.get(action, 0.0)
                for action, value in dict(prefix.all_durations).items()
            }
            for number in numbers[prefix]:
                count -= self.groups.counts[number][0] - self.groups.counts[number][1]
                for action, value in self.groups.seconds(number).items():
                    seconds[action] = seconds.get(action, 0.0) - value
            if count and sum(seconds.values()) < MIN_REST_S and len(numbers[prefix]) == 1:
                # In older releases a released task looks the same whether it ran or not.
                self.groups.counts[numbers[prefix][0]][0] += count
            elif count > 0:
                positive = {action: max(0.0, value) for action, value in seconds.items()}
                rows.append(row_of(text(prefix.name), positive, [count, 0, 0], retries=False))
        return rows


def _ended(group: Any) -> int:
    """Return the number of tasks of a group that produced a result.

    Before 2024.6 failed tasks are contained: a task that was forgotten looks the same.
    """
    types = getattr(group, "_types", None)  # number of results by type
    if types is not None:
        return sum(types.values())
    return int(sum(group.states[state] for state in ("memory", "erred", "forgotten")))
