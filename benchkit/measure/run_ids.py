"""Ids of runs: UUIDs of version 7 (RFC 9562), whose text order is their time order.

The standard library supports version 7 from Python 3.14 only.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
import uuid

_PATTERN = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")

_lock = threading.Lock()
_last_ms = 0
_last_low = 0
_LOW_BITS = 74


def new_id() -> str:
    """Return a new id."""
    global _last_ms, _last_low
    with _lock:
        now_ms = time.time_ns() // 1_000_000
        if now_ms > _last_ms:
            _last_ms, _last_low = now_ms, int.from_bytes(os.urandom(9), "big")
        else:
            # Random step of 32 bits, because forked processes start from the same number.
            _last_low += 1 + int.from_bytes(os.urandom(4), "big")
        return _build(_last_ms, _last_low)


def derived_id(moment: float, text: str) -> str:
    """Return the id for a time and a name; the same input always gives the same id."""
    if not 0 <= moment < 2**48 / 1000:
        raise ValueError(f"{moment!r} s: the time of an id must be from 1970 to the year 10889")
    low = int.from_bytes(hashlib.sha256(text.encode()).digest()[:9], "big")
    return _build(round(moment * 1000), low)


def is_id(text: object) -> bool:
    """Return whether a value is an id in the format of `new_id` and `derived_id`.

    Check external ids with this function before using them in a path.
    """
    return isinstance(text, str) and _PATTERN.fullmatch(text) is not None


def id_time(run_id: str) -> float:
    """Return the creation time of an id."""
    if not is_id(run_id):
        raise ValueError(f"{run_id!r} is not an id: an id is a UUID of version 7 in lower case")
    return (uuid.UUID(run_id).int >> 80) / 1000


def _build(milliseconds: int, low: int) -> str:
    low %= 1 << _LOW_BITS
    value = (milliseconds & (1 << 48) - 1) << 80
    value |= 0x7 << 76 | (low >> 62) << 64  # version, 12 bits
    value |= 0b10 << 62 | low & (1 << 62) - 1  # variant, 62 bits
    return str(uuid.UUID(int=value))
