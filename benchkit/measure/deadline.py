"""Stop a step that does not end, and say where it hung.

A thread waits beside the step. When the deadline passes it first asks the cluster what it is
doing (call stacks of tasks and of workers' threads), then interrupts the step.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from benchkit.measure.errors import DeadlinePassed

__all__ = [
    "call_with_timeout",
    "deadline",
    "pause_deadlines",
    "stacks_of",
    "describe_unfinished_tasks",
]

#: How long the evidence may take; a hung cluster does not answer, and the run must end.
EVIDENCE_TIMEOUT_S = 10.0
#: Deadlines that run in this process, in any thread.
_RUNNING: list[_Deadline] = []


def deadline(
    seconds: float, step: str, *, evidence: Callable[[], None] = lambda: None
) -> AbstractContextManager[None]:
    """Raise `DeadlinePassed` in the body of a `with` when it takes longer than `seconds`.

    Code that cannot be interrupted, such as a foreign function that holds the GIL, raises it when
    it comes back.

    Parameters
    ----------
    seconds : float
        Time allowed, in s.
    step : str
        What the body does, for the message.
    evidence : callable, optional
        Called in another thread before the body is interrupted.

    Raises
    ------
    DeadlinePassed
        The body was interrupted, or came back too late.
    """
    return _Deadline(seconds, step, evidence)


@contextmanager
def pause_deadlines() -> Iterator[None]:
    """Stop the clocks of this thread's deadlines in the body of a `with`.

    For what is done once and kept, such as making data, however long it takes.
    """
    mine = [each for each in _RUNNING if each.runner is threading.current_thread()]
    begin = time.monotonic()
    for each in mine:
        each.stopped_at = each.stopped_at or begin
    try:
        yield
    finally:
        for each in mine:
            if each.stopped_at == begin:  # not one that stopped before us
                each.spared += time.monotonic() - begin
                each.stopped_at = None


class _Deadline:
    """The state of one deadline.

    The main thread is interrupted by a real signal, because that also wakes a blocking wait. The
    signal can arrive just when the body has ended: then it must neither be taken for a user's
    Ctrl-C nor reach the next step. So its handler is ours until it has come.
    """

    def __init__(self, seconds: float, step: str, evidence: Callable[[], None]) -> None:
        self.seconds, self.step, self.evidence = seconds, step, evidence
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.fired = self.arrived = False
        self.handler: Any = None
        #: Seconds that do not count, and since when the clock has been stopped.
        self.spared = 0.0
        self.stopped_at: float | None = None

    def __enter__(self) -> None:
        self.runner = threading.current_thread()
        self.by_signal = self.runner is threading.main_thread() and hasattr(signal, "pthread_kill")
        if self.by_signal:
            self.handler = signal.getsignal(signal.SIGINT)
            signal.signal(signal.SIGINT, self._on_signal)
        self.begin = time.monotonic()
        _RUNNING.append(self)
        threading.Thread(target=self._watch, name="benchkit-deadline", daemon=True).start()

    def _left(self) -> float:
        # While the clock stands still so does this.
        return self.seconds + self.spared - ((self.stopped_at or time.monotonic()) - self.begin)

    def _watch(self) -> None:
        while (left := self._left()) > 0:
            if self.ended.wait(left):
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
        if not (self.ended.is_set() or self._is_left(frame)):
            raise KeyboardInterrupt

    def _is_left(self, frame: Any) -> bool:
        """Tell whether a frame is of `__exit__`, or of anything that it called."""
        while frame is not None:
            if frame.f_code is _Deadline.__exit__.__code__ and frame.f_locals.get("self") is self:
                return True
            frame = frame.f_back
        return False

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        with self.lock:
            self.ended.set()
        _RUNNING.remove(self)
        late = self._left() < 0
        if self.fired:
            self._await_interrupt()
        if self.by_signal:
            signal.signal(signal.SIGINT, self.handler or signal.default_int_handler)
        # Whatever the step made of our interrupt, the deadline is the reason.
        if self.fired or (late and error is None):
            raise DeadlinePassed(
                f"the {self.step} did not end within its deadline of {self.seconds:g} s"
            ) from error

    def _await_interrupt(self) -> None:
        """Give an interrupt that is under way the moment to arrive here, not in the next step."""
        end = time.monotonic() + (1.0 if self.by_signal else 0.05)
        try:
            while not self.arrived and time.monotonic() < end:
                time.sleep(0.005)
        except DeadlinePassed:
            pass


def call_with_timeout(question: Callable[[], Any], seconds: float = EVIDENCE_TIMEOUT_S) -> Any:
    """Return the answer, or None when it does not come in time or fails."""
    box: list[Any] = []

    def ask() -> None:
        try:
            box.append(question())
        except Exception as error:
            box.append({"trouble": f"{type(error).__name__}: {error}"})

    thread = threading.Thread(target=ask, name="benchkit-ask", daemon=True)
    thread.start()
    thread.join(seconds)
    return box[0] if box else None


def stacks_of(client: Any) -> dict[str, Any]:
    """Return where the client's threads, the tasks and the workers' threads are right now."""
    frames = sys._current_frames()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks: dict[str, Any] = {
        "client": {
            names.get(ident, str(ident)): "".join(traceback.format_stack(frame)[-12:])
            for ident, frame in frames.items()
        }
    }
    half = EVIDENCE_TIMEOUT_S / 2
    stacks["tasks"] = call_with_timeout(
        lambda: client.sync(client.scheduler.call_stack, keys=None), half
    )
    stacks["workers"] = call_with_timeout(lambda: client.run(_worker_stacks()), half)
    return stacks


#: State of a task on the scheduler -> what is said of such tasks.
_UNDONE = {
    "no-worker": "that no worker may run",
    "processing": "on workers",
    "queued": "queued",
    "waiting": "waiting for others",
}


def describe_unfinished_tasks(client: Any) -> str:
    """Return in words what the tasks that are not done wait for; nothing if that is not known."""

    # A nested function is pickled by value: the scheduler need not have benchkit.
    def count(dask_scheduler: Any) -> dict[str, int]:
        counts: dict[str, int] = {}
        for task in list(dask_scheduler.tasks.values()):
            counts[task.state] = counts.get(task.state, 0) + 1
        return counts

    counts = call_with_timeout(lambda: client.run_on_scheduler(count), EVIDENCE_TIMEOUT_S / 2)
    told = [
        f"{counts[name]} {words}" for name, words in _UNDONE.items() if (counts or {}).get(name)
    ]
    return "tasks: " + ", ".join(told) if told else ""


def _worker_stacks() -> Callable[[], dict[str, str]]:
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
