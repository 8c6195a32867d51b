"""Run planted faults on clusters, of which one is kept for faults that leave nothing behind."""

import json
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import dask
from distributed import Client, LocalCluster

import benchkit
from benchkit.store.build.run_from_recording import run_from_recording
from benchkit.store.run import Run
from validation.diagnosis import plants, tasks
from validation.diagnosis.fixed_faults import Fault
from validation.recorded_work import record_work

for module in (tasks, plants):
    cloudpickle.register_pickle_by_value(module)

#: Seconds after which a fault is no longer waited for, such as one whose workers stay paused.
DEADLINE_S = 40.0
CLUSTER: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "1GB"}


class Clusters:
    """Opens clusters; the usual one stays open for the next run."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._kept: Client | None = None

    @contextmanager
    def client(
        self, options: Mapping[str, Any], config: Mapping[str, Any], *, leaves: bool
    ) -> Iterator[Client]:
        """Yield the client of a cluster; a run that changes it (`leaves`) gets one of its own."""
        if options or config or leaves:
            with _opened({**CLUSTER, **options}, config) as client:
                yield client
            return
        if self._kept is None:
            self._kept = self._stack.enter_context(_opened(CLUSTER, {}))
        yield self._kept
        if self._kept and len(self._kept.scheduler_info()["workers"]) != CLUSTER["n_workers"]:
            self.close()

    def close(self) -> None:
        """Close the kept cluster; the next run gets a new one."""
        self._kept = None
        self._stack.close()


@contextmanager
def _opened(options: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[Client]:
    with dask.config.set(dict(config)):
        with (
            LocalCluster(
                **options, dashboard_address=None, silence_logs=logging.CRITICAL
            ) as cluster,
            Client(cluster) as client,
        ):
            client.wait_for_workers(options["n_workers"])
            client.run(tasks.spin, 0.05)  # imports
            yield client


def measure(
    clusters: Clusters,
    fault: Fault,
    work: Callable[[Client], Any],
    cluster: Mapping[str, Any] | None = None,
) -> Path:
    """Run a function on a cluster and return its recording."""
    options = fault.cluster if cluster is None else cluster
    leaves = fault.leaves or fault.prepare is not None
    with clusters.client(options, fault.config, leaves=leaves) as client:
        if fault.prepare:
            fault.prepare(client)
        recording, error = record_work(client, "diagnosis.fault", partial(work, client), DEADLINE_S)
        if error and not leaves:
            clusters.close()
        if error and not fault.rules:
            raise RuntimeError(error)
        return recording


def measure_workload(fault: Fault) -> Path:
    """Run a workload of the catalogue on a new cluster and return its store."""
    folder = Path(tempfile.mkdtemp())
    file = folder / "faulty.yaml"
    cluster = {**CLUSTER, "memory_limit": "1 GiB", **fault.cluster}
    settings: dict[str, Any] = {}
    dask.config.set(dict(fault.config), config=settings)  # nested mappings instead of dots
    file.write_text(json.dumps({"cluster": cluster, "dask": settings}))
    benchkit.run(fault.name, environment=str(file), store=folder / "store")
    return folder / "store"


def read_run(path: Path) -> Run:
    """Return the run of a recording, or the only run of a store."""
    if path.suffix == ".recording":
        return Run(run_from_recording(path))
    store = benchkit.Store(path, create=False)
    return store.open(store.runs()["id"].iloc[0])
