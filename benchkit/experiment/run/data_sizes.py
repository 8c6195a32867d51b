"""Sizes of the data of workloads on the cluster of an environment."""

from __future__ import annotations

import re
from typing import Any

from dask.utils import parse_bytes

from benchkit.experiment.environment.environment import Environment
from benchkit.formatting import format_bytes
from benchkit.measure.cluster.spec import ClusterSpec
from benchkit.measure.workloads import Variant

#: First clause of a size law that is a multiple of the memory of the cluster.
_FACTOR = re.compile(r"^(?:`(?P<name>\w+)`|(?P<number>\d+(?:\.\d+)?|\.\d+)) x cluster memory")
_SCALE_CLAUSE = re.compile(r"^Scale:\s*(.+?)(?:;|\.\s|\.$|\n\n|\Z)", re.MULTILINE | re.DOTALL)


def size_law(variant: Variant) -> str:
    """Return the first clause of `Scale:` in the docstring of a workload."""
    match = _SCALE_CLAUSE.search(variant.workload.description)
    return " ".join(match[1].split()) if match else ""


def cluster_memory(variant: Variant, environment: Environment) -> int | None:
    """Return the memory of the cluster that a variant would get, without starting it."""
    own: Any = variant.workload.cluster
    if isinstance(own, str):
        own = environment.clusters.get(own)
    spec = ClusterSpec.from_dict(environment.cluster).merged(own)
    n_workers, memory = spec.kwargs.get("n_workers"), spec.kwargs.get("memory_limit")
    if not isinstance(n_workers, int) or not isinstance(memory, (int, str)):
        return None
    try:
        return n_workers * parse_bytes(memory)
    except ValueError:
        return None


def size_text(variant: Variant, environment: Environment) -> str:
    """Return the size of a variant's data on the cluster of an environment."""
    law = size_law(variant)
    match = _FACTOR.match(law)
    memory = cluster_memory(variant, environment)
    if not match or memory is None:
        return law
    factor = variant.params.get(match["name"]) if match["name"] else match["number"]
    return law if factor is None else format_bytes(float(factor) * memory)
