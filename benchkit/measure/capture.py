"""The capture: a scheduler plugin and a worker probe that watch one run.

This file is sent by value to schedulers and workers that do not have benchkit, of any release of
distributed from 2023.4.1 on, so it imports the standard library and distributed only, and nothing
of ours. It decides nothing: it appends to columns, which the client drains (`observe`).

Four rules keep it cheap and harmless. `transition` returns first for the four in five calls that
are not the end of a task, and otherwise keeps its arguments for the next look, 0.25 s later (kept
for good they would be 1 kB a task; the columns take 45 B). What a release of distributed does not
tell is NaN. Nothing here may raise into the scheduler: what goes wrong is noted in `errors` and
travels home with the data. And a client that is gone is noticed: the capture then removes itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
from array import array
from collections import defaultdict
from typing import Any

import distributed
from distributed import profile
from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin
from distributed.metrics import time
from distributed.protocol.pickle import dumps

__all__ = [
    "ACTIONS",
    "EVENT_COLUMNS",
    "SAMPLE_COLUMNS",
    "SCHEDULER_COLUMNS",
    "TASK_COLUMNS",
    "Capture",
    "Probe",
]

#: Beyond this many tasks the stream stops and counts what it drops; sums by group stay exact.
MAX_TASKS = 5_000_000
MAX_ERRORS = 100
MAX_EVENTS = 100_000
MAX_LOG_LINES = 1000
TEXT_CHARS = 4096
#: A transfer takes 48 B in its worker, so that all of them take 24 MB.
MAX_TRANSFERS = 500_000
#: Call stacks come from this many workers, evenly chosen: with hundreds, one is like another.
MAX_PROFILED = 64

#: Seconds between looks at the event loop: 20 callbacks a second cost nothing that can be seen.
LAG_TICK_S = 0.05
#: Seconds between samples; heartbeats, at 0.5 s and more, are the true resolution.
SAMPLE_TICK_S = 0.25
#: Seconds that the end of a run waits for the workers' last heartbeats, then for their reports.
TAIL_TIMEOUT_S = 4.0
REPORT_TIMEOUT_S = 6.0
REMOTE_TIMEOUT_S = 10.0
#: Seconds that it then waits for all probes to be gone; those three fit into a client's call.
REMOVAL_PATIENCE_S = 2.0
#: A client drains each second. When it has not called for so long, it was killed.
ABANDONED_AFTER_S = 120.0

NAN = float("nan")
ACTIONS = ("compute", "transfer", "disk-read", "disk-write", "deserialize", "other")
_ACTION_IDS = {name: index for index, name in enumerate(ACTIONS)}
#: How a task leaves `processing` when it ran: to the end, with an error, or to be tried again.
_ENDS = {"memory": 1, "erred": 0, "released": -1}
#: A task is released for other reasons, too; that it failed shows in what caused it.
_FAILED_ATTEMPTS = ("task-erred", "run-spec-deserialize-failed", "execute-unknown-error")
_IDLE_TALK = ("DEBUG", "INFO")

#: Columns of the stream, with the type codes of `array`.
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


_MEMORY = ("process", "managed", "unmanaged_old", "unmanaged_recent", "spilled")
#: Column -> where it is found, starting from a worker's `state`, its `memory`, its last `beat`
#: (the heartbeat's metrics), the `probe` in it, or the `counts` of its tasks by state.
_OF_WORKER = {
    **{name: f"memory {name}" for name in _MEMORY},
    **{
        name: f"probe {name}"
        for name in ("rss_peak", "cpu_time", "net_read_total", "io_read", "io_write", "tick_max")
    },
    "cpu": "beat cpu",
    "net_read": "beat host_net_io read_bps",
    "net_write": "beat host_net_io write_bps",
    "disk_read": "beat host_disk_io read_bps",
    "disk_write": "beat host_disk_io write_bps",
    "gil": "beat gil_contention",
    "num_fds": "beat num_fds",
    "executing": "counts executing",
    "ready": "counts ready",
    "in_memory": "counts memory",
    "transfer_incoming_bytes": "beat transfer incoming_bytes",
    "transfer_incoming_count": "beat transfer incoming_count",
    "transfer_incoming_total": "beat transfer incoming_count_total",
    "transfer_outgoing_bytes": "beat transfer outgoing_bytes",
    "transfer_outgoing_count": "beat transfer outgoing_count",
    "bandwidth": "beat bandwidth total",
    "time_delay": "state time_delay",
}
#: The same for the `scheduler`: its `memory`, system `monitor`, `sizes` of tables, loop `lag`.
_OF_SCHEDULER = {
    "lag_mean": "lag mean",
    "lag_max": "lag max",
    "cpu": "monitor cpu",
    "rss": "monitor memory",
    "n_workers": "sizes workers",
    "n_tasks": "sizes tasks",
    "queued": "sizes queued",
    "unrunnable": "sizes unrunnable",
    "occupancy": "scheduler total_occupancy",
    "transitions": "sizes transitions",
    **{name: f"memory {name}" for name in _MEMORY},
}
SAMPLE_COLUMNS = ("time", "worker", *_OF_WORKER)
SCHEDULER_COLUMNS = ("time", *_OF_SCHEDULER)
_WORKER_PATHS = [tuple(place.split()) for place in _OF_WORKER.values()]
_SCHEDULER_PATHS = [tuple(place.split()) for place in _OF_SCHEDULER.values()]


def _look_up(found: Any, path: tuple[str, ...]) -> float:
    """Follow a path of items and attributes to a number; NaN where this release has none."""
    try:
        for step in path:
            found = found[step] if isinstance(found, dict) else getattr(found, step)
        return float(found)
    except (AttributeError, KeyError, TypeError, ValueError):
        return NAN


def _typed(codes: dict[str, str], columns: Any) -> dict[str, array]:
    filled = zip(codes.items(), columns, strict=True)
    return {name: array(code, values) for (name, code), values in filled}


def _text(value: Any, limit: int = TEXT_CHARS) -> str:
    """Return text that UTF-8 can carry, its end if it is long: half a surrogate pair is escaped."""
    return str(value)[-limit:].encode("utf-8", "backslashreplace").decode()


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


# -- on the worker ----------------------------------------------------------------------------


class Probe(WorkerPlugin):
    """Adds to a worker's heartbeat what the worker alone knows, and reports once at the end."""

    def __init__(self, name: str, level: str) -> None:
        self.name = name
        self.level = level

    def setup(self, worker: Any) -> None:
        """Start when the worker joins."""
        self.worker = worker
        self.lag = LoopLag()
        self.peak = 0
        # The high-water mark belongs to the process: who resets it tells all other probes in it,
        # of other captures and, where workers share a process, of other workers.
        self.siblings = vars(distributed).setdefault("_benchkit_probes", {})
        self.siblings[self.name, worker.address] = self
        self.peers: dict[str, int] = {}
        self.transfers = array("d")
        self.n_missed = 0
        self.logs = (worker.transfer_incoming_log, worker.transfer_outgoing_log)
        self.newest = [log[-1] if log else None for log in self.logs]
        worker.metrics[self.name] = self.read
        worker.handlers[f"{self.name}_report"] = self.report

    def teardown(self, worker: Any) -> None:
        """Leave no trace; a worker that closes in peace says so, because one that dies cannot."""
        if worker.status.name.startswith("closing"):
            with contextlib.suppress(Exception):
                worker.log_event(self.name, {"leaving": worker.address})
        worker.metrics.pop(self.name, None)
        worker.handlers.pop(f"{self.name}_report", None)
        self.siblings.pop((self.name, worker.address), None)
        if not self.siblings:
            vars(distributed).pop("_benchkit_probes", None)
        self.lag.stop()

    def read(self, worker: Any) -> dict[str, float]:
        """Return the values of this heartbeat."""
        self._note_transfers()
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

    def _note_transfers(self) -> None:
        """Copy what is new in the worker's own logs, which keep the last 1000 only."""
        for direction, log in enumerate(self.logs):
            fresh: list[dict] = []
            for entry in reversed(log):
                if entry is self.newest[direction]:
                    break
                fresh.append(entry)
            else:
                self.n_missed += bool(log) and len(log) == log.maxlen  # at least one
            if fresh:
                self.newest[direction] = fresh[0]
            for entry in reversed(fresh):
                if len(self.transfers) >= 6 * MAX_TRANSFERS:
                    self.n_missed += 1
                    continue
                who = str(entry.get("who"))
                self.transfers.extend(
                    (
                        direction,
                        self.peers.setdefault(who, len(self.peers)),
                        entry["stop"],
                        entry["total"],
                        NAN if entry.get("compressed") is None else entry["compressed"],
                        entry["duration"],
                    )
                )

    def report(self, start: float, stop: float) -> dict[str, Any]:
        """Return what is asked for once, when the clock has stopped: plain lists and numbers."""
        out: dict[str, Any] = {"errors": []}
        questions: dict[str, Any] = {"transfers": self._sum_transfers, "logs": self._log_lines}
        if self.level == "full":
            questions |= {"profile": self._call_stacks, "memory": self._trimmed_memory}
        for name, ask in questions.items():
            try:
                out[name] = ask(start, stop)
            except Exception as error:
                out["errors"].append(f"{name}: {type(error).__name__}: {_text(error, 200)}")
        if self.n_missed:
            out["errors"].append(f"transfers: {self.n_missed} or more were not counted")
        return out

    def _sum_transfers(self, start: float, stop: float) -> list[list]:
        """Return rows of outgoing 0 or 1, peer's address, count, bytes, compressed, seconds."""
        self._note_transfers()
        peers = list(self.peers)
        sums: dict[tuple, list[float]] = {}
        rows = iter(self.transfers)
        for direction, peer, moment, nbytes, compressed, seconds in zip(*[rows] * 6, strict=True):
            if start <= moment <= stop:
                found = sums.setdefault((int(direction), peers[int(peer)]), [0, 0.0, 0.0, 0.0])
                for index, value in enumerate((1, nbytes, compressed, seconds)):
                    found[index] += value
        return [[*pair, *found] for pair, found in sums.items()]

    def _log_lines(self, start: float, stop: float) -> list[list]:
        return _warnings(self.worker, start - self.worker.scheduler_delay)

    def _call_stacks(self, start: float, stop: float) -> dict[str, list]:
        """Return the call stacks of tasks, sampled by the worker itself, as a flat tree.

        Nodes are rows of (parent or -1, index of the frame, count), a parent before its children;
        the roots' frames are prefixes of tasks.
        """
        worker = self.worker
        by_prefix: dict[str, list[dict]] = defaultdict(list)
        for moment, trees in list(worker.profile_keys_history):
            if start <= moment <= stop + 1:  # a cycle of a second ends after what it tells of
                for prefix, tree in trees.items():
                    by_prefix[prefix].append(tree)
        for prefix, tree in worker.profile_keys.items():
            by_prefix[prefix].append(tree)
        frames: dict[tuple, int] = {}
        nodes: list[int] = []
        for prefix, trees in by_prefix.items():
            tree = profile.merge(*trees)
            if tree["count"]:
                _flatten(tree, (_text(prefix), "", 0), frames, nodes)
        return {"frames": [list(frame) for frame in frames], "nodes": nodes}

    def _trimmed_memory(self, start: float, stop: float) -> float:
        """Return RSS in B after free memory was given back; NaN where that would be no measure."""
        if any(name != self.name for name, _ in self.siblings):
            return NAN  # somebody else is measuring here, whose memory this would change
        import ctypes

        try:
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        except (OSError, AttributeError):
            return NAN  # not Linux with the GNU library
        return float(self.worker.monitor.proc.memory_info().rss)


def _flatten(tree: dict, root: tuple, frames: dict[tuple, int], nodes: list[int]) -> None:
    stack = [(tree, -1, root)]
    while stack:  # not by recursion: stacks of tasks can be as deep as Python's own
        node, parent, frame = stack.pop()
        number = len(nodes) // 3
        nodes += [parent, frames.setdefault(frame, len(frames)), node["count"]]
        for child in node["children"].values():
            code = child["description"]
            place = (_text(code["name"]), _text(code["filename"]), code["line_number"])
            stack.append((child, number, place))


def _warnings(server: Any, start: float) -> list[list]:
    """Return rows of time, level, text that a server logged since `start`, on its own clock."""
    lines = server.get_logs(start=start, timestamps=True)
    kept = [line for line in lines if line[1] not in _IDLE_TALK][:MAX_LOG_LINES]
    return [[moment, level, _text(text)] for moment, level, text in reversed(kept)]


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


# -- on the scheduler -------------------------------------------------------------------------


class Capture(SchedulerPlugin):
    """Watches one run on the scheduler. `level` is "full" or "light" (no stream, no stacks)."""

    def __init__(self, name: str, level: str = "full") -> None:
        self.name = name
        self.level = level
        self.probe = dumps(Probe(name, level))

    # -- life ---------------------------------------------------------------------------------

    async def start(self, scheduler: Any) -> None:
        """Install the handlers and the probe; called by the scheduler when it registers us."""
        self.scheduler = scheduler
        self.on = False
        self.t_on = self.t_off = NAN
        self.heard = time()
        self.patience_s = ABANDONED_AFTER_S
        self.errors: list[str] = []
        self.workers: dict[Any, int] = {}  # by address, those that left included
        self.worker_info: list[dict] = []
        self.sent_away: set[str] = set()
        self.groups: dict[Any, int] = {}
        self.group_list: list[Any] = []
        self.baselines: list[tuple[dict, int]] = []
        self.counts: list[list[int]] = []  # per group: ended, erred, retried
        self.threads: dict[Any, int] = {}
        self.last_seen: dict[str, float] = {}
        self.fine_before: dict = {}
        self.transitions_before = 0
        self.n_tasks = self.n_dropped = self.n_errors = 0
        self.n_events = self.n_events_dropped = self.n_steals = 0
        self.stream = self.level == "full"
        self.rows: list[tuple] = []
        self.parts: list[tuple] = []
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
            answers = await asyncio.wait_for(
                method(None, name=self.name, **kwargs), REMOTE_TIMEOUT_S
            )
        except Exception as error:
            self._note("probe", error)
            return
        for address, answer in answers.items():
            if isinstance(answer, dict) and answer.get("status") == "error":
                self._note("probe", f"{address}: {answer.get('text') or 'it did not start'}")

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

    def _note(self, where: str, what: Any) -> None:
        if isinstance(what, BaseException):
            what = f"{type(what).__name__}: {what}".rstrip(": ")
        line = f"{where}: {_text(what, 300)}"
        if line not in self.errors and len(self.errors) < 20:
            self.errors.append(line)

    # -- handlers, called by the client -------------------------------------------------------

    async def handle_on(self) -> dict:
        """Start the clock: what happened before is the baseline. Returns the moment."""
        self.heard = time()
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
        self.heard = self.t_off = time()
        self.on = False
        self._sample()
        return {"t_off": self.t_off}

    async def handle_drain(self, ack: int = 0, groups: bool = False) -> dict:
        """Hand over what was gathered since the answer numbered `ack`.

        An answer is kept until the next call acknowledges it, so a lost reply loses nothing.
        """
        self.heard = time()
        if self.pending is not None and self.pending["sequence"] != ack:
            return self.pending
        self.sequence += 1
        self.pending = {"sequence": self.sequence, "tables": self._take(groups)}
        return self.pending

    async def handle_end(self, ack: int = 0, wait: bool = True) -> dict:
        """Wait for the last heartbeats, hand over the rest, uninstall everything."""
        self.heard = time()
        stop = self.t_off if self.t_off == self.t_off else time()
        last: dict[str, Any] = {}
        if wait:
            await self._await_heartbeats(stop)
            if self.t_on == self.t_on:
                last = await self._last_words(self.t_on, stop)
        if self.sample_handle is not None and self.t_on == self.t_on:
            self._sample()
        rest = [self.pending] if self.pending and self.pending["sequence"] != ack else []
        self.sequence += 1
        rest.append({"sequence": self.sequence, "tables": {**self._take(groups=True), **last}})
        self.removal = asyncio.ensure_future(self.uninstall())
        # A worker that hangs must not keep what all others said from the client.
        await asyncio.wait([self.removal], timeout=REMOVAL_PATIENCE_S)
        return {"segments": rest}

    async def uninstall(self) -> None:
        """Remove the plugin, its handlers, timers and probes; safe to call twice."""
        await self.close()
        scheduler = self.scheduler
        for op in ("on", "off", "drain", "end"):
            scheduler.handlers.pop(f"{self.name}_{op}", None)
        scheduler.plugins.pop(self.name, None)
        if self.name in scheduler.worker_plugins:
            await self._probe_call(scheduler.unregister_worker_plugin)

    async def close(self) -> None:
        """Stop the timers; also called when the scheduler closes."""
        self.on = False
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

    def transition(
        self,
        key: Any,
        start: str,
        finish: str,
        *args: Any,
        stimulus_id: str = "",
        worker: Any = None,
        thread: Any = None,
        nbytes: Any = None,
        startstops: Any = (),
        **kwargs: Any,
    ) -> None:
        """Note the end of a task; everything else returns at once. This runs five times a task."""
        if start != "processing" or not self.on or finish not in _ENDS:
            return
        if finish == "released" and not stimulus_id.startswith(_FAILED_ATTEMPTS):
            return
        try:
            task = self.scheduler.tasks[key]
            index = self.groups.get(task.group)
            if index is None:
                index = self._group_id(task.group)
            ok = _ENDS[finish]
            if ok != 1:
                self.counts[index][1 if ok == 0 else 2] += 1
                if ok < 0:
                    return
                self._task_erred(task, worker, kwargs)
            self.counts[index][0] += 1
            if not self.stream:
                return
            if self.n_tasks >= MAX_TASKS:
                self.n_dropped += 1
                return
            begin = stop = NAN
            for entry in startstops or ():
                action = entry["action"]
                if action == "compute":
                    begin, stop = entry["start"], entry["stop"]
                else:
                    source = entry.get("source")
                    part = (self.n_tasks, action, source, entry["start"], entry["stop"], worker)
                    self.parts.append(part)
            self.rows.append((index, worker, thread, ok, nbytes, begin, stop, key))
            self.n_tasks += 1
        except Exception as error:
            self.n_dropped += self.stream
            self.parts = [part for part in self.parts if part[0] < self.n_tasks]  # not the next's
            self._note("transition", error)

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Give a worker that joins its index."""
        self._guarded(self._fold)  # an address may come back as another worker
        self._guarded(self._meet, worker, scheduler.workers[worker])
        self._guarded(self._event, "add-worker", worker, {})

    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        """Note when a worker left."""
        index = self.workers.get(worker, -1)
        if index >= 0:
            self.worker_info[index]["left"] = time()
        self._guarded(self._event, "remove-worker", worker, {})

    def restart(self, scheduler: Any) -> None:
        """Remember who is about to be sent away: they are no losses."""
        self.sent_away |= set(scheduler.workers)
        self._guarded(self._event, "restart", None, {})

    def log_event(self, topic: Any, msg: Any) -> None:
        """Keep the scheduler's own events that a run is asked about later."""
        self._guarded(self._log_event, topic, msg)

    def _guarded(self, method: Any, *args: Any) -> None:
        try:
            method(*args)
        except Exception as error:
            self._note(method.__name__.strip("_"), error)

    def _log_event(self, topic: Any, msg: Any) -> None:
        if topic == self.name:
            self.sent_away.add(msg["leaving"])
        elif topic == "stealing":
            if isinstance(msg, (list, tuple)) and msg and msg[0] == "confirm":
                self.n_steals += self.on
                self._event("steal", msg[4] if len(msg) > 4 else None, {"key": str(msg[1])})
        elif not isinstance(msg, dict):
            return
        elif topic == "worker-fail-hard":
            self._event(topic, None, {"error": _text(msg.get("text", ""), 300)})
        elif topic == "worker-restart-memory":
            self._event(topic, msg.get("worker"), {"rss": msg.get("rss")})
        elif topic == "all" and msg.get("action") == "worker-status-change":
            self._event("worker-status-change", msg.get("worker"), {"status": msg.get("status")})
        elif topic == "all" and msg.get("action") == "remove-worker":
            facts = {
                "n_lost": len(msg.get("lost-computed-tasks") or ()),
                "n_processing": len(msg.get("processing-tasks") or ()),
                # None before 2024: nobody said. False also for those whom somebody sent away by a
                # restart or by scaling.
                "expected": msg.get("worker") in self.sent_away or msg.get("expected"),
            }
            self._event("worker-removed", msg.get("worker"), facts)

    def _event(self, topic: str, worker: Any, message: dict) -> None:
        if self.n_events >= MAX_EVENTS:
            self.n_events_dropped += 1
            return
        self.n_events += 1
        self.events.append((time(), topic, self.workers.get(worker, -1), json.dumps(message)))

    def _task_erred(self, task: Any, address: Any, kwargs: dict) -> None:
        self.n_errors += 1
        if self.n_errors > MAX_ERRORS:
            return
        text = kwargs.get("exception_text") or getattr(task, "exception_text", "")
        trace = kwargs.get("traceback_text") or getattr(task, "traceback_text", "")
        if not text and task.suspicious:
            # Nobody raised it: the scheduler gives up on a task that workers died of.
            text = f"KilledWorker: {task.suspicious} workers died while they ran it"
        worker = self.workers.get(address, -1)
        row = (time(), _text(task.key), worker, _text(text or ""), _text(trace or ""))
        self.task_errors.append(row)

    # -- gathering ----------------------------------------------------------------------------

    def _meet(self, address: str, state: Any) -> None:
        self.sent_away.discard(address)
        index = self.workers[address] = len(self.worker_info)
        self.worker_info.append(
            {
                "worker": index,
                "address": address,
                "name": _text(state.name),
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

    def _fold(self) -> None:
        """Turn rows into columns: tuples are quick to make, columns are small to keep."""
        rows, self.rows = self.rows, []
        parts, self.parts = self.parts, []
        if not rows:
            return
        try:
            groups, workers, threads, oks, sizes, begins, stops, keys = zip(*rows, strict=True)
            seats = self.threads
            columns = (
                groups,
                [self.workers.get(address, -1) for address in workers],
                [seats.setdefault(seat, len(seats)) for seat in zip(workers, threads, strict=True)],
                oks,
                [-1 if size is None else size for size in sizes],
                begins,
                [stop - begin for begin, stop in zip(begins, stops, strict=True)],
            )
            tasks = _typed(TASK_COLUMNS, columns)
            event_rows = [self._event_row(*part) for part in parts]
            events = _typed(EVENT_COLUMNS, zip(*event_rows, strict=True)) if parts else {}
        except Exception as error:
            self.n_tasks -= len(rows)
            self.n_dropped += len(rows)
            self._note("fold", error)
            return
        self.keys.extend(keys)
        for table, fresh in ((self.tasks, tasks), (self.task_events, events)):
            for name, values in fresh.items():
                table[name].extend(values)

    def _event_row(
        self, task: int, action: str, source: Any, start: float, stop: float, worker: Any
    ) -> tuple:
        if action[:4] == "disk":
            # Still on the worker's clock; compute and transfer were shifted already.
            state = self.scheduler.workers.get(worker)
            delay = state.time_delay if state is not None else 0.0
            start, stop = start + delay, stop + delay
        return task, _ACTION_IDS.get(action, 5), self.workers.get(source, -1), start, stop

    def _sample_tick(self) -> None:
        # Half a heartbeat: on large clusters heartbeats are seconds apart, and so are samples.
        pause = max(SAMPLE_TICK_S, len(self.scheduler.workers) / 400)
        self.sample_handle = self.lag.loop.call_later(pause, self._sample_tick)
        if self.t_on == self.t_on:
            self._sample()
        if time() - self.heard > self.patience_s:
            self.removal = asyncio.ensure_future(self.uninstall())

    def _sample(self) -> None:
        self._guarded(self._fold)
        self._guarded(self._sample_workers)
        self._guarded(self._sample_scheduler)

    def _sample_workers(self) -> None:
        now = time()
        for address, state in list(self.scheduler.workers.items()):
            if self.last_seen.get(address) == state.last_seen:
                continue
            self.last_seen[address] = state.last_seen
            beat = state.metrics
            counts = beat.get("task_counts")
            if counts is not None:  # it names only those states that a task is in
                counts = {"executing": 0, "ready": 0, "memory": 0, **counts}
            found = {
                "state": state,
                "beat": beat,
                "probe": beat.get(self.name),
                "counts": counts,
            }
            with contextlib.suppress(KeyError, TypeError):  # it reads the heartbeat, too
                found["memory"] = state.memory
            index = self.workers.get(address, -1)
            self.samples.extend([now, index, *(_look_up(found, p) for p in _WORKER_PATHS)])

    def _sample_scheduler(self) -> None:
        scheduler = self.scheduler
        mean, longest = self.lag.read()
        sizes = {
            name: len(getattr(scheduler, name))
            for name in ("workers", "tasks", "queued", "unrunnable")
            if hasattr(scheduler, name)
        }
        sizes["transitions"] = scheduler.transition_counter - self.transitions_before
        found = {
            "scheduler": scheduler,
            "monitor": scheduler.monitor.recent(),
            "sizes": sizes,
            "lag": {"mean": mean, "max": longest},
        }
        with contextlib.suppress(KeyError, TypeError):
            found["memory"] = scheduler.memory
        self.scheduler_samples.extend([time(), *(_look_up(found, p) for p in _SCHEDULER_PATHS)])

    # -- handing over -------------------------------------------------------------------------

    def _take(self, groups: bool) -> dict:
        """Return what was gathered as plain columns (bytes, lists) and start afresh."""
        self._guarded(self._fold)
        keys = "\n".join(map(str, self.keys))
        if keys.count("\n") >= max(1, len(self.keys)):  # a key with a line of its own in it
            keys = "\n".join(str(key).replace("\n", "\\n") for key in self.keys)
        tables: dict[str, Any] = {
            "tasks": {name: column.tobytes() for name, column in self.tasks.items()},
            "keys": (keys + "\n" * bool(self.keys)).encode("utf-8", "backslashreplace"),
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
                "n_events_dropped": self.n_events_dropped,
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
            tables["group_names"] = [_text(group.name) for group in self.group_list]
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
                    "name": _text(group.name),
                    "seconds": {k: v - before.get(k, 0.0) for k, v in seconds.items()},
                    "nbytes": nbytes - bytes_before,
                    "n_tasks": counts[0],
                    "n_erred": counts[1],
                    "n_retried": counts[2],
                    "start": group.start or NAN,
                    "stop": group.stop or NAN,
                    "prefix": _text(getattr(prefix, "name", None) or ""),
                    "dependencies": sorted(_text(dep.name) for dep in group.dependencies),
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
            words = [_text(word) for word in key]
            prefix = words[1] if len(words) > 3 else ""
            rows[words[0], prefix, words[-2], words[-1]] += value
        return [(*key, float(value)) for key, value in rows.items()]

    # -- what is asked for once, at the end ---------------------------------------------------

    async def _last_words(self, start: float, stop: float) -> dict[str, Any]:
        """Ask all workers for their reports; nannies and scheduler for their logs."""
        states = dict(self.scheduler.workers)
        msg = {"op": f"{self.name}_report", "start": start, "stop": stop}
        # One by one, so that a worker that hangs takes no other's report with it.
        asked = [self._ask(msg, [address]) for address in states]
        log_msg = {"op": "get_logs", "start": start, "timestamps": True}
        with_nanny = [address for address, state in states.items() if state.nanny]
        *answers, logs = await asyncio.gather(*asked, self._ask(log_msg, with_nanny, nanny=True))
        reports: dict[str, Any] = {}
        every = max(1, -(-len(states) // MAX_PROFILED))
        for number, (address, answer) in enumerate(zip(states, answers, strict=True)):
            report = answer.get(address)
            if not isinstance(report, dict):
                self._note("report", f"none came from {address}")
                continue
            for line in report.pop("errors", ()):
                self._note(f"report of {address}", line)
            if number % every:
                report.pop("profile", None)
            reports[str(self.workers.get(address, -1))] = report
        out: dict[str, Any] = {"reports": reports}
        self._guarded(self._span_rows, out)
        self._guarded(self._other_logs, out, logs, start)
        return out

    async def _ask(self, msg: dict, workers: list[str], **options: Any) -> dict:
        call = self.scheduler.broadcast(msg=msg, workers=workers, on_error="ignore", **options)
        try:
            return await asyncio.wait_for(call, REPORT_TIMEOUT_S)
        except Exception as error:
            self._note(msg["op"].rpartition("_")[2], error)
            return {}

    def _other_logs(self, out: dict, answers: dict, start: float) -> None:
        """Add what the scheduler and the nannies logged, rows of (who, time, level, text)."""
        rows = [["scheduler", *line] for line in _warnings(self.scheduler, start)]
        # Nannies in one process share their handler: each line once.
        lines = {tuple(line) for answer in answers.values() for line in answer}
        serious = sorted(line for line in lines if line[1] not in _IDLE_TALK)[-MAX_LOG_LINES:]
        rows += [["nanny", moment, level, _text(text)] for moment, level, text in serious]
        out["logs"] = rows

    def _span_rows(self, out: dict) -> None:
        """Add the spans that tasks of this run belong to, and the spans around those."""
        extension = self.scheduler.extensions.get("spans")  # since 2023.6
        if extension is None:
            return
        used = [getattr(group, "span_id", None) for group in self.group_list]
        wanted: dict[str, Any] = {}
        for index, span_id in enumerate(used):
            span = extension.spans.get(span_id) if self.counts[index][0] else None
            while span is not None:
                wanted[span.id] = span
                span = span.parent
        numbers = ("enqueued", "start", "stop", "active_cpu_seconds")
        out["spans"] = [
            [
                span.id,
                _text("/".join(span.name)),
                span.parent.id if span.parent is not None else "",
                *(_look_up(span, (name,)) or NAN for name in numbers),
            ]
            for span in wanted.values()
        ]


def _group_totals(group: Any) -> tuple[dict[str, float], int]:
    return dict(group.all_durations), group.nbytes_total
