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
from contextlib import contextmanager
from typing import Any

from benchkit.measure.errors import DeadlinePassed

__all__ = ["ask_with_timeout", "deadline", "stacks_of"]

#: How long the evidence may take; a hung cluster does not answer, and the run must end.
EVIDENCE_TIMEOUT_S = 10.0


@contextmanager
def deadline(
    seconds: float, step: str, *, evidence: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Raise `DeadlinePassed` in the body when it takes longer than `seconds`.

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
        The body was interrupted.
    """
    lock = threading.Lock()
    ended = threading.Event()
    fired = False
    runner = threading.current_thread()

    def watch() -> None:
        nonlocal fired
        if ended.wait(seconds):
            return
        evidence()
        with lock:
            if ended.is_set():
                return
            fired = True
            _interrupt(runner)

    watcher = threading.Thread(target=watch, name="benchkit-deadline", daemon=True)
    watcher.start()
    try:
        try:
            yield
        finally:
            with lock:
                ended.set()
            if fired:
                _absorb_interrupt()
    except BaseException:
        if not fired:  # whatever the step made of our interrupt, the deadline is the reason
            raise
    if fired:
        raise DeadlinePassed(f"the {step} did not end within its deadline of {seconds:g} s")


def _interrupt(thread: threading.Thread) -> None:
    if thread is threading.main_thread() and hasattr(signal, "pthread_kill"):
        # A real signal also wakes a blocking wait; `interrupt_main` would only set a flag.
        signal.pthread_kill(thread.ident or 0, signal.SIGINT)
    else:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident or 0), ctypes.py_object(DeadlinePassed)
        )


def _absorb_interrupt() -> None:
    """Give an interrupt that is under way the moment to arrive here, not in the next step."""
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        time.sleep(0.005)


def ask_with_timeout(question: Callable[[], Any], seconds: float = EVIDENCE_TIMEOUT_S) -> Any:
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
    stacks["tasks"] = ask_with_timeout(
        lambda: client.sync(client.scheduler.call_stack, keys=None), half
    )
    stacks["workers"] = ask_with_timeout(lambda: client.run(_worker_stacks()), half)
    return stacks


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
