"""Install a capture on a client's cluster, drain it to a recording, uninstall it.

The observer never blocks the workload: every remote call has a timeout, and an error is a line in
`errors`, which is stored in the run, not an exception in the workload. Works from any thread but
the client's own event loop, with synchronous and asynchronous clients.
"""

from __future__ import annotations

import asyncio
import threading
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic, process_time
from typing import TYPE_CHECKING, Any

import cloudpickle
import dask.base
import distributed.client
from distributed.metrics import time

from benchkit.measure import capture
from benchkit.measure.capture.columns import CLIENT, CLIENT_COLUMNS, NAN
from benchkit.measure.capture.loop_lag import LoopLag
from benchkit.measure.capture.memory_sampler import (
    MemorySampler,
    high_water_mark,
    machine_number,
    process_number,
)
from benchkit.measure.capture.process import (
    CLOCK_STEP_S,
    Processors,
    ThreadSampler,
    cpu_between,
    process_cpu,
)
from benchkit.measure.recording import RecordingWriter

if TYPE_CHECKING:
    from benchkit.measure.engines.engine import Engine

#: Seconds: the data lost when a scheduler or kernel is killed. A drain takes 4 ms.
DRAIN_EVERY_S = 1.0
CALL_TIMEOUT_S = 15.0
#: Seconds added per worker: with hundreds on a small machine a call takes seconds.
CALL_TIMEOUT_PER_WORKER_S = 0.1
#: Once per run and outside the clock, possibly on a cluster that has just started.
INSTALL_TIMEOUT_S = 60.0
#: All group rows are sent each time: with more than 200 groups only in every tenth drain.
GROUPS_EVERY = 10

#: Functions that begin to optimise collections: since 2025, and before.
_OPTIMISE = ("collections_to_expr", "collections_to_dsk")
_MODULES = (dask.base, distributed.client)
#: A workload that submits more graphs than this has no more rows.
MAX_ROWS = 20_000
#: Ticks of `LoopLag` between two rows: 0.5 s, as between heartbeats.
TICKS_PER_ROW = 10
#: Seconds that the client's event loop has to start and to stop the sampler.
LOOP_TIMEOUT_S = 5.0


class Observer:
    """Record one run of one client."""

    def __init__(
        self,
        client: Any,
        writer: RecordingWriter,
        name: str,
        *,
        level: str = "full",
        engine: Engine | None = None,
    ) -> None:
        self.client, self.engine = client, engine
        self.writer = writer
        self.name = name
        self.level = level
        self.errors: list[str] = []
        self.t_on = self.t_off = float("nan")
        #: Seconds that the scheduler's clock is ahead of this process; set by `clock_on`.
        self.clock_ahead = 0.0
        #: Seconds by which the scheduler's wall clock was set while the clock ran.
        self.clock_step_s = 0.0
        #: CPU seconds of client and scheduler while the clock ran, see `cpu_between`.
        self.process_cpu: list[tuple[int, int, float]] = []
        self.phases = ClientPhases(client)
        self.process: ClientProcess | None = None
        self._cpu_on: list[Sequence[float]] = []
        self._steady_on = self._scheduler_on = self._round_trip_s = float("nan")
        self._installed = False
        self._timeout_s, self._n_workers = INSTALL_TIMEOUT_S, 0
        self._ack = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    # -- install, clock, uninstall -------------------------------------------------------------

    @property
    def _has_engine(self) -> bool:
        """Whether an engine reports what ran, in the cluster of the capture or in its own."""
        records = self._installed or (self.client is None and self.level != "off")
        return self.engine is not None and records

    def install(self) -> None:
        """Register the plugin and start draining. Outside the clock."""
        if self.level == "off" or self.client is None:
            return
        cloudpickle.register_pickle_by_value(capture)
        try:
            plugin = cloudpickle.dumps(capture.CapturePlugin(self.name, self.level))
        finally:
            cloudpickle.unregister_pickle_by_value(capture)
        reply = self._call(
            "register_scheduler_plugin", plugin=plugin, name=self.name, idempotent=False
        )
        self._installed = reply is not None
        if self._installed:
            self.process = ClientProcess(self.client.loop.asyncio_loop)
            self._thread = threading.Thread(
                target=self._drain_loop, name="benchkit-drain", daemon=True
            )
            self._thread.start()

    def clock_on(self) -> float:
        """Start the clock of the run."""
        self._round_trip_s = self._round_trip()
        call_time, cpu = time(), process_cpu()
        reply = self._call(f"{self.name}_on") if self._installed else None
        self._cpu_on = [*([reply["cpu"]] if reply else []), cpu]
        self._update_timeout(reply)
        self.t_on = reply["t_on"] if reply else time()
        # The reply was sent between the two times; an offset within them is 0.
        self.clock_ahead = min(self.t_on - call_time, 0.0) + max(self.t_on - time(), 0.0)
        if self._installed or self._has_engine:
            self.phases.start()
        self._start_engine()
        if self.process is not None:
            self.process.begin()
        self._steady_on = monotonic()
        self._scheduler_on = reply["steady"] if reply else float("nan")
        return self.t_on

    def _round_trip(self) -> float:
        """Return the seconds that a call of the scheduler takes: the shorter of two."""
        durations: list[float] = []
        replied = self._installed
        while replied and len(durations) < 2:  # a scheduler that hangs costs a whole timeout
            begin = monotonic()
            replied = self._call(f"{self.name}_ping") is not None
            durations.append(monotonic() - begin)
        return min(durations, default=0.0)

    def _update_timeout(self, reply: dict[str, Any] | None) -> None:
        if reply:
            self._n_workers = reply["n_workers"]
        self._timeout_s = CALL_TIMEOUT_S + self._n_workers * CALL_TIMEOUT_PER_WORKER_S

    def clock_off(self) -> float:
        """Stop the clock of the run.

        The duration is that of the steady clocks. A scheduler whose loop is blocked when the call
        arrives replies late: then the client's clock decides.
        """
        duration = monotonic() - self._steady_on
        if self.process is not None:
            self.process.end()
        if self.engine is not None:
            self.engine.stop()
        self.phases.stop()
        reply = self._call(f"{self.name}_off") if self._installed else None
        cpu = [*([reply["cpu"]] if reply else []), process_cpu()]
        self.process_cpu = cpu_between(self._cpu_on, cpu)
        self._update_timeout(reply)
        if reply and self._scheduler_on == self._scheduler_on:
            on_scheduler = reply["steady"] - self._scheduler_on
            duration = min(on_scheduler, duration + self._round_trip_s)
            step = reply["t_off"] - self.t_on - on_scheduler
            if abs(step) > CLOCK_STEP_S:
                self.clock_step_s = step
        self.t_off = self.t_on + duration
        return self.t_off

    def tail(self) -> dict[str, Any]:
        """Return what the tail of the recording says about the clock and the capture."""
        return {
            "t_on": self.t_on,
            "t_off": self.t_off,
            "clock_step_s": self.clock_step_s,
            "process_cpu": self.process_cpu,
            "client_phases": [
                [None if moment is None else moment + self.clock_ahead for moment in row]
                for row in self.phases.rows
            ],
            "capture_errors": self.errors,
        }

    def uninstall(self) -> None:
        """Drain the rest and remove the capture."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(self._timeout_s)
        has_engine = self._has_engine
        if self._installed:
            self._end()
        if has_engine:
            self._add_engine_tables()

    def _end(self) -> None:
        """End the capture on the scheduler, and write what it still has."""
        if self.process is not None:
            self.process.stop()
        with self._lock:
            reply = self._call(f"{self.name}_end", ack=self._ack)
            self._installed = False
            if reply:
                for segment in reply["segments"]:
                    self._write_segment(segment)

    def _start_engine(self) -> None:
        """Let the engine record what is submitted; an error is one of the capture."""
        try:
            if self.engine is not None and self._has_engine:
                self.engine.start(self.phases)
        except Exception as error:
            self._add_error(f"engine: {type(error).__name__}: {error}"[:300])

    def _add_engine_tables(self) -> None:
        """Add what the engine executed to the recording; an error is one of the capture."""
        if self.engine is None:
            return
        try:
            if tables := self.engine.tables(self.writer.path, self.t_on, self.clock_ahead):
                self.writer.segment(tables)
        except Exception as error:
            self.engine.warnings.append(f"{type(error).__name__}: {error}")
        for line in self.engine.warnings:
            self._add_error(f"engine {self.engine.name}: {line}"[:300])

    # -- draining -----------------------------------------------------------------------------

    def _drain_loop(self) -> None:
        rounds, pause = 0, DRAIN_EVERY_S
        while not self._stop.wait(pause):
            rounds += 1
            replied = self.drain(groups=rounds % GROUPS_EVERY == 0)
            # A scheduler with a blocked loop may recover; drained data are on disk.
            pause = DRAIN_EVERY_S if replied else min(10 * DRAIN_EVERY_S, 2 * pause)

    def drain(self, *, groups: bool = False) -> bool:
        """Fetch the data that the capture has gathered and write a segment."""
        with self._lock:
            if not self._installed:
                return False
            reply = self._call(f"{self.name}_drain", ack=self._ack, groups=groups)
            if not reply:
                return False
            self._write_segment(reply)
            return True

    def _write_segment(self, segment: dict[str, Any]) -> None:
        if segment["sequence"] == self._ack:
            return
        try:
            own = {}
            if self.process is not None and self._steady_on == self._steady_on:
                own = self.process.drain(self.clock_ahead)
            self.writer.segment({**segment["tables"], **own})
            if own and self.process is not None:
                self.process.acknowledge()
        except OSError as error:
            self._add_error(f"could not write a segment: {error.strerror or error}")
            return  # not acknowledged: the scheduler sends it again
        self._ack = segment["sequence"]

    # -- calling ------------------------------------------------------------------------------

    def _call(self, op: str, **kwargs: Any) -> dict[str, Any] | None:
        """Call a handler of the scheduler from any thread; return None on errors."""
        loop = self.client.loop.asyncio_loop
        if self.client.status != "running" or not loop.is_running():
            # No reply can come, and waiting for one takes the whole timeout.
            self._add_error(f"{op.replace(f'{self.name}_', '')}: the client lost its scheduler")
            return None
        try:
            future = asyncio.run_coroutine_threadsafe(
                asyncio.wait_for(self._remote(op, kwargs), self._timeout_s), loop
            )
            return future.result(self._timeout_s + 1)
        except Exception as error:
            label = op.replace(f"{self.name}_", "")
            self._add_error(f"{label}: {type(error).__name__}: {error}".rstrip(": ")[:300])
            return None

    async def _remote(self, op: str, kwargs: dict[str, Any]) -> dict[str, Any]:
        reply = await getattr(self.client.scheduler, op)(**kwargs)
        if isinstance(reply, dict) and reply.get("status") == "error":
            raise RuntimeError(str(reply.get("text", reply)))
        if not isinstance(reply, dict) and op.startswith(self.name):
            raise RuntimeError("the capture is no longer installed")
        return reply or {}

    def _add_error(self, line: str) -> None:
        if line not in self.errors and len(self.errors) < 20:
            self.errors.append(line)


class ClientPhases:
    """Times at which a client optimises, serialises and sends each graph.

    What the client does before the first of these moments is the workload's own code, which builds
    the graph.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        #: Rows of Unix times in s: optimisation begins (None: nothing to optimise), serialisation
        #: begins, graph handed to the connection.
        self.rows: list[tuple[float | None, float, float]] = []
        self._optimised: dict[int, float] = {}
        self._serialised: dict[int, float] = {}
        self._replaced: list[tuple[Any, str, Any]] = []

    def start(self) -> None:
        """Wrap the functions."""
        for module in _MODULES:
            for name in _OPTIMISE:
                if hasattr(module, name):
                    self._wrap(module, name, self._optimise)
        if hasattr(self.client, "_graph_to_futures") and hasattr(self.client, "_send_to_scheduler"):
            self._wrap(self.client, "_graph_to_futures", self.serialise)
            self._wrap(self.client, "_send_to_scheduler", self.send)

    def stop(self) -> None:
        """Restore the functions."""
        for owner, name, original in reversed(self._replaced):
            if owner is self.client:
                vars(owner).pop(name, None)
            else:
                setattr(owner, name, original)
        self._replaced.clear()

    def _wrap(self, owner: Any, name: str, note: Callable[..., None]) -> None:
        original = getattr(owner, name)

        def noted(*args: Any, **arguments: Any) -> Any:
            note(*args)
            return original(*args, **arguments)

        self._replaced.append((owner, name, original))
        setattr(owner, name, noted)

    def _optimise(self, *args: Any) -> None:
        # Also called by optimisation itself: the first call counts.
        self._optimised.setdefault(threading.get_ident(), time())

    def serialise(self, *args: Any) -> None:
        """Note that the client begins to serialise a graph."""
        self._serialised[threading.get_ident()] = time()

    def send(self, *args: Any) -> None:
        """Note that the client has handed a graph to the connection."""
        thread = threading.get_ident()
        begin = self._serialised.pop(thread, None)
        if begin is not None and len(self.rows) < MAX_ROWS:
            self.rows.append((self._optimised.pop(thread, None), begin, time()))


class ClientProcess:
    """Rows about the process of a client, made by its event loop and at the clock's edges."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.numbers = [machine_number(), process_number()]
        self.memory, self.processors = MemorySampler(), Processors()
        self.lag: LoopLag | None = None
        self.threads: ThreadSampler | None = None
        self.n_ticks, self.ended = 0, False
        #: Rows of `CLIENT_COLUMNS`; an edge's row is made by another thread than the others.
        self._rows, self._thread_rows = array("d"), array("d")
        self._sent = 0, 0
        self._lock = threading.Lock()
        self._in_loop(self._start)

    def _in_loop(self, function: Callable[[], None]) -> None:
        done = threading.Event()

        def call() -> None:
            function()
            done.set()

        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(call)
            done.wait(LOOP_TIMEOUT_S)

    def _start(self) -> None:
        self.threads = ThreadSampler(self.memory.now, main=threading.main_thread())
        self.lag = LoopLag(self._tick)

    def _tick(self) -> None:
        self.memory.sample_if_due()
        self.n_ticks += 1
        if self.n_ticks % TICKS_PER_ROW == 0 and not self.ended:
            self.sample()

    def begin(self) -> None:
        """Discard the rows from before the clock started."""
        with self._lock:
            del self._rows[:]
        self.sample()
        with self._lock:  # peak and delays of the first row are from before the clock started
            for name, value in (("rss_peak", self._rows[1]), ("lag_mean", 0.0), ("lag_max", 0.0)):
                self._rows[CLIENT_COLUMNS.index(name)] = value

    def end(self) -> None:
        """Add the last row: the clock has stopped."""
        self.ended = True
        self.sample()

    def sample(self) -> None:
        """Add a row now."""
        with self._lock:
            # A worker in this process reads and resets the same mark.
            is_shared = "_benchkit_worker_plugins" in vars(distributed)
            peak = 0 if is_shared else high_water_mark()
            self.memory.sample(peak or NAN)
            moment, rss, area, peak_or_nan = self.memory.samples[-1]
            lag = self.lag.read() if self.lag is not None else (NAN, NAN)
            facts = self.processors.facts()
            self._rows.extend(
                (moment, rss, area, peak_or_nan, process_time(), *lag, *facts.values())
            )
            if self.threads is not None:
                self.threads.sample()

    def drain(self, ahead: float) -> dict[str, Any]:
        """Return the tables, in time of a clock that is ahead by seconds, until `acknowledge`."""
        width, threads = len(CLIENT_COLUMNS), array("d")
        with self._lock:
            rows = array("d", self._rows)
            if self.threads is not None:
                self._thread_rows += array("d", self.threads.drain())
            thread_rows = array("d", self._thread_rows)
        self._sent = len(rows), len(thread_rows)
        rows[::width] = array("d", (moment + ahead for moment in rows[::width]))
        for place in range(0, len(thread_rows), 6):
            threads.extend((thread_rows[place] + ahead, CLIENT))
            threads.extend(thread_rows[place + 1 : place + 6])
        absent = "its event loop was blocked"
        return {
            "client": rows.tobytes(),
            "client_threads": threads.tobytes(),
            "client_process": self.numbers,
            "client_threads_absent": self.threads.times.absent if self.threads else absent,
        }

    def acknowledge(self) -> None:
        """Delete the rows of the last `drain`: they are written."""
        with self._lock:
            del self._rows[: self._sent[0]], self._thread_rows[: self._sent[1]]

    def stop(self) -> None:
        """Stop sampling."""
        if self.lag is not None:
            self._in_loop(self.lag.stop)
        if self.threads is not None:
            self.threads.times.close()
        self.memory.close()
