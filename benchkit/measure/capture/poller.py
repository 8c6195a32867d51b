"""Poll the scheduler's own state for what plugin hooks would otherwise report.

The scheduler calls each plugin at every transition, five times per task, and these calls cost more
than the rest of the capture. Therefore the capture unregisters its plugin while the clock runs and
polls the event log and the set of workers four times a second. At level "light" it also polls
failed tasks and new task groups. Sums come from the task groups at both levels; the number of
finished tasks is the scheduler's own count.

A group that begins and ends between two polls is visible only in the counters of its prefix, which
never decrease: what a prefix counts beyond its known groups becomes a row named after the prefix.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from typing import Any

from distributed.metrics import time

from benchkit.measure.capture.cluster_events import EventLog
from benchkit.measure.capture.columns import text
from benchkit.measure.capture.task_groups import Groups, row_of

__all__ = ["Poll"]

TOPICS = ("all", "stealing", "worker-fail-hard", "worker-restart-memory")
#: Seconds; a smaller rest comes from rounding each duration to a microsecond.
LEAST_REST_S = 1e-3


class Poll:
    """Find and record changes of the scheduler's state since the last poll.

    Parameters
    ----------
    scheduler : Scheduler
        The scheduler to poll.
    plugin : SchedulerPlugin
        Its `add_worker` and `remove_worker` are called for workers that joined and left.
    groups : Groups
        Receives task groups and the number of finished tasks in each.
    happenings : EventLog
        Receives events and failed tasks.
    tasks : bool
        Whether to poll task groups and failed tasks; False if the task stream records them.
    """

    def __init__(
        self, scheduler: Any, plugin: Any, groups: Groups, happenings: EventLog, *, tasks: bool
    ) -> None:
        self.scheduler, self.plugin, self.tasks = scheduler, plugin, tasks
        self.groups, self.happenings = groups, happenings
        self.n_unseen = 0
        # The capture's topic is read first: a worker that logged there that it closes is not lost.
        self.topics = (happenings.name, *TOPICS)
        self.began = time()
        self.read = {topic: self._log(topic)[1] for topic in (*self.topics, *scheduler.workers)}
        self.newest_failure = next(iter(scheduler.erred_tasks), None)
        self.present = dict(scheduler.workers)
        self.ended_before = {group: _ended(group) for group in groups.members}
        self.prefixes_before = {
            prefix: (prefix.state_counts["memory"], dict(prefix.all_durations))
            for prefix in scheduler.task_prefixes.values()
        }

    def look(self) -> None:
        """Record everything that changed since the last call."""
        scheduler, plugin = self.scheduler, self.plugin
        now = dict(scheduler.workers)
        came = [address for address, state in now.items() if self.present.get(address) is not state]
        # The same address may now belong to another worker.
        went = [address for address in self.present if address not in now or address in came]
        moments = self._moments() if came or went else {}
        for address in came:
            if address in went:
                plugin.remove_worker(scheduler, address, moment=moments.get(("remove", address)))
            plugin.add_worker(scheduler, address, moment=moments.get(("add", address)))
        # A status change of a worker is logged under its address.
        for topic in (*self.topics, *now, *(address for address in went if address not in now)):
            self._read_log(topic)
        for address in went:
            if address not in now:
                plugin.remove_worker(scheduler, address, moment=moments.get(("remove", address)))
        self.present = now
        if self.tasks and self.happenings.counting:
            self._find_groups()
            self._find_failures()

    def _moments(self) -> dict[tuple[str, Any], float]:
        """Return times at which workers joined ("add") and left ("remove") since the last poll."""
        _, fresh = self._fresh("all")
        return {
            (action.removesuffix("-worker"), msg.get("worker")): moment
            for moment, msg in fresh
            if isinstance(msg, dict)
            and (action := msg.get("action")) in ("add-worker", "remove-worker")
        }

    def _log(self, topic: str) -> tuple[Any, int]:
        """Return the kept events of a topic and the number of events ever logged."""
        broker = getattr(self.scheduler, "_broker", None)  # since 2024.7
        if broker is not None:
            found = broker._topics.get(topic)
            return (found.events, found.count) if found is not None else ((), 0)
        return self.scheduler.events.get(topic, ()), self.scheduler.event_counts.get(topic, 0)

    def _fresh(self, topic: str) -> tuple[int, list]:
        """Return the number of new events of a topic, and those that the scheduler still has."""
        events, count = self._log(topic)
        fresh = count - self.read.get(topic, 0)
        return fresh, [*islice(reversed(events), fresh)][::-1] if fresh else []

    def _read_log(self, topic: str) -> None:
        fresh, events = self._fresh(topic)
        if not fresh:
            return
        self.read[topic] = self.read.get(topic, 0) + fresh
        self.happenings.n_dropped += max(0, fresh - len(events))
        for moment, msg in events:
            if moment >= self.began:  # a returning worker has old events
                self.happenings.said(topic, msg, moment)

    def _find_groups(self) -> None:
        fresh = []
        for group in reversed(self.scheduler.task_groups.values()):  # newest last
            if group in self.groups.numbers:
                break
            fresh.append(group)
        for group in reversed(fresh):
            self.groups.number(group)

    def _find_failures(self) -> None:
        fresh = []
        for failure in self.scheduler.erred_tasks:  # newest first
            if failure is self.newest_failure:
                break
            fresh.append(failure)
        else:
            self.n_unseen += (
                len(fresh) == self.scheduler.erred_tasks.maxlen
            )  # at least one failure was not seen
        if not fresh:
            return
        self.newest_failure = fresh[0]
        for failure in reversed(fresh):
            task = self.scheduler.tasks.get(failure.key)
            if task is not None:
                self.groups.counts[self.groups.number(task.group)][1] += 1
            address = next(iter(failure.erred_on), None)
            self.happenings.failed(
                failure if task is None else task,
                address,
                failure.exception_text,
                failure.traceback_text,
            )

    # -- how many, and what no group tells ----------------------------------------------------

    def rows(self) -> list[dict]:
        """Return a row per known task group, and one per prefix with tasks in unknown groups."""
        self._count()
        rest = self._rest()
        return [*self.groups.rows(retries=False), *rest]

    def _count(self) -> None:
        for number, group in enumerate(self.groups.members):
            counts = self.groups.counts[number]
            counts[0] = _ended(group) - self.ended_before.get(group, 0) + counts[1]

    def _rest(self) -> list[dict]:
        seen: dict[Any, list] = defaultdict(list)
        for number, group in enumerate(self.groups.members):
            seen[group.prefix].append(number)
        rows = []
        # A restart clears the scheduler's task_prefixes.
        known = dict.fromkeys(self.prefixes_before)
        known.update(dict.fromkeys([*self.scheduler.task_prefixes.values(), *seen]))
        for prefix in known:
            count_before, before = self.prefixes_before.get(prefix, (0, {}))
            count = prefix.state_counts["memory"] - count_before
            if not count and not seen[prefix]:
                continue
            seconds = {
                action: value - before.get(action, 0.0)
                for action, value in dict(prefix.all_durations).items()
            }
            for number in seen[prefix]:
                count -= self.groups.counts[number][0] - self.groups.counts[number][1]
                for action, value in self.groups.seconds(number).items():
                    seconds[action] = seconds.get(action, 0.0) - value
            if count and sum(seconds.values()) < LEAST_REST_S and len(seen[prefix]) == 1:
                # In older releases a released task looks the same whether it ran or not.
                self.groups.counts[seen[prefix][0]][0] += count
            elif count > 0:
                positive = {action: max(0.0, value) for action, value in seconds.items()}
                rows.append(row_of(text(prefix.name), positive, [count, 0, 0], retries=False))
        return rows


def _ended(group: Any) -> int:
    """Return how many tasks of a group produced a result."""
    types = getattr(group, "_types", None)  # since 2024.6: number of results by type
    if types is not None:
        return sum(types.values())
    return group.states["memory"] + group.states["forgotten"]
