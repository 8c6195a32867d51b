"""Tasks of known length, memory and bytes."""

import os
import time
from typing import Any

from validation.hosts.sitecustomize import UPTIME

MB = 10**6


def now() -> float:
    """Return the s of the monotonic clock that all processes share, also those of other hosts."""
    return time.perf_counter() - float(os.environ.get(UPTIME, 0))


def hold(n_bytes: int, seconds: float, rest_s: float = 0.0) -> None:
    """Allocate, touch every page, hold, free; a block of this size goes back to the system."""
    data = bytearray(n_bytes)
    data[::4096] = b"x" * len(data[::4096])
    time.sleep(seconds)
    del data
    time.sleep(rest_s)


def keep(n_bytes: int) -> bytearray:
    data = bytearray(n_bytes)
    data[::4096] = b"x" * len(data[::4096])
    return data


def nap(seconds: float, *_: Any) -> tuple[float, float]:
    """Sleep; return begin and end."""
    begin = now()
    time.sleep(seconds)
    return begin, now()


def spin(seconds: float) -> tuple[float, float]:
    """Use a core for `seconds` of this thread's CPU clock; return begin and end."""
    begin, end = now(), time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    return begin, now()


def hold_gil(seconds: float) -> float:
    """Sleep without giving up the GIL; return the seconds that it took."""
    import ctypes

    begin = time.perf_counter()
    ctypes.PyDLL(None).usleep(int(1e6 * seconds))  # PyDLL, unlike CDLL, keeps the GIL
    return time.perf_counter() - begin


def write(n_bytes: int) -> int:
    import tempfile

    with tempfile.NamedTemporaryFile(dir=".") as file:
        file.write(os.urandom(n_bytes))
        file.flush()
        os.fsync(file.fileno())
    return n_bytes


def fail(seconds: float, number: int, path: str = "", n_failures: int = 9) -> tuple[float, float]:
    """Fail after a nap, `n_failures` times; write begin and end of each failure to a file."""
    begin, end = nap(seconds)
    lines = 0
    if path:
        with open(path, "a+") as file:
            file.seek(0)
            lines = len(file.readlines())
            if lines < n_failures:
                file.write(f"{begin} {end}\n")
    if lines < n_failures:
        raise ValueError(f"planned {number}")
    return begin, end


def read_failures(path: str) -> float:
    """Return the seconds of the failures in a file, and remove it."""
    with open(path) as file:
        rows = [line.split() for line in file]
    os.remove(path)
    return sum(float(end) - float(begin) for begin, end in rows)


def noise(n_bytes: int) -> Any:
    import numpy

    return numpy.frombuffer(os.urandom(n_bytes), "u1")
