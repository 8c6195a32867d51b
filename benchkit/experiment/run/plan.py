"""What will be measured, in which order: arms x variants x blocks, as one list.

Knows names and numbers. A block holds one run of each arm, back to back, so that a slow minute hits
all of them; which comes first is turned round from block to block, or drawn.
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

#: Name of the arm that is the baseline once more.
NULL_ARM = "null"
ORDERS = ("abba", "random")


@dataclass(frozen=True)
class Arm:
    """An environment in one experiment, by the name that its runs carry.

    `point` is its place in a sweep: values by key.
    """

    name: str
    environment: Environment
    point: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Measurement:
    """One entry of the plan: which variant in which arm, in which block and place."""

    order: int
    block: int
    variant: str
    arm: str
    deadline_s: float

    @property
    def key(self) -> tuple[int, str, str]:
        """What makes it this entry and no other, whatever its place."""
        return self.block, self.arm, self.variant


def plan_measurements(
    arms: Sequence[str],
    variants: Mapping[str, float],
    n_blocks: int,
    *,
    order: str = "abba",
    seed: int = 0,
) -> list[Measurement]:
    """Return the measurements in the order in which they are done.

    Parameters
    ----------
    arms : sequence of str
        Names of the arms, the baseline first.
    variants : mapping of str to float
        Names of the variants, and the deadline of each in s.
    n_blocks : int
        How often each variant is measured in each arm.
    order : {"abba", "random"}, default "abba"
        Arms of a block forwards, then backwards, in turn: a steady drift cancels. Or drawn for
        each block and variant, which guards against a disturbance that comes every other block.
    seed : int, default 0
        For the drawing.

    Raises
    ------
    UsageError
        Two arms have one name, or the order is unknown.
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
    """Write plan and facts of an experiment, whole or not at all."""
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
        Only experiments with this among their words: bisections, for one.

    Raises
    ------
    UsageError
        There is none, or the beginning fits several.
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
