"""Find the differences between the environments of two sets of runs, and between their counts.

Takes runs; returns a table of packages, configuration, cluster and counts, without statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from benchkit.analysis.compare.group_totals import SAME_COUNT
from benchkit.formatting import MISSING, format_quantity
from benchkit.measure.engines import DASK
from benchkit.store.schema import METRICS
from benchkit.values import decode_json, flatten

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
#: Packages that change performance most often, first in a table.
_FIRST_PACKAGES = (
    *("dask", "distributed", "dask-expr", "python", "numpy", "pandas", "pyarrow", "xarray"),
    *("scipy", "numba", "zarr", "numcodecs", "lz4", "msgpack", "cloudpickle", "tornado", "toolz"),
    *("fsspec", "s3fs", "click"),
)
#: Names to ignore: the folder of the configuration differs without effect.
_IGNORED = ("config",)


def differences(baseline: Sequence[Any], contender: Sequence[Any]) -> pd.DataFrame:
    """Return the differences between two sets of runs."""
    # returned: Columns `kind` (package, config, variable, cluster, machine, count or outcome),
    # `name`, `baseline` and `contender` as text. Packages are in the order of `package_rank`.
    sides = [[getattr(run, "tree", run) for run in runs] for runs in (baseline, contender)]
    rows: list[tuple[str, str, str, str]] = []
    if all(sides):
        left, right = (side[-1].attrs for side in sides)
        for kind, name in _ATTRIBUTES.items():
            values = [_flat(decode_json(attrs.get(name))) for attrs in (left, right)]
            if kind == "package":
                pythons = [str(attrs.get("python") or MISSING) for attrs in (left, right)]
                values = [{**v, "python": p} for v, p in zip(values, pythons, strict=True)]
            unequal = _unequal(kind, *values)
            if kind == "package":
                unequal.sort(key=lambda row: package_rank(row[1], MISSING in row[2:]))
            rows += unequal
        rows += _unequal("cluster", _cluster(left), _cluster(right))
        rows += _unequal("machine", _machine(left), _machine(right))
        rows += _counts(sides)
    return pd.DataFrame(rows, columns=["kind", "name", "baseline", "contender"])


def package_rank(name: str, one_sided: bool) -> tuple[int, int, str]:
    """Return the sort key of a package in a table of differences."""
    if name in _FIRST_PACKAGES:
        return 0, _FIRST_PACKAGES.index(name), name
    return 2 if one_sided else 1, 0, name


def _flat(settings: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: MISSING if value is None else str(value)
        for name, value in flatten(settings)
        if value != {}
    }


def _cluster(attrs: Mapping[str, Any]) -> dict[str, str]:
    description = decode_json(attrs.get("cluster_description"))
    options = {
        name: description.get(name)
        for name in ("class", "n_workers", "n_threads", "memory_limit", "workers")
    }
    options |= description.get("kwargs") or {}
    options |= {"host": attrs.get("host"), "engine": attrs.get("engine") or DASK}
    return {name: str(value) for name, value in options.items() if value is not None}


def _machine(attrs: Mapping[str, Any]) -> dict[str, str]:
    """Return kernel, libc, processor and image of the machine of the client."""
    info = decode_json(attrs.get("host_json"))
    # platform.platform(): Linux-6.8.0-1021-azure-x86_64-with-glibc2.39
    kernel, _, libc = str(info.get("system") or "").partition("-with-")
    parts = {"kernel": kernel, "libc": libc, "processor": info.get("processor")}
    parts["image"] = info.get("image")  # of a hosted runner
    return {name: str(value) for name, value in parts.items() if value}


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


#: Largest number of packages of only one side with a row each.
MAX_ONE_SIDED = 5


def arm_differences(
    runs: pd.DataFrame,
    baseline: str,
    contenders: Sequence[str],
    open_run: Callable[[str, Sequence[str]], Any],
) -> dict[str, pd.DataFrame]:
    """Return the differences between the latest runs of the baseline and of each contender."""
    latest = runs[runs["outcome"] == "ok"].groupby("arm")["id"].last()
    tables = {}
    for contender in contenders:
        arms = [arm for arm in (baseline, contender) if arm in latest]
        sides = [[open_run(str(latest[arm]), ())] for arm in arms] if len(arms) == 2 else [[], []]
        table = differences(*sides)
        # Drop counts: the latest runs may belong to different workloads, whose counts differ.
        tables[contender] = _join_one_sided(table[table["kind"] != "count"])
    return tables


def _join_one_sided(table: pd.DataFrame) -> pd.DataFrame:
    """Return differences in which the packages that only one side has are one row per side."""
    packages = table["kind"] == "package"
    rows = []
    for side, other in (("baseline", "contender"), ("contender", "baseline")):
        only = packages & (table[other] == MISSING)
        if only.sum() > MAX_ONE_SIDED:
            texts = (table["name"] + " " + table[side])[only]
            name = f"{only.sum()} packages of one side"
            row = {"kind": "package", "name": name, side: ", ".join(texts), other: MISSING}
            rows.append(row)
            table, packages = table[~only], packages[~only]
    joined = pd.DataFrame(rows, columns=table.columns)
    parts = [table[packages], joined, table[~packages]]
    return pd.concat([part for part in parts if len(part)] or [table], ignore_index=True)
