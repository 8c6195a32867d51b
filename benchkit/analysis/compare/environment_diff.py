"""Find the differences of two arms besides time: packages, configuration, cluster, counts.

Takes runs; returns a table of the differences, without statistics, because these are facts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from benchkit.formatting import MISSING, flatten, format_quantity
from benchkit.store.schema import METRICS

__all__ = ["differences"]

#: Counts and bytes that are compared without statistics.
_COUNTS = (
    "n_tasks",
    "n_transfers",
    "network_bytes",
    "spilled_peak",
    "n_steals",
    "n_tasks_recomputed",
    "n_workers_lost",
)
#: Kind of a difference -> attribute of the run that holds it, as JSON.
_FACTS = {"package": "packages", "config": "config", "variable": "variables"}
#: Facts to ignore: the folder that the configuration was read from always differs, without effect.
_NO_FACTS = ("config",)
#: Smallest relative difference of counts that is reported; noise changes counts a little.
SAME_COUNT = 0.01


def differences(baseline: Sequence[Any], contender: Sequence[Any]) -> pd.DataFrame:
    """Return the differences between two sets of runs.

    Parameters
    ----------
    baseline, contender : sequence of DataTree or Run
        Runs of both arms; facts are those of the latest run of each, counts are medians.

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
        for kind, name in (
            ("package", "packages"),
            ("config", "config"),
            ("variable", "variables"),
        ):
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
    facts = {
        name: description.get(name)
        for name in ("class", "n_workers", "n_threads", "memory_limit", "workers")
    }
    facts |= description.get("kwargs") or {}
    facts["host"] = attrs.get("host")
    return {name: str(value) for name, value in facts.items() if value is not None}


def _unequal(
    kind: str, left: Mapping[str, str], right: Mapping[str, str]
) -> list[tuple[str, str, str, str]]:
    return [
        (kind, name, left.get(name, MISSING), right.get(name, MISSING))
        for name in sorted({*left, *right})
        if left.get(name) != right.get(name) and name not in _NO_FACTS
    ]


def _counts(sides: Sequence[Sequence[Any]]) -> list[tuple[str, str, str, str]]:
    rows = []
    for name in _COUNTS:
        known = [[float(tree[name]) for tree in side if name in tree.data_vars] for side in sides]
        if not all(known):
            continue
        left, right = (float(np.median(values)) for values in known)
        if abs(left - right) > SAME_COUNT * max(abs(left), abs(right)):
            metric = METRICS[name]
            before, now = (format_quantity(value, metric.units) for value in (left, right))
            rows.append(("count", metric.long_name, before, now))
    outcomes = [
        pd.Series([tree.attrs.get("outcome") for tree in side]).value_counts().to_dict()
        for side in sides
    ]
    words = [", ".join(f"{n} {name}" for name, n in sorted(found.items())) for found in outcomes]
    if set(outcomes[0]) != set(outcomes[1]):
        rows.append(("outcome", "runs", words[0], words[1]))
    return rows
