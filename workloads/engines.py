"""Other engines on the same data with as many threads, for comparison with Dask."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from importlib.util import find_spec

from _tpch_polars import polars_plan
from _tpch_sql import sql_of
from _tpch_tables import data_and_answer, same_rows, with_share

from benchkit.measure import workload
from benchkit.measure.errors import MissingPackage

QUERIES = [f"q{number:02d}" for number in range(1, 23)]


@workload(
    variants={"engine": ["duckdb", "polars"], "query": QUERIES},
    tags=["query", "io", "ci[engine=duckdb,query=q06]", "nightly"],
    requires=["pandas", "pyarrow", "dask.dataframe", "duckdb"],
    metrics={"engine_threads": "1"},
)
def tpch(prepared, scale, *, engine, query):
    """Run a query of TPC-H with an engine that runs in one process.

    The engine runs in the client process while the cluster is idle, with as many threads as the
    cluster; the memory limit of the cluster does not apply. Stresses no part of Dask: the time of
    tpch.q03 divided by that of this workload shows the distance of Dask from another engine;
    `benchkit run tpch.q03 'engines.tpch[query=q03]'` prints both times in one table.

    Scale: by scale factor, as tpch.q03. About 1 s on 2 x 1 x 1 GiB.
    Check: the rows, by DuckDB from the same files; DuckDB is confirmed by Polars and Dask, which
    are compared with the same rows.
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


@workload(
    variants={"query": QUERIES},
    tags=["query", "io", "nightly"],
    requires=["pandas", "pyarrow", "dask.dataframe", "duckdb", "pyspark"],
    deadline_s=180,
)
def tpch_spark(prepared, *, query):
    """Run a query of TPC-H with Spark on this machine, with as many threads as the cluster.

    A Java process does the work while the cluster is idle; it starts before the timed step, but has
    compiled nothing of the query by then. Stresses no part of Dask, like `tpch`. Needs Java.

    Scale: by scale factor, as tpch.q03. About 10 s on 2 x 1 x 1 GiB.
    Check: the rows, by DuckDB from the same files.
    """
    import pandas as pd

    answer = prepared["session"].sql(_spark_sql(query, prepared["data"]))
    # Do not use `toPandas`: it does not support newer releases of pandas.
    rows = [tuple(row) for row in answer.collect()]
    return pd.DataFrame(rows, columns=answer.columns)


@tpch_spark.prepare
def _(scale, *, query):
    _need_java()
    prepared = data_and_answer(scale, sql_of(query), shuffles=False)
    named = set(re.findall(r"\w+", sql_of(query)))
    session = _spark(scale)
    try:
        for table in named.intersection(prepared["data"].manifest["tables"]):
            files = map(str, prepared["data"].files(table))
            session.read.parquet(*files).createOrReplaceTempView(table)
    except BaseException:  # the cleanup step gets no result of a failed step
        _end_spark(session)
        raise
    return {**prepared, "session": session}


@tpch_spark.check
def _(result, prepared):
    same_rows(result, prepared)


@tpch_spark.cleanup
def _(prepared=None):
    if prepared is not None:
        _end_spark(prepared["session"])


def _by_duckdb(query, data, threads):
    import duckdb

    with duckdb.connect(config={"threads": threads}) as connection:
        for table in data.manifest["tables"]:
            connection.read_parquet(data.files(table)).create_view(table)
        return connection.sql(with_share(sql_of(query), data)).df()


def _by_polars(query, data, threads):
    return polars_plan(query, data).collect().to_pandas()


def _import_duckdb():
    """Import DuckDB and its conversion to pandas."""
    import duckdb

    with duckdb.connect() as connection:
        connection.sql("select 1").df()


def _import_polars(threads):
    """Import Polars, which reads its number of threads during the import only."""
    if find_spec("polars") is None:  # not in `requires`: the other engine does not need it
        raise MissingPackage("polars: not installed: pip install polars")
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


def _spark_sql(query, data):
    """Return the SQL of a query without hints that Spark does not support."""
    return with_share(sql_of(query), data).replace("as materialized (", "as (")


def _need_java():
    home = os.environ.get("JAVA_HOME")
    if not (shutil.which("java") or (home and shutil.which("java", path=f"{home}/bin"))):
        raise MissingPackage("java, which pyspark runs in: not installed")


def _spark(scale):
    """Start Spark in its own Java process, with the threads and memory of the cluster."""
    from pyspark.sql import SparkSession

    options = {
        "spark.driver.memory": f"{max(1024, scale.memory >> 20)}m",
        # The default of 200 partitions is for large clusters: most would be empty.
        "spark.sql.shuffle.partitions": 2 * scale.threads,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.appName("benchkit").master(f"local[{scale.threads}]")
    for name, value in options.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _end_spark(session):
    """Stop Spark and its Java process, which would otherwise run as long as this process."""
    gateway = session.sparkContext._gateway
    session.stop()
    with suppress(AttributeError):  # attributes differ between versions
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=30)
        type(session.sparkContext)._gateway = type(session.sparkContext)._jvm = None
