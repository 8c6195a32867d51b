"""End a command at Ctrl-C, SIGTERM and SIGHUP in one way: as a `KeyboardInterrupt`.

`timeout`, batch systems, service managers and cancelled jobs of continuous integration send
SIGTERM, a closed terminal sends SIGHUP.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
#: Seconds after a signal in which others are ignored: `timeout` sends each signal twice, and a
#: second Ctrl-C would interrupt the removal of processes and files.
IGNORED_S = 10.0
#: Limit for the module that a signal waits for, and the time between two looks, in seconds.
MODULE_TIMEOUT_S, MODULE_CHECK_S = 20.0, 0.05


class _State:
    """Signals of this process that have arrived."""

    number = int(signal.SIGINT)
    accepted_at = -IGNORED_S
    delayed_at: float | None = None
    n_protected = 0
    is_pending = False


def interrupt_at_signals() -> None:
    """Raise `KeyboardInterrupt` in the main thread at each signal that ends a command."""
    for name in _SIGNALS:
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        # `nohup` ignores SIGHUP, and it stays ignored. SIGINT does not: shells ignore it in each
        # job in the background, where `kill -INT` must end a command too.
        is_ignored = number is not None and signal.getsignal(number) is signal.SIG_IGN
        if number is not None and not (name == "SIGHUP" and is_ignored):
            signal.signal(number, _on_signal)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_end_at_signals)


def _end_at_signals() -> None:
    """Let signals end a forked process at once: only the command itself reports its end."""
    _set_handlers(signal.SIG_DFL)


def _set_handlers(handler: signal.Handlers) -> None:
    for name in _SIGNALS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is _on_signal:
            signal.signal(number, handler)


def interrupted_code() -> int:
    """Return the exit code of an interrupted command, which ends now and ignores later signals.

    130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.
    """
    # Python sets its own handlers back when it ends: a late signal would change the exit code.
    _set_handlers(signal.SIG_IGN)
    return 128 + _State.number


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay a signal until the end of the body of the `with` statement.

    For the moment between the start of a process and its registration, and for its removal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers of signals run in the main thread
        return
    _State.n_protected += 1
    try:
        yield
    finally:
        _State.n_protected -= 1
        if _State.is_pending and not _State.n_protected:
            _State.is_pending = False
            raise KeyboardInterrupt


def _on_signal(number: int, frame: Any) -> None:
    now = time.monotonic()
    if now - _State.accepted_at < IGNORED_S:
        return
    if _State.delayed_at is None:
        _State.delayed_at = now
    if _executes_module(frame) and now - _State.delayed_at < MODULE_TIMEOUT_S:
        _send_later(number)
        return
    _State.delayed_at = None
    _State.number, _State.accepted_at = int(number), now
    _leave_closed_terminal()
    if _State.n_protected:
        _State.is_pending = True
        return
    raise KeyboardInterrupt


def _executes_module(frame: Any) -> bool:
    """Return whether a module is imported, or a text executed as one.

    Half imported, a module fails when it is used later. After a `KeyboardInterrupt` in the text of
    `exec` (fastjsonschema, namedtuple), Python ends itself with SIGINT whatever the exit code is.
    """
    while frame is not None:
        code = frame.f_code
        is_text = (code.co_filename, code.co_name) == ("<string>", "<module>")
        # The first frame is that of `python -c`.
        if code.co_filename.startswith("<frozen importlib") or (is_text and frame.f_back):
            return True
        frame = frame.f_back
    return False


def _send_later(number: int) -> None:
    # On Windows `os.kill` ends the process.
    send = partial(os.kill, os.getpid()) if os.name == "posix" else signal.raise_signal
    timer = threading.Timer(MODULE_CHECK_S, send, [number])
    timer.daemon = True
    timer.start()


def _leave_closed_terminal() -> None:
    """Write to nowhere if the terminal is closed: each line would raise an error otherwise."""
    for descriptor in (1, 2):
        try:
            os.write(descriptor, b"")
        except OSError:
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
