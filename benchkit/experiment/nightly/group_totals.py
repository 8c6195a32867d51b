"""Read the totals of the task groups of many runs, and keep them in the cache."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from benchkit.analysis.compare.group_totals import (
    GroupTotals,
    group_totals,
    run_amounts,
    tree_values,
)
from benchkit.store.store import Store
from benchkit.whole_file import write_whole
from benchkit.working_folder import store_cache_file


def read_group_totals(
    store: Store, ids: Iterable[str]
) -> tuple[dict[str, dict[str, GroupTotals]], dict[str, dict[str, float]]]:
    """Return the totals of the task groups of runs, and the amounts of the whole runs."""
    file = store_cache_file("group-totals", store.path, ".json")
    known: dict[str, list[dict[str, Any]]] = {}
    with suppress(OSError, ValueError):
        known = json.loads(file.read_text(encoding="utf-8"))
    kept = {run_id: known[run_id] for run_id in ids if run_id in known}
    missing = [run_id for run_id in ids if run_id not in kept]
    for run_id in missing:
        with suppress(Exception):  # one run with wrong contents must not stop the others
            tree = store.open(run_id, ("task_groups", "fine", "submissions")).tree
            values = tree_values(tree)
            found = group_totals(values)
            groups = {
                group: [None if math.isnan(value) else value for value in total]
                for group, total in found.items()
            }
            kept[run_id] = [groups, run_amounts(values, found)]
    if missing:
        with suppress(OSError):  # without a cache the next night reads all runs again
            write_whole(file, json.dumps(kept))
    totals = {
        run_id: {
            group: GroupTotals(
                float(seconds or 0),
                int(n_tasks or 0),
                *(math.nan if value is None else value for value in others),
            )
            for group, (seconds, n_tasks, *others) in groups.items()
        }
        for run_id, (groups, _) in kept.items()
    }
    return totals, {run_id: amounts for run_id, (_, amounts) in kept.items()}
