"""Read benchkit's settings: an environment variable, else `benchkit:` in Dask's configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from benchkit.measure.errors import UsageError, did_you_mean

#: Keys below ``benchkit`` in Dask's configuration -> environment variable that has priority.
SETTINGS = {
    "store": "BENCHKIT_STORE",
    "workloads": "",
    "environments": "",
    "data": "BENCHKIT_DATA",
    "data-url": "BENCHKIT_DATA_URL",
    "cache-size": "BENCHKIT_CACHE_SIZE",
    "grafana": "BENCHKIT_GRAFANA",
    "worker-price": "",
    # In environment files: settings that Dask does not read.
    "other-settings": "",
}


def setting(key: str) -> Any:
    """Return a setting of benchkit."""
    if value := os.environ.get(SETTINGS[key]):
        return value
    import dask  # takes 0.1 s: only where no variable gives the setting

    configured = dask.config.get("benchkit", None)
    if configured is None:
        configured = {}
    if not isinstance(configured, Mapping):
        raise UsageError(f"Dask's configuration: benchkit: must have keys: {', '.join(SETTINGS)}")
    values = {str(name).replace("_", "-"): value for name, value in configured.items()}
    for name in values:
        if name not in SETTINGS:
            hint = did_you_mean(name, SETTINGS, f"use {', '.join(SETTINGS)}")
            raise UsageError(f"Dask's configuration: unknown key benchkit.{name}: {hint}")
    return values.get(key)
