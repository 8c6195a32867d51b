"""What `benchkit run` does between its options and its table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchkit.experiment.environment import find_environment
from benchkit.experiment.experiment import Experiment
from benchkit.experiment.folders import folders_of
from benchkit.measure.collection import collect
from benchkit.store.store import Store
from benchkit.store.text import format_seconds

__all__ = ["measure_all"]


def measure_all(
    *,
    names: Sequence[str],
    expression: str | None,
    repeats: int,
    environment: str,
    environment_folders: Sequence[str],
    folders: Sequence[str],
    store: str | None,
    scale: float,
    capture: str,
    tags: Mapping[str, str],
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Measure the selected variants and return their records; progress goes to `say`."""
    places = folders_of("workloads", folders)
    collection = collect(places)
    for broken in collection.broken:
        say(f"warning: {broken}")
    variants = collection.select(names, expression)
    where = find_environment(environment, folders_of("environments", environment_folders))
    experiment = Experiment(
        store=Store(store),
        environment=where,
        variants=variants,
        folders=places,
        repeats=repeats,
        scale=scale,
        capture=capture,
        tags=tags,
    )
    total = len(experiment.plan())
    records = []
    for record in experiment.run(
        lambda measurement: say(f"[{measurement.order + 1}/{total}] {measurement.variant} ...")
    ):
        records.append(record)
        say(f"    {record['outcome']} {format_seconds(record.get('duration'))}")
    return records
