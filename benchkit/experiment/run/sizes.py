"""How large a workload's data is on a cluster, as far as its docstring's law tells."""

from __future__ import annotations

import re
from typing import Any

from dask.utils import parse_bytes

from benchkit.experiment.environment.environment import Environment
from benchkit.formatting import format_bytes
from benchkit.measure.cluster.spec import ClusterSpec
from benchkit.measure.workloads import Variant

__all__ = ["cluster_memory", "size_law", "size_text"]

_FACTOR = re.compile(r"^(?:`(?P<name>\w+)`|(?P<number>\d*\.?\d+)) x cluster memory")


def size_law(variant: Variant) -> str:
    """Return the first clause of the docstring's `Scale:`, empty without one."""
    found = re.search(r"^Scale:\s*(.+?)(?:;|\.\s|\.$|\n\n|\Z)", variant.workload.description, _DOT)
    return " ".join(found[1].split()) if found else ""


_DOT = re.MULTILINE | re.DOTALL


def cluster_memory(variant: Variant, environment: Environment) -> int | None:
    """Return the memory, in B, of the cluster that the variant would get; None if unknown.

    Nothing is started; a scheduler that runs already, and a cluster whose class has its own
    defaults, are unknown.
    """
    wanted: Any = variant.workload.cluster
    if isinstance(wanted, str):
        wanted = environment.clusters.get(wanted)
    spec = ClusterSpec.from_dict(environment.cluster).merged(wanted)
    n_workers, memory = spec.kwargs.get("n_workers"), spec.kwargs.get("memory_limit")
    if not isinstance(n_workers, int) or not isinstance(memory, (int, str)):
        return None
    try:
        return n_workers * parse_bytes(memory)
    except ValueError:
        return None


def size_text(variant: Variant, environment: Environment) -> str:
    """Return the size of the data on this environment's cluster, or the law in words."""
    law = size_law(variant)
    found = _FACTOR.match(law)
    memory = cluster_memory(variant, environment)
    if not found or memory is None:
        return law
    factor = variant.params.get(found["name"]) if found["name"] else found["number"]
    return law if factor is None else format_bytes(float(factor) * memory)
