"""A process: CPU seconds, clock, garbage collections, waits for GIL and processors, its loop."""

from __future__ import annotations

import gc
import os
import sys
import threading
import traceback
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic, perf_counter, process_time, thread_time
from typing import Any

import distributed.worker
from distributed.metrics import time

from benchkit.measure.capture.columns import LOOP, MAIN, NAN, TASK, text
from benchkit.measure.capture.loop_lag import LoopLag
from benchkit.measure.capture.memory_sampler import MIN_INTERVAL_S, machine_number, process_number

#: A blocked loop is recorded from this many seconds on; also the time between two checks.
BLOCKED_S = 0.1
#: Innermost frames of a stack that are kept.
MAX_FRAMES = 25
#: Stacks of a blocked loop that a process keeps: after 20 s of them the cause is known.
MAX_STACKS = 200
#: A wall clock was set if it differs from the steady clock by more than this many seconds.
CLOCK_STEP_S = 0.02
#: Dask's monitor takes a sample each 0.5 s. If two are this many seconds apart or more, the event
#: loop was blocked in between.
MONITOR_GAP_S = 1.0
#: Seconds after which gilknocker has counted a wait for the GIL that has ended: it samples for
#: 0.01 s and looks each 0.1 s.
GIL_DELAY_S = 0.25
#: Samples at the ends of tasks are this many seconds apart or more in each thread: shorter tasks
#: would send more bytes about their waits than about themselves.
TASK_SAMPLES_S = 0.05
#: Rows that are kept while no heartbeat is received.
MAX_ROWS = 20_000
#: Folder of the control groups.
GROUPS = "/sys/fs/cgroup"


def process_cpu() -> tuple[int, int, float]:
    """Return the CPU seconds of this process, cumulative."""
    return machine_number(), process_number(), process_time()


def cpu_between(
    before: Sequence[Sequence[float]], after: Sequence[Sequence[float]]
) -> list[tuple[int, int, float]]:
    """Return the CPU seconds that processes used between two moments."""
    first = {(int(row[0]), int(row[1])): row[2] for row in before}
    last = {(int(row[0]), int(row[1])): row[2] for row in after}
    return [(*key, last[key] - first[key]) for key in first if key in last]


class GcPauses:
    """Seconds that the garbage collector of this process took, by Python's `gc.callbacks`."""

    def __init__(self) -> None:
        #: Seconds since the beginning, and the longest pause since the last `read`.
        self.total = self.longest = 0.0
        self.began = 0.0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self.began = perf_counter()
        elif self.began:
            pause = perf_counter() - self.began
            self.total += pause
            self.longest = max(self.longest, pause)

    def read(self) -> tuple[float, float]:
        """Return the sum of all pauses, and the longest since the last call."""
        longest, self.longest = self.longest, 0.0
        return self.total, longest

    def close(self) -> None:
        """Stop counting; safe to call twice."""
        with suppress(ValueError):
            gc.callbacks.remove(self._note)


class GilWaits:
    """Seconds that a thread of a worker's process waited for the GIL, from Dask's monitor.

    While the GIL is held the event loop is blocked, and the monitor reads gilknocker before its
    wait has been counted: the share of a blocked interval is in one of the samples after it.
    """

    def __init__(self, monitor: Any, lag: LoopLag) -> None:
        self.monitor, self.lag = monitor, lag
        #: Of a blocked interval whose share is not yet known: seconds that the loop was blocked,
        #: largest share since then, and end on the steady clock.
        self.pending: tuple[float, float, float] | None = None
        self.total = 0.0
        self.n_read = monitor.count
        self.end = monitor.last_time
        #: When was read how many seconds the loop had been blocked: the last read at or before
        #: `end`, and later ones. A heartbeat may come between a block and the sample after it.
        self.blocked = [(monotonic(), lag.blocked())]

    def sample(self) -> None:
        """Make the monitor add a sample now."""
        with suppress(Exception):
            self.monitor.update()
        self.read()

    def read(self) -> float:
        """Return the seconds so far."""
        # returned: Seconds; NaN without gilknocker.
        if "gil_contention" not in self.monitor.quantities:
            return float("nan")
        self.blocked.append((monotonic(), self.lag.blocked()))
        new = self.monitor.range_query(self.n_read)
        if not new["time"]:
            return self.total
        self.n_read = self.monitor.count
        # Ends of the samples on the steady clock.
        ahead = new["time"][-1] - self.monitor.last_time
        for moment, share in zip(new["time"], new["gil_contention"], strict=True):
            while len(self.blocked) > 1 and self.blocked[1][0] <= self.end:
                del self.blocked[0]
            seconds, self.end = moment - ahead - self.end, moment - ahead
            is_blocked = seconds > MONITOR_GAP_S
            if self.pending is not None:
                blocked_s, known, end = self.pending
                self.pending = blocked_s, max(known, share), end
                if is_blocked or self.end - end > GIL_DELAY_S:
                    self.total += blocked_s * max(known, share)
                    self.pending = None
                share = 0.0
            if is_blocked:
                blocked_s = min(seconds, self.blocked[-1][1] - self.blocked[0][1])
                self.pending = blocked_s, share, self.end
            elif self.pending is None:
                self.total += seconds * share
        return self.total

    def discard_pending(self) -> None:
        """Do not count a blocked interval whose share is not known yet."""
        if self.pending is not None:
            self.pending = 0.0, 0.0, self.pending[2]


class ClockWatch:
    """Seconds by which this process's wall clock was set."""

    def __init__(self) -> None:
        self.total = 0.0
        self.ahead = self._ahead()

    def read(self) -> float:
        """Return the seconds so far."""
        before, self.ahead = self.ahead, self._ahead()
        if abs(self.ahead - before) > CLOCK_STEP_S:
            self.total += self.ahead - before
        return self.total

    def _ahead(self) -> float:
        """Return the difference of both clocks, read within a millisecond if possible."""
        best, took = 0.0, float("inf")
        for _ in range(5):  # this thread may wait for a processor between two of the clocks
            begin, wall, end = monotonic(), time(), monotonic()
            if end - begin < took:
                best, took = wall - (begin + end) / 2, end - begin
            if took < 1e-3:
                break
        return best


class ErrorTimes:
    """Times at which this process made the messages of errors that tasks raised.

    Making one takes some hundredths of a second, which recent releases add to the failed attempt.
    """

    def __init__(self) -> None:
        #: By thread: Unix times in s at which making its last message began and ended.
        self._call_times: dict[int, tuple[float, float]] = {}
        self.names = vars(distributed.worker)
        self.original = self.names.get("error_message")
        if self.original is not None:
            self.wrapper = self.names["error_message"] = self._wrap(self.original)

    def _wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def error_message(*args: Any, **arguments: Any) -> Any:
            begin = time()
            message = original(*args, **arguments)
            self._call_times[threading.get_ident()] = begin, time()
            return message

        return error_message

    def seconds_before(self, thread: int, stop: float) -> float:
        """Return the seconds that the message took if it was made before an attempt ended."""
        begin, end = self._call_times.get(thread, (stop, stop))
        return end - begin if abs(end - stop) < abs(begin - stop) else 0.0

    def close(self) -> None:
        """Stop noting times."""
        if self.original is not None and self.names["error_message"] is self.wrapper:
            self.names["error_message"] = self.original


class ThreadTimes:
    """Seconds that threads of this process ran and waited for a processor, cumulative.

    The kernel counts both in ns; a read takes 2 µs.
    """

    def __init__(self) -> None:
        self._files: dict[int, int] = {}
        #: Why the times cannot be read; empty if they can.
        self.absent = ""
        try:
            n_slices = self._read(threading.get_native_id())[2]
        except OSError as error:
            self.absent = f"/proc/self/task/TID/schedstat: {error.strerror or error}"
        else:
            self.absent = "" if n_slices else "the kernel does not fill schedstat"

    def read(self, native_id: int) -> tuple[float, float] | None:
        """Return the seconds that a thread ran and waited; None if it has ended."""
        try:
            ran, waited, _ = self._read(native_id)
        except OSError:
            self._forget(native_id)
            return None
        return ran / 1e9, waited / 1e9

    def _read(self, native_id: int) -> tuple[int, int, int]:
        file = self._files.get(native_id)
        if file is None:
            path = f"/proc/self/task/{native_id}/schedstat"
            file = self._files[native_id] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        ran, waited, n_slices = map(int, os.pread(file, 64, 0).split())
        return ran, waited, n_slices

    def _forget(self, native_id: int) -> None:
        file = self._files.pop(native_id, None)
        if file is not None:
            os.close(file)

    def close(self) -> None:
        """Close all files."""
        for native_id in list(self._files):
            self._forget(native_id)


class ThreadSampler:
    """Sample the event loop's thread of a server, the main thread, and the threads of tasks.

    Made in the event loop's thread.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        executor: Any = None,
        main: threading.Thread | None = None,
    ) -> None:
        # clock: Unix time in s of the samples. executor: runs the tasks of a worker.
        # main: the main thread, if it is to be sampled.
        self.clock, self.executor = clock, executor
        self.times = ThreadTimes()
        #: Role, and numbers of the thread in Python and in the system.
        self.fixed = [(LOOP, threading.get_ident(), threading.get_native_id())]
        if main is not None and main.ident != self.fixed[0][1]:
            self.fixed.append((MAIN, main.ident or 0, main.native_id or 0))
        #: By thread that runs tasks: its number in the system, and the steady time of its newest
        #: sample.
        self.known: dict[int, tuple[int, float]] = {}
        self.last_sample = NAN
        #: Rows of `THREAD_COLUMNS` without the server.
        self.rows: deque[tuple[float, ...]] = deque(maxlen=MAX_ROWS)

    def sample(self) -> None:
        """Add a row for each thread."""
        if self.times.absent:
            return
        now = self.clock()
        for thread in self.fixed:
            self._add(now, *thread)
        # The public `threading.enumerate` cannot tell workers of one process apart.
        for new in list(getattr(self.executor, "_threads", ())):
            if new.ident not in self.known and new.native_id is not None:
                if self.last_sample == self.last_sample:  # it began after the last sample
                    row = TASK, new.ident, new.native_id, 0.0, 0.0
                    self.rows.append((self.last_sample, *row))
                self.known[new.ident] = new.native_id, 0.0
        for ident, (native_id, _) in list(self.known.items()):
            self._add_task(now, ident, native_id)
        self.last_sample = now

    def task_ended(self, ident: int | None) -> None:
        """Add a row for a thread that finished a task, if its last one is old enough."""
        known = self.known.get(ident) if ident is not None else None
        if known is not None and monotonic() - known[1] > TASK_SAMPLES_S:
            self._add_task(self.clock(), ident, known[0])

    def _add_task(self, now: float, ident: Any, native_id: int) -> None:
        if self._add(now, TASK, ident, native_id):
            self.known[ident] = native_id, monotonic()
        else:
            del self.known[ident]

    def _add(self, now: float, role: int, ident: int, native_id: int) -> bool:
        times = self.times.read(native_id)
        if times is not None:
            self.rows.append((now, role, ident, native_id, *times))
        return times is not None

    def drain(self) -> bytes:
        """Return the rows since the last call as doubles."""
        out = array("d")
        while self.rows:
            out.extend(self.rows.popleft())
        return out.tobytes()


class Processors:
    """Seconds in which the machine lacked processors, and the limit of the control group."""

    def __init__(self) -> None:
        self.folders: list[str] = []
        with suppress(OSError, ValueError):
            self.folders = _own_groups()
        self.due = float("-inf")
        self.known = dict.fromkeys(("cpu_pressure", "cpu_throttled", "cpu_limit"), NAN)

    def facts(self) -> dict[str, float]:
        """Return cpu_pressure and cpu_throttled, cumulative, and cpu_limit."""
        # returned: s, s, and processors; NaN: unknown, or no limit. Workers that share a process
        # share the values.
        if monotonic() < self.due:
            return self.known
        self.due = monotonic() + MIN_INTERVAL_S
        pressure, throttled, limit = NAN, NAN, NAN
        with suppress(OSError, ValueError):
            line = _content("/proc/pressure/cpu").splitlines()[0]
            pressure = int(line.rpartition("total=")[2]) / 1e6
        for folder in self.folders:
            # The lowest limit of all groups holds; groups above count the stops that they cause.
            with suppress(OSError, ValueError):
                limit = _lower(_limit(folder), limit)
            with suppress(OSError, ValueError):
                throttled = -_lower(-_throttled(folder), -throttled)
        self.known = {"cpu_pressure": pressure, "cpu_throttled": throttled, "cpu_limit": limit}
        return self.known


def _content(path: str) -> str:
    with open(path, "rb", buffering=0) as file:
        return file.read(4096).decode()


def _lower(first: float, second: float) -> float:
    return first if not second <= first else second


def _own_groups() -> list[str]:
    """Return the folders of this process's control group and of the groups above it."""
    entries = [line.split(":", 2) for line in _content("/proc/self/cgroup").splitlines()]
    paths = {name: path for _, names, path in entries for name in names.split(",")}
    is_unified = os.path.exists(f"{GROUPS}/cgroup.controllers")
    root = GROUPS if is_unified else f"{GROUPS}/cpu"
    folder = os.path.normpath(f"{root}/{paths.get('' if is_unified else 'cpu', '/')}")
    folders = []
    while folder.startswith(root):  # a container may see its own group as the root
        folders += [folder] if os.path.exists(folder) else []
        folder = os.path.dirname(folder)
    return folders


def _limit(folder: str) -> float:
    """Return the processors that a control group may use; NaN without a limit."""
    try:
        quota, period = _content(f"{folder}/cpu.max").split()
    except FileNotFoundError:  # control groups of version 1, or the root
        quota, period = (_content(f"{folder}/cpu.cfs_{n}_us") for n in ("quota", "period"))
    return int(quota) / int(period) if quota != "max" and int(quota) > 0 else NAN


def _throttled(folder: str) -> float:
    """Return the seconds that a control group was stopped at its limit."""
    words = dict(line.split() for line in _content(f"{folder}/cpu.stat").splitlines())
    if "throttled_usec" in words:
        return int(words["throttled_usec"]) / 1e6
    return int(words.get("throttled_time", "")) / 1e9  # version 1; ValueError: not counted


class LoopWatch:
    """Record the stack of an event loop's thread when the loop is blocked."""

    def __init__(self, lag: LoopLag, add_event: Callable[..., None]) -> None:
        self.lag, self.add_event = lag, add_event
        self.thread_id = threading.get_ident()
        self.stack = ""
        self.n_stacks = 0
        #: CPU seconds of the loop's thread and of the process at the last tick.
        self.cpu = thread_time(), process_time()
        self.stopped = threading.Event()
        lag.on_tick = self._tick
        self.thread = threading.Thread(target=self._watch, name="benchkit-loop-watch", daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        # 10 wake-ups a second take 0.05 % of a core.
        while not self.stopped.wait(BLOCKED_S):
            if self.lag.loop.time() - self.lag.due > BLOCKED_S and not self.stack:
                frame = sys._current_frames().get(self.thread_id)
                if frame is not None:
                    self.stack = _lines(frame)

    def _tick(self) -> None:
        before, self.cpu = self.cpu, (thread_time(), process_time())
        if self.stack:
            stack, self.stack = self.stack, ""
            blocked_s = self.lag.loop.time() - self.lag.due
            if blocked_s > BLOCKED_S and self.n_stacks < MAX_STACKS:
                self.n_stacks += 1
                own, process = (now - then for now, then in zip(self.cpu, before, strict=True))
                message = {"seconds": blocked_s, "own_cpu": own, "process_cpu": process}
                self.add_event("loop-blocked", None, {**message, "stack": stack})

    def stop(self) -> None:
        """Stop watching."""
        self.stopped.set()
        self.lag.on_tick = lambda: None


def _lines(frame: Any) -> str:
    """Return the innermost frames of a stack, a line each: function, file, line."""
    frames = traceback.extract_stack(frame)[-MAX_FRAMES:]
    lines = [f"{entry.name} ({entry.filename}:{entry.lineno})" for entry in reversed(frames)]
    return text("\n".join(lines))
