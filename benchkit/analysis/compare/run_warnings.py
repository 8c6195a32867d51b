"""Warnings about the runs of a comparison: left out, not interleaved, of different machines."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from benchkit.analysis.run.baseline import SAME_MEMORY
from benchkit.formatting import counted

__all__ = ["comparison_warnings"]

#: Columns that make two sets of runs incomparable when they differ -> name in a warning.
_MACHINE_COLUMNS = {
    "host": "machine",
    "n_threads": "number of threads",
    "memory_limit": "memory limit",
}


def comparison_warnings(
    baseline: pd.DataFrame,
    sets: Mapping[str, pd.DataFrame],
    null: pd.DataFrame | None,
    *,
    name: str,
    null_name: str,
    blocked: bool,
) -> list[str]:
    """Return warnings about the runs of a comparison."""
    nulls = {} if null is None else {null_name: null}
    warnings = []
    for arm, runs in {name: baseline, **sets, **nulls}.items():
        if runs.empty:
            continue
        failed = runs.loc[runs["outcome"] != "ok", "outcome"].value_counts()
        if len(failed):
            counts = ", ".join(f"{n} {outcome.replace('_', ' ')}" for outcome, n in failed.items())
            warnings.append(
                f"{failed.sum()} of {len(runs)} runs of {arm} left out: {counts}"
                + ("; the duration of a timeout counts as its deadline" * ("timeout" in failed))
            )
    if not blocked:
        warnings.append(
            "these runs were not interleaved: on a machine whose speed changes, up to a third of "
            "the unchanged rows are called changed; `benchkit ab` interleaves the arms"
        )
    for contender, runs in sets.items():
        measured = {name: set(baseline["workload"]), contender: set(runs["workload"])}
        for arm, other in ((name, contender), (contender, name)):
            only = sorted(measured[arm] - measured[other])
            if only:
                workloads = ", ".join(only[:3]) + (", ..." if len(only) > 3 else "")
                count = counted(len(only), "workload")
                warnings.append(f"{count} measured in {arm} only, not compared: {workloads}")
        for column, label in _MACHINE_COLUMNS.items():
            if column not in baseline or column not in runs:
                continue
            sides = [set(table[column].dropna()) for table in (baseline, runs)]
            values = sides[0] | sides[1]
            if column == "memory_limit" and values:
                if max(values) <= (1 + SAME_MEMORY) * min(values):
                    continue
            if all(sides) and sides[0] != sides[1]:
                texts = [", ".join(sorted(map(str, side))[:3]) for side in sides]
                warnings.append(f"{label}: {texts[0]} for {name}, {texts[1]} for {contender}")
    return warnings
