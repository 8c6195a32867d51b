"""Give programs a wall clock that can be set while they run: `time.time` and `time.time_ns`.

Python imports this module first where ``PYTHONPATH`` contains its folder. The file that the
variable `CLOCK` names holds the seconds by which a host's clock is ahead; without it, each process
has a clock of its own.
"""

import mmap
import os
import struct
import time
from typing import Any

CLOCK = "BENCHKIT_TEST_CLOCK"
#: Variable with the s by which the monotonic clock of a host is ahead.
UPTIME = "BENCHKIT_TEST_UPTIME"
_NUMBER = struct.Struct("d")


def set_clock(path: str, ahead_s: float) -> None:
    """Set the clock of all programs that use a file."""
    with open(path, "r+b" if os.path.exists(path) else "wb") as file:
        file.write(_NUMBER.pack(ahead_s))


class _Clock:
    """A function of `time` with `ahead`, in s."""

    def __init__(self, name: str, memory: mmap.mmap) -> None:
        self._real, self._memory = getattr(time, name), memory
        self._units = {"time": 1.0, "time_ns": 1e9}[name]
        self.__module__, self.__name__ = "time", name

    def __call__(self) -> Any:
        real = self._real()
        return real + type(real)(self.ahead * self._units)

    def __reduce__(self) -> str:
        """Pickle by reference, so that another process takes its own clock."""
        return self.__name__

    @property
    def ahead(self) -> float:
        return float(_NUMBER.unpack_from(self._memory)[0])

    @ahead.setter
    def ahead(self, seconds: float) -> None:
        _NUMBER.pack_into(self._memory, 0, seconds)


def wrap_clock(path: str | None = None) -> None:
    """Replace the functions that read the wall clock, unless this has been done."""
    if hasattr(time.time, "ahead"):
        return
    if path is None:
        memory = mmap.mmap(-1, _NUMBER.size)
    else:
        with open(path, "r+b") as file:
            memory = mmap.mmap(file.fileno(), _NUMBER.size)
    for name in ("time", "time_ns"):
        setattr(time, name, _Clock(name, memory))


if __name__ == "sitecustomize":
    wrap_clock(os.environ.get(CLOCK))
