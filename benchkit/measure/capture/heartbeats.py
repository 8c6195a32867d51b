"""Request a heartbeat of each worker at the edges of the clock, and wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from distributed.metrics import time

from benchkit.measure.capture.columns import text

__all__ = ["PER_WORKER_S", "REPLY_TIMEOUT_S", "await_heartbeats"]

#: Seconds to wait for heartbeats and for pending replies; with the final reports and the removal of
#: the worker plugins they fit into the client's call timeout.
HEARTBEAT_TIMEOUT_S = 4.0
REPLY_TIMEOUT_S = 1.0
#: Seconds added to each timeout per worker: hundreds may share two cores with the scheduler.
PER_WORKER_S = 0.05


async def await_heartbeats(
    scheduler: Any, name: str, edge: str, after: float, add_error: Callable[[str, Any], None]
) -> None:
    """Request a heartbeat from each worker and wait: it has the last metrics before the edge.

    Parameters
    ----------
    scheduler : Scheduler
        The scheduler of the workers.
    name : str
        Name of the capture.
    edge : {"on", "off"}
        Start or stop of the clock.
    after : float
        Unix time in s on the scheduler's clock: earlier heartbeats do not count.
    add_error : callable
        ``add_error(where, what)`` records the workers whose heartbeat did not arrive.
    """
    # Call each worker: cancelling Scheduler.broadcast leaves its calls running and logs every
    # unreachable worker.
    calls = [
        asyncio.ensure_future(getattr(scheduler.rpc(address), f"{name}_beat")(edge=edge))
        for address in scheduler.workers
    ]
    deadline = time() + HEARTBEAT_TIMEOUT_S + len(calls) * PER_WORKER_S
    silent: list[str] = []
    while time() < deadline:
        states = list(scheduler.workers.values())
        silent = [state.address for state in states if state.last_seen <= after]
        if not silent:
            break
        await asyncio.sleep(0.005)
    if calls:
        timeout_s = REPLY_TIMEOUT_S + len(calls) * PER_WORKER_S / 10
        _, unfinished = await asyncio.wait(calls, timeout=timeout_s)
        for call in unfinished:
            call.cancel()
        # A worker that could not be called sends its next regular heartbeat soon.
        await asyncio.gather(*calls, return_exceptions=True)
    if silent:
        add_error("heartbeat", f"not received from {text(', '.join(silent), 200)}")
