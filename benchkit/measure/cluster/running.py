"""Start a cluster from its specification, or connect to a running scheduler."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import distributed.core
from dask.utils import parse_bytes
from distributed import Client
from distributed.comm.addressing import resolve_address

from benchkit.measure.cluster.description import describe, worker_infos
from benchkit.measure.cluster.restart import restart_workers
from benchkit.measure.cluster.spec import ClusterSpec, takes_option
from benchkit.measure.cluster.waiting import DeployErrors, await_workers
from benchkit.measure.deadline import deadline
from benchkit.measure.errors import ClusterError, error_summary

#: Closing takes some seconds; after this time the cluster hangs, and the next run must start.
CLOSE_TIMEOUT_S = 30.0


@dataclass
class RunningCluster:
    """A running cluster."""

    client: Client  # Connected client
    cluster: Any  # The cluster that was started; None for an address
    description: dict[str, Any]  # See `benchkit.measure.cluster.description.describe`.


@contextmanager
def open_cluster(spec: ClusterSpec, *, timeout_s: float | None = None) -> Iterator[RunningCluster]:
    """Open a cluster with fresh workers, and close it afterwards.

    A class starts a new cluster. At an address the workers are restarted if all have a nanny;
    otherwise they are used without a restart, because a worker without a nanny would not return.

    Parameters
    ----------
    spec : ClusterSpec
        Cluster to open.
    timeout_s : float, optional
        Time in which all workers must have connected; by default
        `benchkit.measure.cluster.spec.ClusterSpec.start_timeout_s`.

    Yields
    ------
    RunningCluster

    Raises
    ------
    InvalidClusterError
        The class or an option does not exist; nothing was started.
    ClusterError
        The cluster did not start, or not with the requested workers.
    """
    spec.check()
    limit_s = timeout_s or spec.start_timeout_s
    end = time.monotonic() + limit_s
    cluster, client = None, None
    try:
        try:
            if spec.address is not None:
                client, workers = _connect(spec.scheduler_address(), limit_s)
            else:
                workers = "new"
                with DeployErrors() as errors:
                    # Some constructors never return.
                    with deadline(limit_s, "start of the cluster"):
                        cluster = _start(spec)
                    client = Client(cluster, timeout=max(end - time.monotonic(), 1.0))
                    await_workers(client, cluster, spec, errors, limit_s=limit_s, end=end)
        except (ClusterError, KeyboardInterrupt):
            raise
        except Exception as error:
            raise _not_started(spec, error) from error
        description = describe(client, workers, label=spec.label, kwargs=spec.kwargs)
        yield RunningCluster(client, cluster, description)
    finally:
        for resource in (client, cluster):
            if resource is not None:
                _close(resource)
        _clear_handler_cache()


#: Clients and clusters that did not close. Referenced here, because the garbage collector
#: would close them again in any thread: in a thread that starts an event loop this is a deadlock.
_UNCLOSED: list[Any] = []


def _not_started(spec: ClusterSpec, error: BaseException) -> ClusterError:
    """Return an error with the line of another and of its cause: a nanny only says it failed."""
    first = error
    while first.__cause__ is not None:
        first = first.__cause__
    text = error_summary(error) + ("" if first is error else f" {error_summary(first)}")
    return ClusterError(f"{spec.label} did not start: {text}")


def _close(resource: Any) -> None:
    # Classes of dask-gateway and coiled take no timeout: theirs ends by itself.
    timeout = {"timeout": CLOSE_TIMEOUT_S} if takes_option(resource.close, "timeout") else {}
    try:
        resource.close(**timeout)
    except Exception:
        _UNCLOSED.append(resource)


def _clear_handler_cache() -> None:
    """Clear the cache through which distributed keeps closed schedulers in memory.

    Recent releases (2026.8, not 2023.4) cache methods of every server, and with them the state of
    the server, such as its transition log. The garbage collector traverses all of it: after 250
    runs in one process, code that makes many objects took twice as long.
    """
    cache: Any = getattr(distributed.core, "_expects_comm", None)
    if hasattr(cache, "cache_clear"):
        cache.cache_clear()


def _start(spec: ClusterSpec) -> Any:
    factory, kwargs = spec.factory(), dict(spec.kwargs)
    if not takes_option(factory, "n_workers"):  # see `await_workers`
        kwargs.pop("n_workers", None)
    if spec.timeout_s and takes_option(factory, "timeout"):  # coiled's has the same meaning
        kwargs["timeout"] = spec.timeout_s
    if spec.is_local:
        # An unused dashboard costs start time, and its port may be in use.
        kwargs.setdefault("dashboard_address", None)
        if isinstance(kwargs.get("memory_limit"), str) and kwargs["memory_limit"] != "auto":
            kwargs["memory_limit"] = parse_bytes(kwargs["memory_limit"])
    with warnings.catch_warnings():
        # Without a dashboard the scheduler still serves metrics; any port is fine.
        warnings.filterwarnings("ignore", message=r"(?s)\s*Port \d+ is already in use")
        return factory(**kwargs)


def check_connection(options: Mapping[str, Any]) -> None:
    """Raise `ClusterError` if no scheduler responds at the address in the options of a cluster."""
    spec = ClusterSpec.from_dict(options)
    address = spec.scheduler_address()
    try:
        client = _client(address, spec.start_timeout_s, set_as_default=False)
    except ClusterError:
        raise
    except Exception as error:
        raise _not_started(spec, error) from error
    _close(client)


def _client(address: str, timeout_s: float, *, set_as_default: bool) -> Client:
    try:
        # Check first: an unexpected error in the constructor of Client leaves it half open.
        resolve_address(address)
        return Client(address, timeout=min(timeout_s, 10.0), set_as_default=set_as_default)
    except (OSError, asyncio.TimeoutError, ValueError) as error:
        raise ClusterError(
            f"no scheduler responds at {address!r}: {error_summary(error)}; "
            "give an address such as tcp://127.0.0.1:8786"
        ) from error


def _connect(address: str, timeout_s: float) -> tuple[Client, str]:
    client = _client(address, timeout_s, set_as_default=True)
    workers = worker_infos(client)
    if not workers:
        _close(client)
        raise ClusterError(f"the scheduler at {address} has no workers: start some first")
    if not all(info.get("nanny") for info in workers.values()):
        return client, "as found"
    try:
        restart_workers(client, len(workers), timeout_s=timeout_s)
    except BaseException:
        _close(client)
        raise
    return client, "restarted"
