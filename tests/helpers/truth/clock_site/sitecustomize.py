"""Replace `time.time` as Python starts, so that a scenario can set the clock of a process."""

import time

_real = time.time


def _wrapped() -> float:
    return _real() + _wrapped.ahead


_wrapped.ahead = 0.0
# Pickled by reference, so that another process takes its own clock.
_wrapped.__module__, _wrapped.__name__, _wrapped.__qualname__ = "time", "time", "time"
time.time = _wrapped
