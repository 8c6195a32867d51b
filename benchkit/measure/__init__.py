"""The measured side: declare workloads, open clusters, execute, record.

Runs inside the environment under test, so it needs Python 3.10, Dask and distributed (2023.4.1 or
newer) and nothing else; the folder can be copied there alone. Names are found on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "ClusterSpec": "cluster",
    "Collection": "collection",
    "Scale": "sizing",
    "Variant": "workloads",
    "Workload": "workloads",
    "WrongAnswer": "errors",
    "collect": "collection",
    "dataset": "recipes",
    "downscale": "sizing",
    "execute": "execution",
    "expect": "answers",
    "open_cluster": "cluster",
    "random_array": "generate",
    "random_frame": "generate",
    "recipe": "recipes",
    "timeseries": "sizing",
    "workload": "workloads",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
