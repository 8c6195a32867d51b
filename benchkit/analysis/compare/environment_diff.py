"""Find the differences between the environments of two sets of runs, and between their counts.

Takes runs; returns a table of packages, configuration, cluster and counts, without statistics.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from benchkit.formatting import MISSING, format_quantity
from benchkit.store.schema import METRICS
from benchkit.values import flatten

__all__ = ["differences"]

#: Counts and bytes that are compared without statistics.
_COUNTS = (
    "n_tasks",
    "n_transfers",
    "transfer_bytes",
    "p2p_bytes",
    "spilled_peak",
    "n_steals",
    "n_tasks_recomputed",
    "n_workers_lost",
)
#: Kind of a difference -> attribute of a run with the values, as JSON.
_ATTRIBUTES = {"package": "packages", "config": "config", "variable": "variables"}
#: Names to ignore: the folder of the configuration differs without effect.
_IGNORED = ("config",)
#: Largest relative difference of counts that is not reported, because noise changes counts too.
SAME_COUNT = 0.01


def differences(baseline: Sequence[Any], contender: Sequence[Any]) -> pd.DataFrame:
    """Return the differences between two sets of runs.

    Parameters
    ----------
    baseline, contender : sequence of DataTree or Run
        Runs of both sets. Counts are medians, everything else is from the last run of each set.

    Returns
    -------
    DataFrame
        Columns ``kind`` (package, config, variable, cluster, count, outcome), ``name``,
        ``baseline`` and ``contender`` as text.
    """
    sides = [[getattr(run, "tree", run) for run in runs] for runs in (baseline, contender)]
    rows: list[tuple[str, str, str, str]] = []
    if all(sides):
        left, right = (side[-1].attrs for side in sides)
        for kind, name in _ATTRIBUTES.items():
            rows += _unequal(kind, _flat(_json(left, name)), _flat(_json(right, name)))
        rows += _unequal("cluster", _cluster(left), _cluster(right))
        rows += _counts(sides)
    return pd.DataFrame(rows, columns=["kind", "name", "baseline", "contender"])


def _json(attrs: Mapping[str, Any], name: str) -> Any:
    return json.loads(attrs.get(name) or "{}")


def _flat(settings: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: MISSING if value is None else str(value)
        for name, value in flatten(settings)
        if value != {}
    }


def _cluster(attrs: Mapping[str, Any]) -> dict[str, str]:
    description = _json(attrs, "cluster_description")
    options = {
        name: description.get(name)
        for name in ("class", "n_workers", "n_threads", "memory_limit", "workers")
    }
    options |= description.get("kwargs") or {}
    options["host"] = attrs.get("host")
    return {name: str(value) for name, value in options.items() if value is not None}


def _unequal(
    kind: str, left: Mapping[str, str], right: Mapping[str, str]
) -> list[tuple[str, str, str, str]]:
    return [
        (kind, name, left.get(name, MISSING), right.get(name, MISSING))
        for name in sorted({*left, *right})
        if left.get(name) != right.get(name) and name not in _IGNORED
    ]


def _counts(sides: Sequence[Sequence[Any]]) -> list[tuple[str, str, str, str]]:
    rows = []
    for name in _COUNTS:
        counts = [[float(tree[name]) for tree in side if name in tree.data_vars] for side in sides]
        if not all(counts):
            continue
        left, right = (float(np.median(values)) for values in counts)
        if abs(left - right) > SAME_COUNT * max(abs(left), abs(right)):
            metric = METRICS[name]
            before, now = (format_quantity(value, metric.units) for value in (left, right))
            rows.append(("count", metric.long_name, before, now))
    outcomes = [
        pd.Series([tree.attrs.get("outcome") for tree in side]).value_counts().to_dict()
        for side in sides
    ]
    if set(outcomes[0]) != set(outcomes[1]):
        texts = [", ".join(f"{n} {name}" for name, n in sorted(side.items())) for side in outcomes]
        rows.append(("outcome", "runs", texts[0], texts[1]))
    return rows
