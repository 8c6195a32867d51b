"""The scheduler plugin of a capture: installation, hooks and the client's handlers."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import cloudpickle
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.metrics import time

from benchkit.measure.capture.cluster_events import EventLog
from benchkit.measure.capture.columns import NAN, text
from benchkit.measure.capture.final_reports import collect_final_reports, fine_now, fine_rows
from benchkit.measure.capture.loop_lag import LoopLag
from benchkit.measure.capture.poller import Poll
from benchkit.measure.capture.samples import Samples
from benchkit.measure.capture.task_groups import Groups
from benchkit.measure.capture.task_stream import Stream
from benchkit.measure.capture.transition_table import is_supported, listen, stop_listening
from benchkit.measure.capture.worker_plugin import Probe
from benchkit.measure.capture.worker_reports import WorkerReportPoller

__all__ = ["Capture"]

#: Seconds between samples. Heartbeats, every 0.5 s or more, limit the real resolution.
SAMPLE_TICK_S = 0.25
#: Seconds between polls of a worker: the data lost when the worker dies.
ASK_EVERY_S = 5.0
#: Seconds that the end of a run waits for final heartbeats, pending replies and the removal of the
#: worker plugins. With the final reports they fit into the client's call timeout.
TAIL_TIMEOUT_S = 4.0
ANSWER_TIMEOUT_S = 1.0
REMOVAL_PATIENCE_S = 2.0
REMOTE_TIMEOUT_S = 10.0
#: Seconds added to each timeout per worker: hundreds may share two cores with the scheduler.
PER_WORKER_S = 0.05
#: The client drains each second. After this many seconds without a call it is considered dead.
ABANDONED_AFTER_S = 120.0
MAX_ERRORS = 20
#: With more groups than this, only every tenth drain contains all group rows.
FEW_GROUPS = 200

#: Minimum number of tasks per flush between two drains: smaller batches cost more per task.
ENOUGH_TO_FOLD = 2000

OPERATIONS = ("on", "off", "drain", "end")


class Capture(SchedulerPlugin):
    """Record one run on the scheduler.

    Parameters
    ----------
    name : str
        Unique per capture; the name of the plugin, the worker plugins and the handlers.
    level : {"full", "light"}
        "light" records no task stream and no call stacks.
    ask_every_s : float
        Minimum seconds between two polls of a worker; see `WorkerReportPoller`.
    """

    def __init__(self, name: str, level: str = "full", *, ask_every_s: float = ASK_EVERY_S) -> None:
        self.name = name
        self.level = level
        self.ask_every_s = ask_every_s
        # distributed's own dumps() uses cloudpickle only for modules that it knows by name.
        self.probe = cloudpickle.dumps(Probe(name, level))

    # -- life ---------------------------------------------------------------------------------

    async def start(self, scheduler: Any) -> None:
        """Install the handlers and the worker plugin; called by the scheduler on registration."""
        self.scheduler = scheduler
        self.t_on = self.t_off = NAN
        self.heard = time()
        self.patience_s = ABANDONED_AFTER_S
        self.errors: list[str] = []
        self.workers: dict[Any, int] = {}  # index by address, including workers that left
        self.worker_info: list[dict] = []
        self.fine_before: dict = {}
        self.pending: dict | None = None
        self.sequence = 0
        self.lag = LoopLag()
        self.groups = Groups()
        self.happenings = EventLog(self.name, self.workers)
        self.stream = Stream(
            scheduler, self.groups, self.workers, self.note, self.happenings.failed
        )
        self.samples = Samples(self.name, scheduler, self.workers, self.lag)
        self.asking = WorkerReportPoller(self.name, scheduler, self.workers, self.ask_every_s)
        self.poll: Poll | None = None
        self.group_rows: list[dict] = []
        for address, state in list(scheduler.workers.items()):
            self._meet(address, state)
        self.sample_handle: Any = self.lag.loop.call_later(SAMPLE_TICK_S, self._sample_tick)
        for op in OPERATIONS:
            scheduler.handlers[f"{self.name}_{op}"] = getattr(self, f"handle_{op}")
        await self._probe_call(scheduler.register_worker_plugin, plugin=self.probe)

    async def _probe_call(self, method: Any, **kwargs: Any) -> None:
        if "idempotent" in inspect.signature(method).parameters:
            kwargs["idempotent"] = False
        try:
            patience_s = REMOTE_TIMEOUT_S + len(self.scheduler.workers) * PER_WORKER_S
            answers = await asyncio.wait_for(method(None, name=self.name, **kwargs), patience_s)
        except Exception as error:
            self.note("probe", error)
            return
        for address, answer in answers.items():
            if isinstance(answer, dict) and answer.get("status") == "error":
                self.note("probe", f"{address}: {answer.get('text') or 'it did not start'}")

    async def uninstall(self) -> None:
        """Remove the plugin, its handlers, timers and worker plugins; safe to call twice."""
        await self.close()
        scheduler = self.scheduler
        for op in OPERATIONS:
            scheduler.handlers.pop(f"{self.name}_{op}", None)
        scheduler.plugins.pop(self.name, None)
        if self.name in scheduler.worker_plugins:
            await self._probe_call(scheduler.unregister_worker_plugin)

    async def close(self) -> None:
        """Stop the timers; also called when the scheduler closes."""
        self._stop_hearing()
        self.poll = None
        self.asking.cancel()
        self.lag.stop()
        if self.sample_handle is not None:
            self.sample_handle.cancel()
            self.sample_handle = None

    def note(self, where: str, what: Any) -> None:
        """Record an error of the capture itself."""
        if isinstance(what, BaseException):
            what = f"{type(what).__name__}: {what}".rstrip(": ")
        line = f"{where}: {text(what, 300)}"
        if line not in self.errors and len(self.errors) < MAX_ERRORS:
            self.errors.append(line)

    def _guarded(self, method: Any, *args: Any) -> None:
        try:
            method(*args)
        except Exception as error:
            self.note(method.__name__.strip("_"), error)

    # -- hearing of tasks ---------------------------------------------------------------------

    def _hear(self) -> None:
        self.happenings.counting = True
        if self.level == "full":
            if not is_supported(self.scheduler):
                self.transition = self.stream.hook()  # type: ignore[method-assign]
                return
            listen(self.scheduler, self.name, self.stream.wraps())
        light = self.level == "light"
        self.poll = Poll(self.scheduler, self, self.groups, self.happenings, tasks=light)
        self.scheduler.plugins.pop(self.name, None)

    def _stop_hearing(self) -> None:
        if self.happenings.counting:
            self._look()
            self._guarded(self._count_groups)
        self.happenings.counting = False
        stop_listening(self.scheduler, self.name)
        vars(self).pop("transition", None)

    def _count_groups(self) -> None:
        """Read the rows of all groups; the rows read when the clock stops are final."""
        if self.level == "full":
            self.stream.fold()
            self.group_rows = self.groups.rows()
        elif self.poll is not None:
            self.group_rows = self.poll.rows()
        if self.poll is not None and self.poll.n_unseen:
            self.note("failures", f"{self.poll.n_unseen} or more failed tasks were not seen")

    # -- handlers, called by the client -------------------------------------------------------

    async def handle_on(self) -> dict:
        """Start the clock and return its time; everything before it is the baseline."""
        self.heard = time()
        await self._await_heartbeats("on", time())
        self.groups.begin(self.scheduler.task_groups.values())
        self.fine_before = fine_now(self.scheduler)
        self.samples.begin()
        self._guarded(self._hear)
        self.t_on = self.asking.start = time()
        self._sample()
        return {"t_on": self.t_on, "n_workers": len(self.scheduler.workers)}

    async def handle_off(self) -> dict:
        """Stop the clock and return its time; sampling continues until `handle_end`."""
        self.heard = self.t_off = time()
        self._stop_hearing()
        self._sample()
        return {"t_off": self.t_off, "n_workers": len(self.scheduler.workers)}

    async def handle_drain(self, ack: int = 0, groups: bool = False) -> dict:
        """Return the data gathered since the reply with sequence number `ack`.

        A reply is kept until the next call acknowledges it, so that a lost reply loses no data.
        """
        self.heard = time()
        if self.pending is not None and self.pending["sequence"] != ack:
            return self.pending
        self.sequence += 1
        self.pending = {"sequence": self.sequence, "tables": self._take(groups)}
        return self.pending

    async def handle_end(self, ack: int = 0, wait: bool = True) -> dict:
        """Wait for the final heartbeats, return the remaining data, uninstall the capture."""
        self.heard = time()
        stop = self.t_off if self.t_off == self.t_off else time()
        last: dict[str, Any] = {}
        if wait:
            await asyncio.gather(
                self._await_heartbeats("off", stop), self.asking.stop(ANSWER_TIMEOUT_S)
            )
            if self.t_on == self.t_on:
                window = (self.t_on, stop)
                self._guarded(self.stream.fold)  # the final reports need the groups that had tasks
                last = await collect_final_reports(self.asking, self.groups, self.note, window)
        if self.sample_handle is not None and self.t_on == self.t_on:
            self._sample()
        rest = [self.pending] if self.pending and self.pending["sequence"] != ack else []
        self.sequence += 1
        rest.append({"sequence": self.sequence, "tables": {**self._take(groups=True), **last}})
        self.removal = asyncio.ensure_future(self.uninstall())
        # A worker that hangs must not delay the data of the other workers.
        await asyncio.wait([self.removal], timeout=REMOVAL_PATIENCE_S)
        return {"segments": rest}

    async def _await_heartbeats(self, edge: str, after: float) -> None:
        """Request a heartbeat from each worker and wait: it holds the last metrics of the run."""
        # Call each worker: cancelling Scheduler.broadcast leaves its calls running and logs every
        # unreachable worker.
        asked = [
            asyncio.ensure_future(
                getattr(self.scheduler.rpc(address), f"{self.name}_beat")(edge=edge)
            )
            for address in self.scheduler.workers
        ]
        give_up = time() + TAIL_TIMEOUT_S + len(asked) * PER_WORKER_S
        silent: list[str] = []
        while time() < give_up:
            states = list(self.scheduler.workers.values())
            silent = [state.address for state in states if state.last_seen <= after]
            if not silent:
                break
            await asyncio.sleep(0.005)
        if asked:
            patience_s = ANSWER_TIMEOUT_S + len(asked) * PER_WORKER_S / 10
            _, left = await asyncio.wait(asked, timeout=patience_s)
            for one in left:
                one.cancel()
            # A worker that could not be called sends its next regular heartbeat soon.
            await asyncio.gather(*asked, return_exceptions=True)
        if silent:
            self.note("heartbeat", f"none came from {text(', '.join(silent), 200)}")

    # -- hooks, called by the scheduler -------------------------------------------------------

    def add_worker(self, scheduler: Any, worker: str, moment: float | None = None) -> None:
        """Assign an index to a worker that joins."""
        if worker in self.workers:  # another worker may reuse the address
            self._guarded(self.stream.fold)
        self._guarded(self._meet, worker, scheduler.workers[worker], moment)
        self._guarded(self.happenings.event, "add-worker", worker, {}, moment)

    def remove_worker(
        self, scheduler: Any, worker: str, moment: float | None = None, **kwargs: Any
    ) -> None:
        """Record the time at which a worker left."""
        index = self.workers.get(worker, -1)
        if index >= 0:
            self.worker_info[index]["left"] = moment or time()
        self._guarded(self.happenings.event, "remove-worker", worker, {}, moment)

    def restart(self, scheduler: Any) -> None:
        """Mark the workers that the restart retires: they do not count as lost."""
        self.happenings.sent_away |= set(scheduler.workers)
        self._guarded(self.happenings.event, "restart", None, {})

    def log_event(self, topic: Any, msg: Any) -> None:
        """Record the scheduler events that the analysis of a run needs."""
        self._guarded(self.happenings.said, topic, msg)

    def _meet(self, address: str, state: Any, moment: float | None = None) -> None:
        self.happenings.sent_away.discard(address)
        index = self.workers[address] = len(self.worker_info)
        self.worker_info.append(
            {
                "worker": index,
                "address": address,
                "name": text(state.name),
                "host": state.host,
                "nthreads": state.nthreads,
                "memory_limit": state.memory_limit or 0,
                "joined": moment or time(),
                "left": None,
            }
        )

    # -- gathering ----------------------------------------------------------------------------

    def _sample_tick(self) -> None:
        # Half a heartbeat interval: on large clusters heartbeats are seconds apart.
        pause = max(SAMPLE_TICK_S, len(self.scheduler.workers) / 400)
        self.sample_handle = self.lag.loop.call_later(pause, self._sample_tick)
        if self.t_on == self.t_on:
            self._sample()
            if self.t_off != self.t_off:
                self._guarded(self.asking.ask, pause, self.heard)
        if self.scheduler.status.name in ("closing", "closed"):
            self.removal = asyncio.ensure_future(self.close())
        elif time() - self.heard > self.patience_s:
            self.removal = asyncio.ensure_future(self.uninstall())

    def _look(self) -> None:
        """Poll the workers until uninstall, and the tasks while the clock runs."""
        if self.poll is not None:
            self._guarded(self.poll.look)

    def _sample(self) -> None:
        self._look()
        self._guarded(self.stream.fold, ENOUGH_TO_FOLD)
        self._guarded(self.samples.look_at_workers)
        self._guarded(self.samples.look_at_scheduler)

    def _take(self, groups: bool) -> dict:
        """Return the gathered data as plain columns (bytes, lists) and clear it."""
        self._look()  # workers that have just joined need an index
        tables: dict[str, Any] = {
            **self.stream.take(),
            **self.samples.take(),
            **self.happenings.take(),
            **self.asking.take(),
            "workers": self.worker_info,
        }
        if groups or len(self.groups.members) <= FEW_GROUPS:
            if self.happenings.counting:
                self._guarded(self._count_groups)
            tables["groups"] = self.group_rows
            tables["fine"] = fine_rows(fine_now(self.scheduler), self.fine_before)
        else:
            tables["group_names"] = self.groups.names()
        happenings = self.happenings
        tables["state"] = {
            "t_on": self.t_on,
            "t_off": self.t_off,
            "now": time(),
            "n_dropped": self.stream.n_dropped,
            "n_events_dropped": happenings.n_dropped,
            "n_errors": happenings.n_failures,
            "n_steals": happenings.n_steals,
            "transitions": self.samples.transitions,
            "errors": list(self.errors),
        }
        return tables
