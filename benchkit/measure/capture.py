"""The capture: a scheduler plugin and a worker probe that watch one run.

This file is sent by value to schedulers and workers that do not have benchkit, of any release of
distributed from 2023.4.1 on, so it imports the standard library and distributed only, and nothing
of ours. It decides nothing: it appends to columns, which the client drains (`observe`).

Three rules keep it cheap and harmless. `transition` returns first for the four in five calls that
are not the end of a task. Rows go into `array` columns with interned ids, about 45 B a task
(keeping the keyword arguments would be 1 kB). Nothing here may raise into the scheduler: what goes
wrong is counted in `errors` and travels home with the data.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
from array import array
from collections import defaultdict
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin
from distributed.metrics import time
from distributed.protocol.pickle import dumps

__all__ = ["Capture", "Probe", "TASK_COLUMNS", "SAMPLE_COLUMNS", "SCHEDULER_COLUMNS", "ACTIONS"]

#: Beyond this many tasks the stream stops and counts what it drops; sums by group stay exact.
MAX_TASKS = 5_000_000
MAX_ERRORS = 100
MAX_EVENTS = 100_000
TRACEBACK_CHARS = 4096

#: Seconds between looks at the event loop: 20 callbacks a second cost nothing that can be seen.
LAG_TICK_S = 0.05
#: Seconds between samples; heartbeats, at 0.5 s and more, are the true resolution.
SAMPLE_TICK_S = 0.25
#: Seconds that the end of a run waits for the workers' last heartbeats.
TAIL_TIMEOUT_S = 4.0
REMOTE_TIMEOUT_S = 10.0

ACTIONS = ("compute", "transfer", "disk-read", "disk-write", "deserialize", "other")
_ACTION_IDS = {name: index for index, name in enumerate(ACTIONS)}

TASK_COLUMNS = {
    "group": "i",
    "worker": "i",
    "thread": "i",
    "ok": "b",
    "nbytes": "q",
    "start": "d",
    "duration": "d",
}
EVENT_COLUMNS = {"task": "q", "action": "b", "source": "i", "start": "d", "stop": "d"}
SAMPLE_COLUMNS = (
    "time",
    "worker",
    "process",
    "managed",
    "unmanaged_old",
    "unmanaged_recent",
    "spilled",
    "rss_peak",
    "cpu",
    "cpu_time",
    "net_read",
    "net_write",
    "disk_read",
    "disk_write",
    "net_read_total",
    "io_read",
    "io_write",
    "tick_max",
    "gil",
    "executing",
    "ready",
    "in_memory",
    "num_fds",
    "transfer_incoming_bytes",
    "transfer_incoming_count",
    "transfer_incoming_total",
    "transfer_outgoing_bytes",
    "transfer_outgoing_count",
    "bandwidth",
    "time_delay",
)
SCHEDULER_COLUMNS = (
    "time",
    "lag_mean",
    "lag_max",
    "cpu",
    "rss",
    "n_workers",
    "n_tasks",
    "queued",
    "unrunnable",
    "occupancy",
    "transitions",
    "process",
    "managed",
    "unmanaged_old",
    "unmanaged_recent",
    "spilled",
)
NAN = float("nan")


class LoopLag:
    """How late an event loop's own timer comes: mean and maximum since the last look.

    `digests_max["tick-duration"]` would tell too, but each Prometheus scrape resets it.
    """

    def __init__(self) -> None:
        self.total = self.longest = 0.0
        self.count = 0
        self.loop = asyncio.get_running_loop()
        self.due = self.loop.time() + LAG_TICK_S
        self.handle = self.loop.call_at(self.due, self._tick)

    def _tick(self) -> None:
        now = self.loop.time()
        lag = max(0.0, now - self.due)
        self.total += lag
        self.count += 1
        self.longest = max(self.longest, lag)
        self.due = now + LAG_TICK_S
        self.handle = self.loop.call_at(self.due, self._tick)

    def read(self) -> tuple[float, float]:
        """Return (mean, longest) in seconds since the last call, this moment included."""
        overdue = max(0.0, self.loop.time() - self.due)
        mean = self.total / self.count if self.count else overdue
        longest = max(self.longest, overdue)
        self.total = self.longest = 0.0
        self.count = 0
        return mean, longest

    def stop(self) -> None:
        self.handle.cancel()


class Probe(WorkerPlugin):
    """Adds to a worker's heartbeat what the worker alone knows. Rides along; makes no calls."""

    def __init__(self, name: str) -> None:
        self.name = name

    def setup(self, worker: Any) -> None:
        """Start when the worker joins."""
        self.lag = LoopLag()
        self.peak = 0
        # The high-water mark belongs to the process: who resets it tells all other probes of it.
        self.siblings = worker.__dict__.setdefault("_benchkit_probes", {})
        self.siblings[self.name] = self
        worker.metrics[self.name] = self.read

    def teardown(self, worker: Any) -> None:
        """Leave no trace."""
        worker.metrics.pop(self.name, None)
        self.siblings.pop(self.name, None)
        self.lag.stop()

    def read(self, worker: Any) -> dict[str, float]:
        """Return the values of this heartbeat."""
        peak = _high_water_mark()
        for probe in list(self.siblings.values()):
            probe.peak = max(probe.peak, peak)
        out = {"rss_peak": self.peak or NAN, "tick_max": self.lag.read()[1]}
        self.peak = 0
        process = worker.monitor.proc
        with contextlib.suppress(Exception):
            cpu = process.cpu_times()
            out["cpu_time"] = cpu.user + cpu.system
        with contextlib.suppress(Exception):
            counters = process.io_counters()
            out["io_read"], out["io_write"] = counters.read_bytes, counters.write_bytes
        with contextlib.suppress(Exception):
            import psutil

            out["net_read_total"] = psutil.net_io_counters().bytes_recv
        return out


def _high_water_mark() -> int:
    """Return the highest RSS of this process since the last call in bytes, or 0 if unknown.

    Linux keeps it as VmHWM; writing 5 to clear_refs starts it anew (proc(5)).
    """
    try:
        with open("/proc/self/status", "rb") as file:
            for line in file:
                if line.startswith(b"VmHWM:"):
                    peak = int(line.split()[1]) * 1024
                    break
            else:
                return 0
        with open("/proc/self/clear_refs", "wb") as file:
            file.write(b"5")
    except OSError:
        return 0
    return peak


class Capture(SchedulerPlugin):
    """Watches one run on the scheduler. `level` is "full" or "light" (no stream of tasks)."""

    def __init__(self, name: str, level: str = "full") -> None:
        self.name = name
        self.level = level
        self.probe = dumps(Probe(name))

    # -- life ---------------------------------------------------------------------------------

    async def start(self, scheduler: Any) -> None:
        """Install the handlers and the probe; called by the scheduler when it registers us."""
        self.scheduler = scheduler
        self.stream = self.level == "full"
        self.on = False
        self.t_on = self.t_off = NAN
        self.errors: list[str] = []
        self.workers: dict[Any, int] = {}
        self.worker_info: list[dict] = []
        self.groups: dict[Any, int] = {}
        self.group_list: list[Any] = []
        self.baselines: list[tuple[dict, int]] = []
        self.counts: list[list[int]] = []  # per group: ended, erred, retried
        self.threads: dict[Any, int] = {}
        self.last_seen: dict[str, float] = {}
        self.fine_before: dict = {}
        self.transitions_before = 0
        self.n_tasks = self.n_dropped = self.n_errors = self.n_events = self.n_steals = 0
        self.pending: dict | None = None
        self.sequence = 0
        self._fresh_buffers()
        for address, state in list(scheduler.workers.items()):
            self._meet(address, state)
        self.lag = LoopLag()
        self.sample_handle: Any = self.lag.loop.call_later(SAMPLE_TICK_S, self._sample_tick)
        for op in ("on", "off", "drain", "end"):
            scheduler.handlers[f"{self.name}_{op}"] = getattr(self, f"handle_{op}")
        await self._probe_call(scheduler.register_worker_plugin, plugin=self.probe)

    async def _probe_call(self, method: Any, **kwargs: Any) -> None:
        if "idempotent" in inspect.signature(method).parameters:
            kwargs["idempotent"] = False
        try:
            await asyncio.wait_for(method(None, name=self.name, **kwargs), REMOTE_TIMEOUT_S)
        except Exception as error:
            self._note(f"probe: {type(error).__name__}: {error}")

    def _fresh_buffers(self) -> None:
        self.tasks: dict[str, Any] = {name: array(code) for name, code in TASK_COLUMNS.items()}
        self.keys: list[Any] = []
        self.task_events: dict[str, Any] = {
            name: array(code) for name, code in EVENT_COLUMNS.items()
        }
        self.samples = array("d")
        self.scheduler_samples = array("d")
        self.events: list[tuple] = []
        self.task_errors: list[tuple] = []

    def _note(self, text: str) -> None:
        if len(self.errors) < 20:
            self.errors.append(text)

    # -- handlers, called by the client -------------------------------------------------------

    async def handle_on(self) -> dict:
        """Start the clock: what happened before is the baseline. Returns the moment."""
        await self._await_heartbeats(time())
        for group in self.scheduler.task_groups.values():
            self._group_id(group)
        self.baselines = [_group_totals(group) for group in self.group_list]
        self.fine_before = dict(self.scheduler.cumulative_worker_metrics)
        self.transitions_before = self.scheduler.transition_counter
        self.lag.read()
        self.last_seen.clear()
        self.on = True
        self.t_on = time()
        self._sample()
        return {"t_on": self.t_on}

    async def handle_off(self) -> dict:
        """Stop the clock. Returns the moment; samples go on until the tail is in."""
        self.t_off = time()
        self.on = False
        self._sample()
        return {"t_off": self.t_off}

    async def handle_drain(self, ack: int = 0, groups: bool = False) -> dict:
        """Hand over what was gathered since the answer numbered `ack`.

        An answer is kept until the next call acknowledges it, so a lost reply loses nothing.
        """
        if self.pending is not None and self.pending["sequence"] != ack:
            return self.pending
        self.sequence += 1
        self.pending = {"sequence": self.sequence, "tables": self._take(groups)}
        return self.pending

    async def handle_end(self, ack: int = 0, wait: bool = True) -> dict:
        """Wait for the last heartbeats, hand over the rest, uninstall everything."""
        if wait:
            await self._await_heartbeats(self.t_off if self.t_off == self.t_off else time())
        if self.sample_handle is not None:
            self._sample()
        rest = [self.pending] if self.pending and self.pending["sequence"] != ack else []
        self.sequence += 1
        rest.append({"sequence": self.sequence, "tables": self._take(groups=True)})
        await self.uninstall()
        return {"segments": rest}

    async def uninstall(self) -> None:
        """Remove the plugin, its handlers, timers and probes; safe to call twice."""
        self.on = False
        self.lag.stop()
        if self.sample_handle is not None:
            self.sample_handle.cancel()
            self.sample_handle = None
        scheduler = self.scheduler
        for op in ("on", "off", "drain", "end"):
            scheduler.handlers.pop(f"{self.name}_{op}", None)
        scheduler.plugins.pop(self.name, None)
        if self.name in scheduler.worker_plugins:
            await self._probe_call(scheduler.unregister_worker_plugin)

    async def close(self) -> None:
        """Stop the timers when the scheduler closes."""
        self.lag.stop()
        if self.sample_handle is not None:
            self.sample_handle.cancel()
            self.sample_handle = None

    async def _await_heartbeats(self, after: float) -> None:
        """Wait until each worker has reported since `after`: the tail of its metrics is in it."""
        give_up = time() + TAIL_TIMEOUT_S
        while time() < give_up:
            states = list(self.scheduler.workers.values())
            if all(state.last_seen > after for state in states):
                return
            await asyncio.sleep(0.02)

    # -- hooks, called by the scheduler -------------------------------------------------------

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Note the end of a task. Everything else returns at once."""
        if start != "processing" or not self.on:
            return
        if finish == "memory":
            ok = 1
        elif finish == "erred":
            ok = 0
        elif finish == "waiting":
            ok = -1  # it raised and has retries left
        else:
            return
        task = self.scheduler.tasks.get(key)
        if task is None:
            return
        index = self.groups.get(task.group)
        if index is None:
            index = self._group_id(task.group)
        counts = self.counts[index]
        if ok < 0:
            counts[2] += 1
            return
        counts[0] += 1
        if not ok:
            counts[1] += 1
            self._task_erred(key, kwargs)
        if not self.stream:
            return
        if self.n_tasks >= MAX_TASKS:
            self.n_dropped += 1
            return
        startstops = kwargs.get("startstops") or ()
        begin, duration = NAN, NAN
        events = self.task_events
        worker = self.workers.get(kwargs.get("worker"), -1)
        for entry in startstops:
            action = entry["action"]
            if action == "compute":
                begin = entry["start"]
                duration = entry["stop"] - begin
                continue
            a, b = entry["start"], entry["stop"]
            if action[:4] == "disk":
                # Still on the worker's clock; compute and transfer were shifted already.
                state = self.scheduler.workers.get(kwargs.get("worker"))
                delay = state.time_delay if state is not None else 0.0
                a, b = a + delay, b + delay
            events["task"].append(self.n_tasks)
            events["action"].append(_ACTION_IDS.get(action, 5))
            events["source"].append(self.workers.get(entry.get("source"), -1))
            events["start"].append(a)
            events["stop"].append(b)
        thread = (worker, kwargs.get("thread"))
        number = self.threads.get(thread)
        if number is None:
            number = self.threads[thread] = len(self.threads)
        tasks = self.tasks
        tasks["group"].append(index)
        tasks["worker"].append(worker)
        tasks["thread"].append(number)
        tasks["ok"].append(ok)
        nbytes = kwargs.get("nbytes")
        tasks["nbytes"].append(-1 if nbytes is None else nbytes)
        tasks["start"].append(begin)
        tasks["duration"].append(duration)
        self.keys.append(key)
        self.n_tasks += 1

    def _task_erred(self, key: Any, kwargs: dict) -> None:
        self.n_errors += 1
        if self.n_errors > MAX_ERRORS:
            return
        state = self.scheduler.tasks.get(key)
        text = kwargs.get("exception_text") or getattr(state, "exception_text", "") or ""
        trace = kwargs.get("traceback_text") or getattr(state, "traceback_text", "") or ""
        worker = self.workers.get(kwargs.get("worker"), -1)
        self.task_errors.append((time(), str(key), worker, text, trace[-TRACEBACK_CHARS:]))

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Give a worker that joins its index."""
        self._meet(worker, scheduler.workers[worker])
        self._event("add-worker", worker, {})

    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        """Note when a worker left."""
        index = self.workers.pop(worker, None)
        if index is not None:
            self.worker_info[index]["left"] = time()
        self._event("remove-worker", index if index is not None else -1, {})

    def log_event(self, topic: Any, msg: Any) -> None:
        """Keep the scheduler's own events that a run is asked about later."""
        if topic == "stealing":
            if isinstance(msg, (list, tuple)) and msg and msg[0] == "confirm":
                if self.on:
                    self.n_steals += 1
                self._event("steal", msg[4] if len(msg) > 4 else None, {"key": str(msg[1])})
        elif topic == "worker-restart-memory" and isinstance(msg, dict):
            self._event(topic, msg.get("worker"), {"rss": msg.get("rss")})
        elif topic == "all" and isinstance(msg, dict):
            action = msg.get("action")
            if action == "worker-status-change":
                self._event(action, msg.get("worker"), {"status": msg.get("status")})
            elif action == "remove-worker":
                self._event(
                    "worker-removed",
                    msg.get("worker"),
                    {
                        "n_lost": len(msg.get("lost-computed-tasks") or ()),
                        "n_processing": len(msg.get("processing-tasks") or ()),
                        "expected": msg.get("expected"),  # None before 2024: nobody said
                    },
                )

    def _event(self, topic: str, worker: Any, message: dict) -> None:
        if self.n_events >= MAX_EVENTS:
            return
        self.n_events += 1
        index = worker if isinstance(worker, int) else self.workers.get(worker, -1)
        if index == -1 and isinstance(worker, str):
            for info in reversed(self.worker_info):
                if info["address"] == worker:
                    index = info["worker"]
                    break
        self.events.append((time(), topic, index, json.dumps(message)))

    # -- gathering ----------------------------------------------------------------------------

    def _meet(self, address: str, state: Any) -> None:
        index = len(self.worker_info)
        self.workers[address] = index
        self.worker_info.append(
            {
                "worker": index,
                "address": address,
                "name": str(state.name),
                "host": state.host,
                "nthreads": state.nthreads,
                "memory_limit": state.memory_limit or 0,
                "joined": time(),
                "left": None,
            }
        )

    def _group_id(self, group: Any) -> int:
        index = self.groups.get(group)
        if index is None:
            index = self.groups[group] = len(self.group_list)
            self.group_list.append(group)
            self.counts.append([0, 0, 0])
            if len(self.baselines) < len(self.group_list):
                self.baselines.append(({}, 0))
        return index

    def _sample_tick(self) -> None:
        # Half a heartbeat: on large clusters heartbeats are seconds apart, and so are samples.
        pause = max(SAMPLE_TICK_S, len(self.scheduler.workers) / 400)
        self.sample_handle = self.lag.loop.call_later(pause, self._sample_tick)
        if self.t_on == self.t_on:
            self._sample()
            # Hold on to groups none of whose tasks ended yet: the scheduler forgets a group
            # with its last task. Those that ended one are known from `transition`.
            for group in self.scheduler.task_groups.values():
                self._group_id(group)

    def _sample(self) -> None:
        try:
            self._sample_workers()
            self._sample_scheduler()
        except Exception as error:
            self._note(f"sample: {type(error).__name__}: {error}")

    def _sample_workers(self) -> None:
        now = time()
        for address, state in list(self.scheduler.workers.items()):
            if self.last_seen.get(address) == state.last_seen:
                continue
            self.last_seen[address] = state.last_seen
            metrics, memory = state.metrics, state.memory
            ours = metrics.get(self.name) or {}
            net, disk = metrics.get("host_net_io") or {}, metrics.get("host_disk_io") or {}
            counts, transfer = metrics.get("task_counts") or {}, metrics.get("transfer") or {}
            gil = metrics.get("gil_contention")
            self.samples.extend(
                (
                    now,
                    self.workers.get(address, -1),
                    memory.process,
                    memory.managed,
                    memory.unmanaged_old,
                    memory.unmanaged_recent,
                    memory.spilled,
                    ours.get("rss_peak", NAN),
                    metrics.get("cpu", NAN),
                    ours.get("cpu_time", NAN),
                    net.get("read_bps", NAN),
                    net.get("write_bps", NAN),
                    disk.get("read_bps", NAN),
                    disk.get("write_bps", NAN),
                    ours.get("net_read_total", NAN),
                    ours.get("io_read", NAN),
                    ours.get("io_write", NAN),
                    ours.get("tick_max", NAN),
                    NAN if gil is None else gil,
                    counts.get("executing", 0),
                    counts.get("ready", 0),
                    counts.get("memory", 0),
                    metrics.get("num_fds", NAN),
                    transfer.get("incoming_bytes", NAN),
                    transfer.get("incoming_count", NAN),
                    transfer.get("incoming_count_total", NAN),
                    transfer.get("outgoing_bytes", NAN),
                    transfer.get("outgoing_count", NAN),
                    (metrics.get("bandwidth") or {}).get("total", NAN),
                    state.time_delay,
                )
            )

    def _sample_scheduler(self) -> None:
        scheduler = self.scheduler
        recent = scheduler.monitor.recent()
        lag_mean, lag_max = self.lag.read()
        memory = scheduler.memory
        self.scheduler_samples.extend(
            (
                time(),
                lag_mean,
                lag_max,
                recent.get("cpu", NAN),
                recent.get("memory", NAN),
                len(scheduler.workers),
                len(scheduler.tasks),
                len(getattr(scheduler, "queued", ())),
                len(scheduler.unrunnable),
                scheduler.total_occupancy,
                scheduler.transition_counter - self.transitions_before,
                memory.process,
                memory.managed,
                memory.unmanaged_old,
                memory.unmanaged_recent,
                memory.spilled,
            )
        )

    # -- handing over -------------------------------------------------------------------------

    def _take(self, groups: bool) -> dict:
        """Return what was gathered as plain columns (bytes, lists) and start afresh."""
        tables: dict[str, Any] = {
            "tasks": {name: column.tobytes() for name, column in self.tasks.items()},
            "keys": [str(key) for key in self.keys],
            "task_events": {name: column.tobytes() for name, column in self.task_events.items()},
            "samples": self.samples.tobytes(),
            "scheduler": self.scheduler_samples.tobytes(),
            "events": self.events,
            "task_errors": self.task_errors,
            "workers": self.worker_info,
            "state": {
                "t_on": self.t_on,
                "t_off": self.t_off,
                "now": time(),
                "n_dropped": self.n_dropped,
                "n_errors": self.n_errors,
                "n_steals": self.n_steals,
                "transitions": self.scheduler.transition_counter - self.transitions_before,
                "errors": list(self.errors),
            },
        }
        if groups or len(self.group_list) <= 200:
            tables["groups"] = self._group_rows()
            tables["fine"] = self._fine_rows()
        else:
            # Names alone, so that a stream without its last snapshot can still be read.
            tables["group_names"] = [group.name for group in self.group_list]
        self._fresh_buffers()
        return tables

    def _group_rows(self) -> list[dict]:
        rows = []
        for group, (before, bytes_before), counts in zip(
            self.group_list, self.baselines, self.counts, strict=True
        ):
            seconds, nbytes = _group_totals(group)
            prefix = getattr(group, "prefix", None)
            rows.append(
                {
                    "name": group.name,
                    "seconds": {k: v - before.get(k, 0.0) for k, v in seconds.items()},
                    "nbytes": nbytes - bytes_before,
                    "n_tasks": counts[0],
                    "n_erred": counts[1],
                    "n_retried": counts[2],
                    "start": group.start or NAN,
                    "stop": group.stop or NAN,
                    "prefix": getattr(prefix, "name", None) or "",
                    "dependencies": sorted(dep.name for dep in group.dependencies),
                    "span": getattr(group, "span_id", None) or "",
                }
            )
        return rows

    def _fine_rows(self) -> list[tuple]:
        rows: dict[tuple, float] = defaultdict(float)
        for key, value in self.scheduler.cumulative_worker_metrics.items():
            if not isinstance(key, tuple) or len(key) < 3:
                continue
            value -= self.fine_before.get(key, 0)
            if not value:
                continue
            words = [str(word) for word in key]
            prefix = words[1] if len(words) > 3 else ""
            rows[words[0], prefix, words[-2], words[-1]] += value
        return [(*key, float(value)) for key, value in rows.items()]


def _group_totals(group: Any) -> tuple[dict[str, float], int]:
    return dict(group.all_durations), group.nbytes_total
