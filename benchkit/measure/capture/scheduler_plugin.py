"""The scheduler plugin of a capture: installation, recording and the client's handlers."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from time import monotonic
from typing import Any

import cloudpickle
from distributed.metrics import time

from benchkit.measure.capture.cluster_events import EventLog
from benchkit.measure.capture.cluster_hooks import (
    ClusterHooks,
    ScatteredData,
    listen,
    stop_listening,
)
from benchkit.measure.capture.columns import NAN, text
from benchkit.measure.capture.loop_lag import LoopLag
from benchkit.measure.capture.poller import SchedulerPoller
from benchkit.measure.capture.process import LoopWatch, process_cpu
from benchkit.measure.capture.running_tasks import RunningTasks
from benchkit.measure.capture.samples import Samples
from benchkit.measure.capture.task_graph import TaskGraph
from benchkit.measure.capture.task_groups import TaskGroups
from benchkit.measure.capture.task_stream import TaskStream
from benchkit.measure.capture.transition_table import install as install_wrappers
from benchkit.measure.capture.transition_table import is_supported
from benchkit.measure.capture.transition_table import remove as remove_wrappers
from benchkit.measure.capture.worker_log import LoopProfile
from benchkit.measure.capture.worker_plugin import CaptureWorkerPlugin
from benchkit.measure.capture.worker_reports import (
    WorkerReportPoller,
    collect_final_reports,
    fine_metric_rows,
    read_fine_metrics,
)

#: Seconds to wait for heartbeats and for pending replies; with the final reports and the removal of
#: the worker plugins they fit into the client's call timeout.
HEARTBEAT_TIMEOUT_S = 4.0
REPLY_TIMEOUT_S = 1.0
#: Seconds added to each timeout per worker: hundreds may share two cores with the scheduler.
PER_WORKER_S = 0.05

#: Seconds between samples. Heartbeats, every 0.5 s or more, limit the real resolution.
SAMPLE_TICK_S = 0.25
#: At level "light" every second tick is a sample: heartbeats are 0.5 s apart.
LIGHT_TICKS = 2
#: Seconds between polls of a worker: the data lost when the worker dies.
WORKER_POLL_INTERVAL_S = 5.0
#: Seconds that the end of a run waits for the removal of the worker plugins.
REMOVAL_TIMEOUT_S = 2.0
#: Seconds for the replies of all workers to the start or end of their plugin.
REMOTE_TIMEOUT_S = 10.0
#: The client drains each second. After this many seconds without a call it is considered dead.
ABANDONED_AFTER_S = 120.0
#: With more groups than this, only every tenth drain contains all group rows.
MAX_GROUPS_PER_DRAIN = 200

#: Minimum number of tasks per flush between two drains: smaller batches cost more per task.
MIN_TASKS_PER_FLUSH = 2000

OPERATIONS = ("on", "off", "drain", "end", "ping")


class CapturePlugin(ClusterHooks):
    """Record one run on the scheduler."""

    def __init__(
        self, name: str, level: str = "full", *, poll_interval_s: float = WORKER_POLL_INTERVAL_S
    ) -> None:
        self.name = name
        self.level = level
        self.poll_interval_s = poll_interval_s
        # Not distributed's dumps(): it uses cloudpickle only for modules that are registered there.
        self.worker_plugin = cloudpickle.dumps(CaptureWorkerPlugin(name, level))

    # -- installation -------------------------------------------------------------------------

    async def start(self, scheduler: Any) -> None:
        """Install the handlers and the worker plugin; called by the scheduler on registration."""
        self.scheduler = scheduler
        self.t_on = self.t_off = NAN
        self.last_call = time()
        self.client_timeout_s = ABANDONED_AFTER_S
        self.errors, self.workers, self.worker_info = [], {}, []
        self.fine_before: dict[tuple[Any, ...], float] = {}
        #: Workers whose heartbeat for the start of the clock did not arrive before it.
        self.late_at_on: list[int] = []
        self.pending: dict[str, Any] | None = None
        self.sequence = 0
        self.lag = LoopLag()
        self.groups = TaskGroups()
        self.samples = Samples(self.name, scheduler, self.workers, self.groups, self.lag)
        self.event_log = EventLog(self.name, self.workers, self.samples.add_memory)
        self.watch = LoopWatch(self.lag, self.event_log.add_event)
        self.stream = TaskStream(
            scheduler, self.groups, self.workers, self.add_error, self.event_log.add_failure
        )
        self.graph = TaskGraph(scheduler, self.name, self.groups, self.stream.flush, self.add_error)
        self.stream.nodes = self.graph.numbers
        self.report_poller = WorkerReportPoller(
            self.name, scheduler, self.workers, self.poll_interval_s
        )
        self.loop_profile = LoopProfile(scheduler.loop)
        self.running_tasks = RunningTasks(scheduler, self.name)
        self.n_ticks = 0
        self.poller: SchedulerPoller | None = None
        self.scattered: ScatteredData | None = None
        self.group_rows: list[dict[str, Any]] = []
        for address, state in list(scheduler.workers.items()):
            self._register_worker(address, state)
        self.sample_handle: Any = self.lag.loop.call_later(SAMPLE_TICK_S, self._sample_tick)
        for op in OPERATIONS:
            scheduler.handlers[f"{self.name}_{op}"] = getattr(self, f"handle_{op}")
        await self._call_workers(scheduler.register_worker_plugin, plugin=self.worker_plugin)

    async def _call_workers(self, method: Any, **kwargs: Any) -> None:
        if "idempotent" in inspect.signature(method).parameters:
            kwargs["idempotent"] = False
        try:
            timeout_s = REMOTE_TIMEOUT_S + len(self.scheduler.workers) * PER_WORKER_S
            replies = await asyncio.wait_for(method(None, name=self.name, **kwargs), timeout_s)
        except Exception as error:
            self.add_error("worker plugin", error)
            return
        for address, reply in replies.items():
            if isinstance(reply, dict) and reply.get("status") == "error":
                what = reply.get("text") or "it did not start"
                self.add_error("worker plugin", f"{address}: {what}")

    async def uninstall(self) -> None:
        """Remove the plugin, its handlers, timers and worker plugins; safe to call twice."""
        await self.close()
        scheduler = self.scheduler
        for op in OPERATIONS:
            scheduler.handlers.pop(f"{self.name}_{op}", None)
        scheduler.plugins.pop(self.name, None)
        if self.name in scheduler.worker_plugins:
            await self._call_workers(scheduler.unregister_worker_plugin)

    async def close(self) -> None:
        """Stop the timers; also called when the scheduler closes."""
        self._stop_recording()
        stop_listening(self.scheduler, "heartbeat_worker", self.name)
        self.poller = None
        self.report_poller.cancel()
        self.lag.stop()
        self.watch.stop()
        self.samples.gc.close()
        self.samples.threads.times.close()
        if self.sample_handle is not None:
            self.sample_handle.cancel()
            self.sample_handle = None

    # -- recording of tasks -------------------------------------------------------------------

    def _start_recording(self) -> None:
        self.event_log.counting = True
        self.scattered = ScatteredData(self.scheduler, self.name)
        if self.level == "full":
            self.graph.start()
            if not is_supported(self.scheduler):
                self.transition = self.stream.transition_hook()  # type: ignore[method-assign]
                return
            install_wrappers(self.scheduler, self.name, self.stream.wrappers())
        light = self.level == "light"
        self.poller = SchedulerPoller(
            self.scheduler, self, self.groups, self.event_log, self.scattered, tasks=light
        )
        self.scheduler.plugins.pop(self.name, None)

    def _stop_recording(self) -> None:
        if self.event_log.counting:
            self._poll()
            self._guarded(self._count_groups)
            self._guarded(self.running_tasks.stop, time(), self.groups.members)
        if self.scattered is not None:
            self.scattered.remove()
        self.event_log.counting = False
        self.graph.stop()
        remove_wrappers(self.scheduler, self.name)
        vars(self).pop("transition", None)

    def _count_groups(self) -> None:
        """Read the rows of all groups; the rows read when the clock stops are final."""
        if self.level == "full":
            self.stream.flush()
            self.group_rows = self.groups.rows()
        elif self.poller is not None:
            self.group_rows = self.poller.rows()
        if self.poller is not None and self.poller.n_unseen:
            self.add_error("failures", f"{self.poller.n_unseen} or more failed tasks were not seen")

    def _correct_groups(self) -> None:
        """Correct the compute seconds of groups for tasks that ran across the clock's edges."""
        corrections = self.running_tasks.corrections()
        self.groups.correct(self.group_rows, corrections, retries=self.level == "full")

    # -- handlers, called by the client -------------------------------------------------------

    async def handle_on(self) -> dict[str, Any]:
        """Start the clock; all counters are reset to 0."""
        self.last_call = time()
        listen(self.scheduler, "heartbeat_worker", self.name, self.samples.note_heartbeat)
        silent = await await_heartbeats(self.scheduler, self.name, "on", time(), self.add_error)
        self.late_at_on = [self.workers[address] for address in silent if address in self.workers]
        self.groups.begin(self.scheduler.task_groups.values())
        self.fine_before = read_fine_metrics(self.scheduler)
        self.samples.begin()
        self._guarded(self._start_recording)
        cpu = process_cpu()
        self.t_on = self.report_poller.start = time()
        steady = monotonic()
        self._guarded(self.running_tasks.start, self.t_on)
        self.n_ticks = -1  # the first sample is a full one
        self._sample()
        return {
            "t_on": self.t_on,
            "steady": steady,
            "cpu": cpu,
            "n_workers": len(self.scheduler.workers),
        }

    async def handle_ping(self) -> dict[str, Any]:
        """Reply, so that the client can measure how long a call takes."""
        return {"n_workers": len(self.scheduler.workers)}

    async def handle_off(self) -> dict[str, Any]:
        """Stop the clock; sampling continues until `handle_end`."""
        self.last_call = self.t_off = time()
        steady, cpu = monotonic(), process_cpu()
        self._stop_recording()
        self._sample()
        n_workers = len(self.scheduler.workers)
        return {"t_off": self.t_off, "steady": steady, "cpu": cpu, "n_workers": n_workers}

    async def handle_drain(self, ack: int = 0, groups: bool = False) -> dict[str, Any]:
        """Return the data gathered since the last acknowledged reply.

        A reply is kept until the next call acknowledges it, so that a lost reply loses no data.
        """
        self.last_call = time()
        if self.pending is not None and self.pending["sequence"] != ack:
            return self.pending
        self.sequence += 1
        self.pending = {"sequence": self.sequence, "tables": self._drain(groups)}
        return self.pending

    async def handle_end(self, ack: int = 0) -> dict[str, Any]:
        """Return the remaining data and uninstall the capture."""
        self.last_call = time()
        stop = self.t_off if self.t_off == self.t_off else time()
        final: dict[str, Any] = {}
        await asyncio.gather(
            await_heartbeats(self.scheduler, self.name, "off", stop, self.add_error),
            self.report_poller.stop(REPLY_TIMEOUT_S),
        )
        if self.t_on == self.t_on:
            window = (self.t_on, stop)
            self._guarded(self.stream.flush)  # the final reports need the groups that had tasks
            final = await collect_final_reports(
                self.report_poller, self.groups, self.add_error, window
            )
        if self.sample_handle is not None and self.t_on == self.t_on:
            self._sample()
        if self.t_off == self.t_off:
            self._guarded(self._correct_groups)
        segments = [self.pending] if self.pending and self.pending["sequence"] != ack else []
        self.sequence += 1
        segments.append(
            {"sequence": self.sequence, "tables": {**self._drain(groups=True, last=True), **final}}
        )
        self.removal = asyncio.ensure_future(self.uninstall())
        # A worker that hangs must not delay the data of the other workers.
        await asyncio.wait([self.removal], timeout=REMOVAL_TIMEOUT_S)
        return {"segments": segments}

    # -- gathering ----------------------------------------------------------------------------

    def _sample_tick(self) -> None:
        # Half a heartbeat interval: on large clusters heartbeats are seconds apart.
        pause = max(SAMPLE_TICK_S, len(self.scheduler.workers) / 400)
        self.sample_handle = self.lag.loop.call_later(pause, self._sample_tick)
        if self.t_on == self.t_on:
            self._sample()
            if self.t_off != self.t_off:
                self._guarded(self.report_poller.send_requests, pause, self.last_call)
        if self.scheduler.status.name in ("closing", "closed"):
            self.removal = asyncio.ensure_future(self.close())
        elif time() - self.last_call > self.client_timeout_s:
            self.removal = asyncio.ensure_future(self.uninstall())

    def _poll(self) -> None:
        """Poll the set of workers until `uninstall`, and the tasks while the clock runs."""
        if self.poller is not None:
            self._guarded(self.poller.poll)

    def _sample(self) -> None:
        self.n_ticks += 1
        if self.event_log.counting and self.level == "light" and self.n_ticks % LIGHT_TICKS:
            if self.poller is not None:
                self._guarded(self.poller.poll_tasks)
            return
        self._poll()
        self._guarded(self.stream.flush, MIN_TASKS_PER_FLUSH)
        self._guarded(self.samples.sample_workers)
        self._guarded(self.samples.sample_scheduler)
        if self.event_log.counting:
            self._guarded(self.running_tasks.sample)
            if self.level == "full":
                self._guarded(self.samples.sample_held)
        self._guarded(self._count_captures)

    def _drain(self, groups: bool, *, last: bool = False) -> dict[str, Any]:
        """Return the gathered data as plain columns (bytes, lists) and clear it."""
        self._poll()  # workers that have just joined need an index
        tables: dict[str, Any] = {
            **self.stream.drain(),
            **self.graph.drain(),
            **self.samples.drain(),
            **self.event_log.drain(),
            **self.report_poller.drain(),
            "workers": self.worker_info,
        }
        if groups or len(self.groups.members) <= MAX_GROUPS_PER_DRAIN:
            if self.event_log.counting:
                self._guarded(self._count_groups)
            tables["groups"] = self.group_rows
            tables["fine"] = fine_metric_rows(read_fine_metrics(self.scheduler), self.fine_before)
        else:
            tables["group_names"] = self.groups.names()
        if self.level == "full" and self.t_on == self.t_on:
            self._guarded(self._read_profile, tables, last)
        event_log = self.event_log
        tables["state"] = {
            "t_on": self.t_on,
            "t_off": self.t_off,
            "now": time(),
            "n_dropped": self.stream.n_dropped,
            "n_nodes_dropped": self.graph.n_dropped,
            "n_events_dropped": event_log.n_dropped,
            "n_errors": event_log.n_failures,
            "n_steals": event_log.n_steals,
            "transitions": self.samples.transitions,
            "scattered_bytes": self.scattered.nbytes if self.scattered is not None else 0,
            "clock_ahead": dict(self.samples.ahead),
            "n_other_captures": self.n_other_captures,
            "late_at_on": self.late_at_on,
            "process": process_cpu()[:2],
            "threads_absent": dict(self.samples.threads_absent),
            **self.running_tasks.state(),
            "errors": list(self.errors),
        }
        return tables

    def _read_profile(self, tables: dict[str, Any], last: bool) -> None:
        stop = self.t_off if self.t_off == self.t_off else float("inf")
        tables["scheduler_profile"] = [self.loop_profile.read(self.t_on, stop, last=last)]


async def await_heartbeats(
    scheduler: Any, name: str, edge: str, after: float, add_error: Callable[[str, Any], None]
) -> list[str]:
    """Request a heartbeat from each worker and wait: it has the last metrics before the edge.

    Returns the workers whose heartbeat did not arrive in time.
    """
    # Call each worker: cancelling Scheduler.broadcast leaves its calls running and logs every
    # unreachable worker.
    calls = [
        asyncio.ensure_future(getattr(scheduler.rpc(address), f"{name}_beat")(edge=edge))
        for address in scheduler.workers
    ]
    deadline = time() + HEARTBEAT_TIMEOUT_S + len(calls) * PER_WORKER_S
    silent: list[str] = []
    while time() < deadline:
        states = list(scheduler.workers.values())
        silent = [state.address for state in states if state.last_seen <= after]
        if not silent:
            break
        await asyncio.sleep(0.005)
    if calls:
        timeout_s = REPLY_TIMEOUT_S + len(calls) * PER_WORKER_S / 10
        _, unfinished = await asyncio.wait(calls, timeout=timeout_s)
        for call in unfinished:
            call.cancel()
        # A worker that could not be called sends its next regular heartbeat soon.
        await asyncio.gather(*calls, return_exceptions=True)
    if silent:
        add_error("heartbeat", f"not received from {text(', '.join(silent), 200)}")
    return silent
