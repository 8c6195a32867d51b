"""Install a capture on a client's cluster, drain it to a recording, uninstall it.

The observer never blocks the workload: every remote call has a timeout, and an error is a line in
`errors`, which is stored in the run, not an exception in the workload. Works from any thread but
the client's own event loop, with synchronous and asynchronous clients.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

import cloudpickle
import dask.base
import distributed.client
from distributed.metrics import time

from benchkit.measure import capture
from benchkit.measure.capture.process import CLOCK_STEP_S, cpu_between, process_cpu
from benchkit.measure.recording import RecordingWriter

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


class Observer:
    """Record one run of one client."""

    def __init__(
        self, client: Any, writer: RecordingWriter, name: str, *, level: str = "full"
    ) -> None:
        self.client = client
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
        self._cpu_on: list[Sequence[float]] = []
        self._steady_on = self._scheduler_on = self._round_trip_s = float("nan")
        self._installed = False
        self._timeout_s, self._n_workers = INSTALL_TIMEOUT_S, 0
        self._ack = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    # -- install, clock, uninstall -------------------------------------------------------------

    def install(self) -> None:
        """Register the plugin and start draining. Outside the clock."""
        if self.level == "off":
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
        if self._installed:
            self.phases.start()
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
        if not self._installed:
            return
        with self._lock:
            reply = self._call(f"{self.name}_end", ack=self._ack)
            self._installed = False
            if reply:
                for segment in reply["segments"]:
                    self._write_segment(segment)

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
            self.writer.segment(segment["tables"])
        except OSError as error:
            self._add_error(f"could not write a segment: {error.strerror or error}")
            return  # not acknowledged: the scheduler sends it again
        self._ack = segment["sequence"]

    # -- calling ------------------------------------------------------------------------------

    def _call(self, op: str, **kwargs: Any) -> dict[str, Any] | None:
        """Call a handler of the scheduler from any thread; return None on errors."""
        if self.client.status != "running":
            # No reply can come, and waiting for one takes the whole timeout.
            self._add_error(f"{op.replace(f'{self.name}_', '')}: the client lost its scheduler")
            return None
        try:
            loop = self.client.loop.asyncio_loop
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
            self._wrap(self.client, "_graph_to_futures", self._serialise)
            self._wrap(self.client, "_send_to_scheduler", self._send)

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

    def _serialise(self, *args: Any) -> None:
        self._serialised[threading.get_ident()] = time()

    def _send(self, message: Any, *args: Any) -> None:
        thread = threading.get_ident()
        begin = self._serialised.pop(thread, None)
        if begin is not None and len(self.rows) < MAX_ROWS:
            self.rows.append((self._optimised.pop(thread, None), begin, time()))
