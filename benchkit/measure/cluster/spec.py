"""From a class name and keyword arguments, or an address, to a fresh cluster, described.

Any Cluster class works by its dotted name; its keyword arguments are checked against its own
signature before anything starts. Does not know what will run on it.
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

from benchkit.measure.errors import ClusterError, InvalidClusterError, did_you_mean

__all__ = ["ClusterSpec", "RunningCluster", "open_cluster"]

LOCAL_CLUSTER = "dask.distributed.LocalCluster"
#: The catalogue's sizes are tuned so that 1 GiB a thread gives jobs of 5 to 20 s.
DEFAULT_MEMORY_PER_THREAD = 2**30
START_TIMEOUT_S = 60.0
#: Clusters in the cloud take minutes to send their first worker.
REMOTE_START_TIMEOUT_S = 900.0
CLOSE_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class ClusterSpec:
    """How to get a cluster: a class by its dotted name, or the address of a running scheduler.

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
        """Return a LocalCluster sized for this machine: a worker a core, up to eight.

        Memory is 1 GiB a thread, or 60 % of the machine's if that is less: sizes of workloads
        grow with memory, and with all of a laptop's memory each would take minutes.
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
        """Read the `cluster:` part of an environment; what is absent is the default.

        Raises
        ------
        InvalidClusterError
            Something else than a mapping, or an address together with other options.
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
                    f"cluster: {', '.join(rest)} beside address {address!r}: a running scheduler "
                    "takes no options; leave them out, or leave out the address"
                )
            return cls(address=str(address))
        name = rest.pop("class", LOCAL_CLUSTER)
        if name == LOCAL_CLUSTER:
            return cls(name, {**cls.default().kwargs, **rest})
        return cls(name, rest)

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` reads."""
        if self.address is not None:
            return {"address": self.address}
        return {"class": self.cls, **self.kwargs}

    def merged(self, options: Mapping[str, Any] | None) -> ClusterSpec:
        """Return this cluster with other options laid over it (a workload's own shape)."""
        if not options or self.address is not None:
            return self
        return replace(self, kwargs={**self.kwargs, **options})

    @property
    def is_local(self) -> bool:
        """Whether workers are cheap to start and live on this machine."""
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
            There is no such module or name, or it cannot be called.
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
                f"cluster class {self.cls!r} is no class: it cannot be called"
            )
        return factory

    def check(self, *, login: bool = True) -> None:
        """Check the keyword arguments against the class's own signature; start nothing.

        Parameters
        ----------
        login : bool, default True
            Also refuse a cluster in the cloud for which nobody is logged in.

        Raises
        ------
        InvalidClusterError
            The class does not exist or does not know an argument.
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

        # What LocalCluster does not know it hands to its workers.
        for cls in (Nanny, Worker):
            known |= set(inspect.signature(cls.__init__).parameters) - {"self", "kwargs"}
        return known
    return None


def _check_coiled_login() -> None:
    """Refuse at once: without a token Coiled polls a browser's answer for ten minutes."""
    has_token = dask.config.get("coiled.token", None) or os.environ.get("DASK_COILED__TOKEN")
    # A notebook's kernel and a service have no terminal, or no standard input at all.
    if not has_token and not (sys.stdin and sys.stdin.isatty()):
        raise InvalidClusterError(
            "coiled.Cluster needs a login: run `coiled login` once, or set DASK_COILED__TOKEN"
        )


@dataclass
class RunningCluster:
    """A cluster that is ready: `client`, `cluster` (None for an address) and its `description`."""

    client: Client
    cluster: Any
    description: dict[str, Any]


@contextmanager
def open_cluster(spec: ClusterSpec, *, timeout_s: float | None = None) -> Iterator[RunningCluster]:
    """Open a cluster with fresh workers, and close it afterwards.

    A class gives a new cluster. At an address the workers are restarted if all of them have a
    nanny to bring them back (without one they would be gone), else they are used as found.

    Parameters
    ----------
    spec : ClusterSpec
        What to open.
    timeout_s : float, optional
        How long to wait for the workers: 60 s on this machine, 15 minutes elsewhere.

    Raises
    ------
    InvalidClusterError
        The class or an option does not exist; nothing was started.
    ClusterError
        It did not start, or not with the workers that were asked for.
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
            raise ClusterError(f"{spec.label} did not start: {_one_line(error)}") from error
        yield RunningCluster(client, cluster, describe(client, spec, workers))
    finally:
        for thing in (client, cluster):
            if thing is not None:
                _close(thing)
        _let_go()


#: Clients and clusters that did not close in time. The garbage collector would close them again in
#: any thread, and one that is just starting an event loop holds the lock that closing takes.
_UNCLOSED: list[Any] = []


def _close(thing: Any) -> None:
    try:
        thing.close(timeout=CLOSE_TIMEOUT_S)
    except Exception:
        _UNCLOSED.append(thing)


def _let_go() -> None:
    """Let a scheduler that has closed be collected.

    Recent releases of distributed (2026.8, not 2023.4) remember methods of every server for good,
    and with them what it knew, such as its log of transitions. Python's collector walks over all of
    it: after 250 runs in one process what makes many objects took twice as long.
    """
    known: Any = getattr(distributed.core, "_expects_comm", None)
    if hasattr(known, "cache_clear"):
        known.cache_clear()


def _start(spec: ClusterSpec) -> Any:
    factory, kwargs = spec.factory(), dict(spec.kwargs)
    if spec.is_local:
        # A dashboard that nobody looks at costs start-up time and a port that may be taken.
        kwargs.setdefault("dashboard_address", None)
        if isinstance(kwargs.get("memory_limit"), str) and kwargs["memory_limit"] != "auto":
            kwargs["memory_limit"] = parse_bytes(kwargs["memory_limit"])
    with warnings.catch_warnings():
        # Without a dashboard there is still a port for metrics, and another one will do.
        warnings.filterwarnings("ignore", message=r"(?s)\s*Port \d+ is already in use")
        return factory(**kwargs)


def _connect(address: str, timeout_s: float) -> tuple[Client, str]:
    try:
        # Before there is a client: what its start does not expect leaves it half open.
        resolve_address(address)
        client = Client(address, timeout=min(timeout_s, 10.0), set_as_default=True)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(
            f"no scheduler answers at {address!r}: {_one_line(error)}; "
            "give an address such as tcp://127.0.0.1:8786"
        ) from error
    workers = _workers(client)
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


def _workers(client: Client) -> dict[str, dict]:
    """Return what the scheduler tells of all workers (newer releases list five by default)."""
    if "n_workers" in inspect.signature(Client.scheduler_info).parameters:
        return client.scheduler_info(n_workers=-1)["workers"]
    return client.scheduler_info()["workers"]


def _await_workers(client: Client, cluster: Any, spec: ClusterSpec, timeout_s: float) -> None:
    wanted = spec.kwargs.get("n_workers")
    if wanted is None and spec.is_local:
        wanted = len(cluster.workers)
    if not isinstance(wanted, int) or wanted <= 0:
        return
    if "n_workers" not in inspect.signature(spec.factory()).parameters and hasattr(
        cluster, "scale"
    ):
        cluster.scale(wanted)  # dask-gateway takes the number afterwards only
    try:
        client.wait_for_workers(wanted, timeout=timeout_s)
    except TimeoutError as error:
        raise ClusterError(
            f"{spec.label}: {len(_workers(client))} of {wanted} workers came within {timeout_s:g} s"
        ) from error


def describe(client: Client, spec: ClusterSpec | None, workers: str) -> dict[str, Any]:
    """Return what was really got: workers, threads, memory in B, hosts, versions of all sides."""
    infos = list(_workers(client).values())
    limits = [info.get("memory_limit") or 0 for info in infos]
    return {
        "class": spec.label if spec else type(client.cluster).__name__,
        "kwargs": dict(spec.kwargs) if spec else {},
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
    """Return the packages that matter on the wire: client, scheduler, and the set of workers'."""
    try:
        versions: Any = client.get_versions(check=False)
    except Exception as error:
        return {"error": _one_line(error)}
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


def _one_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
