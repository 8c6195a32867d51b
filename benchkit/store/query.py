"""Answer SQL over all runs of a store, read-only and without access to other files.

The tables of the runs are cached as Parquet files, in batches of runs; the cache is never the
truth. A batch is a folder with a file per table and the ids of its runs. It appears whole and never
changes. Small batches are made anew together when there are many.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from dask.utils import parse_bytes

from benchkit.errors import StoreError, UnreadableRun, UsageError, did_you_mean, needs_extra
from benchkit.store.run import Run, worker_names
from benchkit.store.schema import MEMORY_LIMIT, TIMEOUT_S
from benchkit.store.tables import read_table
from benchkit.whole_file import drafted
from benchkit.working_folder import cache_folder

if TYPE_CHECKING:  # a store imports this module
    from benchkit.store.store import Store

_TEXT = pa.dictionary(pa.int32(), pa.string())
#: Columns that identify the run, in each table.
_RUN = {"run": _TEXT, "workload": _TEXT, "environment": _TEXT}
_COLUMNS: dict[str, dict[str, pa.DataType]] = {}
for _row in read_table("query_columns"):
    _type = _TEXT if _row["type"] == "text" else pa.type_for_alias(_row["type"])
    _COLUMNS.setdefault(_row["table"], dict(_RUN))[_row["column"]] = _type
#: Schemas by name of the table. Times are seconds since the clock of the run started, sizes bytes;
#: workers are numbers, -1 outside of the cluster. `task_groups` has quantiles of the durations of a
#: group's tasks: a median over 100 million tasks takes seconds, over their groups milliseconds.
SCHEMAS = {name: pa.schema(columns) for name, columns in _COLUMNS.items()}
#: Vectors of 2048 rows that are read at once, before the memory of the rows is compared.
_VECTORS = 50

#: Names that a query can read from.
VIEWS = ("runs", *SCHEMAS)
_WORD = re.compile(r"\w+")


def query(
    store: Store,
    sql: str,
    *,
    limit: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    timeout_s: float | None = TIMEOUT_S,
    memory_limit: str | None = MEMORY_LIMIT,
) -> pd.DataFrame:
    """Return the rows of a query over all runs."""
    with needs_extra("query"):
        import duckdb
    too_large = (
        f"query: needs more than {memory_limit} of memory: aggregate, select fewer rows or "
        "columns, or allow more with --memory-limit (memory_limit in Python)"
    )
    with duckdb.connect() as connection:
        try:
            _check_select(duckdb, connection, sql)
            n_bytes = _limit_memory(connection, memory_limit)
            # Other programs, and other questions to a server, keep a processor.
            connection.execute(f"SET threads = {max((os.cpu_count() or 1) - 1, 1)}")
            problems = _add_views(store, connection, sql, progress)
            with _deadline(connection, timeout_s):
                if limit is None:
                    answer = _read(connection.execute(sql), n_bytes)
                else:
                    answer = connection.sql(sql).limit(limit).df()
        except duckdb.InterruptException as error:
            raise UsageError(
                f"query: stopped after {timeout_s:g} s: select less, or allow more time with "
                "--timeout (timeout_s in Python)"
            ) from error
        except duckdb.OutOfMemoryException as error:
            raise UsageError(too_large) from error
        except duckdb.Error as error:
            raise UsageError(f"query: {_without_table(error) or _first_lines(error)}") from error
    if answer is None:
        raise UsageError(too_large)
    answer.attrs["problems"] = problems
    return answer


def rows_of_runs(store: Store, table: str, ids: Iterable[str]) -> pd.DataFrame:
    """Return the rows of some runs in a table, in the order of the cache."""
    chosen = ", ".join(f"'{run_id}'" for run_id in ids)
    condition = f"run IN ({chosen})" if chosen else "false"
    statement = f"SELECT * FROM {table} WHERE {condition}"
    return query(store, statement, timeout_s=None, memory_limit=None)


def _limit_memory(connection: Any, memory_limit: str | None) -> float:
    """Limit the memory of a connection; return the limit in B."""
    if memory_limit is None:
        return math.inf
    connection.execute(f"SET memory_limit = '{_quoted(memory_limit)}'")
    # Not to the disk, by default a folder `.tmp` of the working folder, beyond that memory.
    connection.execute("SET temp_directory = ''")
    return int(parse_bytes(memory_limit))


@contextmanager
def _deadline(connection: Any, timeout_s: float | None) -> Iterator[None]:
    """Interrupt the statement of a connection after a time."""
    timer = threading.Timer(
        threading.TIMEOUT_MAX if timeout_s is None else timeout_s, connection.interrupt
    )
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _read(connection: Any, n_bytes: float) -> pd.DataFrame | None:
    """Return the rows of the last statement, or None if they need more memory than that.

    DuckDB does not count rows that it has handed over.
    """
    chunks = [connection.fetch_df_chunk(_VECTORS)]
    used = 0
    while len(chunks[-1]):
        used += int(chunks[-1].memory_usage(index=False).sum())
        if used > n_bytes:
            return None
        chunks.append(connection.fetch_df_chunk(_VECTORS))
    return pd.concat(chunks[:-1], ignore_index=True) if len(chunks) > 1 else chunks[0]


def _check_select(duckdb: Any, connection: Any, sql: str) -> None:
    statements = connection.extract_statements(sql)
    kinds = [statement.type for statement in statements]
    if kinds != [duckdb.StatementType.SELECT]:
        raise UsageError("query: must be one SELECT statement, which changes nothing")


def _add_views(
    store: Store, connection: Any, sql: str, progress: Callable[[int, int], None] | None
) -> list[str]:
    """Create the views of a query, then forbid access to everything else."""
    words = {word.lower() for word in _WORD.findall(sql)}
    cache, problems = TableCache(store), []
    if "runs" in words:
        connection.register("runs", store.runs())
    tables = [name for name in SCHEMAS if name in words]
    if tables:
        ids = store.ids()
        problems = cache.update(ids, progress)
        gone = sorted(cache.ids() - set(ids))
        connection.execute(f"SET allowed_directories = ['{_quoted(str(cache.folder))}/']")
        connection.execute("SET enable_external_access = false")
        for name in tables:
            files = [f"'{_quoted(str(path))}'" for path in cache.files(name)]
            if not files:
                connection.register(name, SCHEMAS[name].empty_table())
                continue
            left_out = ", ".join(f"'{run_id}'" for run_id in gone)
            where = f" WHERE run NOT IN ({left_out})" if gone else ""
            source = f"read_parquet([{', '.join(files)}])"
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM {source}{where}")
    else:
        connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return problems


def _quoted(text: str) -> str:
    return text.replace("'", "''")


def _without_table(error: Exception) -> str:
    """Return which tables there are if one does not exist: DuckDB proposes tables of its own."""
    name = re.search(r"Table with name (\S+) does not exist", str(error))
    known = ["runs", *SCHEMAS]
    if name is None:
        return ""
    return f"no table {name[1]!r}: {did_you_mean(name[1], known, 'tables are ' + ', '.join(known))}"


def _first_lines(error: Exception) -> str:
    """Return the message of DuckDB in one line, without its picture of the place."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(line for line in lines if not line.startswith(("LINE", "^")))


# -- tables of one run -----------------------------------------------------------------------------


def run_tables(run: Run) -> dict[str, pa.Table]:
    """Return the tables of a run."""
    frames = {
        "tasks": _tasks(run),
        "task_groups": _task_groups(run),
        "transfers": _transfers(run),
        "workers": _workers(run),
        "events": run.events(),
    }
    return {name: _table(name, frame, run) for name, frame in frames.items()}


def _table(name: str, frame: pd.DataFrame, run: Run) -> pa.Table:
    schema, length = SCHEMAS[name], len(frame)
    facts = (run.id, run.workload, str(run.tree.attrs.get("environment", "")))
    arrays = [
        pa.DictionaryArray.from_arrays(np.zeros(length, "i4"), pa.array([fact])) for fact in facts
    ]
    for field in list(schema)[len(facts) :]:
        if field.name not in frame:
            arrays.append(pa.nulls(length, field.type))
            continue
        values: Any = frame[field.name]
        array = pa.array(values, from_pandas=True)
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        is_text = pa.types.is_dictionary(field.type)
        if is_text and not pa.types.is_dictionary(array.type):
            array = array.cast(pa.string()).dictionary_encode()
        arrays.append(array.cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _tasks(run: Run) -> pd.DataFrame:
    stream = run.task_stream()
    if stream.empty:
        return stream
    prefixes = run.tree["task_groups"].to_dataset()["prefix"].values.astype(str)
    codes = stream["task_group"].cat.codes
    names, numbers = np.unique(prefixes, return_inverse=True)
    prefix = numbers[codes]
    stream["prefix"] = pd.Categorical.from_codes(prefix, names)
    # A median over many runs needs a quarter less time when the durations of each run are sorted.
    order = np.lexsort((stream["duration"], prefix))
    return stream.assign(ok=stream["ok"].astype(bool)).iloc[order]


def _task_groups(run: Run) -> pd.DataFrame:
    frame = run.task_groups()
    if frame.empty:
        return frame
    frame = frame.rename(
        columns={
            "result (B)": "nbytes",
            **{name: name[: -len(" (s)")].replace("-", "_") for name in frame if " (s)" in name},
        }
    )
    groups = run.tree["task_groups"].to_dataset()
    prefix = pd.Series(groups["prefix"].values, groups["task_group"].values)
    frame = frame.assign(prefix=prefix.reindex(frame.index))
    stream = run.task_stream()
    if not stream.empty:
        durations = stream.groupby("task_group", observed=True)["duration"]
        for name, share in (("median", 0.5), ("p95", 0.95), ("max", 1.0)):
            quantile = durations.quantile(share)
            quantile.index = quantile.index.astype(str)
            frame[f"duration_{name}"] = quantile.reindex(frame.index)
    return frame.reset_index()


def _transfers(run: Run) -> pd.DataFrame:
    data = run.transfers()
    names = ("source", "destination", "count", "bytes", "seconds")
    return pd.DataFrame({name: data[name].values for name in names if name in data})


def _workers(run: Run) -> pd.DataFrame:
    if "workers" not in run.tree.children:
        return pd.DataFrame()
    data = run.tree["workers"].to_dataset()
    names = [
        name for name in ("host", "nthreads", "memory_limit", "joined", "left") if name in data
    ]
    frame = pd.DataFrame({name: data[name].values for name in names})
    return frame.assign(worker=np.arange(len(frame)), name=worker_names(run.tree))


# -- cache of the tables ---------------------------------------------------------------------------

#: Runs of a batch at most, and of a batch that is made anew with others.
_MAX_RUNS, _SMALL = 256, 64
#: Small batches at most.
_MAX_SMALL = 8
#: Version of the tables; another version makes all batches anew.
_VERSION = 3
_GROUPS = ("tasks", "task_groups", "transfers", "workers", "events")


class TableCache:
    """The tables of the runs of one store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        name = sha256(str(store.path).encode()).hexdigest()[:16]
        self.folder = cache_folder() / "tables" / f"{name}-{_VERSION}"

    def update(
        self, ids: Sequence[str], progress: Callable[[int, int], None] | None = None
    ) -> list[str]:
        """Add the runs that the cache lacks."""
        batches = {folder: self._ids(folder) for folder in self._batches()}
        small = [folder for folder, members in batches.items() if len(members) < _SMALL]
        if len(small) > _MAX_SMALL:
            for folder in small:
                shutil.rmtree(folder, ignore_errors=True)
                del batches[folder]
        known = {run_id for members in batches.values() for run_id in members}
        missing = [run_id for run_id in ids if run_id not in known]
        problems: list[str] = []
        try:
            for start in range(0, len(missing), _MAX_RUNS):
                problems += self._write(missing[start : start + _MAX_RUNS])
                if progress is not None:
                    progress(min(start + _MAX_RUNS, len(missing)), len(missing))
        except OSError as error:
            raise StoreError(f"{self.folder}: cannot be written: {error.strerror}") from error
        return problems

    def files(self, table: str) -> list[Path]:
        """Return the files of a table."""
        return [folder / f"{table}.parquet" for folder in self._batches()]

    def ids(self) -> set[str]:
        """Return the runs in the cache; some may be no longer in the store."""
        return {run_id for folder in self._batches() for run_id in self._ids(folder)}

    def _batches(self) -> list[Path]:
        return sorted(self.folder.glob("batch-*"))

    def _ids(self, folder: Path) -> list[str]:
        ids: list[str] = json.loads((folder / "runs.json").read_text())["ids"]
        return ids

    def _write(self, ids: Sequence[str]) -> list[str]:
        """Write a batch, and return a line per run that cannot be read."""
        problems = []
        self.folder.mkdir(parents=True, exist_ok=True)
        final = self.folder / f"batch-{ids[0]}-{uuid4().hex[:8]}"
        with drafted(final, durable=False) as draft, ExitStack() as stack:
            draft.mkdir()
            writers = {
                name: stack.enter_context(_writer(draft / f"{name}.parquet", schema))
                for name, schema in SCHEMAS.items()
            }
            for run_id in ids:
                try:
                    tables = run_tables(self.store.open(run_id, _GROUPS))
                except UnreadableRun as error:
                    problems.append(str(error))
                    continue
                for name, table in tables.items():
                    if table.num_rows:
                        writers[name].write_table(table)
            (draft / "runs.json").write_text(json.dumps({"ids": list(ids)}))
        return problems


def _writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        path,
        schema,
        compression="lz4",  # 100 million sorted rows: 3.4 s of CPU, 3.7 by Zstandard, 4.5 unsorted
        use_dictionary=[f.name for f in schema if f.type not in ("double", "int64")],
        use_byte_stream_split=[f.name for f in schema if f.type == "double"],
    )
