"""Plan of an experiment: arms x variants x blocks as one ordered list of measurements.

Plans contain names and numbers only. A block is one run of each arm, back to back, so that a slow
minute affects all arms. The order of the arms is reversed from block to block, or random.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from benchkit.errors import UsageError
from benchkit.experiment.environment.environment import Environment

__all__ = [
    "NULL_ARM",
    "ORDERS",
    "Arm",
    "Measurement",
    "plan_measurements",
    "read_plan",
    "write_plan",
]

#: Name of the null arm: the baseline measured a second time.
NULL_ARM = "null"
ORDERS = ("abba", "random")


@dataclass(frozen=True)
class Arm:
    """An environment in one experiment, with the arm name stored in its runs.

    `point` is its point in a sweep: values by key.
    """

    name: str
    environment: Environment
    point: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Measurement:
    """One entry of the plan: variant, arm, block and position."""

    order: int
    block: int
    variant: str
    arm: str
    deadline_s: float

    @property
    def key(self) -> tuple[int, str, str]:
        """Identity of the entry, independent of its position."""
        return self.block, self.arm, self.variant


def plan_measurements(
    arms: Sequence[str],
    variants: Mapping[str, float],
    n_blocks: int,
    *,
    order: str = "abba",
    seed: int = 0,
) -> list[Measurement]:
    """Return the measurements in the order in which they run.

    Parameters
    ----------
    arms : sequence of str
        Names of the arms, the baseline first.
    variants : mapping of str to float
        Variant name -> deadline in seconds.
    n_blocks : int
        Number of runs of each variant in each arm.
    order : {"abba", "random"}, default "abba"
        "abba": forward and reversed order in turn, which cancels a steady drift. "random": a new
        order per block and variant, which protects against a disturbance in every second block.
    seed : int, default 0
        Seed of the random order.

    Raises
    ------
    UsageError
        Two arms have the same name, or the order is unknown.
    """
    if len(set(arms)) < len(arms):
        raise UsageError(f"two arms have one name: {', '.join(arms)}")
    if order not in ORDERS:
        raise UsageError(f"--order {order!r}: must be {' or '.join(ORDERS)}")
    random = Random(seed)
    plan: list[Measurement] = []
    for block in range(n_blocks):
        for place, (variant, deadline_s) in enumerate(variants.items()):
            turn = list(arms)
            if order == "random":
                random.shuffle(turn)
            elif (block + place) % 2:
                turn.reverse()
            plan += [
                Measurement(len(plan) + step, block, variant, arm, deadline_s)
                for step, arm in enumerate(turn)
            ]
    return plan


def write_plan(path: Path, plan: Iterable[Measurement], facts: Mapping[str, Any]) -> None:
    """Write plan and facts of an experiment atomically."""
    content = {**facts, "plan": [asdict(measurement) for measurement in plan]}
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(content, indent=1), encoding="utf-8")
    draft.replace(path)


def read_plan(store: str | Path, experiment: str, *, having: str = "") -> dict[str, Any]:
    """Return plan and facts of an experiment in a store.

    Parameters
    ----------
    store : path
        Folder of the store.
    experiment : str
        Id of the experiment, the beginning of it, or "latest".
    having : str, optional
        Return only an experiment with this key in its words, such as a bisection.

    Raises
    ------
    UsageError
        No experiment matches, or several match the beginning of the id.
    """
    folder = Path(store) / "experiments"
    plans = {path.parent.name: path for path in sorted(folder.glob("*/plan.json"))}
    if having:
        plans = {name: path for name, path in plans.items() if having in _words(path)}
    known = sorted(plans)
    found = known[-1:] if experiment == "latest" else [k for k in known if k.startswith(experiment)]
    if len(found) != 1:
        what = "no experiment" if not found else f"{len(found)} experiments"
        raise UsageError(
            f"experiment {experiment!r}: {what} of that id in {store}"
            + (f": they are {', '.join(known[-5:])}" if known else "")
        )
    content = json.loads(plans[found[0]].read_text(encoding="utf-8"))
    return {"id": found[0], **content}


def _words(path: Path) -> Mapping[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")).get("words", {})
