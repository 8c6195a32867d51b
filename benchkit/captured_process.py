"""Run a program to its end and capture what it prints; end processes with all that they started."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import psutil

from benchkit.interruption import uninterrupted

#: Limit for the end of killed processes in seconds.
_END_TIMEOUT_S = 5.0
_running: set[int] = set()
#: Held until a started program is in `_running`.
_starting = threading.Lock()


def run_captured(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program; an exit code other than 0 is no error.

    After an interrupt or a timeout, nothing that it started is left.
    """
    timeout_s = options.pop("timeout", None)
    process: subprocess.Popen[str] | None = None
    try:
        with uninterrupted(), _starting:  # raises a delayed interrupt at its end
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
            )
            _running.add(process.pid)
        out, error = process.communicate(timeout=timeout_s)
    except BaseException:
        if process is not None:
            with uninterrupted(), process:
                end_processes(process_tree(process.pid, stop=True))
        raise
    finally:
        if process is not None:
            _running.discard(process.pid)
    return subprocess.CompletedProcess(process.args, process.returncode, out, error)


@contextmanager
def programs_end_at_interrupt(pool: ThreadPoolExecutor) -> Iterator[None]:
    """End the programs that run in the threads of a pool if the main thread is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        with uninterrupted():
            pool.shutdown(wait=False, cancel_futures=True)
            with _starting:
                pids = list(_running)
            for pid in pids:
                end_processes(process_tree(pid, stop=True))
        raise


def process_tree(pid: int | None, *, stop: bool = False) -> list[psutil.Process]:
    """Return a process and those that it started, directly or not; `stop` it from starting more."""
    with suppress(psutil.Error):
        first = psutil.Process(pid) if pid else None
        if first is not None:
            if stop:
                first.suspend()
            return [first, *first.children(recursive=True)]
    return []


def end_processes(processes: Iterable[psutil.Process]) -> None:
    """Kill processes, and wait until they have ended."""
    remaining = list(processes)
    for process in remaining:
        with suppress(psutil.Error):
            process.kill()
    end = time.monotonic() + _END_TIMEOUT_S
    while (remaining := [p for p in remaining if _runs(p)]) and time.monotonic() < end:
        time.sleep(0.01)


def _runs(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
