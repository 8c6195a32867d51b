"""TPC-H workloads."""

from __future__ import annotations

import math
from datetime import datetime

from _shuffle import warm_up_shuffle
from _sizes import in_steps

from benchkit.measure import dataset, expect, workload

GIB = 2**30
Q3 = """
    select l_orderkey, sum(l_extendedprice * (1 - l_discount)) as revenue,
           o_orderdate, o_shippriority
    from customer, orders, lineitem
    where c_mktsegment = 'BUILDING' and c_custkey = o_custkey and l_orderkey = o_orderkey
      and o_orderdate < timestamp '1995-03-15' and l_shipdate > timestamp '1995-03-15'
    group by l_orderkey, o_orderdate, o_shippriority
    order by revenue desc, o_orderdate
    limit 10
"""


@workload(
    tags=["query", "join", "io", "first-twelve", "quick"],
    requires=["pandas", "pyarrow", "dask.dataframe"],
)
def q03(prepared):
    """Find the ten unshipped orders of one market segment that are worth most (TPC-H query 3).

    Three tables are filtered, joined twice, grouped and cut to the top. Stresses the optimiser
    (columns and filters pushed into Parquet), two shuffles in a row and a large group-by.

    Scale: scale factor 1 for each 4 GiB of cluster memory, in steps of 1, 2, 5; 16 files of a
    large table for each unit. About 4 s on 2 x 1 x 1 GiB, plus 5 s once to make the data.
    Check: the ten rows, by DuckDB from the same files.
    """
    import dask.dataframe as dd

    data, _ = prepared
    moment = datetime(1995, 3, 15)
    customer = dd.read_parquet(data.files("customer"))
    orders = dd.read_parquet(data.files("orders"))
    lineitem = dd.read_parquet(data.files("lineitem"))
    customer = customer[customer["c_mktsegment"] == "BUILDING"]
    orders = orders[orders["o_orderdate"] < moment]
    lineitem = lineitem[lineitem["l_shipdate"] > moment]

    bought = customer.merge(orders, left_on="c_custkey", right_on="o_custkey")
    lines = bought.merge(lineitem, left_on="o_orderkey", right_on="l_orderkey")
    lines["revenue"] = lines["l_extendedprice"] * (1 - lines["l_discount"])
    by_order = lines.groupby(["l_orderkey", "o_orderdate", "o_shippriority"])["revenue"].sum()
    return by_order.reset_index().nlargest(10, columns="revenue").compute()


@q03.prepare
def _(client, scale):
    sf = in_steps(max(0.01, scale.linear(1) / (4 * GIB)))
    data = dataset("tpch", sf=sf, parts=max(2, math.ceil(16 * sf)))
    answer = data.answer(Q3)
    warm_up_shuffle()
    return data, answer


@q03.check
def _(result, prepared):
    _, wanted = prepared
    got = result.sort_values(["revenue", "o_orderdate"], ascending=[False, True])
    expect(len(got), equals=len(wanted), what="rows")
    for name in ("l_orderkey", "o_shippriority"):
        expect(got[name].to_numpy(), equals=wanted[name].to_numpy(), what=name)
    dates = [str(moment)[:10] for moment in got["o_orderdate"]]
    expect(dates, equals=[str(moment)[:10] for moment in wanted["o_orderdate"]], what="o_orderdate")
    expect(got["revenue"].to_numpy(), close_to=wanted["revenue"].to_numpy(), atol=1e-2,
           what="revenue")  # fmt: skip
