"""Sample the memory of a worker's process many times between two heartbeats."""

from __future__ import annotations

import os
from array import array
from collections import deque
from time import monotonic
from typing import BinaryIO

import distributed
from distributed.metrics import time

from benchkit.measure.capture.columns import NAN
from benchkit.measure.capture.loop_lag import LAG_TICK_S

#: Samples that a heartbeat carries; heartbeats are 0.5 s apart, on large clusters some seconds.
POINTS_PER_HEARTBEAT = 10
#: Samples that are kept: half a minute.
MAX_SAMPLES = 600
#: Seconds; workers that share a process share its sampler, and their timers call it in turn.
MIN_INTERVAL_S = 0.8 * LAG_TICK_S


class MemorySampler:
    """Memory (RSS) of this process over time, and its integral over time.

    The timers of `LoopLag` call `sample_if_due`: a thread of its own would take 0.4 % of a core for
    its wake-ups, a sample takes 6 µs.
    """

    def __init__(self) -> None:
        self._file: BinaryIO | None
        try:
            self._file = open("/proc/self/statm", "rb", buffering=0)
            self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        except (OSError, AttributeError):  # not Linux
            self._file = None
        self._area = 0.0
        # Unix time of the process's steady clock: setting the wall clock moves no sample.
        self._epoch = time() - monotonic()
        self._last_moment = monotonic()
        #: Time of the last sample with a peak on the steady clock, in s.
        self.peak_moment = float("-inf")
        #: Rows of Unix time, RSS in B, integral of RSS since the first row in B s, and the highest
        #: RSS since the last row that has one, else NaN.
        self.samples: deque[tuple[float, float, float, float]] = deque(maxlen=MAX_SAMPLES)
        self.sample()

    def now(self) -> float:
        """Return the time of the samples' clock: Unix time in s that no setting of it moves."""
        return self._epoch + monotonic()

    def sample_if_due(self) -> None:
        """Add a sample unless another worker of the process has just added one."""
        if monotonic() - self._last_moment > MIN_INTERVAL_S:
            self.sample()

    def sample(self, peak: float = NAN) -> None:
        """Add a sample now."""
        # peak: Highest RSS in B since the last sample with a peak; NaN: unknown.
        rss, moment = self._read(), monotonic()
        if self.samples:
            mean = (self.samples[-1][1] + rss) / 2
            self._area += mean * (moment - self._last_moment)
        self._last_moment = moment
        if peak == peak:
            self.peak_moment = moment
        self.samples.append((self._epoch + moment, rss, self._area, peak))

    def _read(self) -> float:
        if self._file is None:
            import psutil

            return float(psutil.Process().memory_info().rss)
        self._file.seek(0)
        return float(int(self._file.read(256).split()[1]) * self._page_bytes)

    def close(self) -> None:
        """Close the file that the samples are read from."""
        if self._file is not None:
            self._file.close()

    def points(self, since: float, interval_s: float) -> bytes:
        """Return samples after `since`, newest first, as doubles, four each.

        Of each `interval_s` / `POINTS_PER_HEARTBEAT` seconds, counted from the same moment in all
        processes, only the last sample and those with a peak are kept.
        """
        width = max(LAG_TICK_S, interval_s / POINTS_PER_HEARTBEAT)
        out = array("d")
        cell = None
        for row in reversed(self.samples):
            if row[0] <= since:
                break
            if int(row[0] / width) != cell or row[3] == row[3]:
                cell = int(row[0] / width)
                out.extend(row)
        return out.tobytes()


def high_water_mark() -> int:
    """Return the highest RSS of this process since the last call in bytes, or 0 if unknown.

    Linux reports it as VmHWM; writing 5 to clear_refs resets it (proc(5)).
    """
    try:
        with open("/proc/self/status", "rb") as file:
            for line in file:
                if line.startswith(b"VmHWM:"):
                    peak = int(line.split()[1]) * 1024
                    break
            else:
                return 0
        with open("/proc/self/clear_refs", "wb") as file:
            file.write(b"5")
    except OSError:
        return 0
    return peak


def process_number() -> int:
    """Return a number of this process."""
    # Kept with the process id: a forked process inherits the module.
    known: dict[int, int] = vars(distributed).setdefault("_benchkit_process", {})
    return known.setdefault(os.getpid(), int.from_bytes(os.urandom(6), "big"))


def machine_number() -> int:
    """Return a number of the machine."""
    import hashlib
    import platform

    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            machine = file.read() + os.readlink("/proc/self/ns/net")
    except OSError:
        machine = platform.node()
    return int.from_bytes(hashlib.sha256(machine.encode()).digest()[:6], "big")
