"""Describe a running cluster: workers, threads, memory, hosts, versions."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchkit.measure.errors import error_summary
from benchkit.measure.secrets import redact

if TYPE_CHECKING:
    from distributed import Client


def worker_infos(client: Client) -> dict[str, dict[str, Any]]:
    """Return the scheduler's information about each worker, by address.

    Newer releases of distributed limit the result to five workers by default.
    """
    has_limit = "n_workers" in inspect.signature(client.scheduler_info).parameters
    info: Mapping[str, Any] = client.scheduler_info(**{"n_workers": -1} if has_limit else {})
    return dict(info["workers"])


def describe(
    client: Client, workers: str, *, label: str = "", kwargs: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the actual workers, threads, memory in B, hosts and versions of a cluster."""
    infos = list(worker_infos(client).values())
    limits = [info.get("memory_limit") or 0 for info in infos]
    return {
        "class": label or _name(client),
        "kwargs": redact(dict(kwargs or {})),
        "workers": workers,
        "n_workers": len(infos),
        "n_threads": sum(info.get("nthreads", 0) for info in infos),
        "memory_limit": sum(limits),
        "memory_limits": sorted(set(limits)),
        "hosts": sorted({str(info.get("host")) for info in infos}),
        "nannies": bool(infos) and all(info.get("nanny") for info in infos),
        "versions": _versions(client),
    }


def _name(client: Client) -> str:
    """Return the class of the client's cluster, or the address that the client was given."""
    if client.cluster is not None:
        return type(client.cluster).__name__
    return str(client.scheduler_info()["address"])


def _versions(client: Client) -> dict[str, Any]:
    """Return the versions of Dask's packages on client, scheduler and workers, without repeats."""
    try:
        versions: Any = client.get_versions(check=False)
    except Exception as error:
        return {"error": error_summary(error)}
    packages: dict[str, Any] = {
        side: _package_versions(versions.get(side) or {}) for side in ("client", "scheduler")
    }
    packages["workers"] = []
    for info in (versions.get("workers") or {}).values():
        installed = _package_versions(info or {})
        if installed not in packages["workers"]:
            packages["workers"].append(installed)
    return packages


def _package_versions(info: dict[str, Any]) -> dict[str, str]:
    packages = info.get("packages") or {}
    return {name: str(version) for name, version in packages.items() if version is not None}
