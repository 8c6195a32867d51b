"""Interrupt a step at its deadline and collect evidence of where it hung.

A watchdog thread waits for the deadline. When it passes, the thread first collects evidence (call
stacks of tasks and of workers' threads), then interrupts the step.
"""

from __future__ import annotations

import ctypes
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from benchkit.measure.errors import DeadlinePassed, error_summary

#: For workloads without a deadline of their own; data sizes are tuned for 5 to 20 s.
DEFAULT_DEADLINE_S = 300.0
#: Limit in s for collecting evidence: a hung cluster does not reply, and the run must end.
EVIDENCE_TIMEOUT_S = 10.0
#: Active deadlines of this process, of all threads.
_ACTIVE: list[_Deadline] = []


def deadline(
    seconds: float, step: str, *, evidence: Callable[[], None] = lambda: None
) -> AbstractContextManager[None]:
    """Raise `DeadlinePassed` in the body of a `with` when it takes longer than `seconds`.

    Code that cannot be interrupted, such as a C function that holds the GIL, raises it when it
    returns.
    """
    return _Deadline(seconds, step, evidence)


@contextmanager
def pause_deadlines() -> Iterator[None]:
    """Pause the deadlines of this thread in the body of a `with`.

    For work that is done once and cached, such as making a dataset.
    """
    deadlines = [d for d in _ACTIVE if d.runner is threading.current_thread()]
    begin = time.monotonic()
    for paused in deadlines:
        paused.paused_at = paused.paused_at or begin
    try:
        yield
    finally:
        for paused in deadlines:
            if paused.paused_at == begin:  # an outer pause_deadlines resumes its own deadlines
                paused.paused_s += time.monotonic() - begin
                paused.paused_at = None


class _Deadline:
    """The state of one deadline.

    The main thread is interrupted by SIGINT, because a signal also ends a blocking wait. The signal
    can arrive when the body has just ended: it must not be handled as the user's Ctrl-C, nor
    interrupt the next step. Therefore the handler stays installed until the signal has arrived.
    """

    def __init__(self, seconds: float, step: str, evidence: Callable[[], None]) -> None:
        self.seconds, self.step, self.evidence = seconds, step, evidence
        self.lock = threading.Lock()
        self.entered, self.ended = threading.Event(), threading.Event()
        self.fired = self.arrived = False
        self.handler: Any = None
        #: Total s of earlier pauses, and the monotonic time at which the current pause began.
        self.paused_s = 0.0
        self.paused_at: float | None = None

    def __enter__(self) -> None:
        self.runner = threading.current_thread()
        self.by_signal = self.runner is threading.main_thread() and hasattr(signal, "pthread_kill")
        if self.by_signal:
            self.handler = signal.getsignal(signal.SIGINT)
            signal.signal(signal.SIGINT, self._on_signal)
        _ACTIVE.append(self)
        self.begin = time.monotonic()
        threading.Thread(target=self._watch, name="benchkit-deadline", daemon=True).start()
        # Starting a thread can take longer than a short deadline, and an interrupt before the body
        # would skip `__exit__`: count from here.
        self.begin = time.monotonic()
        self.entered.set()

    def _remaining_s(self) -> float:
        return self.seconds + self.paused_s - ((self.paused_at or time.monotonic()) - self.begin)

    def _watch(self) -> None:
        self.entered.wait()
        while (remaining_s := self._remaining_s()) > 0:
            if self.ended.wait(remaining_s):
                return
        self.evidence()
        with self.lock:
            if self.ended.is_set():
                return
            self.fired = True
            ident = self.runner.ident or 0
            if self.by_signal:
                signal.pthread_kill(ident, signal.SIGINT)
            else:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(ident), ctypes.py_object(DeadlinePassed)
                )

    def _on_signal(self, number: int, frame: Any) -> None:
        if not self.fired:  # the user's own Ctrl-C
            if callable(self.handler):
                self.handler(number, frame)
            return
        self.arrived = True
        if not (self.ended.is_set() or self._is_exiting(frame)):
            raise KeyboardInterrupt

    def _is_exiting(self, frame: Any) -> bool:
        """Return whether `__exit__` of this deadline is among the callers of a frame."""
        while frame is not None:
            if frame.f_code is _Deadline.__exit__.__code__ and frame.f_locals.get("self") is self:
                return True
            frame = frame.f_back
        return False

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        with self.lock:
            self.ended.set()
        _ACTIVE.remove(self)
        late = self._remaining_s() < 0
        if self.fired:
            self._await_interrupt()
        if self.by_signal:
            signal.signal(signal.SIGINT, self.handler or signal.default_int_handler)
        # Replace any exception that the interrupt caused in the step.
        if self.fired or (late and error is None):
            raise DeadlinePassed(
                f"the {self.step} did not end within its deadline of {self.seconds:g} s"
            ) from error

    def _await_interrupt(self) -> None:
        """Wait for a pending interrupt, which would otherwise interrupt the next step."""
        end = time.monotonic() + (1.0 if self.by_signal else 0.05)
        try:
            while not self.arrived and time.monotonic() < end:
                time.sleep(0.005)
        except DeadlinePassed:
            pass


def call_with_timeout(function: Callable[[], Any], seconds: float = EVIDENCE_TIMEOUT_S) -> Any:
    """Call a function in another thread and wait for a limited time."""
    results: list[Any] = []

    def call() -> None:
        try:
            results.append(function())
        except Exception as error:
            results.append({"error": error_summary(error)})

    thread = threading.Thread(target=call, name="benchkit-call", daemon=True)
    thread.start()
    thread.join(seconds)
    return results[0] if results else None


def scheduler_responds(client: Any) -> bool:
    """Return whether the scheduler of a client answers within 5 s."""
    identity = call_with_timeout(lambda: client.sync(client.scheduler.identity), 5.0)
    return isinstance(identity, dict) and "error" not in identity


def stacks_of(client: Any) -> dict[str, Any]:
    """Return the current call stacks of the client's threads, of tasks and of workers' threads."""
    stacks, timeout_s = _thread_stacks(), EVIDENCE_TIMEOUT_S / 2
    return {
        "client": stacks(),
        "tasks": call_with_timeout(
            lambda: client.sync(client.scheduler.call_stack, keys=None), timeout_s
        ),
        "workers": call_with_timeout(lambda: client.run(stacks), timeout_s),
    }


#: Description of a task's state on the scheduler, by state.
_UNFINISHED_STATES = {
    "no-worker": "that no worker may run",
    "processing": "on workers",
    "queued": "queued",
    "waiting": "waiting for others",
}


def describe_unfinished_tasks(client: Any) -> str:
    """Describe how many tasks are unfinished, by state."""

    # A nested function is pickled by value: the scheduler need not have benchkit.
    def count(dask_scheduler: Any) -> dict[str, int]:
        counts: dict[str, int] = {}
        for task in list(dask_scheduler.tasks.values()):
            counts[task.state] = counts.get(task.state, 0) + 1
        return counts

    counts = call_with_timeout(lambda: client.run_on_scheduler(count), EVIDENCE_TIMEOUT_S / 2)
    parts = [
        f"{counts[name]} {text}"
        for name, text in _UNFINISHED_STATES.items()
        if (counts or {}).get(name)
    ]
    return "tasks: " + ", ".join(parts) if parts else ""


def _thread_stacks() -> Callable[[], dict[str, str]]:
    # A nested function is pickled by value: workers need not have benchkit.
    def collect() -> dict[str, str]:
        import sys
        import threading
        import traceback

        names = {thread.ident: thread.name for thread in threading.enumerate()}
        return {
            names.get(ident, str(ident)): "".join(traceback.format_stack(frame)[-12:])
            for ident, frame in sys._current_frames().items()
        }

    return collect
