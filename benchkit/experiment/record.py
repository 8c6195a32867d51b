"""Record any computation of a Dask client with a context manager.

Capture, run file and metrics are the same as for a workload, but results are not checked: the
caller must check them.
"""

from __future__ import annotations

import asyncio
import shutil
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any

import xarray as xr
from distributed import Client, default_client

from benchkit._compat.clients import Watcher, unwatch, watch
from benchkit.errors import StoreError, UsageError
from benchkit.experiment.run.plan import plan_measurements
from benchkit.measure.arguments import check_count, check_tags, check_text, list_of, own_metric
from benchkit.measure.artifacts import parse_capture
from benchkit.measure.capture_client import INSTALL_TIMEOUT_S, Observer
from benchkit.measure.cluster.description import describe
from benchkit.measure.engines import engine_of
from benchkit.measure.errors import error_summary
from benchkit.measure.outcomes import RECORDED_STEP, classify_error
from benchkit.measure.prometheus import Prometheus, record_prometheus
from benchkit.measure.provenance import collect_provenance
from benchkit.measure.recording import RecordingWriter
from benchkit.measure.run_ids import new_id
from benchkit.store.build.run_from_recording import run_from_recording
from benchkit.store.run import Run
from benchkit.store.schema import GROUPS, METRICS, RECORD_FIELDS
from benchkit.store.storage import RECORDINGS
from benchkit.store.store import Store


def record(
    client: Any = None,
    *,
    workload: str = "adhoc",
    tags: Mapping[str, Any] | None = None,
    store: Any = None,
    capture: str = "full",
    environment: str = "current",
    prometheus: str | None = None,
    experiment: str | None = None,
    arm: str | None = None,
    block: int | None = None,
) -> Recorder:
    """Record what the client's cluster does during the ``with`` block.

    Parameters
    ----------
    client : distributed.Client or "first", optional
        A connected client of Dask or Frisky; by default the current one of Dask. With an
        asynchronous client use ``async with``. ``"first"``: the first client that connects in the
        block, recorded from then until it closes; without one the block is only timed.
    workload : str, default "adhoc"
        Workload name of the run, used in the store and in comparisons.
    tags : mapping of str to str, optional
        Tags to select the run by, such as ``{"variant": "A"}``.
    store : Store or path, optional
        Store for the run; default as for the commands (``$BENCHKIT_STORE``, Dask's
        configuration ``benchkit.store``, ``./benchkit-store``).
    capture : {"full", "light", "off"}, default "full"
        Level of detail of the capture.
    environment : str, default "current"
        Name of the environment to write into the run.
    prometheus : str, optional
        Address of a Prometheus server that scrapes the cluster; by default
        ``$BENCHKIT_PROMETHEUS``.
    experiment, arm : str, optional
        Name of a set of runs that were measured in turn, and of the variant; see
        `benchkit.interleave`.
    block : int, optional
        Number of the block of the experiment, from 0 on. Runs with experiment and block are
        compared block by block.

    Returns
    -------
    Recorder
        Context manager, synchronous and asynchronous. After the block ``.run`` is the run.

    Raises
    ------
    UsageError
        There is no client, or an asynchronous client in a plain ``with``; or an argument is
        invalid.

    Examples
    --------
    >>> with benchkit.record(client, workload="etl", tags={"variant": "A"}) as recorded:
    ...     my_pipeline(client)  # doctest: +SKIP
    >>> recorded.run.metrics["duration"]  # doctest: +SKIP
    """
    source = Prometheus.from_environment(prometheus)
    if parse_capture(capture)[1]:
        raise UsageError(
            f"record: capture {capture!r}: extra files are recorded by `benchkit run` only; "
            "use full, light or off"
        )
    facts: dict[str, Any] = {
        "workload": check_text(workload, "workload"),
        "category": workload.partition(".")[0],
        "environment": check_text(environment, "environment"),
        "tags": check_tags(tags),
        "capture": capture,
    }
    for name, text in (("experiment", experiment), ("arm", arm)):
        if text is not None:
            facts[name] = check_text(text, name)
    if block is not None:
        facts["block"] = check_count(block, "block", 0)
    if client is None:
        try:
            client = default_client()
        except ValueError as error:
            raise UsageError(
                "record: no Dask client: create one with distributed.Client()"
            ) from error
    return Recorder(client, store, source, facts)


class Recorder:
    """Context manager that `record` returns."""

    def __init__(
        self, client: Any, store: Any, prometheus: Prometheus, facts: dict[str, Any]
    ) -> None:
        self.engine = engine_of(client)
        if self.engine is not None:
            self._engine_client, client = client, self.engine.host()
        elif client != "first" and not isinstance(client, Client):
            raise UsageError(f"record: client={client!r}: give a distributed.Client")
        self.client: Any = None if client == "first" else client
        self.store = store if isinstance(store, Store) else Store(store)
        self.prometheus, self.facts = prometheus, facts
        self.run: Run | None = None
        self._own_metrics: dict[str, dict[str, Any]] = {}
        self._own_data: dict[str, Any] = {}
        self._watcher: Watcher | None = None

    def metric(self, name: str, value: float, *, unit: str = "1", better: str = "") -> None:
        """Add a metric of your own to the run, in the ``with`` block."""
        # better: "more", "less" or ""
        self._check_name(name)
        self._own_metrics[name] = own_metric(name, value, unit, better)

    def data(self, name: str, dataset: Any) -> None:
        """Add a Dataset of your own to the run, as a group of its tree."""
        self._check_name(name)
        if not isinstance(dataset, xr.Dataset):
            raise UsageError(f"data {name!r}: give an xarray.Dataset, not {type(dataset).__name__}")
        self._own_data[check_text(name, "name")] = dataset

    def _check_name(self, name: str) -> None:
        taken = {*METRICS.keys(), *RECORD_FIELDS, *GROUPS}
        if name in taken or name in self._own_metrics or name in self._own_data:
            raise UsageError(f"{name!r} is a name in every run, or was given before: rename it")
        if self.run is not None:
            raise UsageError(f"{name!r}: the run is stored: add it inside the `with` block")

    # -- synchronous --------------------------------------------------------------------------

    def __enter__(self) -> Recorder:
        if self.client is not None and self.client.asynchronous:
            raise UsageError("record: the client is asynchronous: use `async with`")
        self._open()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._end(error)

    # -- asynchronous -------------------------------------------------------------------------

    async def __aenter__(self) -> Recorder:
        # The observer blocks until the client's event loop replies, so it must run in another
        # thread.
        await asyncio.to_thread(self._open)
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        await asyncio.to_thread(self._end, error)

    # -- both ---------------------------------------------------------------------------------

    def _open(self) -> None:
        self._begin()
        if self.client is None and self.engine is None:
            self._watcher = Watcher(self._connected, self._closing)
            watch(self._watcher)

    def _connected(self, client: Client) -> None:
        """Record the first client that connects in the block, in place of the block's time."""
        if self.client is None:
            self.client = client
            shutil.rmtree(self._writer.path, ignore_errors=True)
            self._begin()

    def _closing(self, client: Client) -> None:
        if client is self.client:
            self._stop()

    def _begin(self) -> None:
        self.id = new_id()
        self.store.create()
        # In the store: if this process is killed, the next check makes a run from the saved data.
        folder = self.store.files.workspace(RECORDINGS)
        try:
            self._writer = RecordingWriter(folder, self.id)
        except OSError as error:
            raise StoreError(f"{folder}: could not be written: {error.strerror}") from error
        is_unknown = self.client is None and self.engine is None
        level = "off" if is_unknown else self.facts["capture"]
        self._writer.head(
            id=self.id,
            started=time.time(),
            params={},
            scale=1.0,
            **({} if self.engine is None else self.engine.facts()),
            **{**self.facts, "capture": level},
            **collect_provenance(),
        )
        if self.engine is not None:
            self.engine.connect(self._engine_client, self.client)
        self._description = self._describe()
        self._observer = Observer(
            self.client, self._writer, f"benchkit-{self.id}", level=level, engine=self.engine
        )
        self._prometheus_context = ExitStack()
        if self.client is not None:
            self._prometheus_context.enter_context(
                record_prometheus(self.client, self.prometheus, self._observer, self._writer)
            )
        self._stopped = False
        self._observer.install()
        self._observer.clock_on()

    def _describe(self) -> dict[str, Any]:
        if self.client is None:
            return {"class": "none"} if self.engine is None else self.engine.description()
        if not self.client.asynchronous:
            return describe(self.client, "as found")
        loop = self.client.loop.asyncio_loop
        identity = asyncio.run_coroutine_threadsafe(self.client.scheduler.identity(), loop)
        info = identity.result(INSTALL_TIMEOUT_S)
        workers = info["workers"].values()
        return {
            "class": type(self.client.cluster).__name__ if self.client.cluster else info["address"],
            "workers": "as found",
            "n_workers": len(workers),
            "n_threads": sum(worker["nthreads"] for worker in workers),
            "memory_limit": sum(worker.get("memory_limit") or 0 for worker in workers),
        }

    def _stop(self) -> None:
        """Stop the clock and the capture, unless the client was closed before the block ended."""
        if not self._stopped:
            self._stopped = True
            self._observer.clock_off()
            self._observer.uninstall()
            self._prometheus_context.close()
            self._was_alive = self._scheduler_alive()

    def _end(self, error: BaseException | None) -> None:
        if self._watcher is not None:
            unwatch(self._watcher)
        self._stop()
        self._writer.tail(
            outcome=classify_error(error, RECORDED_STEP, lambda: self._was_alive)
            if error
            else "ok",
            error=error_summary(error) if error else "",
            traceback="".join(traceback.format_exception(error)) if error else "",
            phase="workload" if error else "",
            **self._observer.tail(),
            cluster=self._description,
            own_metrics=self._own_metrics,
        )
        tree = run_from_recording(self._writer.path)
        for name, dataset in self._own_data.items():
            tree[name] = xr.DataTree(dataset)
        self.store.add(tree)
        self.run = Run(tree)
        shutil.rmtree(self._writer.path, ignore_errors=True)

    def _scheduler_alive(self) -> bool:
        return self.client is None or self.client.status == "running"

    def __getattr__(self, name: str) -> Any:
        hint = (
            f": use recorded.run.{name} after the block"
            if hasattr(Run, name) or name in METRICS
            else ""
        )
        raise AttributeError(f"a recorder has no {name!r}{hint}")

    def __repr__(self) -> str:
        workload = self.facts["workload"]
        return repr(self.run) if self.run else f"<benchkit.Recorder {workload}: recording>"

    def _repr_html_(self) -> str:
        return self.run._repr_html_() if self.run else "recording …"


@dataclass(frozen=True)
class Turn:
    """One measurement of one variant."""

    arm: str  # Name of the variant
    block: int | None  # Number of the block, from 0 on; None for a warm-up, which is not recorded
    experiment: str  # Id that all turns of a loop share
    # The recordings of this turn, the newest last.
    recorders: list[Recorder] = field(default_factory=list, repr=False, compare=False)

    def record(self, client: Any = None, **options: Any) -> AbstractContextManager[Any]:
        """Record the ``with`` block as a run of this arm and block."""
        if self.block is None:
            return nullcontext()
        own: dict[str, Any] = {"experiment": self.experiment, "arm": self.arm, "block": self.block}
        self.recorders.append(record(client, **own, **options))
        return self.recorders[-1]

    def metric(self, name: str, value: float, *, unit: str = "1", better: str = "") -> None:
        """Add a metric of your own to the run of this turn, as `Recorder.metric` does."""
        if self.recorders:  # a warm-up is not recorded
            self.recorders[-1].metric(name, value, unit=unit, better=better)

    def data(self, name: str, dataset: Any) -> None:
        """Add a Dataset of your own to the run of this turn, as `Recorder.data` does."""
        if self.recorders:
            self.recorders[-1].data(name, dataset)


def interleave(arms: Sequence[str], repeats: int = 6, *, warm_up: bool = True) -> Iterator[Turn]:
    """Yield the turns of an experiment with variants of a user's code.

    Parameters
    ----------
    arms : sequence of str
        Names of the variants.
    repeats : int, default 6
        Number of blocks; in each block every arm has one turn.
    warm_up : bool, default True
        Begin with a turn of each arm that is not recorded: first runs import and connect.

    Yields
    ------
    Turn
        Its ``record`` takes the arguments of `benchkit.record`.

    Raises
    ------
    UsageError
        Two arms have the same name, or an argument is invalid.

    Examples
    --------
    >>> for turn in benchkit.interleave(["apply", "sum"]):  # doctest: +SKIP
    ...     with turn.record(client, workload="etl", store=store):
    ...         my_pipeline(method=turn.arm)
    """
    names = [str(arm) for arm in list_of(arms, "arms")]
    experiment, n_blocks = new_id(), check_count(repeats, "repeats")
    plan = plan_measurements(names, {"": 1.0}, n_blocks)
    for arm in names if warm_up else ():
        yield Turn(arm, None, experiment)
    for measurement in plan:
        yield Turn(measurement.arm, measurement.block, experiment)
