"""Find the workers that a restart of the cluster ended: they are not lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

#: Seconds that ending all workers takes at most; before 2024 a restart is logged after that.
RESTART_S = 5.0


def messages_of(events: xr.Dataset, topic: str) -> Iterator[dict[str, Any]]:
    """Yield the messages of a topic."""
    for message in events["message"].values[events["topic"].values == topic]:
        yield json.loads(str(message))


def restarted_workers(events: xr.Dataset, left: NDArray[np.float64]) -> set[int]:
    """Return the workers that a restart ended."""
    # left: (workers,), seconds after clock on at which each worker left; NaN if it stayed.
    workers = {
        worker
        for message in messages_of(events, "restart-workers")
        for worker in message.get("workers", ())
    }
    for moment in events["time"].values[events["topic"].values == "restart"]:
        ended = (left <= moment) & (left > moment - RESTART_S)
        workers.update(np.flatnonzero(ended).tolist())
    return {worker for worker in workers if worker >= 0}
