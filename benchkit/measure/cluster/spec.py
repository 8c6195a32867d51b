"""The specification of a cluster: a class with its arguments, or the address of a scheduler.

Any Cluster class works by its dotted name. Its keyword arguments are checked against its signature
before anything starts.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import runpy
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import dask
from dask.system import CPU_COUNT
from dask.utils import parse_bytes, parse_timedelta

from benchkit.measure.engines import OTHER_ENGINES
from benchkit.measure.errors import InvalidClusterError, did_you_mean

LOCAL_CLUSTER = "dask.distributed.LocalCluster"
_RUNNING = "a running scheduler is given by `address`, which takes the scheduler file, too"
#: Options that workers or LocalCluster accept, but that a cluster ignores or waits on for ever.
_USELESS_OPTIONS = {
    "scheduler_file": _RUNNING,
    "scheduler_ip": _RUNNING,
    "nthreads": "use threads_per_worker",
    "dashboard": "use worker_dashboard_address",
    "nanny": "use processes",
    "asynchronous": "benchkit opens the cluster itself",
    "loop": "benchkit opens the cluster itself",
    "start": "benchkit opens the cluster itself",
}
#: A local cluster starts in some seconds, on a busy machine in more.
START_TIMEOUT_S = 60.0
#: Seconds more for each worker: a machine starts only so many processes at once.
START_TIMEOUT_PER_WORKER_S = 1.0
#: The first worker of a cluster in the cloud takes minutes to connect.
REMOTE_START_TIMEOUT_S = 900.0
#: Their classes pass other options on to their base classes only, which declare theirs.
_FORWARDING_PACKAGES = ("dask_cloudprovider", "dask_jobqueue", "dask_kubernetes")
#: B. Workloads take 5 to 20 s with 1 GiB per thread.
DEFAULT_MEMORY_PER_THREAD = 2**30


@dataclass(frozen=True)
class ClusterSpec:
    """A cluster to open: a class by its dotted name, or the address of a running scheduler.

    Parameters
    ----------
    class_name : str, default "dask.distributed.LocalCluster"
        Dotted name of a Cluster class (or of a function that returns one).
    kwargs : dict
        Keyword arguments of the class.
    address : str, optional
        Address of a running scheduler, or its scheduler file (JSON); `class_name` and `kwargs` are
        then unused.
    timeout_s : float, optional
        Seconds to wait for the workers.

    Examples
    --------
    >>> ClusterSpec(kwargs={"n_workers": 2, "memory_limit": "1 GiB"}).label
    'dask.distributed.LocalCluster'
    """

    class_name: str = LOCAL_CLUSTER
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    address: str | None = None
    timeout_s: float | None = None

    @classmethod
    def default(cls) -> ClusterSpec:
        """Return a LocalCluster sized for this machine: one worker per core, up to eight.

        Memory is 1 GiB per thread, or 60 % of the machine's memory if that is less: data sizes
        grow with memory, and with all memory of a laptop each workload would take minutes.
        """
        n_workers = min(CPU_COUNT, 8)
        threads = max(1, CPU_COUNT // n_workers)
        share = int(0.6 * _machine_memory() / n_workers)
        memory = min(threads * DEFAULT_MEMORY_PER_THREAD, share)
        return cls(
            kwargs={"n_workers": n_workers, "threads_per_worker": threads, "memory_limit": memory}
        )

    @classmethod
    def from_dict(cls, options: Mapping[str, Any] | None) -> ClusterSpec:
        """Read the `cluster:` part of an environment file.

        Parameters
        ----------
        options : mapping, optional
            ``address``, or ``class`` and arguments of the class; absent options take their
            defaults. ``timeout`` is the time to wait for the workers. With ``class``, an
            ``address`` is an argument of the class: a gateway's.

        Returns
        -------
        ClusterSpec
            Its options are not checked; see `check`.

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
        for key in ("class", "address"):
            if not isinstance(rest.get(key), (str, type(None))):
                raise InvalidClusterError(f"cluster: {key} is {rest[key]!r}: must be text")
        timeout_s = _timeout(rest.pop("timeout", None))
        address = None if rest.get("class") else rest.pop("address", None)
        if address is not None:
            if rest:
                raise InvalidClusterError(
                    f"cluster: {', '.join(rest)} with address {address!r}: a running scheduler "
                    "takes no options; remove them, or remove the address"
                )
            return cls(address=address, timeout_s=timeout_s)
        name = rest.pop("class", None) or LOCAL_CLUSTER
        if name == LOCAL_CLUSTER:
            rest = {**cls.default().kwargs, **rest}
        return cls(name, rest, timeout_s=timeout_s)

    def to_dict(self) -> dict[str, Any]:
        """Return the options in the format of `from_dict`.

        Returns
        -------
        dict
            ``address``, or ``class`` and arguments of the class; ``timeout`` in s if it is set.
        """
        timeout = {} if self.timeout_s is None else {"timeout": f"{self.timeout_s:g} s"}
        if self.address is not None:
            return {"address": self.address, **timeout}
        return {"class": self.class_name, **self.kwargs, **timeout}

    def merged(self, options: Mapping[str, Any] | None) -> ClusterSpec:
        """Return this cluster with replaced options (the cluster shape of a workload).

        Parameters
        ----------
        options : mapping, optional
            Arguments of the class.

        Returns
        -------
        ClusterSpec
            The same object if there is nothing to replace, or if it is an address.
        """
        if not options or self.address is not None:
            return self
        return replace(self, kwargs={**self.kwargs, **options})

    @property
    def is_local(self) -> bool:
        """Whether workers run on this machine and are cheap to start."""
        return self.address is None and self.class_name.rsplit(".", 1)[-1] == "LocalCluster"

    @property
    def start_timeout_s(self) -> float:
        """Seconds until all workers must have connected: as set, else by the kind of cluster."""
        if self.timeout_s is not None:
            return self.timeout_s
        if self.is_local:
            n_workers = int(self.kwargs.get("n_workers") or 0)
            return START_TIMEOUT_S + START_TIMEOUT_PER_WORKER_S * n_workers
        return START_TIMEOUT_S if self.address is not None else REMOTE_START_TIMEOUT_S

    @property
    def label(self) -> str:
        """The address, or the name of the class."""
        return self.address or self.class_name

    def scheduler_address(self) -> str:
        """Return the address of the running scheduler, read from its scheduler file if needed.

        Returns
        -------
        str
            Such as ``tcp://127.0.0.1:8786``.

        Raises
        ------
        InvalidClusterError
            The file does not exist, or does not contain an address.
        """
        address = str(self.address)
        path = Path(address).expanduser()
        if "://" in address or not (path.suffix == ".json" or path.is_file()):
            return address
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not JSON"
            raise InvalidClusterError(f"address {address!r}: scheduler file: {reason}") from error
        if not isinstance(content, dict) or not isinstance(content.get("address"), str):
            raise InvalidClusterError(f"address {address!r}: a scheduler file has an address")
        return str(content["address"])

    def factory(self) -> Callable[..., Any]:
        """Import the class.

        Returns
        -------
        callable
            The class, or a function that returns a cluster.

        Raises
        ------
        InvalidClusterError
            The module or name does not exist, or cannot be called.
        """
        module, _, name = self.class_name.rpartition(".")
        if not module:
            raise InvalidClusterError(
                f"cluster class {self.class_name!r}: give the dotted name, such as "
                f"{LOCAL_CLUSTER!r}"
            )
        package = module.partition(".")[0]
        if package in OTHER_ENGINES:
            raise InvalidClusterError(
                f"cluster class {self.class_name!r} is none of Dask: write `engine: {package}` and "
                "a class of Dask, in whose processes it runs"
            )
        try:
            factory: Callable[..., Any] = getattr(_import_cluster_module(module), name)
        except ImportError as error:
            raise InvalidClusterError(
                f"cluster class {self.class_name!r} cannot be imported: {error}"
            ) from error
        except AttributeError as error:
            known = [n for n in dir(_import_cluster_module(module)) if n.endswith("Cluster")]
            hint = did_you_mean(name, known, f"{module} has {', '.join(known) or 'none'}")
            raise InvalidClusterError(
                f"cluster class {self.class_name!r} does not exist: {hint}"
            ) from error
        if not callable(factory):
            raise InvalidClusterError(
                f"cluster class {self.class_name!r} is not a class: it cannot be called"
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
            The class or an option does not exist, the class cannot use the option, or a scheduler
            file cannot be read.
        """
        if self.address is not None:
            self.scheduler_address()
            return
        factory = self.factory()
        known = _keywords(factory, self.kwargs)
        for name in self.kwargs:
            is_checked = self.is_local or name == "scheduler_file"
            hint = _USELESS_OPTIONS.get(name, "") if is_checked else ""
            if hint or (known is not None and name not in known):
                names = known or set()
                hint = hint or did_you_mean(name, names, f"it takes {', '.join(sorted(names))}")
                raise InvalidClusterError(f"{self.class_name} has no option {name!r}: {hint}")
        for name in ("n_workers", "threads_per_worker"):
            value = self.kwargs.get(name)
            if value is None or (name != "n_workers" and not self.is_local):
                continue
            is_range = isinstance(value, (list, tuple)) and not self.is_local  # coiled's
            if not is_range and (type(value) is not int or value < 1):
                raise InvalidClusterError(f"{name} is {value!r}: must be a whole number, 1 or more")
        if "memory_limit" in self.kwargs and isinstance(self.kwargs["memory_limit"], str):
            try:
                parse_bytes(self.kwargs["memory_limit"])
            except ValueError as error:
                if self.kwargs["memory_limit"] != "auto":
                    raise InvalidClusterError(
                        f"memory_limit: {error}; write for example '1 GiB'"
                    ) from error
        if login:
            _check_submit_command(factory)
        if login and self.class_name.split(".")[0] == "coiled":
            _check_coiled_login()


@lru_cache(maxsize=1)
def _machine_memory() -> int:
    """Return the memory of this machine or container in B, as distributed reads it."""
    # Its module alone: all of distributed takes 0.4 s, half of what `list workloads` needs.
    package = find_spec("distributed")
    assert package is not None
    assert package.origin is not None
    memory: int = runpy.run_path(str(Path(package.origin).with_name("system.py")))["MEMORY_LIMIT"]
    return memory


def takes_option(factory: Callable[..., Any], name: str) -> bool:
    """Return whether a cluster class declares an option, itself or in a base class."""
    return name in _declared(factory)


def _declared(factory: Callable[..., Any]) -> set[str]:
    """Return the options that a class and its base classes declare, or a function."""
    constructors = [factory]
    if isinstance(factory, type):
        constructors = [vars(c)["__init__"] for c in factory.__mro__ if "__init__" in vars(c)]
    parameters = [p for c in constructors for p in inspect.signature(c).parameters.values()]
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {parameter.name for parameter in parameters if parameter.kind in kinds} - {"self"}


def _timeout(value: Any) -> float | None:
    if value is None:
        return None
    try:
        if isinstance(value, str):  # Dask accepts "m" and "minutes", not "min"
            value = re.sub(r"(?<![a-z])min$", "m", value.strip())
        seconds = float(parse_timedelta(value))
    except (ValueError, TypeError, KeyError) as error:
        text = f"cluster: timeout is {value!r}: write for example '5 min'"
        raise InvalidClusterError(text) from error
    if not 0 < seconds < float("inf"):
        raise InvalidClusterError(f"cluster: timeout is {value!r}: must be above 0")
    return seconds


def _check_submit_command(factory: Callable[..., Any]) -> None:
    """Raise without the program that submits jobs: dask-jobqueue would only log that."""
    job = getattr(factory, "job_cls", None)
    command = getattr(job, "submit_command", None)
    if isinstance(command, str) and command and shutil.which(command.split()[0]) is None:
        raise InvalidClusterError(
            f"{getattr(factory, '__name__', factory)}: the program {command.split()[0]!r} that "
            "submits jobs is not on the PATH of this machine"
        )


def _keywords(factory: Callable[..., Any], kwargs: Mapping[str, Any]) -> set[str] | None:
    """Return the keyword arguments of a class; None if it accepts all."""
    parameters = inspect.signature(factory).parameters
    known = _declared(factory) & parameters.keys()
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return known
    if factory.__module__.split(".")[0] in _FORWARDING_PACKAGES:
        # A job's options are those of its own class.
        return _declared(factory) | _declared(getattr(factory, "job_cls", None) or factory)
    if getattr(factory, "__name__", "") == "LocalCluster":
        from distributed import Nanny, Worker

        # LocalCluster passes unknown arguments to its workers, which have nannies in processes.
        for cls in (Worker,) if kwargs.get("processes") is False else (Nanny, Worker):
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


def _import_cluster_module(name: str) -> ModuleType:
    """Import a module; handlers of signals stay as they are.

    dask_jobqueue sets a handler of SIGINT when it is imported: Ctrl-C would then end a command with
    exit code 0 and without a message.
    """
    numbers = [getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP")]
    handlers = {number: signal.getsignal(number) for number in numbers if number is not None}
    try:
        return import_module(name)
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                if handler is not None:  # None: not set from Python
                    signal.signal(number, handler)
