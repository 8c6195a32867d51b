"""Metadata of a run from its experiment: environment, arm, place in the plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchkit.experiment.environment.cache import Built
from benchkit.experiment.run.estimate import worker_price
from benchkit.experiment.run.plan import Arm, Measurement
from benchkit.measure.run_ids import new_id


def run_metadata(
    experiment: str, arm: Arm, entry: Measurement, built: Built, tags: Mapping[str, str]
) -> dict[str, Any]:
    """Return the metadata of a new run."""
    spec = arm.environment.to_dict()
    return {
        "id": new_id(),
        "environment": arm.environment.name,
        "environment_spec": {**spec, "built": built.to_dict()},
        "variables": spec["variables"],  # without the values of secrets
        "experiment": experiment,
        "arm": arm.name,
        "block": entry.block,
        "order": entry.order,
        "tags": dict(tags),
        "worker_price": worker_price(arm.environment),
    }
