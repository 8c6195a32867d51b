"""Measure short calls: repeated calls, without garbage collection."""

from __future__ import annotations

import gc
import time


def timed(function, *arguments, **options):
    """Return the result and the seconds of a call, without garbage collection.

    Garbage collection would be part of some calls only, and its time depends on the size of the
    heap.
    """
    gc.collect()
    gc.disable()
    try:
        begin = time.perf_counter()
        value = function(*arguments, **options)
        return value, time.perf_counter() - begin
    finally:
        gc.enable()
