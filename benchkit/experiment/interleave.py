"""Measure variants of a user's code in turn, so that a drift of the machine affects all equally."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from benchkit.experiment.record import record
from benchkit.experiment.run.plan import plan_measurements
from benchkit.measure.arguments import check_count, list_of
from benchkit.measure.run_ids import new_id


@dataclass(frozen=True)
class Turn:
    """One measurement of one variant."""

    arm: str  # Name of the variant
    block: int | None  # Number of the block, from 0 on; None for a warm-up, which is not recorded
    experiment: str  # Id that all turns of a loop share

    def record(self, client: Any = None, **options: Any) -> AbstractContextManager[Any]:
        """Record the ``with`` block as a run of this arm and block."""
        if self.block is None:
            return nullcontext()
        return record(client, experiment=self.experiment, arm=self.arm, block=self.block, **options)


def interleave(arms: Sequence[str], repeats: int = 6, *, warm_up: bool = True) -> Iterator[Turn]:
    """Yield the turns of an experiment with variants of a user's code.

    Parameters
    ----------
    arms : sequence of str
        Names of the variants.
    repeats : int, default 6
        Number of blocks; in each block every arm has one turn.
    warm_up : bool, default True
        Begin with a turn of each arm that is not recorded: first runs import and connect.

    Yields
    ------
    Turn
        Its ``record`` takes the arguments of `benchkit.record`.

    Raises
    ------
    UsageError
        Two arms have the same name, or an argument is invalid.

    Examples
    --------
    >>> for turn in benchkit.interleave(["apply", "sum"]):  # doctest: +SKIP
    ...     with turn.record(client, workload="etl", store=store):
    ...         my_pipeline(method=turn.arm)
    """
    names = [str(arm) for arm in list_of(arms, "arms")]
    experiment, n_blocks = new_id(), check_count(repeats, "repeats")
    plan = plan_measurements(names, {"": 1.0}, n_blocks)
    for arm in names if warm_up else ():
        yield Turn(arm, None, experiment)
    for measurement in plan:
        yield Turn(measurement.arm, measurement.block, experiment)
