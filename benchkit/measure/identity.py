"""Ids of runs: UUIDs of version 7 (RFC 9562), whose order as text is the order of their time.

The standard library has them from Python 3.14 on only.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
import uuid

__all__ = ["derived_id", "id_time", "new_id"]

_lock = threading.Lock()
_last_ms = 0
_last_low = 0
_LOW_BITS = 74


def new_id() -> str:
    """Return a new id; ids of one process grow strictly."""
    global _last_ms, _last_low
    with _lock:
        now_ms = time.time_ns() // 1_000_000
        if now_ms > _last_ms:
            _last_ms, _last_low = now_ms, int.from_bytes(os.urandom(9), "big")
        else:
            _last_low += 1 + os.urandom(1)[0]
        return _build(_last_ms, _last_low)


def derived_id(moment: float, text: str) -> str:
    """Return the id of something that happened at `moment` (Unix s) and is named by `text`.

    The same input gives the same id, so that importing twice changes nothing.
    """
    low = int.from_bytes(hashlib.sha256(text.encode()).digest()[:9], "big")
    return _build(int(moment * 1000), low)


def id_time(run_id: str) -> float:
    """Return when the id was made, in Unix s.

    Raises
    ------
    ValueError
        `run_id` is no UUID.
    """
    return (uuid.UUID(run_id).int >> 80) / 1000


def _build(milliseconds: int, low: int) -> str:
    low %= 1 << _LOW_BITS
    value = (milliseconds & (1 << 48) - 1) << 80
    value |= 0x7 << 76 | (low >> 62) << 64  # version, 12 bits
    value |= 0b10 << 62 | low & (1 << 62) - 1  # variant, 62 bits
    return str(uuid.UUID(int=value))
