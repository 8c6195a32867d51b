"""Events that `Experiment.run` yields: what is planned, starts, ends or is skipped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from benchkit.experiment.run.plan import Measurement

#: Name of the logger for what happens within a measurement, such as how many workers connected.
PROGRESS_LOG = "benchkit.progress"


@dataclass(frozen=True)
class Planned:
    """The experiment begins."""

    # The plan, without the measurements that are in the store already. Empty for an experiment
    # whose plan is made while it runs.
    measurements: tuple[Measurement, ...]
    remaining_seconds: float  # Estimated time until the end of the plan
    is_alone: bool = True  # Whether no other experiment of this user measures on this machine


@dataclass(frozen=True)
class Started:
    """A measurement starts."""

    measurement: Measurement  # The entry of the plan
    remaining_seconds: float  # Estimated time until the end of the plan, this measurement included


@dataclass(frozen=True)
class Finished:
    """A run is in the store."""

    measurement: Measurement  # The entry of the plan
    record: dict[str, Any]  # Record of the run
    will_retry: bool  # Whether the infrastructure failed and the measurement is repeated
    remaining_seconds: float  # Estimated time until the end of the plan


@dataclass(frozen=True)
class Skipped:
    """A measurement is left out."""

    measurement: Measurement  # The entry of the plan
    # The verdict is decided already, the block does not fit into the budget, or its cluster did not
    # open in earlier measurements.
    reason: str
    remaining_seconds: float  # Estimated time until the end of the plan


Event: TypeAlias = Planned | Started | Finished | Skipped


def finished_records(events: Iterable[Event]) -> Iterator[dict[str, Any]]:
    """Run through events and yield the record of each run."""
    for event in events:
        if isinstance(event, Finished):
            yield event.record
