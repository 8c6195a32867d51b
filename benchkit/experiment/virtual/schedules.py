"""Compare the schedules of simulated runs: without noise, equal schedules mean no change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchkit.store.store import Store


def describe_schedules(store: Store, records: Iterable[Mapping[str, Any]]) -> str:
    """Return in how many cases the arms of an experiment have the same schedule."""
    digests: dict[tuple[str, int], set[str]] = {}
    for record in records:
        if record["outcome"] == "ok":
            digest = store.open(record["id"]).simulation["digest"]
            digests.setdefault((record["workload"], record["block"]), set()).add(digest)
    changed = sorted({name for (name, _), found in digests.items() if len(found) > 1})
    n_equal = sum(len(found) == 1 for found in digests.values())
    line = f"schedules: {n_equal} of {len(digests)} are the same in all arms"
    return f"{line}; changed: {', '.join(changed)}" if changed else line
