"""Estimates before and during an experiment: run times and prices of workers."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from benchkit.analysis.run.baseline import is_simulated
from benchkit.analysis.run.noise import run_noise
from benchkit.errors import UsageError
from benchkit.experiment.environment.environment import Environment
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


#: File in a folder of workloads with their duration and noise: the output of `benchkit list noise
#: --json` after ``benchkit ab baseline --null-only``. Values from the store are preferred.
FILE = "facts.json"


@dataclass(frozen=True)
class KnownWorkload:
    """Duration and noise of one variant."""

    duration: float  # Median wall time in seconds
    noise: float  # Coefficient of variation of one run; NaN if unknown
    n_runs: int  # Number of runs


def noise_table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the noise of each variant in its newest set of comparable runs."""
    # returned: A row per variant, sorted by name: `workload`, `n_runs`, `duration` (s), `noise`,
    # and the columns `needed_*` of `run_noise`: runs per arm that detect a change.
    table = run_noise(runs).drop_duplicates("workload").sort_values("workload")
    columns = ["workload", "n_runs", "level", "noise"]
    needed = [name for name in table if str(name).startswith("needed_")]
    return table[[*columns, *needed]].rename(columns={"level": "duration"}).reset_index(drop=True)


def load_known(folders: Iterable[Path], scale: float = 1.0) -> dict[str, KnownWorkload]:
    """Read the files `facts.json` in folders of workloads."""
    workloads: dict[str, KnownWorkload] = {}
    for folder in reversed(list(folders)) if scale == 1 else ():
        path = Path(folder) / FILE
        if not path.is_file():
            continue
        try:
            for row in json.loads(path.read_text(encoding="utf-8")):
                noise = math.nan if row["noise"] is None else float(row["noise"])
                workloads[str(row["workload"])] = KnownWorkload(
                    float(row["duration"]), noise, row["n_runs"]
                )
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(
                f"{path}: not the output of `benchkit list noise --json` "
                f"({type(error).__name__}: {error})"
            ) from None
    return workloads


def known_noise(
    store: Store, names: Iterable[str], shipped: Mapping[str, KnownWorkload]
) -> dict[str, float]:
    """Return the noise of variants: from the store, otherwise as shipped."""
    names = set(names)
    noise = {name: workload.noise for name, workload in shipped.items()}
    if len(store):
        runs = store.runs()
        table = noise_table(runs[runs["workload"].isin(names)]).dropna(subset=["noise"])
        noise |= dict(zip(table["workload"], table["noise"], strict=True))
    return {name: value for name, value in noise.items() if name in names and math.isfinite(value)}
