"""Time what is over in a blink: call after call, and the middle one of their times."""

from __future__ import annotations

import gc
import time


def timed(function, *arguments, **options):
    """Return what a call returns and its seconds, in which no garbage is collected.

    The collector would come in some calls and not in others, and stay as long as the heap is large.
    """
    gc.collect()
    gc.disable()
    try:
        begin = time.perf_counter()
        value = function(*arguments, **options)
        return value, time.perf_counter() - begin
    finally:
        gc.enable()
