"""Import and export the tables ``test_run`` and ``tpch_run`` of coiled/benchmarks' SQLite file.

A row becomes a run with the same numbers and outcome. The run also holds the complete row, so that
an export returns the same row. A row always gives the same run id: importing the file again, or a
later copy of it, adds only new rows.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from benchkit.errors import InvalidImportError
from benchkit.formatting import counted
from benchkit.measure.run_ids import derived_id
from benchkit.store.runfile import read_attribute
from benchkit.store.schema import METRICS
from benchkit.store.storage import run_name
from benchkit.store.store import Store
from benchkit.store.tables import read_table
from benchkit.values import decode_json

#: Columns of each table, with their SQL types; newer files have more columns than older files.
TABLES: dict[str, dict[str, str]] = {}
for _row in read_table("coiled_columns"):
    TABLES.setdefault(_row["table"], {})[_row["column"]] = _row["type"]
_VERSIONS = [name for name in TABLES["tpch_run"] if name.endswith("_version")]
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
#: Attribute of the run file that holds the row.
_ROW = "reference_row"


@dataclass
class ImportReport:
    """Counts and problems of an import."""

    rows: int = 0  # Number of rows in the file
    added: int = 0  # Number of rows that became new runs
    # How incomplete rows were imported, a line per kind of problem.
    odd: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON types."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{counted(self.rows, 'row')}, {self.added} of them new in the store"]
        return "\n".join([*lines, *(f"  {line}" for line in self.odd)])


def import_sqlite(
    store: Store, path: str | Path, *, progress: Callable[[int, int], None] | None = None
) -> ImportReport:
    """Add the rows of a `benchmark.db` to a store."""
    report = ImportReport()
    tables = _read_rows(Path(path))
    total = sum(len(rows) for rows in tables.values())
    problems: Counter[str] = Counter()

    def runs() -> Iterator[xr.DataTree]:
        for table, rows in tables.items():
            identities: Counter[str] = Counter()
            previous: datetime | None = None
            for row in rows:
                report.rows += 1
                started = parse_time(row.get("start")) or parse_time(row.get("end"))
                if started is None:
                    problems[f"{table}: no start: used the time of the previous row"] += 1
                    started = previous or datetime(2020, 1, 1, tzinfo=timezone.utc)
                previous = started
                record = row_to_record(table, row, started, identities, problems)
                if progress is not None and report.rows % 100 == 0:
                    progress(report.rows, total)
                if record["id"] not in store:
                    original = json.dumps({"table": table, "row": row})
                    yield run_tree(record, **{_ROW: original})

    report.added = store.add_many(runs())
    report.odd = [f"{n} x {text}" for text, n in sorted(problems.items())]
    if progress is not None:
        progress(total, total)
    return report


def _read_rows(path: Path) -> dict[str, list[dict[str, Any]]]:
    if not path.is_file():
        problem = "a folder" if path.is_dir() else "no such file"
        raise InvalidImportError(f"{path}: {problem}: give a benchmark.db")
    try:
        # Open read-only: the folder of the file may not be writable.
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            database.row_factory = sqlite3.Row
            database.text_factory = lambda data: data.decode("utf-8", "backslashreplace")
            query = "SELECT name FROM sqlite_master WHERE type = 'table'"
            names = [row["name"] for row in database.execute(query)]
            rows = {
                table: [
                    {
                        name: value.hex() if isinstance(value, bytes) else value
                        for name, value in dict(row).items()
                    }
                    for row in database.execute(f"SELECT * FROM {table} ORDER BY id")
                ]
                for table in TABLES
                if table in names
            }
    except sqlite3.DatabaseError as error:
        raise InvalidImportError(f"{path}: cannot be read as a benchmark.db: {error}") from error
    if not rows:
        raise InvalidImportError(
            f"{path}: has neither table test_run nor tpch_run, but {', '.join(names) or 'none'}"
        )
    return rows


def run_tree(record: Mapping[str, Any], **others: str) -> xr.DataTree:
    """Return a run without data."""
    METRICS.define(record.get("own_metrics"))
    attrs = {
        "id": record["id"],
        "record": json.dumps(record, allow_nan=False),
        **others,
        **{name: value for name, value in record.items() if name not in METRICS and name != "id"},
    }
    names = [*METRICS, *json.loads(record.get("own_metrics") or "{}")]
    # Without `fastpath` each value is tested for an array of Dask, whose import takes 0.3 s.
    metrics = {
        name: xr.Variable((), np.asarray(record[name]), METRICS[name].attrs, fastpath=True)
        for name in names
        if name in record
    }
    return xr.DataTree(xr.Dataset(metrics, attrs=attrs))


def write_sqlite(store: Store, path: Path, runs: pd.DataFrame) -> None:
    """Write runs as tables of coiled/benchmarks."""
    rows: dict[str, list[dict[str, Any]]] = {table: [] for table in TABLES}
    for record in runs.to_dict("records"):
        original = None
        if "imported" in decode_json(record["tags"]):
            original = read_attribute(store.files.path(run_name(record["id"])), _ROW)
        if original:
            content = json.loads(original)
            rows[content["table"]].append(content["row"])
        else:
            fields = {str(name): value for name, value in record.items()}
            rows["test_run"].append(record_to_row(fields))
    with closing(sqlite3.connect(path)) as database, database:
        for table, table_rows in rows.items():
            _write_rows(database, table, table_rows)


def _write_rows(database: sqlite3.Connection, table: str, rows: list[dict[str, Any]]) -> None:
    columns = dict(TABLES[table])
    for row in rows:
        columns |= {name: "" for name in row if name not in columns}  # from a newer file
    used_ids: set[Any] = set()
    last_id = max((row["id"] for row in rows if isinstance(row.get("id"), int)), default=0)
    for row in rows:
        if row.get("id") is None or row["id"] in used_ids:
            last_id += 1
            row["id"] = last_id
        used_ids.add(row["id"])
    rows.sort(key=lambda row: row["id"])
    # As objects: numbers of columns with missing values stay whole.
    frame = pd.DataFrame(rows, columns=list(columns), dtype=object)
    frame.to_sql(table, database, index=False, dtype=columns)


# -- rows and records -----------------------------------------------------------------------------


def row_to_record(
    table: str,
    row: Mapping[str, Any],
    started: datetime,
    identities: Counter[str],
    problems: Counter[str],
) -> dict[str, Any]:
    """Return the record of the run that a row becomes."""
    columns = ("session_id", "path", "name", "start")
    identity = json.dumps([table, *(row.get(name) for name in columns)])
    identities[identity] += 1
    params = _params(table, row)
    workload = workload_of_test(
        str(row.get("path") or "unknown"),
        str(row.get("name") or "unknown"),
        [f"{name}={params[name]}" for name in _PARAMETERS if name in params],
    )
    versions = {name.removesuffix("_version"): str(row[name])
                for name in _VERSIONS if row.get(name) not in _MISSING}  # fmt: skip
    outcome, phase = _outcome(row)
    numbers, not_numeric = _numbers(row)
    for name in not_numeric:
        problems[f"{table}: {name} is not a number: skipped"] += 1
    record: dict[str, Any] = {
        "id": derived_id(max(0.0, started.timestamp()), f"{identity}{identities[identity]}"),
        "workload": workload,
        "category": workload.partition(".")[0],
        "params": json.dumps(params),
        "version": 1,
        "environment": _environment(table, row),
        "tags": json.dumps({"imported": table, "session": str(row.get("session_id"))}),
        "started": started.isoformat(timespec="microseconds"),
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


def workload_of_test(path: str, name: str, cases: Sequence[str] = ()) -> str:
    """Return the workload name of a test.

    Examples
    --------
    >>> workload_of_test("benchmarks/test_array.py", "TestSums::test_sum[thin]")
    'array.TestSums.sum[thin]'
    """
    parts = Path(path).with_suffix("").parts
    module = ".".join(part.removeprefix("test_") for part in parts[-2:] if part != "benchmarks")
    name, bracket, case = name.partition("[")
    name = ".".join(part.removeprefix("test_") for part in name.split("::"))
    all_cases = ([case.rstrip("]")] if bracket else []) + [*cases]
    return f"{module}.{name}" + (f"[{','.join(all_cases)}]" if all_cases else "")


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
    default = "tpch" if table == "tpch_run" else "unknown"
    return next((str(row[name]) for name in names if row.get(name) not in _MISSING), default)


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
    """Return metrics by name (columns that are not metrics under ""), and non-numeric columns."""
    numbers: dict[str, Any] = {}
    not_numeric = []
    for column in (*_METRICS, "disk_spill_time"):
        value = row.get(column)
        if value in _MISSING:
            continue
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            not_numeric.append(column)
        elif column in _METRICS:
            metric, factor = _METRICS[column]
            numbers[metric] = value * factor
        else:
            numbers[""] = {column: value}
    return numbers, not_numeric


def parse_time(value: Any) -> datetime | None:
    """Return a time of the file."""
    text = str(value).strip()
    if not text[:1].isdigit():  # pandas reads "now"
        return None
    try:
        # Not `datetime.fromisoformat`: before Python 3.11 it reads 3 or 6 digits of a second only.
        time: pd.Timestamp = pd.to_datetime(text, format="ISO8601", utc=True)
    except ValueError:
        return None
    moment: datetime = time.to_pydatetime()
    return moment


def record_to_row(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run that benchkit measured as a row of ``test_run``."""
    values = {name: None if value != value else value
              for name, value in record.items() if not isinstance(value, dict)}  # fmt: skip
    base_name, bracket, case = str(record["workload"]).partition("[")
    category, _, name = base_name.partition(".")
    call_outcome = {"ok": "passed", "skipped": "skipped"}.get(str(record["outcome"]), "failed")
    failed_in_setup = record["outcome"] == "infrastructure"
    row = {
        "session_id": str(values.get("experiment") or record["id"]),
        "name": f"test_{name}{bracket}{case}",
        "originalname": f"test_{name}",
        "path": f"benchmarks/test_{category}.py",
        "setup_outcome": "failed" if failed_in_setup else "passed",
        "call_outcome": None if failed_in_setup else call_outcome,
        "teardown_outcome": "passed",
        "coiled_runtime_version": values.get("environment"),
        "dask_version": values.get("dask"),
        "distributed_version": values.get("distributed"),
        "python_version": values.get("python"),
        "platform": values.get("host"),
    }
    started = record["started"]
    if started is not None and started == started:
        start = started.to_pydatetime().astimezone(timezone.utc).replace(tzinfo=None)
        row["start"] = start.isoformat(" ", timespec="microseconds")
        if values.get("duration") is not None:
            end = start + timedelta(seconds=float(record["duration"]))
            row["end"] = end.isoformat(" ", timespec="microseconds")
    for column, (metric, factor) in _METRICS.items():
        value = values.get(metric)
        row[column] = None if value is None else float(value) / factor
    return row
