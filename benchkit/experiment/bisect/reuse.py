"""Reuse the runs of the ends from earlier bisections: all ``git bisect`` steps share the ends.

A block is two builds measured back to back, so its result is valid in later steps too, if it was
measured in the same way: on this machine, within `MAX_AGE_S`.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchkit.experiment.bisect.candidates import Candidate
from benchkit.experiment.bisect.replay import PLAN_KEY
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.run.plan import read_plans
from benchkit.measure.provenance import host_name
from benchkit.measure.workloads import Variant
from benchkit.store.store import Store

#: Maximum age in seconds: the machine may change later, and a bisection takes less than a day.
MAX_AGE_S = 24 * 3600.0
#: Options of an experiment that its measurements depend on.
MEASUREMENT_OPTIONS = ("scale", "capture", "deadline_s")


def measurement_hash(
    variant: Variant,
    candidates: Sequence[Candidate],
    base: Environment,
    options: Mapping[str, Any],
) -> str:
    """Return a hash of everything that a run of an end depends on."""
    content = {
        "workload": [variant.name, variant.workload.version, variant.workload.source_hash],
        "ends": [asdict(candidate) for candidate in (candidates[0], candidates[-1])],
        "base": base.to_dict(),
        "options": dict(options),
        "host": host_name(),
    }
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def earlier_ends(store: Store, how: str) -> tuple[list[list[str]], dict[str, str] | None]:
    """Return the end runs and pinned packages of earlier bisections with the same ends."""
    ends: list[list[str]] = []
    pinned = None
    for experiment, stored in _bisections(store):
        if stored.get("how") != how:
            continue
        pinned = dict(stored["held"])
        names = [stored["candidates"][position]["name"] for position in (0, -1)]
        runs = store.runs(experiment=experiment, columns=["id", "arm", "block", "outcome"])
        runs = runs[runs["arm"].isin(names) & (runs["outcome"] != "infrastructure")]
        for _, block_runs in runs.groupby("block"):
            by_arm = dict(zip(block_runs["arm"], block_runs["id"], strict=True))
            if len(by_arm) == 2:
                ends.append([by_arm[name] for name in names])
    return ends, pinned


def _bisections(store: Store) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for plan in read_plans(store):
        if PLAN_KEY in plan.get("words", {}) and plan["started"] > time.time() - MAX_AGE_S:
            yield plan["id"], plan["words"][PLAN_KEY]
