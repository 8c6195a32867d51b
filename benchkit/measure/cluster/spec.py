"""Start a cluster from a class and its arguments, or connect to a running scheduler.

Any Cluster class works by its dotted name. Its keyword arguments are checked against its signature
before anything starts.
"""

from __future__ import annotations

import inspect
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import dask
import distributed.core
from dask.system import CPU_COUNT
from dask.utils import parse_bytes
from distributed import Client
from distributed.comm import resolve_address
from distributed.system import MEMORY_LIMIT

from benchkit.measure.cluster.description import describe, worker_infos
from benchkit.measure.errors import (
    ClusterError,
    InvalidClusterError,
    did_you_mean,
    error_summary,
)

__all__ = ["ClusterSpec", "RunningCluster", "open_cluster"]

LOCAL_CLUSTER = "dask.distributed.LocalCluster"
#: B. Workloads take 5 to 20 s with 1 GiB per thread.
DEFAULT_MEMORY_PER_THREAD = 2**30
START_TIMEOUT_S = 60.0
#: The first worker of a cluster in the cloud takes minutes to connect.
REMOTE_START_TIMEOUT_S = 900.0
CLOSE_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class ClusterSpec:
    """A cluster to open: a class by its dotted name, or the address of a running scheduler.

    Parameters
    ----------
    cls : str, default "dask.distributed.LocalCluster"
        Dotted name of a Cluster class (or of a function that returns one).
    kwargs : dict
        Keyword arguments of the class.
    address : str, optional
        Address of a running scheduler; `cls` and `kwargs` are not used then.

    Examples
    --------
    >>> ClusterSpec(kwargs={"n_workers": 2, "memory_limit": "1 GiB"}).label
    'dask.distributed.LocalCluster'
    """

    cls: str = LOCAL_CLUSTER
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    address: str | None = None

    @classmethod
    def default(cls) -> ClusterSpec:
        """Return a LocalCluster sized for this machine: one worker per core, up to eight.

        Memory is 1 GiB per thread, or 60 % of the machine's memory if that is less: data sizes
        grow with memory, and with all memory of a laptop each workload would take minutes.
        """
        n_workers = min(CPU_COUNT, 8)
        threads = max(1, CPU_COUNT // n_workers)
        share = int(0.6 * MEMORY_LIMIT / n_workers)
        memory = min(threads * DEFAULT_MEMORY_PER_THREAD, share)
        return cls(
            kwargs={
                "n_workers": n_workers,
                "threads_per_worker": threads,
                "memory_limit": memory,
            }
        )

    @classmethod
    def from_dict(cls, options: Mapping[str, Any] | None) -> ClusterSpec:
        """Read the `cluster:` part of an environment; absent options take their defaults.

        Raises
        ------
        InvalidClusterError
            Not a mapping, or an address together with other options.
        """
        if not options:
            return cls.default()
        if not isinstance(options, Mapping):
            raise InvalidClusterError(f"cluster: {options!r} is not a mapping of options")
        rest = dict(options)
        address = rest.pop("address", None)
        if address is not None:
            if rest:
                raise InvalidClusterError(
                    f"cluster: {', '.join(rest)} with address {address!r}: a running scheduler "
                    "takes no options; remove them, or remove the address"
                )
            return cls(address=str(address))
        name = rest.pop("class", LOCAL_CLUSTER)
        if name == LOCAL_CLUSTER:
            return cls(name, {**cls.default().kwargs, **rest})
        return cls(name, rest)

    def to_dict(self) -> dict[str, Any]:
        """Return the options in the format of `from_dict`."""
        if self.address is not None:
            return {"address": self.address}
        return {"class": self.cls, **self.kwargs}

    def merged(self, options: Mapping[str, Any] | None) -> ClusterSpec:
        """Return this cluster with replaced options (the cluster shape of a workload)."""
        if not options or self.address is not None:
            return self
        return replace(self, kwargs={**self.kwargs, **options})

    @property
    def is_local(self) -> bool:
        """Whether workers run on this machine and are cheap to start."""
        return self.address is None and self.cls.rsplit(".", 1)[-1] == "LocalCluster"

    @property
    def label(self) -> str:
        """The address, or the name of the class."""
        return self.address or self.cls

    def factory(self) -> Any:
        """Import the class.

        Raises
        ------
        InvalidClusterError
            The module or name does not exist, or cannot be called.
        """
        module, _, name = self.cls.rpartition(".")
        if not module:
            raise InvalidClusterError(
                f"cluster class {self.cls!r}: give the dotted name, such as {LOCAL_CLUSTER!r}"
            )
        try:
            factory = getattr(import_module(module), name)
        except ImportError as error:
            raise InvalidClusterError(
                f"cluster class {self.cls!r} cannot be imported: {error}"
            ) from error
        except AttributeError as error:
            known = [n for n in dir(import_module(module)) if n.endswith("Cluster")]
            hint = did_you_mean(name, known, f"{module} has {', '.join(known) or 'none'}")
            raise InvalidClusterError(
                f"cluster class {self.cls!r} does not exist: {hint}"
            ) from error
        if not callable(factory):
            raise InvalidClusterError(
                f"cluster class {self.cls!r} is not a class: it cannot be called"
            )
        return factory

    def check(self, *, login: bool = True) -> None:
        """Check the keyword arguments against the signature of the class; start nothing.

        Parameters
        ----------
        login : bool, default True
            Also raise if a Coiled cluster has no login.

        Raises
        ------
        InvalidClusterError
            The class or an option does not exist.
        """
        if self.address is not None:
            return
        factory = self.factory()
        known = _keywords(factory)
        if known is not None:
            for name in self.kwargs:
                if name not in known:
                    hint = did_you_mean(name, known, f"it takes {', '.join(sorted(known))}")
                    raise InvalidClusterError(f"{self.cls} has no option {name!r}: {hint}")
        if "memory_limit" in self.kwargs and isinstance(self.kwargs["memory_limit"], str):
            try:
                parse_bytes(self.kwargs["memory_limit"])
            except ValueError as error:
                if self.kwargs["memory_limit"] != "auto":
                    raise InvalidClusterError(
                        f"memory_limit: {error}; write for example '1 GiB'"
                    ) from error
        if login and self.cls.split(".")[0] == "coiled":
            _check_coiled_login()


def _keywords(factory: Any) -> set[str] | None:
    """Return the keyword arguments that a class takes, or None when it takes any."""
    parameters = inspect.signature(factory).parameters
    known = {
        name
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return known
    if getattr(factory, "__name__", "") == "LocalCluster":
        from distributed import Nanny, Worker

        # LocalCluster passes unknown arguments to its workers.
        for cls in (Nanny, Worker):
            known |= set(inspect.signature(cls.__init__).parameters) - {"self", "kwargs"}
        return known
    return None


def _check_coiled_login() -> None:
    """Raise without a token: Coiled would poll for a browser login for ten minutes."""
    has_token = dask.config.get("coiled.token", None) or os.environ.get("DASK_COILED__TOKEN")
    # A notebook's kernel and a service have no terminal, or no standard input at all.
    if not has_token and not (sys.stdin and sys.stdin.isatty()):
        raise InvalidClusterError(
            "coiled.Cluster needs a login: run `coiled login` once, or set DASK_COILED__TOKEN"
        )


@dataclass
class RunningCluster:
    """A started cluster: `client`, `cluster` (None for an address) and its `description`."""

    client: Client
    cluster: Any
    description: dict[str, Any]


@contextmanager
def open_cluster(spec: ClusterSpec, *, timeout_s: float | None = None) -> Iterator[RunningCluster]:
    """Open a cluster with fresh workers, and close it afterwards.

    A class gives a new cluster. At an address the workers are restarted if all have a nanny, else
    they are used as found: a worker without a nanny would not start again.

    Parameters
    ----------
    spec : ClusterSpec
        Cluster to open.
    timeout_s : float, optional
        Time to wait for the workers; by default 60 s on this machine, 15 minutes elsewhere.

    Yields
    ------
    RunningCluster

    Raises
    ------
    InvalidClusterError
        The class or an option does not exist; nothing was started.
    ClusterError
        It did not start, or not with the requested workers.
    """
    spec.check()
    local = spec.is_local or spec.address is not None
    timeout_s = timeout_s or (START_TIMEOUT_S if local else REMOTE_START_TIMEOUT_S)
    cluster, client = None, None
    try:
        try:
            if spec.address is not None:
                client, workers = _connect(spec.address, timeout_s)
            else:
                cluster = _start(spec)
                client = Client(cluster, timeout=timeout_s)
                workers = "new"
                _await_workers(client, cluster, spec, timeout_s)
        except (ClusterError, KeyboardInterrupt):
            raise
        except Exception as error:
            raise ClusterError(f"{spec.label} did not start: {error_summary(error)}") from error
        description = describe(client, workers, label=spec.label, kwargs=spec.kwargs)
        yield RunningCluster(client, cluster, description)
    finally:
        for resource in (client, cluster):
            if resource is not None:
                _close(resource)
        _clear_handler_cache()


#: Clients and clusters that did not close in time. Kept, because the garbage collector would close
#: them again in any thread: in one that is starting an event loop this is a deadlock.
_UNCLOSED: list[Any] = []


def _close(resource: Any) -> None:
    try:
        resource.close(timeout=CLOSE_TIMEOUT_S)
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
    if spec.is_local:
        # An unused dashboard costs start time, and its port may be in use.
        kwargs.setdefault("dashboard_address", None)
        if isinstance(kwargs.get("memory_limit"), str) and kwargs["memory_limit"] != "auto":
            kwargs["memory_limit"] = parse_bytes(kwargs["memory_limit"])
    with warnings.catch_warnings():
        # Without a dashboard the scheduler still serves metrics; any port is fine.
        warnings.filterwarnings("ignore", message=r"(?s)\s*Port \d+ is already in use")
        return factory(**kwargs)


def _connect(address: str, timeout_s: float) -> tuple[Client, str]:
    try:
        # Before the client exists: an unexpected error in its start leaves it half open.
        resolve_address(address)
        client = Client(address, timeout=min(timeout_s, 10.0), set_as_default=True)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(
            f"no scheduler responds at {address!r}: {error_summary(error)}; "
            "give an address such as tcp://127.0.0.1:8786"
        ) from error
    workers = worker_infos(client)
    if not workers:
        _close(client)
        raise ClusterError(f"the scheduler at {address} has no workers: start some first")
    if not all(info.get("nanny") for info in workers.values()):
        return client, "as found"
    try:
        client.restart(timeout=timeout_s)
        client.wait_for_workers(len(workers), timeout=timeout_s)
    except BaseException:
        _close(client)
        raise
    return client, "restarted"


def _await_workers(client: Client, cluster: Any, spec: ClusterSpec, timeout_s: float) -> None:
    wanted = spec.kwargs.get("n_workers")
    if wanted is None and spec.is_local:
        wanted = len(cluster.workers)
    if not isinstance(wanted, int) or wanted <= 0:
        return
    if "n_workers" not in inspect.signature(spec.factory()).parameters and hasattr(
        cluster, "scale"
    ):
        cluster.scale(wanted)  # dask-gateway takes the number after the start only
    try:
        client.wait_for_workers(wanted, timeout=timeout_s)
    except TimeoutError as error:
        raise ClusterError(
            f"{spec.label}: {len(worker_infos(client))} of {wanted} workers came "
            f"within {timeout_s:g} s"
        ) from error
