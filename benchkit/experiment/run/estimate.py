"""Estimates before and during an experiment: run times and prices of workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

from benchkit.analysis.run.baseline import is_simulated
from benchkit.errors import UsageError
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.run.known_workloads import KnownWorkload
from benchkit.measure.cluster.spec import ClusterSpec
from benchkit.measure.settings import setting
from benchkit.store.store import Store

#: Seconds in addition to each workload: a new cluster, imports on its workers, the end of the
#: recording, the check. Measured on two cores; replaced by measured values after
#: the first run.
OVERHEAD_S = 5.0
#: Seconds of a workload without an earlier run; the workloads of benchkit are made for 2 to 15 s.
UNKNOWN_S = 8.0
#: Key of Dask's configuration: USD per worker and hour, or a mapping from the class of the cluster
#: (dotted name or its last part) to it. Schedulers, disks and traffic are not included, so a cost
#: is a lower bound.
WORKER_PRICE_KEY = "benchkit.worker-price"


def known_durations(
    store: Store, shipped: Mapping[str, KnownWorkload] | None = None
) -> dict[str, float]:
    """Return the expected duration of each variant in seconds."""
    durations = {name: workload.duration for name, workload in (shipped or {}).items()}
    if not store.is_new and len(store):
        runs = store.runs(columns=["workload", "duration", "simulated"], outcome="ok")
        runs = runs[~is_simulated(runs)]
        durations |= runs.groupby("workload")["duration"].median().dropna().to_dict()
    return durations


class Estimate:
    """Time that a list of variants will take, corrected after each run."""

    def __init__(self, variants: Iterable[str], known: Mapping[str, float]) -> None:
        self._remaining = Counter(variants)
        self._durations = dict(known)
        self._overheads: list[float] = []
        self._measured: list[float] = []

    def finished(self, name: str, elapsed_s: float, duration_s: float | None) -> None:
        """Remove one run of a variant from the list and use its times for the rest."""
        self.discard(name)
        if duration_s is not None:
            self._durations[name] = duration_s
            self._overheads.append(max(elapsed_s - duration_s, 0.0))
            self._measured.append(duration_s)

    def discard(self, name: str) -> None:
        """Remove one run of a variant from the list; it will not be measured."""
        self._remaining[name] -= 1

    def run_seconds(self, name: str) -> float:
        """Return the expected wall time of one run in seconds, cluster start included."""
        overhead = fmean(self._overheads) if self._overheads else OVERHEAD_S
        unknown = fmean(self._measured) if self._measured else UNKNOWN_S
        return self._durations.get(name, unknown) + overhead

    @property
    def remaining_seconds(self) -> float:
        """Seconds until the end of the list."""
        return sum(n * self.run_seconds(name) for name, n in self._remaining.items() if n > 0)


def worker_price(environment: Environment) -> float | None:
    """Return the configured price of a worker on an environment's cluster."""
    value: Any = setting("worker-price")
    if isinstance(value, Mapping):
        name = ClusterSpec.from_dict(environment.cluster).label
        value = value.get(name, value.get(name.rpartition(".")[2]))
    if value is None:
        return None
    try:
        price = float(value)
    except (TypeError, ValueError):
        price = -1.0
    if not price >= 0:
        raise UsageError(
            f"{WORKER_PRICE_KEY}: {value!r} is not a price: must be USD per worker and hour"
        )
    return price
