"""Engines: what executes the graphs of a workload on an open cluster.

An engine is a class with a name and four methods (`benchkit.measure.engines.engine`): refuse a
workload, open its client, wait for a result, and return the tasks that it ran as tables of a
recording. All engines use the processes of the Dask cluster of the environment: it gives them
their threads and memory, and the capture of Dask measures these processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from benchkit.measure.engines.engine import Engine


class _Place(NamedTuple):
    module: str
    cls: str
    packages: tuple[str, ...] = ()  # that it needs besides Dask


DASK = "dask"
ENGINES = {
    DASK: _Place("engine", "Engine"),
    "frisky": _Place("frisky", "Frisky", ("frisky",)),
    "threads": _Place("local", "Threads"),
    "synchronous": _Place("local", "Synchronous"),
}
OTHER_ENGINES = ENGINES.keys() - {DASK}


def ran_in_dask(attrs: Mapping[Any, Any]) -> bool:
    """Return whether Dask's scheduler executed a run with these attributes."""
    return (attrs.get("engine") or DASK) == DASK


def engine_of(client: object) -> Engine | None:
    """Return the engine of a client that is not Dask's; None for other objects."""
    package = type(client).__module__.partition(".")[0]
    return engine_named(package) if package in OTHER_ENGINES else None


def engine_named(name: str) -> Engine:
    """Return a new engine; Dask's own for an empty name."""
    place = ENGINES[name or DASK]
    module = import_module(f"{__name__}.{place.module}")
    engine: Engine = getattr(module, place.cls)()
    return engine
