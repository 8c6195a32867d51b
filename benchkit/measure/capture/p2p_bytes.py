"""Count what P2P shuffles send to other workers: Dask's own count contains what stays."""

from __future__ import annotations

from contextlib import suppress
from inspect import signature
from typing import Any

import distributed

#: Activities of the fine metrics for the bytes of messages to other workers, and of a worker to
#: itself. Together they are Dask's activity "process" of ("p2p", "background-comms").
P2P_OTHERS, P2P_OWN = "process-others", "process-own"
#: Attribute of distributed: the users of the wrapper in this process, and the replaced method.
_STATE = "_benchkit_p2p"
_PARAMETERS = ("self", "id", "shards", "size")


def count_p2p_bytes(user: tuple[str, str]) -> None:
    """Add both counts to the fine metrics of this process, if its release has P2P shuffles."""
    buffer = _buffer_class()
    if buffer is None:
        return
    state = vars(distributed).setdefault(_STATE, {"users": set()})
    state["users"].add(user)
    if "replaced" in state:
        return
    state["replaced"] = vars(buffer).get("process")
    original = buffer.process

    async def process(self: Any, id: str, shards: Any, size: int) -> None:
        await original(self, id, shards, size)
        if not self._exception:
            with suppress(Exception):
                own = id == self.send.__self__.local_address
                meter = distributed.metrics.context_meter
                meter.digest_metric(P2P_OWN if own else P2P_OTHERS, size, "bytes")

    buffer.process = process


def stop_counting_p2p_bytes(user: tuple[str, str]) -> None:
    """Remove a user, and the wrapper with the last one."""
    state = vars(distributed).get(_STATE, {"users": set()})
    state["users"].discard(user)
    if state["users"] or "replaced" not in state:
        return
    vars(distributed).pop(_STATE)
    buffer = _buffer_class()
    if state["replaced"] is None:
        del buffer.process
    else:
        buffer.process = state["replaced"]


def _buffer_class() -> Any:
    """Return the class that sends the messages of a shuffle; None if it is not as expected."""
    try:
        from distributed.shuffle._comms import CommShardsBuffer

        names = signature(CommShardsBuffer.process).parameters
    except (ImportError, AttributeError):
        return None
    return CommShardsBuffer if tuple(names) == _PARAMETERS else None
