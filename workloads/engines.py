"""Other engines on the same data and as many threads: what Dask's seconds are held against."""

from __future__ import annotations

import os

from _tpch_polars import polars_plan
from _tpch_sql import sql_of
from _tpch_tables import data_and_answer, same_rows

from benchkit.measure import workload


@workload(
    variants={
        "engine": ["duckdb", "polars"],
        "query": ["q01", "q03", "q05", "q06", "q09", "q21"],
    },
    tags=["query", "io", "ci[engine=duckdb,query=q06]", "nightly"],
    requires=["pandas", "pyarrow", "dask.dataframe", "duckdb", "polars"],
    metrics={"engine_threads": "1"},
)
def tpch(prepared, scale, *, engine, query):
    """Answer a query of TPC-H by an engine that runs in one process.

    The engine runs in the client's process while the cluster waits, with as many threads as the
    cluster has; the cluster's memory limit does not hold there. Stresses no part of Dask: a ratio
    of tpch.q01 to this one says how far Dask is from what the machine can do.

    Scale: by scale factor, as tpch.q03. About 1 s on 2 x 1 x 1 GiB.
    Check: the rows, by DuckDB from the same files; what proves DuckDB are Polars and Dask, which
    are checked by the same rows.
    """
    run = {"duckdb": _by_duckdb, "polars": _by_polars}[engine]
    return run(query, prepared["data"], scale.threads)


@tpch.prepare
def _(scale, *, engine, query):
    prepared = data_and_answer(scale, sql_of(query), shuffles=False)
    if engine == "polars":
        _import_polars(scale.threads)
    elif engine == "duckdb":
        _import_duckdb()
    return prepared


@tpch.check
def _(result, prepared, scale, *, engine):
    same_rows(result, prepared)
    return {"engine_threads": _polars_threads() if engine == "polars" else scale.threads}


def _by_duckdb(query, data, threads):
    import duckdb

    with duckdb.connect(config={"threads": threads}) as connection:
        for table in data.manifest["tables"]:
            connection.read_parquet(data.files(table)).create_view(table)
        return connection.sql(sql_of(query)).df()


def _by_polars(query, data, threads):
    return polars_plan(query, data).collect().to_pandas()


def _import_duckdb():
    """Import DuckDB, and what it makes frames with."""
    import duckdb

    with duckdb.connect() as connection:
        connection.sql("select 1").df()


def _import_polars(threads):
    """Import Polars, which reads how many threads it may use once and for all."""
    before = os.environ.get("POLARS_MAX_THREADS")
    os.environ["POLARS_MAX_THREADS"] = str(threads)
    try:
        return _polars_threads()
    finally:
        del os.environ["POLARS_MAX_THREADS"]
        if before is not None:
            os.environ["POLARS_MAX_THREADS"] = before


def _polars_threads():
    import polars

    return polars.thread_pool_size()
