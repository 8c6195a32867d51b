"""Planning of the queries of TPC-H alone: work of the client before the computation."""

from __future__ import annotations

from statistics import median

import _recipes.tpch_h2o  # noqa: F401  (declares the datasets)
from _timing import timed
from _tpch_plans import Planned, columns_named, need_planning, readers
from _tpch_queries import plan_of
from _tpch_sql import sql_of
from _tpch_tables import same_rows, with_share

from benchkit.measure import dataset, expect, workload

PASSES = 5


@workload(
    category="tpch",
    variants={"query": [f"q{number:02d}" for number in range(1, 23)]},
    tags=["query", "overhead", "graph", "gate", "nightly", "ci[query=q05]"],
    requires=["pandas", "pyarrow", "dask.dataframe"],
    metrics={"planned_tasks": "1", "ms_per_plan": "ms"},
    version=2,
)
def optimize(prepared, *, query):
    """Build and optimise the plan of a query of TPC-H repeatedly, without computing it.

    All of it runs in the client, while the cluster is idle. Stresses the planner: moving columns
    and filters down a tree of joins, and repeated visits of equal subtrees. Skipped for releases of
    Dask without query planning.

    Scale: the smallest scale factor in 16 files of a large table x fraction, on any cluster.
    Planned 5 times. About 2 s on 2 x 1 x 1 GiB, from 0.3 s for q06 to 8 s for q08.
    Check: the readers read exactly the columns that the SQL of the query names; the optimised plan,
    computed outside of the timed step, gives the rows of DuckDB.
    """
    return _planned(query, prepared["data"])


@optimize.prepare
def _(scale, *, query):
    return _ready_to_plan(query, max(2, round(16 * scale.fraction)))


@optimize.check
def _(result, prepared, *, query):
    return _expect_planned(result, prepared, query)


@workload(
    category="tpch",
    variants={"files": [4, 40, 400]},
    tags=["query", "overhead", "graph", "gate", "nightly", "ci[files=40]"],
    requires=["pandas", "pyarrow", "dask.dataframe"],
    metrics={"planned_tasks": "1", "ms_per_plan": "ms"},
    version=2,
)
def optimize_files(prepared):
    """Build and optimise the plan of query 3 of TPC-H repeatedly, with a growing number of files.

    The data is always the same. Stresses work of the planner per file or partition, where work per
    table should suffice (dask-expr#796).

    Scale: `files` of each large table x fraction, on any cluster. Planned 5 times.
    About 1 s on 2 x 1 x 1 GiB, plus 30 s once to make the data.
    Check: the readers read exactly the columns that the SQL of the query names; the optimised plan,
    computed outside of the timed step, gives the rows of DuckDB.
    """
    return _planned("q03", prepared["data"])


@optimize_files.prepare
def _(scale, *, files):
    return _ready_to_plan("q03", max(2, round(files * scale.fraction)))


@optimize_files.check
def _(result, prepared):
    return _expect_planned(result, prepared, "q03")


def _ready_to_plan(query, files):
    """Make the data and plan once, because Dask caches the footers of the files."""
    need_planning()
    data = dataset("tpch", sf=0.01, parts=files)
    plan_of(query, data).optimize()
    return {"data": data, "answer": data.answer(with_share(sql_of(query), data))}


def _expect_planned(result, prepared, query):
    got = {name for reader in readers(result.collection) for name in reader.columns}
    named = columns_named(sql_of(query), prepared["data"])
    expect(sorted(got), equals=sorted(named), what="columns")
    same_rows(result.collection.compute(), prepared)
    return {
        "planned_tasks": len(result.collection.__dask_graph__()),
        "ms_per_plan": 1e3 * median(result.seconds),
    }


def _planned(query, data):
    """Return the last of several plans, with the seconds of each."""
    seconds = []
    for _ in range(PASSES):
        plan = None  # Dask would reuse parts of a plan that still exists
        plan, took = timed(lambda: plan_of(query, data).optimize())
        seconds.append(took)
    return Planned(plan, seconds)
