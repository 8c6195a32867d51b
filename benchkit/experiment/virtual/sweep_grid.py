"""The clusters and settings of a sweep of simulations."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from benchkit.errors import UsageError
from benchkit.experiment.virtual.process import VirtualSpec
from benchkit.simulation.model import Model


def sweep_grid(
    base: VirtualSpec,
    *,
    workers: Any,
    threads: Any,
    memory_limit: int | None,
    bandwidth: Any,
    latency: float | None,
    config: Mapping[str, Any],
) -> tuple[list[VirtualSpec], list[dict[str, Any]]]:
    """Return the clusters of a sweep, and what differs between them."""
    swept = {name: value for name, value in config.items() if isinstance(value, (list, tuple))}
    fixed = {name: value for name, value in config.items() if name not in swept}
    specs, points = [], []
    constants = {} if latency is None else {"latency": latency}
    limit = base.shape.memory_limit if memory_limit is None else memory_limit
    for n_workers, n_threads, speed, *settings in itertools.product(
        _values(workers, base.shape.workers),
        _values(threads, base.shape.threads),
        _values(bandwidth, base.model.bandwidth),
        *swept.values(),
    ):
        chosen = dict(zip(swept, settings, strict=True))
        try:
            shape = replace(base.shape, workers=n_workers, threads=n_threads, memory_limit=limit)
            model = Model.from_dict({**base.model.to_dict(), **constants, "bandwidth": speed})
        except ValueError as error:
            raise UsageError(str(error)) from None
        specs.append(replace(base, shape=shape, model=model, config={**fixed, **chosen}))
        points.append(
            {
                "workers": n_workers,
                "threads": n_threads,
                "bandwidth": model.bandwidth,
                "latency": model.latency,
                **{name.removeprefix("distributed."): value for name, value in chosen.items()},
            }
        )
    return specs, points


def _values(given: Any, default: Any) -> list[Any]:
    if given is None:
        return [default]
    return list(given) if isinstance(given, (list, tuple, range, np.ndarray)) else [given]
