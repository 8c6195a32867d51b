"""A handful of the queries of TPC-H for Polars: lazy frames, nothing is computed here."""

from __future__ import annotations

from datetime import datetime


def polars_plan(query, data):
    """Return the plan of a query by its name, one of ``q01``, 03, 05, 06, 09 and 21."""
    plans = {"q01": _q01, "q03": _q03, "q05": _q05, "q06": _q06, "q09": _q09, "q21": _q21}
    return plans[query](lambda name: _table(data, name))


def _table(data, name):
    import polars as pl

    return pl.scan_parquet(data.files(name))


def _revenue():
    import polars as pl

    return pl.col("l_extendedprice") * (1 - pl.col("l_discount"))


def _q01(table):
    from polars import col
    from polars import len as rows

    lines = table("lineitem").filter(col("l_shipdate") <= datetime(1998, 9, 2))
    return (
        lines.group_by("l_returnflag", "l_linestatus")
        .agg(
            sum_qty=col("l_quantity").sum(),
            sum_base_price=col("l_extendedprice").sum(),
            sum_disc_price=_revenue().sum(),
            sum_charge=(_revenue() * (1 + col("l_tax"))).sum(),
            avg_qty=col("l_quantity").mean(),
            avg_price=col("l_extendedprice").mean(),
            avg_disc=col("l_discount").mean(),
            count_order=rows(),
        )
        .sort("l_returnflag", "l_linestatus")
    )


def _q03(table):
    from polars import col

    moment = datetime(1995, 3, 15)
    customer = table("customer").filter(col("c_mktsegment") == "BUILDING")
    orders = table("orders").filter(col("o_orderdate") < moment)
    lines = table("lineitem").filter(col("l_shipdate") > moment)
    bought = customer.join(orders, left_on="c_custkey", right_on="o_custkey")
    bought = bought.join(lines, left_on="o_orderkey", right_on="l_orderkey")
    return (
        bought.group_by("o_orderkey", "o_orderdate", "o_shippriority")
        .agg(revenue=_revenue().sum())
        .select(col("o_orderkey").alias("l_orderkey"), "revenue", "o_orderdate", "o_shippriority")
        .sort("revenue", "o_orderdate", "l_orderkey", descending=[True, False, False])
        .head(10)
    )


def _q05(table):
    from polars import col

    region = table("region").filter(col("r_name") == "ASIA")
    orders = table("orders").filter(
        col("o_orderdate").is_between(datetime(1994, 1, 1), datetime(1995, 1, 1), closed="left")
    )
    nations = region.join(table("nation"), left_on="r_regionkey", right_on="n_regionkey")
    bought = nations.join(table("customer"), left_on="n_nationkey", right_on="c_nationkey")
    bought = bought.join(orders, left_on="c_custkey", right_on="o_custkey")
    bought = bought.join(table("lineitem"), left_on="o_orderkey", right_on="l_orderkey")
    bought = bought.join(
        table("supplier"),
        left_on=["l_suppkey", "n_nationkey"],
        right_on=["s_suppkey", "s_nationkey"],
    )
    sums = bought.group_by("n_name").agg(revenue=_revenue().sum())
    return sums.sort("revenue", "n_name", descending=[True, False])


def _q06(table):
    from polars import col

    lines = table("lineitem").filter(
        col("l_shipdate").is_between(datetime(1994, 1, 1), datetime(1995, 1, 1), closed="left"),
        col("l_discount").is_between(0.05, 0.07),
        col("l_quantity") < 24,
    )
    return lines.select(revenue=(col("l_extendedprice") * col("l_discount")).sum())


def _q09(table):
    from polars import col

    parts = table("part").filter(col("p_name").str.contains("green", literal=True))
    offers = parts.join(table("partsupp"), left_on="p_partkey", right_on="ps_partkey")
    offers = offers.join(table("supplier"), left_on="ps_suppkey", right_on="s_suppkey")
    lines = offers.join(
        table("lineitem"),
        left_on=["p_partkey", "ps_suppkey"],
        right_on=["l_partkey", "l_suppkey"],
    )
    lines = lines.join(table("orders"), left_on="l_orderkey", right_on="o_orderkey")
    lines = lines.join(table("nation"), left_on="s_nationkey", right_on="n_nationkey")
    return (
        lines.group_by(col("n_name").alias("nation"), col("o_orderdate").dt.year().alias("o_year"))
        .agg(sum_profit=(_revenue() - col("ps_supplycost") * col("l_quantity")).sum())
        .sort("nation", "o_year", descending=[False, True])
    )


def _q21(table):
    from polars import col
    from polars import len as rows

    late = table("lineitem").filter(col("l_receiptdate") > col("l_commitdate"))
    suppliers = table("lineitem").group_by("l_orderkey").agg(n=col("l_suppkey").n_unique())
    guilty = late.join(suppliers.filter(col("n") > 1), on="l_orderkey")
    alone = guilty.group_by("l_orderkey").agg(m=col("l_suppkey").n_unique()).filter(col("m") == 1)
    nation = table("nation").filter(col("n_name") == "SAUDI ARABIA")
    orders = table("orders").filter(col("o_orderstatus") == "F")
    found = (
        guilty.join(alone, on="l_orderkey")
        .join(table("supplier"), left_on="l_suppkey", right_on="s_suppkey")
        .join(nation, left_on="s_nationkey", right_on="n_nationkey")
        .join(orders, left_on="l_orderkey", right_on="o_orderkey")
    )
    counts = found.group_by("s_name").agg(numwait=rows())
    return counts.sort("numwait", "s_name", descending=[True, False]).head(100)
