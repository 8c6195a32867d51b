"""What a worker costs, where somebody said so: Dask's configuration `benchkit.worker-price`.

A number is USD per worker and hour; a mapping gives one for each class of cluster, by its dotted
name or the last part of it. What a provider charges besides (schedulers, disks, traffic) is not in
it, so a cost is an estimate from below.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dask

from benchkit.errors import UsageError
from benchkit.experiment.environment.environment import Environment
from benchkit.measure.cluster.spec import ClusterSpec

__all__ = ["KEY", "worker_price"]

KEY = "benchkit.worker-price"


def worker_price(environment: Environment) -> float | None:
    """Return USD per worker and hour on an environment's cluster; None if nobody said.

    Raises
    ------
    UsageError
        What is configured is no price.
    """
    said: Any = dask.config.get(KEY, None)
    if isinstance(said, Mapping):
        name = ClusterSpec.from_dict(environment.cluster).label
        said = said.get(name, said.get(name.rpartition(".")[2]))
    if said is None:
        return None
    try:
        price = float(said)
    except (TypeError, ValueError):
        price = -1.0
    if not price >= 0:
        raise UsageError(f"{KEY}: {said!r} is no price: a number of USD per worker and hour")
    return price
