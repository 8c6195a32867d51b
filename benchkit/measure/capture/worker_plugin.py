"""The worker plugin of a capture: values added to the heartbeat, and reports on request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from inspect import iscoroutinefunction
from time import monotonic
from typing import Any

import distributed
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.metrics import time

from benchkit.measure.capture.columns import NAN, text
from benchkit.measure.capture.loop_lag import LAG_TICK_S, LoopLag
from benchkit.measure.capture.memory_sampler import (
    MIN_INTERVAL_S,
    POINTS_PER_HEARTBEAT,
    MemorySampler,
    high_water_mark,
    machine_number,
    process_number,
)
from benchkit.measure.capture.p2p_bytes import count_p2p_bytes, stop_counting_p2p_bytes
from benchkit.measure.capture.process import (
    GIL_DELAY_S,
    MAX_ROWS,
    ClockWatch,
    ErrorTimes,
    GcPauses,
    GilWaits,
    Processors,
    ThreadSampler,
)
from benchkit.measure.capture.worker_log import WorkerLog

#: Seconds between two heartbeats of a worker on a small cluster.
HEARTBEAT_S = 0.5
#: Bytes of samples of threads that are kept for a heartbeat that is received.
MAX_THREAD_BYTES = 8 * 6 * MAX_ROWS
#: Seconds that the final report waits for receivers to acknowledge what they have received.
ACKNOWLEDGE_TIMEOUT_S = 0.5


class CaptureWorkerPlugin(WorkerPlugin):
    """Add metrics to a worker's heartbeat and report data that only the worker has."""

    def __init__(self, name: str, level: str) -> None:
        self.name = name
        self.level = level

    def setup(self, worker: Any) -> None:
        """Install the metrics and handlers; called when the worker joins."""
        self.worker = worker
        self.trimmed = False
        #: Maxima since the last heartbeat, see `_update_maxima`.
        self.peak, self.longest_lag, self.longest_gc = 0, 0.0, 0.0
        #: Edge of the clock for which the next heartbeat is: on, off, or empty.
        self.edge = ""
        self.siblings = vars(distributed).setdefault("_benchkit_worker_plugins", {})
        shared = [plugin for (name, _), plugin in self.siblings.items() if name == self.name][:1]
        self.memory = shared[0].memory if shared else MemorySampler()
        self.gc = shared[0].gc if shared else GcPauses()
        self.processors = shared[0].processors if shared else Processors()
        # A thousand workers that share a loop would call a thousand timers 20 times a second.
        if shared and shared[0].lag.loop is asyncio.get_running_loop():
            self.lag = shared[0].lag
        else:
            self.lag = LoopLag(self.memory.sample_if_due)
        self.siblings[self.name, worker.address] = self
        self.process, self.machine = float(process_number()), float(machine_number())
        self.machine_cpu_time = NAN
        self.clock, self.gil = ClockWatch(), GilWaits(worker.monitor, self.lag)
        #: Seconds of attempts that raised, since `on_moment` on the scheduler's clock.
        self.failed_s, self.on_moment = 0.0, float("-inf")
        self.error_times = shared[0].error_times if shared else ErrorTimes()
        #: Time of the newest memory sample in the last heartbeat.
        self.last_sent = 0.0
        #: Of the last heartbeat: the scheduler's delay that was known when it was made, which each
        #: reply changes, and its maxima and `last_sent`, to be sent again if no reply came.
        self.delay_then: float | None = None
        self.sent: tuple[int, float, float, float] = (0, 0.0, 0.0, 0.0)
        executor = getattr(worker, "executors", {}).get("default")
        self.threads = ThreadSampler(self.memory.now, executor)
        #: Samples of threads in the last heartbeat.
        self.sent_threads = b""
        self.worker_log = WorkerLog(worker)
        count_p2p_bytes((self.name, worker.address))
        worker.metrics[self.name] = self.heartbeat_metrics
        worker.handlers[f"{self.name}_report"] = self.report
        worker.handlers[f"{self.name}_beat"] = self.beat

    def teardown(self, worker: Any) -> None:
        """Remove the metrics and handlers; log the exit of a worker that closes normally."""
        if worker.status.name.startswith("closing"):
            with contextlib.suppress(Exception):
                last_samples = self.memory.points(self.last_sent, LAG_TICK_S)
                worker.log_event(self.name, {"leaving": worker.address, "memory": last_samples})
        worker.metrics.pop(self.name, None)
        for op in ("report", "beat"):
            worker.handlers.pop(f"{self.name}_{op}", None)
        self.threads.times.close()
        self.siblings.pop((self.name, worker.address), None)
        stop_counting_p2p_bytes((self.name, worker.address))
        if not any(plugin.lag is self.lag for plugin in self.siblings.values()):
            self.lag.stop()
        if not any(plugin.memory is self.memory for plugin in self.siblings.values()):
            self.memory.close()
            self.gc.close()
            self.error_times.close()
        if not self.siblings:
            vars(distributed).pop("_benchkit_worker_plugins", None)
            vars(distributed).pop("_benchkit_process", None)

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """Note the end of a task: its thread's times, and the seconds of an attempt that raised."""
        if start == "executing" and self.level == "full":
            self.threads.task_ended(self.worker.threads.get(key))
        if finish != "error" or start not in ("executing", "long-running"):
            return
        for event in self.worker.state.tasks[key].startstops[-1:]:
            if event["action"] == "compute":
                thread, stop = self.worker.threads.get(key), event["stop"]
                message_s = self.error_times.seconds_before(
                    thread, stop - self.worker.scheduler_delay
                )
                self.failed_s += max(0.0, stop - max(event["start"], self.on_moment) - message_s)

    def heartbeat_metrics(self, worker: Any) -> dict[str, Any]:
        """Return the metrics for a heartbeat."""
        self.worker_log.copy_transfers()
        heartbeat = worker.periodic_callbacks.get("heartbeat")
        interval_s = heartbeat.callback_time / 1000 if heartbeat is not None else HEARTBEAT_S
        self._update_maxima(MIN_INTERVAL_S if self.edge else interval_s / POINTS_PER_HEARTBEAT)
        if self.edge != "on" and self.delay_then == worker.scheduler_delay:  # it was lost
            peak, lag, pause, self.last_sent = self.sent
            self.peak, self.longest_lag = max(self.peak, peak), max(self.longest_lag, lag)
            self.longest_gc = max(self.longest_gc, pause)
        else:
            self.sent_threads = b""
        is_start = self.edge == "on"  # what is lost then is not of this run
        self.delay_then = None if is_start else worker.scheduler_delay
        self.sent = self.peak, self.longest_lag, self.longest_gc, self.last_sent
        out: dict[str, Any] = {
            "rss_peak": self.peak or NAN,
            "tick_max": self.longest_lag,
            "gc_max": self.longest_gc,
            "process_number": self.process,
            "machine_number": self.machine,
            "machine_cpu_time": self.machine_cpu_time,
            "gc_time": self.gc.total,
            "gil_time": self.gil.read(),
            "failed_time": self.failed_s,
            "clock_step": self.clock.read(),
            "memory": self.memory.points(self.last_sent, interval_s),
            "threads": self._thread_rows(),
            "threads_absent": self.threads.times.absent,
            **self.processors.facts(),
        }
        self.last_sent = self.memory.samples[-1][0]
        self.peak, self.longest_lag, self.longest_gc = 0, 0.0, 0.0
        self.edge = ""
        process = worker.monitor.proc
        with contextlib.suppress(Exception):
            cpu = process.cpu_times()
            out["cpu_time"] = cpu.user + cpu.system
        with contextlib.suppress(Exception):
            counters = process.io_counters()
            out["io_read"], out["io_write"] = counters.read_bytes, counters.write_bytes
        with contextlib.suppress(Exception):
            import resource

            children = resource.getrusage(resource.RUSAGE_CHILDREN)
            out["children_cpu_time"] = children.ru_utime + children.ru_stime
        with contextlib.suppress(Exception):
            import psutil

            counters = psutil.net_io_counters(pernic=True)
            out["loopback_total"] = sum(
                count.bytes_recv for name, count in counters.items() if _is_loopback(name)
            )
            received = sum(count.bytes_recv for count in counters.values())
            out["net_read_total"] = received - out["loopback_total"]
        return out

    def _thread_rows(self) -> bytes:
        """Return the samples of threads since the last heartbeat that was received."""
        self.threads.sample()
        self.sent_threads = (self.sent_threads + self.threads.drain())[-MAX_THREAD_BYTES:]
        return self.sent_threads

    def _update_maxima(self, min_interval_s: float) -> None:
        """Read and reset the maxima of this process, which all of its plugins receive.

        Memory's high-water mark is reset for other captures and workers in the process, too. With
        many workers in the process each heartbeat would carry a sample of each of them: a peak that
        another worker read less than `min_interval_s` ago is not read again.
        """
        is_recent = monotonic() - self.memory.peak_moment < min_interval_s
        if self.peak and is_recent:
            self.memory.sample_if_due()
            return
        peak, lag, pause = high_water_mark(), self.lag.read()[1], self.gc.read()[1]
        self.memory.sample(peak or NAN)
        for plugin in list(self.siblings.values()):
            plugin.peak = max(plugin.peak, peak)
            if plugin.lag is self.lag:
                plugin.longest_lag = max(plugin.longest_lag, lag)
            if plugin.gc is self.gc:
                plugin.longest_gc = max(plugin.longest_gc, pause)

    async def beat(self, edge: str) -> None:
        """Send a heartbeat now and begin a new tree of call stacks.

        The new tree excludes samples from before the clock started, or long after it stopped. No
        heartbeat is sent if a metric is a coroutine (as GPU metrics are): a second heartbeat could
        start meanwhile, and Dask then closes the worker.
        """
        self.worker_log.cut_transfers(edge)
        self.machine_cpu_time = _machine_cpu_time()
        self.edge = edge
        self.gil.sample()
        if edge == "on":
            self.gil.discard_pending()
            self.on_moment = time() + self.worker.scheduler_delay
        elif self.gil.pending is not None:
            await asyncio.sleep(1.2 * GIL_DELAY_S)
            self.gil.sample()
        if self.level == "full":
            with contextlib.suppress(Exception):
                self.worker_log.cut_call_stacks(edge)
        if not any(iscoroutinefunction(metric) for metric in self.worker.metrics.values()):
            await self.worker.heartbeat()

    async def report(self, start: float, stop: float, stacks: bool, last: bool) -> dict[str, Any]:
        """Return the data of this worker in a window."""
        log = self.worker_log
        give_up = monotonic() + ACKNOWLEDGE_TIMEOUT_S
        while last and self.worker.transfer_outgoing_count and monotonic() < give_up:
            await asyncio.sleep(0.01)
        out: dict[str, Any] = {"errors": []}
        readers: dict[str, Callable[[], Any]] = {
            "transfers": lambda: log.read_transfers(start, stop),
            "logs": lambda: log.read_log(start, float("inf") if last else stop),
        }
        if self.level == "full" and stacks:
            readers["profile"] = lambda: log.read_call_stacks(start, stop, last=last)
        if self.level == "full" and last:
            readers["memory"] = self._trimmed_memory
        for name, read in readers.items():
            try:
                out[name] = read()
            except Exception as error:
                out["errors"].append(f"{name}: {type(error).__name__}: {text(error, 200)}")
        if last and log.n_missed:
            out["errors"].append(f"transfers: {log.n_missed} or more were not counted")
        if last and log.n_lines_dropped:
            out["errors"].append(f"logs: {log.n_lines_dropped} lines were omitted")
        return out

    def _trimmed_memory(self) -> float:
        """Return RSS in B after malloc_trim; NaN if the value would not be valid."""
        if any(name != self.name for name, _ in self.siblings):
            return NAN  # another capture in this process would see the trim
        import ctypes

        # Workers in one process share its memory: trim once, even with hundreds of workers.
        if not any(plugin.trimmed for plugin in self.siblings.values()):
            try:
                ctypes.CDLL("libc.so.6").malloc_trim(0)
            except (OSError, AttributeError):
                return NAN  # not Linux with glibc
            self.trimmed = True
        return float(self.worker.monitor.proc.memory_info().rss)


def _is_loopback(name: str) -> bool:
    """Return whether this is the name of the loopback interface on Linux, macOS or Windows."""
    return name in ("lo", "lo0") or name.startswith("Loopback")


def _machine_cpu_time() -> float:
    """Return the seconds that all processors of the machine were busy; NaN if unknown."""
    try:
        import psutil

        times = psutil.cpu_times()
        return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))
    except Exception:
        return NAN
