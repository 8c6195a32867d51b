"""Write repeated runs as one result each: pytest-benchmark and asv.

These formats hold one build per file or benchmark, so that repeats are the successful runs of one
workload, environment, host and cluster with the same build. pytest-benchmark gets the latest build,
asv each commit.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchkit.errors import UsageError
from benchkit.store.interchange.pytest_benchmark import ORIGINAL
from benchkit.store.runfile import read_attribute
from benchkit.store.schema import METRICS
from benchkit.store.storage import run_name
from benchkit.store.store import Store

_SERIES = ["workload", "environment", "host", "cluster"]
_BUILD = ["git_commit", "packages_hash"]


def write_pytest_benchmark(store: Store, runs: pd.DataFrame, path: Path) -> None:
    """Write the durations of the latest build of each workload as pytest-benchmark does.

    A single run that was imported is written as the entry that it came from.
    """
    groups = _latest_builds(runs)
    latest = max((group.iloc[-1] for group in groups), key=lambda row: row["started"])
    content = {
        "version": "5.1.0",
        "datetime": latest["started"].isoformat(),
        "machine_info": {
            "node": latest["host"],
            "python_version": latest["python"],
            "python_implementation": "CPython",
            "system": platform.system(),
            "cpu": {},
        },
        "commit_info": {"id": _text(latest["git_commit"]) or "unknown", "dirty": False},
        "benchmarks": [_original(store, group) or _pytest_result(group) for group in groups],
    }
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _original(store: Store, group: pd.DataFrame) -> dict[str, Any] | None:
    if len(group) > 1 or "imported" not in json.loads(group["tags"].iloc[-1]):
        return None
    text = read_attribute(store.files.path(run_name(group["id"].iloc[-1])), ORIGINAL)
    return json.loads(text) if text else None


def _pytest_result(group: pd.DataFrame) -> dict[str, Any]:
    row = group.iloc[-1]
    values = group["duration"].tolist()
    q1, median, q3 = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    mean, deviation = float(np.mean(values)), float(np.std(values, ddof=min(1, len(values) - 1)))
    fences = q1 - 1.5 * (q3 - q1), q3 + 1.5 * (q3 - q1)
    inside = [value for value in values if fences[0] <= value <= fences[1]]
    far = len(values) - len(inside)
    spread = sum(abs(value - mean) > deviation for value in values)
    return {
        "group": row["category"],
        "name": row["workload"],
        "fullname": f"{row['environment']}::{row['workload']}",
        "params": json.loads(row["params"]) or None,
        "param": None,
        "extra_info": {name: _text(row[name]) for name in ("id", "host", "cluster", "dask")},
        "options": {"timer": "benchkit", "min_rounds": len(values), "warmup": False},
        "stats": {
            "min": min(values),
            "max": max(values),
            "mean": mean,
            "stddev": deviation,
            "rounds": len(values),
            "median": median,
            "iqr": q3 - q1,
            "q1": q1,
            "q3": q3,
            "iqr_outliers": far,
            "stddev_outliers": spread,
            "outliers": f"{spread};{far}",
            "ld15iqr": min(inside),
            "hd15iqr": max(inside),
            "ops": 1 / mean if mean else 0.0,
            "total": sum(values),
            "iterations": 1,
            "data": values,
        },
    }


def write_asv(runs: pd.DataFrame, path: Path) -> None:
    """Write the results of each commit into a folder that asv reads as its ``results_dir``.

    Results that were imported from asv get the names, parameters and versions that they had.
    """
    from_asv = runs[runs["tags"].str.contains(_FROM_ASV, regex=False)]
    measured = _successful(runs.drop(from_asv.index))
    runs = pd.concat([measured, from_asv]).dropna(subset=["git_commit"])
    if runs.empty:
        raise UsageError("asv needs the commit of each run, and none of these runs has one")
    benchmarks: dict[str, Any] = {"version": 2}
    for host, on_host in runs.groupby("host"):
        machine = {"machine": host, "os": "", "arch": "", "cpu": "", "num_cpu": "", "ram": ""}
        _write_json(path / host / "machine.json", {**machine, "version": 1})
        for (commit, environment), group in on_host.groupby(["git_commit", "environment"]):
            row = group.sort_values("started").iloc[0]
            results: dict[str, Any] = {}
            is_from_asv = group["tags"].str.contains(_FROM_ASV, regex=False)
            for about, result in _imported_results(group[is_from_asv]):
                benchmarks[about["name"]], results[about["name"]] = about, result
            for workload, repeats in group[~is_from_asv].groupby("workload"):
                for kind, (metric, unit) in _ASV_KINDS.items():
                    values = repeats[metric].dropna().tolist()
                    if values:
                        category, _, name = workload.partition(".")
                        full_name = f"{category}.{kind}_{name}"
                        version = str(repeats["version"].iloc[-1])
                        benchmarks[full_name] = _asv_benchmark(full_name, unit, kind, version)
                        moment = _milliseconds(repeats["started"].min())
                        took = float(sum(repeats["duration"]))
                        results[full_name] = [
                            *([float(np.median(values))], [], version, moment, took),
                            [values],
                        ]
            requirements = {name: _text(row[name]) for name in ("dask", "distributed")}
            content = {
                "commit_hash": commit,
                "env_name": environment,
                "env_vars": {},
                "date": _milliseconds(row["started"]),
                "params": {**machine, "python": _text(row["python"]), **requirements},
                "python": _text(row["python"]),
                "requirements": requirements,
                "result_columns": _ASV_COLUMNS,
                "results": results,
                "durations": {},
                "version": 2,
            }
            _write_json(path / host / f"{commit[:8]}-{environment}.json", content)
    _write_json(path / "benchmarks.json", benchmarks)


#: In the tags of a run that was imported from asv.
_FROM_ASV = '"imported": "asv"'
#: Prefix of an asv benchmark -> metric and unit.
_ASV_KINDS = {"time": ("duration", "seconds"), "peakmem": ("memory_peak", "bytes")}
_ASV_COLUMNS = ["result", "params", "version", "started_at", "duration", "samples"]


def _imported_results(runs: pd.DataFrame) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """Return the description and the row of each benchmark in results that came from asv."""
    for name, cases in runs.groupby(runs["workload"].str.split("[").str[0]):
        function = name.rpartition(".")[2]
        kind = function.partition("_")[0]
        metric, unit = _ASV_KINDS.get(kind.removesuffix("raw"), (function, ""))
        if not unit:
            unit = METRICS[metric].units if metric in METRICS else "1"
        params = [json.loads(text) for text in cases["params"]]
        axes = [list(dict.fromkeys(each[axis] for each in params)) for axis in params[0]]
        values = {
            tuple(each.values()): None if outcome == "failed" else _asv_value(kind, value)
            for each, outcome, value in zip(
                params, cases["outcome"], cases.get(metric, cases["duration"]), strict=True
            )
        }
        about = _asv_benchmark(name, unit, kind, _text(cases["source_hash"].iloc[-1]))
        about |= {"param_names": list(params[0]), "params": axes}
        taken = json.loads(cases["tags"].iloc[0]).get("measured")
        moment = _milliseconds(pd.Timestamp(taken)) if taken else None
        yield about, [[values.get(case) for case in product(*axes)], axes, about["version"], moment,
                      None, None]  # fmt: skip


def _asv_value(kind: str, value: float) -> float:
    """Return a value as asv writes it: bytes are whole numbers."""
    is_whole = kind in ("peakmem", "mem") and float(value).is_integer()
    return int(value) if is_whole else float(value)


def _asv_benchmark(name: str, unit: str, kind: str, version: str) -> dict[str, Any]:
    return {
        "name": name,
        "pretty_name": name,
        "type": {"time": "time", "timeraw": "time", "peakmem": "peakmemory"}.get(kind, "track"),
        "unit": unit,
        "version": version,
        "code": "",
        "param_names": [],
        "params": [],
        "timeout": 60.0,
    }


def _latest_builds(runs: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the runs of the latest build of each series, in order of start."""
    groups = []
    for _, group in _successful(runs).groupby(_SERIES, dropna=False):
        build = group[_BUILD].fillna("")
        groups.append(group[(build == build.iloc[-1]).all(axis=1)])
    if not groups:
        raise UsageError("no successful runs with a duration to write")
    return groups


def _successful(runs: pd.DataFrame) -> pd.DataFrame:
    return runs[(runs["outcome"] == "ok") & runs["duration"].notna()].sort_values("started")


def _milliseconds(moment: pd.Timestamp) -> int:
    return int(moment.timestamp() * 1000)


def _text(value: Any) -> str:
    return "" if pd.isna(value) else str(value)


def _write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")
