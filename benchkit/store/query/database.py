"""Answer SQL over all runs of a store, read-only and without access to other files."""

from __future__ import annotations

import math
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pandas as pd
from dask.utils import parse_bytes

from benchkit.errors import UsageError, needs_extra
from benchkit.store.query.table_cache import TableCache
from benchkit.store.query.tables import SCHEMAS

if TYPE_CHECKING:  # a store imports this module
    from benchkit.store.store import Store

__all__ = ["MEMORY_LIMIT", "TIMEOUT_S", "VIEWS", "query", "rows_of_runs"]

#: Limits of a query without other ones: an endless one must not stop the work of a shared machine.
TIMEOUT_S, MEMORY_LIMIT = 120.0, "2GiB"
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
            raise UsageError(f"query: {_first_lines(error)}") from error
    if answer is None:
        raise UsageError(too_large)
    answer.attrs["problems"] = problems
    return answer


def rows_of_runs(store: Store, table: str, ids: Iterable[str]) -> pd.DataFrame:
    """Return the rows of some runs in a table."""
    # returned: The rows, in the order of the cache.
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


def _first_lines(error: Exception) -> str:
    """Return the message of DuckDB in one line, without its picture of the place."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(line for line in lines if not line.startswith(("LINE", "^")))
