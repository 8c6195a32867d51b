"""Cause one fault at a numbered step of an operation.

A step is a call of the operating system (`SystemFaults`) or of a method of the files object of a
store (`FileFaults`, for folders and buckets). Each object is used once, in a process of its own,
because it replaces functions of that process.
"""

import errno
import os
import random
import signal
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from benchkit.errors import AlreadyStored, StoreError

#: Audit events of Python that are steps; a write and a flush have none, a sync follows them.
_EVENTS = {"open", "os.link", "os.rename", "os.remove", "os.mkdir", "os.scandir", "os.listdir"}
_WRITES = {"write", "os.link", "os.rename", "os.mkdir", "sync"}
_CHANGES = {*_WRITES, "os.remove", "sync folder"}
#: Steps that can be done twice, as a file server does whose reply was lost.
_REPEATED = {"os.link", "os.rename", "os.remove", "os.mkdir"}
#: Times to which a clock jumps, in s since 1970: 1999, two days later, the year 2100.
_CLOCKS = (946_000_000, 0, 4_102_444_800)

#: Faults of calls of the system -> steps at which they make a difference; None: all.
SYSTEM_FAULTS: dict[str, set[str] | None] = {
    "kill": None,
    "kill, half written": {"sync"},
    "disk full": _WRITES,
    "disk full once": _WRITES,
    "no permission": None,
    "read-only": _CHANGES,
    "call repeated": _REPEATED,
    "clock jumps": None,
    "stopped, index compacted": None,
    "stopped, drafts deleted": None,
    "stopped, run pruned": None,
}
_FILE_WRITES = {"create", "delete", "move"}
#: Faults of methods of a files object -> methods at which they make a difference; None: all.
FILE_FAULTS: dict[str, set[str] | None] = {
    "kill after call": _FILE_WRITES,
    "server error": None,
    "server errors to the end": None,
    "reply lost": _FILE_WRITES,
    "request repeated": {"create"},
}


class _Faults:
    """Count steps, and cause a fault at the step of a number; without a name, only count."""

    def __init__(self, fault: str, step: int, seed: int) -> None:
        self.fault, self.step = fault, step
        self.steps: list[str] = []
        self.random = random.Random(seed)

    @property
    def happened(self) -> bool:
        """Whether the step was reached."""
        return len(self.steps) > self.step


class SystemFaults(_Faults):
    """Faults of calls of the operating system on paths below a folder."""

    def __init__(self, fault: str, step: int, seed: int, root: str, links: bool) -> None:
        super().__init__(fault, step, seed)
        self.root, self.has_links = root, links
        self._clock = self.random.choice(_CLOCKS)
        self._inside = False
        self._sync = os.fsync

    def install(self) -> None:
        """Begin to count and to fail; cannot be undone in this process."""
        sys.addaudithook(self._audit)
        os.fsync = self._fsync  # type: ignore[assignment]

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in _EVENTS or self._inside or not str(args[0]).startswith(self.root):
            return
        if event == "open":
            is_write = args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            self._at(event if not is_write else "write", args)
            return
        self._at(event, args)
        if event == "os.link" and not self.has_links:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM), args[0])

    def _fsync(self, descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        self._at("sync folder" if is_folder else "sync", (descriptor,))
        self._sync(descriptor)

    def _at(self, name: str, args: tuple[Any, ...]) -> None:
        self.steps.append(name)
        number = len(self.steps) - 1
        if number < self.step:
            return
        lasting = self.fault in ("disk full", "no permission", "read-only")
        if number > self.step and not lasting:
            return
        self._inside = True
        try:
            self._cause(name, args)
        finally:
            self._inside = False

    def _cause(self, name: str, args: tuple[Any, ...]) -> None:
        fault = self.fault
        if fault.startswith("kill"):
            if fault != "kill":
                _halve(args[0])
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault.startswith("disk full") and name in _WRITES:
            if name == "sync":
                _halve(args[0])
            raise _error(errno.ENOSPC, args)
        elif fault == "no permission":
            raise _error(errno.EACCES, args)
        elif fault == "read-only" and name in _CHANGES:
            raise _error(errno.EROFS, args)
        elif fault == "call repeated" and name in _REPEATED:
            self._do(name, args)
        elif fault == "clock jumps":
            moment = self._clock or time.time() + 2 * 86400
            start = time.monotonic()
            time.time = lambda: moment + time.monotonic() - start
            time.time_ns = lambda: int(time.time() * 1e9)
        elif fault.startswith("stopped"):
            os.kill(os.getpid(), signal.SIGSTOP)

    def _do(self, name: str, args: tuple[Any, ...]) -> None:
        if name == "os.link" and not self.has_links:
            return
        calls: dict[str, Callable[[], None]] = {
            "os.link": lambda: os.link(args[0], args[1]),
            "os.rename": lambda: os.rename(args[0], args[1]),
            "os.remove": lambda: os.unlink(args[0]),
            "os.mkdir": lambda: os.mkdir(args[0]),
        }
        with suppress(OSError):
            calls[name]()


class FileFaults(_Faults):
    """A files object whose methods fail: for folders and for buckets."""

    def __init__(self, fault: str, step: int, seed: int, files: Any) -> None:
        super().__init__(fault, step, seed)
        self.files = files

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.files, name)
        if not callable(value) or name == "path":
            return value

        def call(*args: Any, **options: Any) -> Any:
            return self._call(name, value, *args, **options)

        return call

    def _call(self, name: str, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self.steps.append(name)
        number = len(self.steps) - 1
        lasting = self.fault == "server errors to the end"
        if not self.fault or number < self.step or (number > self.step and not lasting):
            return method(*args, **options)
        if self.fault in ("server error", "server errors to the end"):
            raise StoreError(f"{args[0] if args else name}: 503 Slow Down")
        result = method(*args, **options)
        if self.fault == "kill after call":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "reply lost":
            raise StoreError(f"{args[0] if args else name}: 500 Internal Error")
        if self.fault == "request repeated":
            raise AlreadyStored(args[0])
        return result


def _halve(descriptor: int) -> None:
    os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)


def _error(number: int, args: tuple[Any, ...]) -> OSError:
    name = args[0] if isinstance(args[0], (str, os.PathLike)) else None
    return OSError(number, os.strerror(number), name)
