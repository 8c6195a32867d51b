"""Declare workloads, open clusters, run a variant and write its recording.

Runs inside the environment under test, so it needs Python 3.10, Dask and distributed (2023.4.1 or
newer) and nothing else; this folder can be copied there alone. Names are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {
    "ClusterSpec": "cluster.spec",
    "Collection": "discovery",
    "Scale": "scale",
    "Variant": "workloads",
    "Workload": "workloads",
    "WrongAnswer": "errors",
    "collect": "discovery",
    "dataset": "data.dataset",
    "downscale": "scale",
    "execute": "runner",
    "expect": "checks",
    "open_cluster": "cluster.running",
    "random_array": "data.random",
    "random_frame": "data.random",
    "recipe": "data.recipe",
    "timeseries": "scale",
    "workload": "workloads",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
