"""The input of a simulation for a variant: a synthetic graph, or a workload with durations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import benchkit.simulation.graphs
from benchkit.errors import UsageError
from benchkit.experiment.environment.cache import Built
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.virtual.costs import costs_of_workload
from benchkit.experiment.virtual.process import VirtualSpec, simulate_in_environment
from benchkit.measure.suite.collect import TestWorkload
from benchkit.measure.workloads import Variant
from benchkit.simulation.synthetic import make_graph
from benchkit.store.store import Store

#: Folder of the workloads that are synthetic graphs.
GRAPHS = Path(benchkit.simulation.graphs.__file__).parent


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
            "costs": costs_of_workload(store, variant.name),
            "durations": virtual.durations,
        }
        return cls(variant, content, virtual, scale)

    def simulate(self, process: _Arm, draw: int, folder: Path, metadata: Mapping[str, Any]) -> Path:
        """Simulate one run in an environment."""
        workload, graph = self.variant.workload, dict(self.graph)
        if "workload" in graph:
            graph["seed"] = draw
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
