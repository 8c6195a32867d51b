"""Samples over time: metrics of each worker's heartbeats, and state of the scheduler."""

from __future__ import annotations

import contextlib
from array import array
from collections import Counter
from itertools import chain
from time import perf_counter, process_time, thread_time
from typing import Any

from distributed.metrics import time

from benchkit.measure.capture.columns import NAN, SAMPLE_PATHS, SCHEDULER, SCHEDULER_PATHS, look_up
from benchkit.measure.capture.loop_lag import LoopLag
from benchkit.measure.capture.process import GcPauses, Processors, ThreadSampler
from benchkit.measure.capture.task_groups import TaskGroups

#: Samples of the bytes by task group take at most this share of the time.
HELD_SHARE = 0.005
#: Seconds between two such samples, as between heartbeats.
HELD_EVERY_S = 0.5
#: With more results the sample is omitted: it would block the loop for 50 ms.
MAX_RESULTS = 300_000
#: With more pairs of group and worker a sample has the sums of the groups alone.
MAX_PAIRS = 2000
#: With more tasks on workers than this, those with restrictions are not counted: it takes 5 ms.
MAX_COUNTED = 20_000
#: Values of the worker plugin that are maxima since its last heartbeat.
MAXIMA = ("rss_peak", "tick_max", "gc_max")


class Samples:
    """Rows of numbers: a row per new heartbeat of a worker, a row per sample of the scheduler."""

    def __init__(
        self,
        name: str,
        scheduler: Any,
        workers: dict[Any, int],
        groups: TaskGroups,
        lag: LoopLag,
    ) -> None:
        self.name, self.scheduler, self.workers, self.lag = name, scheduler, workers, lag
        self.groups, self.gc = groups, GcPauses()
        self.next_held = self.next_restricted = 0.0
        self.threads, self.processors = ThreadSampler(time), Processors()
        #: By worker index, or SCHEDULER: why the times of its threads are not known.
        self.threads_absent = {SCHEDULER: self.threads.times.absent}
        self.last_seen: dict[str, float] = {}
        #: By address: arrival of each heartbeat since the last sample, and the worker plugin's
        #: values in it. Between two samples a worker can send several, and the scheduler keeps one.
        self.unread: dict[str, list[tuple[float, dict[str, Any]]]] = {}
        #: By worker index: time of the newest memory sample that was read, and seconds that the
        #: scheduler's clock is ahead of the worker's: the smallest difference between the arrival
        #: of a heartbeat and its newest sample, which includes the shortest time on the way.
        self.last_memory: dict[int, float] = {}
        self.ahead: dict[int, float] = {}
        self.transitions_before = 0
        self._reset()

    def _reset(self) -> None:
        self.worker_values, self.scheduler_values = array("d"), array("d")
        self.memory_values, self.held_values = array("d"), array("d")
        self.thread_values = array("d")

    def begin(self) -> None:
        """Discard the state from before the clock started."""
        self.transitions_before = self.scheduler.transition_counter
        self.lag.read()
        self.last_seen.clear()

    @property
    def transitions(self) -> int:
        """Number of task transitions since the clock started."""
        return int(self.scheduler.transition_counter - self.transitions_before)

    def sample_workers(self) -> None:
        """Add a row for each worker with a new heartbeat since the last call."""
        now = time()
        for address, state in list(self.scheduler.workers.items()):
            if self.last_seen.get(address) == state.last_seen:
                continue
            self.last_seen[address] = state.last_seen
            metrics = state.metrics
            counts = metrics.get("task_counts")
            if counts is not None:  # absent for states without tasks
                counts = {"executing": 0, "ready": 0, "memory": 0, **counts}
            index = self.workers.get(address, -1)
            beats = self.unread.pop(address, None)
            if not beats and metrics.get(self.name):
                beats = [(state.last_seen, metrics[self.name])]
            sources = {
                "state": state,
                "beat": metrics,
                "probe": self._read(index, beats or []),
                "counts": counts,
                "status": {"paused": state.status.name == "paused"},
            }
            with contextlib.suppress(KeyError, TypeError):  # it reads the heartbeat too
                sources["memory"] = state.memory
            self.worker_values.extend([now, index, *[look_up(sources, p) for p in SAMPLE_PATHS]])
        for address in self.unread.keys() - self.scheduler.workers.keys():  # it has just left
            self._read(self.workers.get(address, -1), self.unread.pop(address))

    def note_heartbeat(self, arguments: dict[str, Any]) -> None:
        """Keep the worker plugin's values of a heartbeat until the next sample."""
        probe = arguments["metrics"].get(self.name)
        if probe:
            self.unread.setdefault(arguments["address"], []).append((time(), probe))

    def _read(self, index: int, beats: list[tuple[float, dict[str, Any]]]) -> dict[str, Any] | None:
        """Return the newest values of the worker plugin, with the maxima of all heartbeats."""
        for arrival, probe in beats:
            points = probe.get("memory") or b""
            self.add_memory(index, points)
            self._add_threads(index, probe.get("threads") or b"")
            self.threads_absent[index] = probe.get("threads_absent", "")
            if points:
                ahead = arrival - self.last_memory[index]
                self.ahead[index] = min(ahead, self.ahead.get(index, ahead))
        if not beats:
            return None
        known = {
            name: [probe[name] for _, probe in beats if probe[name] == probe[name]]
            for name in MAXIMA
        }
        maxima = {name: max(values, default=NAN) for name, values in known.items()}
        return {**beats[-1][1], **maxima}

    def add_memory(self, index: int, points: bytes) -> None:
        """Add the memory samples of a worker that are new."""
        values = array("d", points)
        last = self.last_memory.get(index, 0.0)
        for place in range(0, len(values), 4):
            if values[place] <= last:
                break
            self.memory_values.extend((values[place], index, *values[place + 1 : place + 4]))
        if values:
            self.last_memory[index] = max(last, values[0])

    def _add_threads(self, server: int, rows: bytes) -> None:
        values = array("d", rows)
        for place in range(0, len(values), 6):
            self.thread_values.extend((values[place], server, *values[place + 1 : place + 6]))

    def sample_scheduler(self) -> None:
        """Add a row for the current state of the scheduler."""
        scheduler = self.scheduler
        mean, longest = self.lag.read()
        sizes: dict[str, float] = {
            name: len(getattr(scheduler, name))
            for name in ("workers", "tasks", "queued", "unrunnable")
            if hasattr(scheduler, name)
        }
        sizes["transitions"] = self.transitions
        workers = scheduler.workers.values()
        sizes["paused"] = sum(state.status.name == "paused" for state in workers)
        sizes["restricted"] = self._count_restricted()
        self.threads.sample()
        self._add_threads(SCHEDULER, self.threads.drain())
        own = {
            "cpu_time": process_time(),
            "loop_cpu_time": thread_time(),
            **self.processors.facts(),
        }
        sources = {
            "scheduler": scheduler,
            "monitor": scheduler.monitor.recent(),
            "sizes": sizes,
            "lag": {"mean": mean, "max": longest},
            "own": {**own, **self.processors.facts()},
            "gc": dict(zip(("total", "max"), self.gc.read(), strict=True)),
        }
        with contextlib.suppress(KeyError, TypeError):
            sources["memory"] = scheduler.memory
        self.scheduler_values.extend([time(), *[look_up(sources, p) for p in SCHEDULER_PATHS]])

    def _count_restricted(self) -> float:
        """Return the number of tasks on workers, or without one, that only some workers may run."""
        # returned: NaN if counting them is not due, as it would take too long.
        now, begin = time(), perf_counter()
        processing = [state.processing for state in self.scheduler.workers.values()]
        if now < self.next_restricted or sum(map(len, processing)) > MAX_COUNTED:
            return NAN
        tasks = chain(*processing, getattr(self.scheduler, "unrunnable", ()))
        restricted = sum(
            bool(t.worker_restrictions or t.host_restrictions or t.resource_restrictions)
            for t in tasks
        )
        self.next_restricted = now + (perf_counter() - begin) / HELD_SHARE
        return float(restricted)

    def sample_held(self) -> None:
        """Add the bytes of results by task group and worker, if a sample is due."""
        now, begin = time(), perf_counter()
        states = self.scheduler.workers
        if now < self.next_held or sum(len(s.has_what) for s in states.values()) > MAX_RESULTS:
            return
        pairs: Counter[tuple[Any, int]] = Counter()
        for address, state in states.items():
            index = self.workers.get(address, -1)
            held: Counter[Any] = Counter()
            for task in state.has_what:
                held[task.group] += task.get_nbytes()
            pairs.update({(group, index): nbytes for group, nbytes in held.items()})
        if len(pairs) > MAX_PAIRS:
            totals: Counter[tuple[Any, int]] = Counter()
            for (group, _), nbytes in pairs.items():
                totals[group, -1] += nbytes
            pairs = totals
        if not pairs:
            self.held_values.extend((now, -1, -1, 0))
        for (group, index), nbytes in pairs.items():
            self.held_values.extend((now, self.groups.number(group), index, nbytes))
        self.next_held = now + max(HELD_EVERY_S, (perf_counter() - begin) / HELD_SHARE)

    def drain(self) -> dict[str, bytes]:
        """Return the tables gathered since the last call."""
        tables = {
            "samples": self.worker_values.tobytes(),
            "scheduler": self.scheduler_values.tobytes(),
            "memory": self.memory_values.tobytes(),
            "held": self.held_values.tobytes(),
            "threads": self.thread_values.tobytes(),
        }
        self._reset()
        return tables
