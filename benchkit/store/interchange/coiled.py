"""Import and export the tables ``test_run`` and ``tpch_run`` of coiled/benchmarks' SQLite file.

A row becomes a run with the same numbers and outcome. The run also holds the complete row, so that
an export returns the same row. A row always gives the same run id: importing the file again, or a
later copy of it, adds only new rows.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import xarray as xr

from benchkit.errors import InvalidImportError
from benchkit.formatting import counted
from benchkit.store.interchange.coiled_rows import TABLES, parse_time, record_to_row, row_to_record
from benchkit.store.runfile import read_attribute, run_name
from benchkit.store.schema import METRICS
from benchkit.store.store import Store
from benchkit.values import decode_json

__all__ = ["ImportReport", "import_sqlite", "run_tree", "write_sqlite"]

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
    attrs = {
        "id": record["id"],
        "record": json.dumps(record, allow_nan=False),
        **others,
        **{name: value for name, value in record.items() if name not in METRICS and name != "id"},
    }
    metrics = {name: ((), record[name], METRICS[name].attrs) for name in METRICS if name in record}
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
