"""Convert rows of coiled/benchmarks' tables to records of runs, and back. Reads no files."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from benchkit.measure.run_ids import derived_id

__all__ = ["TABLES", "moment_of", "record_of", "row_of"]

#: Columns of such a file with their SQL types; newer files have more columns than older ones.
_COMMON = {
    "id": "INTEGER PRIMARY KEY", "session_id": "VARCHAR NOT NULL", "name": "VARCHAR NOT NULL",
    "originalname": "VARCHAR NOT NULL", "path": "VARCHAR", "setup_outcome": "VARCHAR",
    "call_outcome": "VARCHAR", "teardown_outcome": "VARCHAR",
}  # fmt: skip
_VERSIONS = ("dask_version", "dask_expr_version", "distributed_version", "duckdb_version",
             "pyspark_version", "polars_version", "python_version")  # fmt: skip
_SHARED = {
    "platform": "VARCHAR", "ci_run_url": "VARCHAR", "start": "DATETIME", "end": "DATETIME",
    "duration": "FLOAT", "average_memory": "FLOAT", "peak_memory": "FLOAT",
    "cluster_name": "VARCHAR", "cluster_id": "INTEGER", "cluster_details_url": "VARCHAR",
}  # fmt: skip
TABLES: dict[str, dict[str, str]] = {
    "test_run": {
        **_COMMON, "coiled_runtime_version": "VARCHAR", "coiled_software_name": "VARCHAR",
        **dict.fromkeys(_VERSIONS[:3], "VARCHAR"), "python_version": "VARCHAR", **_SHARED,
        "compute_time": "FLOAT", "disk_spill_time": "FLOAT", "serializing_time": "FLOAT",
        "transfer_time": "FLOAT", "scheduler_cpu_avg": "FLOAT", "scheduler_memory_max": "FLOAT",
        "worker_max_tick": "FLOAT", "scheduler_max_tick": "FLOAT",
        "performance_report_url": "VARCHAR", "cluster_dump_url": "VARCHAR",
        "memray_profiles_url": "VARCHAR",
    },
    "tpch_run": {
        **_COMMON, **dict.fromkeys(_VERSIONS, "VARCHAR"), **_SHARED,
        "scale": "INTEGER NOT NULL", "query": "INTEGER NOT NULL", "local": "BOOLEAN NOT NULL",
        "compression": "VARCHAR", "partition_size": "VARCHAR", "n_workers": "INTEGER",
        "worker_vm_type": "VARCHAR", "cluster_disk_size": "INTEGER",
    },
}  # fmt: skip
#: Column -> metric, and the factor from the column's unit to the metric's unit.
_METRICS = {
    "duration": ("duration", 1.0),
    "average_memory": ("memory_mean", 1.0),
    "peak_memory": ("memory_peak", 1.0),
    "compute_time": ("compute_time", 1.0),
    "serializing_time": ("serialize_time", 1.0),
    "transfer_time": ("transfer_time", 1.0),
    "scheduler_cpu_avg": ("scheduler_cpu_mean", 100.0),
    "scheduler_memory_max": ("scheduler_memory_peak", 1.0),
    "worker_max_tick": ("worker_tick_max", 1.0),
    "scheduler_max_tick": ("scheduler_lag_max", 1.0),
}
#: Columns that are parameters of a workload.
_PARAMETERS = ("scale", "local", "compression", "partition_size")
_OUTCOMES = {"passed": "ok", "failed": "failed", "skipped": "skipped", "error": "failed"}
_MISSING = (None, "")


def record_of(
    table: str, row: Mapping[str, Any], moment: datetime, twins: Counter[str], counts: Counter[str]
) -> dict[str, Any]:
    """Return the record of the run that a row becomes.

    Parameters
    ----------
    table, row : str, mapping
        Table of the row, and the row's values by column.
    moment : datetime
        When the run started, as far as known.
    twins : Counter
        Number of rows seen with the same identity, updated: equal rows of a session are two runs.
    counts : Counter
        Problems by text, updated: values that had to be left out.
    """
    who = json.dumps([table, *(row.get(name) for name in ("session_id", "path", "name", "start"))])
    twins[who] += 1
    params = _params(table, row)
    workload = _workload(row, params)
    versions = {name.removesuffix("_version"): str(row[name])
                for name in _VERSIONS if row.get(name) not in _MISSING}  # fmt: skip
    outcome, phase = _outcome(row)
    numbers, odd = _numbers(row)
    for name in odd:
        counts[f"{table}: {name} is no number: left out"] += 1
    record: dict[str, Any] = {
        "id": derived_id(max(0.0, moment.timestamp()), f"{who}{twins[who]}"),
        "workload": workload,
        "category": workload.partition(".")[0],
        "params": json.dumps(params),
        "version": 1,
        "environment": _environment(table, row),
        "tags": json.dumps({"imported": table, "session": str(row.get("session_id"))}),
        "started": moment.isoformat(timespec="microseconds"),
        "outcome": outcome,
        "capture": "off",
        "scale": 1.0,
        "host": str(row.get("platform") or "unknown"),
        "cluster": "coiled.Cluster" if row.get("cluster_id") else "unknown",
        "packages_hash": hashlib.sha256(json.dumps(versions, sort_keys=True).encode()).hexdigest(),
        "extra_metrics": json.dumps(numbers.pop("", {})),
        **{name: versions[name] for name in ("python", "dask", "distributed") if name in versions},
        **numbers,
    }
    if phase:
        record |= {"phase": phase, "error": f"{phase} {row.get(f'{phase}_outcome') or 'missing'}"}
    if isinstance(row.get("n_workers"), int):
        record["n_workers"] = row["n_workers"]
    return record


def _workload(row: Mapping[str, Any], params: Mapping[str, Any]) -> str:
    """Return a test's name: file, test (both without ``test_``), and the case in brackets."""
    parts = Path(str(row.get("path") or "unknown")).with_suffix("").parts
    place = ".".join(part.removeprefix("test_") for part in parts[-2:] if part != "benchmarks")
    name, bracket, case = str(row.get("name") or "unknown").partition("[")
    name = name.rpartition("::")[2].removeprefix("test_")
    cases = [case.rstrip("]")] if bracket else []
    cases += [f"{name}={params[name]}" for name in _PARAMETERS if name in params]
    return f"{place}.{name}" + (f"[{','.join(cases)}]" if cases else "")


def _params(table: str, row: Mapping[str, Any]) -> dict[str, Any]:
    _, bracket, case = str(row.get("name") or "").partition("[")
    params: dict[str, Any] = {"case": case.rstrip("]")} if bracket else {}
    if table == "tpch_run":
        names = ("query", *_PARAMETERS)
        params |= {name: row[name] for name in names if row.get(name) not in _MISSING}
        if "local" in params:
            params["local"] = bool(params["local"])
    return params


def _environment(table: str, row: Mapping[str, Any]) -> str:
    names = ("coiled_runtime_version", "coiled_software_name")
    known = next((str(row[name]) for name in names if row.get(name) not in _MISSING), None)
    return known or ("tpch" if table == "tpch_run" else "unknown")


def _outcome(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the outcome of a test, and the phase that was not ok; "" if all were."""
    setup, call = row.get("setup_outcome"), row.get("call_outcome")
    if setup == "skipped" or call == "skipped":
        return "skipped", "setup" if setup == "skipped" else "call"
    if setup not in ("passed", None):
        return "infrastructure", "setup"  # the cluster is started in setup
    outcome = _OUTCOMES.get(str(call), "failed")
    return outcome, "" if outcome == "ok" else "call"


def _numbers(row: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return metrics by name (columns that are no metric under ""), and non-numeric columns."""
    numbers: dict[str, Any] = {}
    odd = []
    for column in (*_METRICS, "disk_spill_time"):
        value = row.get(column)
        if value in _MISSING:
            continue
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            odd.append(column)
        elif column in _METRICS:
            metric, factor = _METRICS[column]
            numbers[metric] = value * factor
        else:
            numbers[""] = {column: value}
    return numbers, odd


def moment_of(value: Any) -> datetime | None:
    """Return a time of the file in UTC (the file's zone, which it does not state), or None."""
    try:
        moment = datetime.fromisoformat(str(value).strip())
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    return moment.astimezone(timezone.utc)


def row_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run that benchkit measured as a row of ``test_run``, without an ``id``."""
    known = {name: None if value != value else value
             for name, value in record.items() if not isinstance(value, dict)}  # fmt: skip
    bare, bracket, case = str(record["workload"]).partition("[")
    category, _, name = bare.partition(".")
    passed = {"ok": "passed", "skipped": "skipped"}.get(str(record["outcome"]), "failed")
    early = record["outcome"] == "infrastructure"
    row = {
        "session_id": str(known.get("experiment") or record["id"]),
        "name": f"test_{name}{bracket}{case}",
        "originalname": f"test_{name}",
        "path": f"benchmarks/test_{category}.py",
        "setup_outcome": "failed" if early else "passed",
        "call_outcome": None if early else passed,
        "teardown_outcome": "passed",
        "coiled_runtime_version": known.get("environment"),
        "dask_version": known.get("dask"),
        "distributed_version": known.get("distributed"),
        "python_version": known.get("python"),
        "platform": known.get("host"),
    }
    started = record["started"]
    if started is not None and started == started:
        begun = started.to_pydatetime().astimezone(timezone.utc).replace(tzinfo=None)
        row["start"] = begun.isoformat(" ", timespec="microseconds")
        if known.get("duration") is not None:
            ended = begun + timedelta(seconds=float(record["duration"]))
            row["end"] = ended.isoformat(" ", timespec="microseconds")
    for column, (metric, factor) in _METRICS.items():
        value = known.get(metric)
        row[column] = None if value is None else float(value) / factor
    return row
