"""Common functions of the queries of TPC-H: data and results, semi and anti joins, order."""

from __future__ import annotations

import math
from datetime import datetime

import _recipes.tpch_h2o  # noqa: F401  (declares the datasets)
from _shuffle import warm_up_shuffle
from _sizes import in_steps

from benchkit.measure import dataset, expect, workload

GIB = 2**30


def query(*tags):
    """Declare a query: a workload whose result is compared with that of DuckDB."""

    def declare(function):
        found = workload(
            category="tpch",
            tags=["query", "io", *tags],
            requires=["pandas", "pyarrow", "dask.dataframe"],
        )(function)
        found.check(same_rows)
        return found

    return declare


def data_and_answer(scale, sql, *, shuffles=True):
    """Make the tables, compute the result of a query with DuckDB, and prepare shuffles."""
    sf = in_steps(max(0.01, scale.linear(1) / (4 * GIB)))
    data = dataset("tpch", sf=sf, parts=max(2, math.ceil(16 * sf)))
    answer = data.answer(with_share(sql, data))
    if shuffles:
        warm_up_shuffle()
    return {"data": data, "answer": answer}


def same_rows(result, prepared):
    """Compare the rows with those of DuckDB, in order; a single number is a row."""
    wanted = prepared["answer"]
    if not hasattr(result, "columns"):
        expect(float(result), close_to=float(wanted.iloc[0, 0]), atol=1e-6, what=wanted.columns[0])
        return
    expect(list(result.columns), equals=list(wanted.columns), what="columns")
    expect(len(result), equals=len(wanted), what="rows")
    for name, values in wanted.items():
        got = result[name]
        if values.dtype.kind == "f":
            expect(got.to_numpy(), close_to=values.to_numpy(), atol=1e-6, what=name)
        elif values.dtype.kind in "iu":
            expect(got.to_numpy(), equals=values.to_numpy(), what=name)
        elif values.dtype.kind == "M":
            days = [str(moment)[:10] for moment in values]
            expect([str(moment)[:10] for moment in got], equals=days, what=name)
        else:
            words = [str(value).strip() for value in values]
            expect([str(value).strip() for value in got], equals=words, what=name)


def with_share(sql, data):
    """Return SQL with its parameter that depends on the data."""
    return sql.replace("{share}", repr(important_share(data)))


def important_share(data):
    """Return the share of the stock above which a part is important in query 11."""
    return 0.0001 / data.manifest["params"]["sf"]


def table(data, name):
    """Return a table of the dataset."""
    import dask.dataframe as dd

    return dd.read_parquet(data.files(name))


def in_order(frame, by, ascending=True, first=None):
    """Return sorted rows, or the first of them, in one partition.

    `sort_values` would compute its input a second time to find divisions, and old releases of Dask
    support one direction only.
    """

    def ordered(part):  # nested, so that it is pickled by value
        part = part.sort_values(by, ascending=ascending, ignore_index=True)
        return part if first is None else part.head(first)

    kinds = frame._meta
    if first is not None:
        frame = frame.map_partitions(ordered, meta=kinds)
    # Repartition also a single partition: a group-by may get more when it is optimised.
    frame = frame.repartition(npartitions=1)
    return frame.map_partitions(ordered, meta=kinds)


def found_in(left, right, left_on, right_on):
    """Return the rows of `left` whose key is in `right` (a semi join)."""
    keys = right[[right_on]]
    if hasattr(left, "optimize"):
        return left.merge(keys, left_on=left_on, right_on=right_on, how="leftsemi")
    keys = keys.drop_duplicates()
    return left.merge(keys, left_on=left_on, right_on=right_on)


def not_found_in(left, right, left_on, right_on):
    """Return the rows of `left` whose key is not in `right` (an anti join)."""
    columns = list(left.columns)
    keys = right[[right_on]].drop_duplicates()
    both = left.merge(keys, left_on=left_on, right_on=right_on, how="left")
    return both[both[right_on].isna()][columns]


def within(column, begin, end):
    """Return whether times are in [begin, end), each given as (year, month, day)."""
    return (column >= datetime(*begin)) & (column < datetime(*end))


def nations_of(data, region):
    """Return the nations of a region."""
    regions = table(data, "region")
    regions = regions[regions["r_name"] == region]
    return table(data, "nation").merge(regions, left_on="n_regionkey", right_on="r_regionkey")


def suppliers_in(data, nation):
    """Return the suppliers of a nation."""
    nations = table(data, "nation")
    nations = nations[nations["n_name"] == nation]
    return table(data, "supplier").merge(nations, left_on="s_nationkey", right_on="n_nationkey")


def revenue_of(lines):
    """Return the price of each line after discount."""
    return lines["l_extendedprice"] * (1 - lines["l_discount"])
