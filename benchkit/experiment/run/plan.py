"""Plan of an experiment: arms x variants x blocks as one ordered list of measurements.

Plans contain names and numbers only. A block is one run of each arm, back to back, so that a slow
minute affects all arms. The arms change places from block to block; `block_order` is the only order
of a comparison, a re-run, a loop of the user and a bisection.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any

from benchkit.errors import AlreadyStored, UsageError
from benchkit.experiment.environment.environment import Environment
from benchkit.formatting import counted
from benchkit.measure.arguments import check_text
from benchkit.measure.secrets import redact, redact_text
from benchkit.measure.workloads import Variant
from benchkit.store.store import Store

#: Name of the null arm: the baseline measured a second time.
NULL_ARM = "null"


@dataclass(frozen=True)
class Arm:
    """An environment in one experiment."""

    name: str  # Name of the arm, stored in its runs
    environment: Environment  # Environment to measure in
    # Values by key of its grid point in a sweep; empty without a sweep.
    point: Mapping[str, Any] = field(default_factory=dict)

    @property
    def params(self) -> dict[str, Any]:
        """Values of workload parameters at its grid point."""
        values = self.point.items()
        return {k.removeprefix("param."): v for k, v in values if k.startswith("param.")}

    def bind(self, variant: Variant) -> Variant:
        """Return the variant that the arm measures."""
        if not self.params:
            return variant
        return variant.workload.bind(**{**variant.params, **self.params})

    def row(self) -> dict[str, str]:
        """Return name, environment and description, for a table."""
        environment = self.environment
        return {
            "arm": self.name,
            "environment": environment.name,
            "description": environment.description,
        }


@dataclass(frozen=True)
class Measurement:
    """One entry of the plan."""

    order: int  # Position in the plan, from 0
    block: int  # Number of the block, from 0
    variant: str  # Name of the variant
    arm: str  # Name of the arm
    deadline_s: float  # Time limit of the workload in seconds

    @property
    def key(self) -> tuple[int, str, str]:
        """Identity of the entry, independent of its position."""
        return self.block, self.arm, self.variant


def format_size(arms: Sized, workloads: Sized, repeats: int) -> str:
    """Return the numbers of arms, workloads and blocks as text."""
    sizes = {"arm": len(arms), "workload": len(workloads), "block": repeats}
    return " x ".join(counted(size, noun) for noun, size in sizes.items())


# A run in the first place of a block follows another workload: a place can have a cost of its own.
# Forward and reversed order in turn cancel a drift, but then a contender never stands first or
# last. Simulated (90 equal rows, noise of a run 1 %, the first place 5 % slower, three arms): the
# contender looks 2.5 % faster, and .50 (1.0) of the rows are called changed at 10 (20) blocks.
#
# Williams' squares (E. J. Williams, "Experimental designs balanced for the estimation of residual
# effects of treatments", Aust. J. Sci. Res. A 2, 1949) have each arm in each place once, and each
# arm directly after each other arm equally often, in n blocks of an even number of arms and 2 n of
# an odd one. Their rows are used one by one: after any number of blocks the numbers of runs of two
# arms in a place differ by one at most. Of three arms, baseline and contender are neighbours in two
# of three blocks: if they always were, the null arm would never stand in the middle.
#
# Of the first place, .5 is left in a change without rotation; with it, at most .2, .13, .1 and .05
# after 5, 8, 10 and 20 blocks of three arms. The mirrored square begins with its second row: for a
# single workload this is .1, .06, .05 and .03. Several workloads begin with different rows, so that
# what is left has no common sign. Simulated as above, at 3 to 20 blocks: no equal row is called
# changed, their mean change is below .1 %, and .68, .99 and 1.0 of true changes of 5 % are found
# at 5, 8 and 10 blocks (.98 at 5 blocks if no place has a cost: in the test, places are noise).
def block_order(arms: Sequence[str], block: int, position: int = 0) -> list[str]:
    """Return the arms in the order of a block; `position` is that of its workload in the plan."""
    n = len(arms)
    if not n:
        return []
    # 0, 1, -1, 2, -2, ...: the differences of neighbours are all different
    zigzag = [(step + 1) // 2 * (1 if step % 2 else -1) % n for step in range(n)]
    arm_at = dict(zip(zigzag, arms, strict=True))  # the first row has the order of `arms`
    square, row = divmod(block, n)
    is_mirrored = n % 2 == 1 and square % 2 == 1
    names = [arm_at[(number + row + position + is_mirrored) % n] for number in zigzag]
    return names[::-1] if is_mirrored else names


def plan_measurements(
    arms: Sequence[str], variants: Mapping[str, float], n_blocks: int
) -> list[Measurement]:
    """Return the measurements in the order in which they run."""
    if len(set(arms)) < len(arms):
        raise UsageError(f"two arms have the same name: {', '.join(arms)}")
    plan: list[Measurement] = []
    for block in range(n_blocks):
        for position, (variant, deadline_s) in enumerate(variants.items()):
            plan += [
                Measurement(len(plan) + step, block, variant, arm, deadline_s)
                for step, arm in enumerate(block_order(arms, block, position))
            ]
    return plan


def write_plan(
    store: Store, experiment: str, plan: Iterable[Measurement], settings: Mapping[str, Any]
) -> None:
    """Write the plan of an experiment, unless it is stored: a resumed experiment keeps its plan."""
    content = {**settings, "plan": [asdict(measurement) for measurement in plan]}
    with suppress(AlreadyStored):
        store.files.create(plan_name(experiment), json.dumps(redact(content), indent=1).encode())


def recorded_key(entry: Measurement) -> tuple[int, str, str]:
    """Return block, arm and variant as plan and run record them: without secrets."""
    return entry.block, redact_text(entry.arm), redact_text(entry.variant)


def in_stored_order(
    store: Store, experiment: str, plan: Iterable[Measurement]
) -> list[Measurement]:
    """Return measurements in the order of the stored plan, which an earlier version has made."""
    stored = {
        (entry["block"], entry["arm"], entry["variant"]): entry["order"]
        for entry in _read(store, experiment)["plan"]
    }
    ordered = (replace(entry, order=stored.get(recorded_key(entry), entry.order)) for entry in plan)
    return sorted(ordered, key=lambda entry: entry.order)


def plan_name(experiment: str) -> str:
    """Return the name of the plan of an experiment."""
    return f"experiments/{experiment}/plan.json"


def read_plan(
    store: Store, experiment: str, *, having: str = "", n_arms: int = 1
) -> dict[str, Any]:
    """Return the stored plan and settings of an experiment."""
    check_text(experiment, "experiment")
    if having:
        ids = [plan["id"] for plan in read_plans(store) if having in plan.get("words", {})]
    else:
        ids = _planned(store)
    noun, start = having or "experiment", f"`benchkit {'bisect' if having else 'ab'}` starts one"
    if not ids:
        raise UsageError(f"no {noun} in {store.path}: {start}")
    if experiment == "latest":
        suits = (i for i in reversed(ids) if n_arms == 1 or len(_read(store, i)["arms"]) >= n_arms)
        matches = [*islice(suits, 1)]
        if not matches:
            have = f"none of {counted(len(ids), noun)} in {store.path}"
            raise UsageError(f"{have} has {n_arms} arms: {start}")
    else:
        matches = [i for i in ids if i.startswith(experiment)]
    if len(matches) != 1:
        count = f"{len(matches)} {noun}s" if matches else f"no {noun}"
        latest = f"the latest are {', '.join(ids[-5:])}"
        raise UsageError(f"{noun} {experiment!r}: {count} of that id in {store.path}: {latest}")
    plan = _read(store, matches[0])
    if len(plan.get("arms", ())) < n_arms > 1:
        have = counted(len(plan["arms"]), "arm")
        raise UsageError(f"{noun} {plan['id']}: has {have}, and {n_arms} are needed: {start}")
    return plan


def read_plans(store: Store) -> list[dict[str, Any]]:
    """Return the plans of all experiments, oldest first."""
    return [_read(store, experiment) for experiment in _planned(store)]


def _planned(store: Store) -> list[str]:
    """Return the ids of all experiments, oldest first; other folders have no plan."""
    ids = [folder.rpartition("/")[2] for folder in store.files.folders("experiments")]
    store.files.fetch(map(plan_name, ids))
    return [name for name in ids if store.files.path(plan_name(name)).exists()]


def _read(store: Store, experiment: str) -> dict[str, Any]:
    return {"id": experiment, **json.loads(store.files.read(plan_name(experiment)))}
