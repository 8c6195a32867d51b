"""Answer SQL over all runs of a store, read-only and without access to other files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd

from benchkit.errors import UsageError, needs_extra
from benchkit.store.query.table_cache import TableCache
from benchkit.store.query.tables import SCHEMAS
from benchkit.store.reader import StoreReader

__all__ = ["VIEWS", "query", "rows_of_runs"]

#: Names that a query can read from.
VIEWS = ("runs", *SCHEMAS)
_WORD = re.compile(r"\w+")


def query(
    store: StoreReader,
    sql: str,
    *,
    limit: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """Return the rows of a query over all runs.

    Parameters
    ----------
    store : StoreReader
        The store.
    sql : str
        One SELECT statement of DuckDB's SQL over the views ``runs`` (as `Store.runs`), ``tasks``,
        ``task_groups``, ``transfers``, ``workers`` and ``events``.
    limit : int, optional
        Largest number of rows.
    progress : callable, optional
        Called with the number of runs done and the number of runs to read, while the cache of the
        tables is brought up to date.

    Returns
    -------
    DataFrame
        The rows; ``attrs["problems"]`` lists runs that could not be read.

    Raises
    ------
    MissingExtra
        DuckDB is not installed.
    UsageError
        The statement is not a SELECT, or is wrong.
    """
    with needs_extra("query"):
        import duckdb
    with duckdb.connect() as connection:
        _check_select(duckdb, connection, sql)
        problems = _add_views(store, connection, sql, progress)
        try:
            rows = connection.sql(sql)
            answer: pd.DataFrame = (rows if limit is None else rows.limit(limit)).df()
        except duckdb.Error as error:
            raise UsageError(f"query: {_first_lines(error)}") from error
    answer.attrs["problems"] = problems
    return answer


def rows_of_runs(store: StoreReader, table: str, ids: Iterable[str]) -> pd.DataFrame:
    """Return the rows of some runs in a table.

    Parameters
    ----------
    store : StoreReader
        The store.
    table : str
        A name of `SCHEMAS`.
    ids : iterable of str
        Ids of the runs.

    Returns
    -------
    DataFrame
        The rows, in the order of the cache.
    """
    chosen = ", ".join(f"'{run_id}'" for run_id in ids)
    condition = f"run IN ({chosen})" if chosen else "false"
    return query(store, f"SELECT * FROM {table} WHERE {condition}")


def _check_select(duckdb: Any, connection: Any, sql: str) -> None:
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise UsageError(f"query: {_first_lines(error)}") from error
    kinds = [statement.type for statement in statements]
    if kinds != [duckdb.StatementType.SELECT]:
        raise UsageError("query: must be one SELECT statement, which changes nothing")


def _add_views(
    store: StoreReader, connection: Any, sql: str, progress: Callable[[int, int], None] | None
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
