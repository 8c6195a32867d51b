"""The input of a simulation for a variant: a synthetic graph, or a workload with durations."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import pandas as pd
from dask.utils import key_split

import benchkit.simulation.graphs
from benchkit.analysis.run.baseline import is_simulated
from benchkit.errors import UsageError
from benchkit.experiment.environment.cache import Built
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.virtual.process import VirtualSpec, simulate_in_environment
from benchkit.measure.suite.collect import TestWorkload
from benchkit.measure.workloads import Variant
from benchkit.simulation.synthetic import make_graph
from benchkit.store.run import Run
from benchkit.store.store import Store

#: Folder of the workloads that are synthetic graphs.
GRAPHS = Path(benchkit.simulation.graphs.__file__).parent
#: Number of newest runs to use, and of values to keep for each prefix.
MAX_RUNS = 5
MAX_VALUES = 200
#: The packages that decide how tasks are named and fused, and their versions.
PACKAGES = ("dask", "distributed")
Release: TypeAlias = "tuple[str, ...]"


class _Arm(Protocol):
    """What is used of a `MeasuringKernel`."""

    environment: Environment

    @property
    def built(self) -> Built: ...


@dataclass(frozen=True)
class VirtualInput:
    """What is simulated for a variant."""

    variant: Variant  # The variant
    graph: Mapping[str, Any]  # See `benchkit.simulation.entrypoint.simulate_request`.
    virtual: VirtualSpec  # Size and constants of the cluster
    scale: float  # Share of the full size of the data
    # Release of Dask -> durations and sizes of the tasks of a workload, by prefix of their keys: a
    # prefix means other work in another release, if that fuses tasks differently.
    costs: Mapping[Release, dict[str, list[list[float]]]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        variant: Variant,
        virtual: VirtualSpec,
        store: Store,
        folders: Sequence[Path],
        scale: float,
    ) -> VirtualInput:
        """Return the input for a variant."""
        workload = variant.workload
        if isinstance(workload, TestWorkload):
            raise UsageError(f"{variant.name}: is a test of pytest: omit --virtual")
        if Path(workload.path or "").parent == GRAPHS:
            arguments = dict(variant.params)
            workers = arguments.pop("workers", 0)
            try:
                graph = make_graph(workload.name.partition(".")[2], arguments)
                shape = replace(virtual.shape, workers=workers) if workers else virtual.shape
            except ValueError as error:
                raise UsageError(f"{variant.name}: {error}") from None
            return cls(variant, graph.to_dict(), replace(virtual, shape=shape), scale)
        content = {
            "workload": variant.name,
            "workloads": [str(Path(folder).resolve()) for folder in folders],
            "params": variant.undeclared_params(),
            "scale": scale,
            "durations": virtual.durations,
        }
        return cls(variant, content, virtual, scale, costs_of_workload(store, variant.name))

    def costs_in(self, process: _Arm) -> dict[str, list[list[float]]]:
        """Return the costs of the tasks that were measured with the release of an environment."""
        release = tuple(process.built.packages.get(name, "") for name in PACKAGES)
        if release not in self.costs:
            name, workload = process.environment.name, self.variant.name
            raise UsageError(
                f"{workload}: its tasks were not measured with dask {release[0]} and distributed "
                f"{release[1]} of {name}, and equal names mean other work in other releases: "
                f"`benchkit run -e {name} '{workload}'` measures it, and `benchkit simulate RUN "
                f"-e {name}` takes the graph of one kept run"
            )
        return self.costs[release]

    def simulate(self, process: _Arm, draw: int, folder: Path, metadata: Mapping[str, Any]) -> Path:
        """Simulate one run in an environment."""
        workload, graph = self.variant.workload, dict(self.graph)
        if "workload" in graph:
            graph |= {"seed": draw, "costs": self.costs_in(process)}
        head = {
            "workload": self.variant.name,
            "category": workload.category,
            "owner": workload.owner,
            "params": self.variant.params,
            "description": workload.description,
            "version": workload.version,
            "source": workload.source,
            "source_hash": workload.source_hash,
            "seed": workload.seed,
            "scale": self.scale,
        }
        return simulate_in_environment(
            process.environment,
            process.built,
            graph,
            self.virtual,
            folder=folder,
            facts={**head, **metadata},
            draw=draw,
        )


def costs_of_workload(store: Store, workload: str) -> dict[Release, dict[str, list[list[float]]]]:
    """Return durations and sizes of the tasks of a workload by release of Dask."""
    with warnings.catch_warnings():  # a workload without runs is an error below
        warnings.simplefilter("ignore", UserWarning)
        runs = store.runs(workload=workload, outcome="ok")
    if len(runs):
        runs = runs[~is_simulated(runs) & (runs["capture"] == "full")]
        releases = runs.groupby(list(PACKAGES), sort=False)["id"]
        costs = {
            release: found
            for release, ids in releases
            if (found := _costs_from_runs(store.load(ids.tolist()[-MAX_RUNS:])))
        }
        if costs:
            return costs
    raise UsageError(
        f"{workload}: the durations of its tasks are unknown: measure it once, with "
        f"`benchkit run '{workload}'` (capture level full)"
    )


def _costs_from_runs(runs: Sequence[Run]) -> dict[str, list[list[float]]]:
    """Return the pairs, evenly spaced in the order of the seconds if there are many."""
    streams = [stream for run in runs if len(stream := run.task_stream())]
    if not streams:
        return {}
    tasks = pd.concat(streams, ignore_index=True)
    tasks = tasks[tasks["ok"] == 1].sort_values("duration", kind="stable")
    tasks["nbytes"] = tasks["nbytes"].clip(lower=0)  # -1 is unknown
    prefixes = tasks["task_group"].astype(str).map(key_split)
    costs = {}
    for prefix, own in tasks.groupby(prefixes):
        chosen = np.linspace(0, len(own) - 1, min(len(own), MAX_VALUES)).round().astype(int)
        costs[str(prefix)] = own[["duration", "nbytes"]].iloc[chosen].to_numpy(float).tolist()
    return costs
