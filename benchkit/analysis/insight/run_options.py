"""Options of Dask that decide how a run is replayed, from the configuration that it recorded."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from dask.utils import parse_timedelta

from benchkit.store.run import Run

__all__ = ["scheduling", "spilling_share"]

#: Dask's defaults since 2025.2, for runs without configuration.
STEAL_INTERVAL_S, SATURATION, SPILLING_SHARE = 1.0, 1.1, 0.6


def scheduling(run: Run) -> tuple[float, float]:
    """Return how root tasks wait, and how tasks are stolen."""
    try:
        options = _distributed(run)["scheduler"]
        interval = parse_timedelta(options["work-stealing-interval"], default="ms")
        return float(options["worker-saturation"]), interval if options["work-stealing"] else np.inf
    except (KeyError, TypeError, ValueError):
        return SATURATION, STEAL_INTERVAL_S


def spilling_share(run: Run) -> float:
    """Return beyond which share of a worker's memory results are spilled."""
    try:
        memory = _distributed(run)["worker"]["memory"]
        return float(memory["target"] or memory["spill"] or np.inf)
    except (KeyError, TypeError, ValueError):
        return SPILLING_SHARE


def _distributed(run: Run) -> Any:
    return json.loads(run.tree.attrs["config"])["distributed"]
