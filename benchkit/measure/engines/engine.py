"""The engine of Dask, and the methods that another engine overrides."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dask.base import persist
from distributed import wait
from distributed.client import futures_of

from benchkit.measure.engines import DASK
from benchkit.measure.workloads import Variant

if TYPE_CHECKING:
    from benchkit.measure.capture_client import ClientPhases
    from benchkit.measure.cluster.running import RunningCluster


class Engine:
    """Dask's own scheduler; other engines are classes derived from it."""

    name = DASK
    has_client = True  # Whether workloads can get a client of it
    #: What other engines do not report, which is absent in their runs.
    unreported: tuple[str, ...] = ()
    #: Attributes of the client that a workload may use, each with the keyword arguments of
    #: Dask's method that this one lacks; None: all.
    client_methods: Mapping[str, frozenset[str]] | None = None
    #: Functions and classes of distributed that a workload may import; None: all.
    imports: frozenset[str] | None = None

    def __init__(self) -> None:
        #: What to know of the runs, one line each, such as a release that was never checked.
        self.warnings: list[str] = []

    def refusal(self, variant: Variant) -> str:
        """Return why a workload cannot run in this engine, or an empty text."""
        if self.client_methods is None or self.imports is None:
            return ""
        if "::" in variant.name:
            return f"engine {self.name} runs workloads: a test of pytest has a client of Dask"
        if any(str(value).startswith("p2p") for value in variant.params.values()):
            return f"engine {self.name} has no P2P shuffle, which the workload selects"
        return self.source_refusal(variant.workload.source)

    def source_refusal(
        self, source: str, clients: Sequence[str] = ("client",), what: str = "workload"
    ) -> str:
        """Return what a source uses that the engine lacks, or an empty text.

        `clients` are the names of its client, `what` says what the source is.
        """
        if self.client_methods is None or self.imports is None:
            return ""
        used = sorted(set(_used(source, clients, self.client_methods)) - self.imports)
        return f"engine {self.name} has no {', '.join(used)}, which the {what} uses" * bool(used)

    def facts(self) -> dict[str, Any]:
        """Return what the head of a recording says about the engine."""
        return {"engine": self.name, "unreported": self.unreported}

    @contextmanager
    def open(self, cluster: RunningCluster) -> Iterator[Any]:
        """Return the client that the workload gets, connected to the processes of a cluster."""
        yield cluster.client

    def host(self) -> Any:
        """Return the current client of Dask if the engine runs in its cluster; else None."""
        return None

    def connect(self, client: Any, dask_client: Any) -> None:
        """Use a client of the engine that its user opened.

        `dask_client` is that of the cluster in whose processes it runs; None: it has its own.
        """

    def description(self) -> dict[str, Any]:
        """Return the class, workers and threads of a cluster of the engine's own."""
        return {"class": self.name}

    def start(self, phases: ClientPhases) -> None:
        """Record what is submitted, from now on; called when the clock starts.

        It notes in `phases` when its client serialises and when it sends a graph.
        """

    def stop(self) -> None:
        """Record nothing more; called when the clock has stopped."""

    def wait(self, result: Any) -> Any:
        """Wait until a result and all that it refers to is computed; raise the first error."""
        return wait_for_result(result)

    def tables(self, path: Path, t_on: float, client_ahead: float) -> dict[str, Any]:
        """Return what the engine did after a time, in s, as further tables of a recording.

        Empty if the capture of Dask has recorded all. The scheduler's clock, which is that of the
        tables, is `client_ahead` seconds ahead of the client's.
        """
        return {}


def wait_for_result(result: Any) -> Any:
    """Persist the Dask collections in a result, wait for its futures, raise the first error.

    Collections stay on the cluster; the check fetches data from them while the clock is off.
    """
    (result,) = persist(result)
    futures = futures_of(result)
    if futures:
        wait(futures)
        for future in futures:
            if future.status != "finished":
                future.result()
    return result


def _used(
    source: str, clients: Sequence[str], client_methods: Mapping[str, frozenset[str]]
) -> Iterator[str]:
    """Yield what a source imports from distributed, and which parts of a client it uses.

    `client_methods` are not among them, but their arguments that do not exist.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:  # for example a lambda inside a line
        return
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module)) if "distributed" in module.split("."):
                yield from (alias.name for alias in node.names)
            case ast.Attribute(value=ast.Name(id=client), attr=name) if client in clients:
                if name not in client_methods:
                    yield f"client.{name}"
            case ast.Call(func=ast.Attribute(value=ast.Name(id=client), attr=name)) if (
                client in clients
            ):
                names = {word.arg for word in node.keywords} & client_methods.get(name, frozenset())
                yield from (f"client.{name}({word}=)" for word in names)
