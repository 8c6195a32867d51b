"""The ends of a bisection that an earlier one measured: each step of ``git bisect`` has the same.

A block is two builds back to back, so what it says about its pair holds in the next step as well,
where it was measured in the same way: on this machine, not long ago.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchkit.experiment.bisect.candidates import Candidate
from benchkit.experiment.bisect.result import KEPT
from benchkit.experiment.environment.environment import Environment
from benchkit.measure.provenance import host_name
from benchkit.measure.workloads import Variant
from benchkit.store.store import Store

__all__ = ["earlier_ends", "measured_how"]

#: A machine that was updated or moved since is another one, and who bisects does so in a day.
YOUNG_S = 24 * 3600.0


def measured_how(
    variant: Variant,
    candidates: Sequence[Candidate],
    base: Environment,
    options: Mapping[str, Any],
) -> str:
    """Return a hash of all that a run of an end depends on.

    Parameters
    ----------
    variant : Variant
        What runs, with its code.
    candidates : sequence of Candidate
        Builds in question; the first and the last count.
    base : Environment
        Gives all that is not in question.
    options : mapping
        How it is measured: ``scale``, ``capture``, ``deadline_s``.
    """
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
    """Return what earlier bisections with the same ends measured of them, and what they held.

    Parameters
    ----------
    store : Store
        Where they are.
    how : str
        As `measured_how` gives it.

    Returns
    -------
    ends : list of list of str
        Ids of the runs of the good and the bad end, a pair per block, the oldest first.
    held : dict of str to str or None
        See `benchkit.experiment.bisect.environments.CandidateEnvironments`; None if there was none.
    """
    ends: list[list[str]] = []
    held = None
    for experiment, kept in _bisections(Path(store.path)):
        if kept.get("how") != how:
            continue
        held = dict(kept["held"])
        names = [kept["candidates"][place]["name"] for place in (0, -1)]
        runs = store.runs(experiment=experiment, columns=["id", "arm", "block", "outcome"])
        runs = runs[runs["arm"].isin(names) & (runs["outcome"] != "infrastructure")]
        for _, mine in runs.groupby("block"):
            by_arm = dict(zip(mine["arm"], mine["id"], strict=True))
            if len(by_arm) == 2:
                ends.append([by_arm[name] for name in names])
    return ends, held


def _bisections(store: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for path in sorted((store / "experiments").glob("*/plan.json")):
        plan = json.loads(path.read_text(encoding="utf-8"))
        if KEPT in plan.get("words", {}) and plan["started"] > time.time() - YOUNG_S:
            yield path.parent.name, plan["words"][KEPT]
