"""Describe a running cluster: workers, threads, memory, hosts, versions."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from distributed import Client

from benchkit.measure.errors import error_summary

__all__ = ["describe", "worker_infos"]


def worker_infos(client: Client) -> dict[str, dict]:
    """Return the scheduler's information about each worker, by address.

    Newer releases of distributed limit the result to five workers by default.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.

    Returns
    -------
    dict
    """
    if "n_workers" in inspect.signature(Client.scheduler_info).parameters:
        return client.scheduler_info(n_workers=-1)["workers"]
    return client.scheduler_info()["workers"]


def describe(
    client: Client, workers: str, *, label: str = "", kwargs: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the actual workers, threads, memory in B, hosts and versions of a cluster.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.
    workers : {"new", "restarted", "as found"}
        State of the workers.
    label : str
        Class or address of the cluster; by default the name of the class.
    kwargs : mapping, optional
        Arguments that the cluster was started with.

    Returns
    -------
    dict
    """
    infos = list(worker_infos(client).values())
    limits = [info.get("memory_limit") or 0 for info in infos]
    return {
        "class": label or type(client.cluster).__name__,
        "kwargs": dict(kwargs or {}),
        "workers": workers,
        "n_workers": len(infos),
        "n_threads": sum(info.get("nthreads", 0) for info in infos),
        "memory_limit": sum(limits),
        "memory_limits": sorted(set(limits)),
        "hosts": sorted({str(info.get("host")) for info in infos}),
        "nannies": bool(infos) and all(info.get("nanny") for info in infos),
        "versions": _versions(client),
    }


def _versions(client: Client) -> dict[str, Any]:
    """Return the communication packages of client, scheduler and workers (each set once)."""
    try:
        versions: Any = client.get_versions(check=False)
    except Exception as error:
        return {"error": error_summary(error)}
    kept: dict[str, Any] = {}
    for side in ("client", "scheduler"):
        kept[side] = _wire_packages(versions.get(side) or {})
    kept["workers"] = []
    for info in (versions.get("workers") or {}).values():
        packages = _wire_packages(info or {})
        if packages not in kept["workers"]:
            kept["workers"].append(packages)
    return kept


def _wire_packages(info: dict) -> dict[str, str]:
    packages = info.get("packages") or {}
    return {name: str(version) for name, version in packages.items() if version is not None}
