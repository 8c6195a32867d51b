"""The 22 queries of TPC-H for Polars, as lazy frames."""

from __future__ import annotations

from datetime import datetime

from _tpch_tables import important_share

PHONE_CODES = ["13", "31", "23", "29", "30", "18", "17"]


def polars_plan(query, data):
    """Return the plan of a query by its name, ``q01`` to ``q22``."""
    plans = (
        _q01, _q02, _q03, _q04, _q05, _q06, _q07, _q08, _q09, _q10, _q11,
        _q12, _q13, _q14, _q15, _q16, _q17, _q18, _q19, _q20, _q21, _q22,
    )  # fmt: skip
    return plans[int(query[1:]) - 1](data)


# Polars is imported on use, because it reads its number of threads during the import.


def col(name):
    """Return a column."""
    import polars

    return polars.col(name)


def rows():
    """Return the number of rows."""
    import polars

    return polars.len()


def _table(data, name):
    import polars

    return polars.scan_parquet(data.files(name))


def _within(frame, column, begin, end):
    """Return the rows whose time is in [begin, end), each given as (year, month, day)."""
    ends = datetime(*begin), datetime(*end)
    return frame.filter(col(column).is_between(*ends, closed="left"))


def _revenue():
    return col("l_extendedprice") * (1 - col("l_discount"))


def _q01(data):
    lines = _table(data, "lineitem").filter(col("l_shipdate") <= datetime(1998, 9, 2))
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


def _q02(data):
    region = _table(data, "region").filter(col("r_name") == "EUROPE")
    nations = region.join(_table(data, "nation"), left_on="r_regionkey", right_on="n_regionkey")
    suppliers = _table(data, "supplier").join(
        nations, left_on="s_nationkey", right_on="n_nationkey"
    )
    parts = _table(data, "part").filter(col("p_size") == 15, col("p_type").str.ends_with("BRASS"))
    offers = parts.join(_table(data, "partsupp"), left_on="p_partkey", right_on="ps_partkey")
    offers = offers.join(suppliers, left_on="ps_suppkey", right_on="s_suppkey")
    lowest = col("ps_supplycost").min().over("p_partkey")
    return (
        offers.filter(col("ps_supplycost") == lowest)
        .select(
            *("s_acctbal", "s_name", "n_name", "p_partkey"),
            *("p_mfgr", "s_address", "s_phone", "s_comment"),
        )
        .sort("s_acctbal", "n_name", "s_name", "p_partkey", descending=[True, False, False, False])
        .head(100)
    )


def _q03(data):
    moment = datetime(1995, 3, 15)
    customer = _table(data, "customer").filter(col("c_mktsegment") == "BUILDING")
    orders = _table(data, "orders").filter(col("o_orderdate") < moment)
    lines = _table(data, "lineitem").filter(col("l_shipdate") > moment)
    bought = customer.join(orders, left_on="c_custkey", right_on="o_custkey")
    bought = bought.join(lines, left_on="o_orderkey", right_on="l_orderkey")
    return (
        bought.group_by("o_orderkey", "o_orderdate", "o_shippriority")
        .agg(revenue=_revenue().sum())
        .select(col("o_orderkey").alias("l_orderkey"), "revenue", "o_orderdate", "o_shippriority")
        .sort("revenue", "o_orderdate", "l_orderkey", descending=[True, False, False])
        .head(10)
    )


def _q04(data):
    orders = _within(_table(data, "orders"), "o_orderdate", (1993, 7, 1), (1993, 10, 1))
    late = _table(data, "lineitem").filter(col("l_commitdate") < col("l_receiptdate"))
    orders = orders.join(late, left_on="o_orderkey", right_on="l_orderkey", how="semi")
    return orders.group_by("o_orderpriority").agg(order_count=rows()).sort("o_orderpriority")


def _q05(data):
    region = _table(data, "region").filter(col("r_name") == "ASIA")
    orders = _within(_table(data, "orders"), "o_orderdate", (1994, 1, 1), (1995, 1, 1))
    nations = region.join(_table(data, "nation"), left_on="r_regionkey", right_on="n_regionkey")
    bought = nations.join(_table(data, "customer"), left_on="n_nationkey", right_on="c_nationkey")
    bought = bought.join(orders, left_on="c_custkey", right_on="o_custkey")
    bought = bought.join(_table(data, "lineitem"), left_on="o_orderkey", right_on="l_orderkey")
    bought = bought.join(
        _table(data, "supplier"),
        left_on=["l_suppkey", "n_nationkey"],
        right_on=["s_suppkey", "s_nationkey"],
    )
    sums = bought.group_by("n_name").agg(revenue=_revenue().sum())
    return sums.sort("revenue", "n_name", descending=[True, False])


def _q06(data):
    lines = _within(_table(data, "lineitem"), "l_shipdate", (1994, 1, 1), (1995, 1, 1))
    lines = lines.filter(col("l_discount").is_between(0.05, 0.07), col("l_quantity") < 24)
    return lines.select(revenue=(col("l_extendedprice") * col("l_discount")).sum())


def _q07(data):
    nations = _table(data, "nation")
    suppliers = _table(data, "supplier").join(
        nations.select("n_nationkey", col("n_name").alias("supp_nation")),
        left_on="s_nationkey",
        right_on="n_nationkey",
    )
    customers = _table(data, "customer").join(
        nations.select("n_nationkey", col("n_name").alias("cust_nation")),
        left_on="c_nationkey",
        right_on="n_nationkey",
    )
    lines = _within(_table(data, "lineitem"), "l_shipdate", (1995, 1, 1), (1997, 1, 1))
    lines = lines.join(suppliers, left_on="l_suppkey", right_on="s_suppkey")
    lines = lines.join(_table(data, "orders"), left_on="l_orderkey", right_on="o_orderkey")
    lines = lines.join(customers, left_on="o_custkey", right_on="c_custkey")
    seller, buyer = col("supp_nation"), col("cust_nation")
    traded = lines.filter(
        ((seller == "FRANCE") & (buyer == "GERMANY"))
        | ((seller == "GERMANY") & (buyer == "FRANCE"))
    )
    keys = ["supp_nation", "cust_nation", "l_year"]
    traded = traded.with_columns(l_year=col("l_shipdate").dt.year())
    return traded.group_by(keys).agg(revenue=_revenue().sum()).sort(keys)


def _q08(data):
    parts = _table(data, "part").filter(col("p_type") == "ECONOMY ANODIZED STEEL")
    orders = _within(_table(data, "orders"), "o_orderdate", (1995, 1, 1), (1997, 1, 1))
    region = _table(data, "region").filter(col("r_name") == "AMERICA")
    nations = _table(data, "nation")
    american = nations.join(region, left_on="n_regionkey", right_on="r_regionkey", how="semi")
    customers = _table(data, "customer").join(
        american, left_on="c_nationkey", right_on="n_nationkey", how="semi"
    )
    lines = parts.join(_table(data, "lineitem"), left_on="p_partkey", right_on="l_partkey")
    lines = lines.join(_table(data, "supplier"), left_on="l_suppkey", right_on="s_suppkey")
    lines = lines.join(orders, left_on="l_orderkey", right_on="o_orderkey")
    lines = lines.join(customers, left_on="o_custkey", right_on="c_custkey", how="semi")
    lines = lines.join(nations, left_on="s_nationkey", right_on="n_nationkey")
    brazil = _revenue().filter(col("n_name") == "BRAZIL").sum()
    lines = lines.with_columns(o_year=col("o_orderdate").dt.year())
    return lines.group_by("o_year").agg(mkt_share=brazil / _revenue().sum()).sort("o_year")


def _q09(data):
    parts = _table(data, "part").filter(col("p_name").str.contains("green", literal=True))
    offers = parts.join(_table(data, "partsupp"), left_on="p_partkey", right_on="ps_partkey")
    offers = offers.join(_table(data, "supplier"), left_on="ps_suppkey", right_on="s_suppkey")
    lines = offers.join(
        _table(data, "lineitem"),
        left_on=["p_partkey", "ps_suppkey"],
        right_on=["l_partkey", "l_suppkey"],
    )
    lines = lines.join(_table(data, "orders"), left_on="l_orderkey", right_on="o_orderkey")
    lines = lines.join(_table(data, "nation"), left_on="s_nationkey", right_on="n_nationkey")
    return (
        lines.group_by(col("n_name").alias("nation"), col("o_orderdate").dt.year().alias("o_year"))
        .agg(sum_profit=(_revenue() - col("ps_supplycost") * col("l_quantity")).sum())
        .sort("nation", "o_year", descending=[False, True])
    )


def _q10(data):
    orders = _within(_table(data, "orders"), "o_orderdate", (1993, 10, 1), (1994, 1, 1))
    lines = _table(data, "lineitem").filter(col("l_returnflag") == "R")
    bought = _table(data, "customer").join(orders, left_on="c_custkey", right_on="o_custkey")
    bought = bought.join(lines, left_on="o_orderkey", right_on="l_orderkey")
    bought = bought.join(_table(data, "nation"), left_on="c_nationkey", right_on="n_nationkey")
    about = ["c_acctbal", "n_name", "c_address", "c_phone", "c_comment"]
    return (
        bought.group_by("c_custkey", "c_name", *about)
        .agg(revenue=_revenue().sum())
        .select("c_custkey", "c_name", "revenue", *about)
        .sort("revenue", "c_custkey", descending=[True, False])
        .head(20)
    )


def _q11(data):
    nation = _table(data, "nation").filter(col("n_name") == "GERMANY")
    suppliers = _table(data, "supplier").join(
        nation, left_on="s_nationkey", right_on="n_nationkey", how="semi"
    )
    stock = _table(data, "partsupp").join(
        suppliers, left_on="ps_suppkey", right_on="s_suppkey", how="semi"
    )
    stock = stock.with_columns(value=col("ps_supplycost") * col("ps_availqty"))
    enough = stock.select(enough=col("value").sum() * important_share(data))
    sums = stock.group_by("ps_partkey").agg(value=col("value").sum().round(2))
    found = sums.join(enough, how="cross").filter(col("value") > col("enough"))
    return found.select("ps_partkey", "value").sort("value", "ps_partkey", descending=[True, False])


def _q12(data):
    lines = _table(data, "lineitem").filter(
        col("l_shipmode").is_in(["MAIL", "SHIP"]),
        col("l_commitdate") < col("l_receiptdate"),
        col("l_shipdate") < col("l_commitdate"),
    )
    lines = _within(lines, "l_receiptdate", (1994, 1, 1), (1995, 1, 1))
    lines = lines.join(_table(data, "orders"), left_on="l_orderkey", right_on="o_orderkey")
    urgent = col("o_orderpriority").is_in(["1-URGENT", "2-HIGH"])
    counts = lines.group_by("l_shipmode").agg(
        high_line_count=urgent.sum(), low_line_count=(~urgent).sum()
    )
    return counts.sort("l_shipmode")


def _q13(data):
    orders = _table(data, "orders").filter(~col("o_comment").str.contains("special.*requests"))
    both = _table(data, "customer").join(
        orders, left_on="c_custkey", right_on="o_custkey", how="left"
    )
    each = both.group_by("c_custkey").agg(c_count=col("o_orderkey").count())
    counts = each.group_by("c_count").agg(custdist=rows())
    return counts.sort("custdist", "c_count", descending=True)


def _q14(data):
    lines = _within(_table(data, "lineitem"), "l_shipdate", (1995, 9, 1), (1995, 10, 1))
    lines = lines.join(_table(data, "part"), left_on="l_partkey", right_on="p_partkey")
    promoted = _revenue().filter(col("p_type").str.starts_with("PROMO"))
    return lines.select(promo_revenue=100.0 * promoted.sum() / _revenue().sum())


def _q15(data):
    lines = _within(_table(data, "lineitem"), "l_shipdate", (1996, 1, 1), (1996, 4, 1))
    sums = lines.group_by("l_suppkey").agg(total_revenue=_revenue().sum().round(4))
    best = sums.filter(col("total_revenue") == col("total_revenue").max())
    found = _table(data, "supplier").join(best, left_on="s_suppkey", right_on="l_suppkey")
    return found.select("s_suppkey", "s_name", "s_address", "s_phone", "total_revenue").sort(
        "s_suppkey"
    )


def _q16(data):
    parts = _table(data, "part").filter(
        col("p_brand") != "Brand#45",
        ~col("p_type").str.starts_with("MEDIUM POLISHED"),
        col("p_size").is_in([49, 14, 23, 45, 19, 3, 36, 9]),
    )
    blamed = _table(data, "supplier").filter(col("s_comment").str.contains("Customer.*Complaints"))
    offers = _table(data, "partsupp").join(
        blamed, left_on="ps_suppkey", right_on="s_suppkey", how="anti"
    )
    offers = offers.join(parts, left_on="ps_partkey", right_on="p_partkey")
    keys = ["p_brand", "p_type", "p_size"]
    counts = offers.group_by(keys).agg(supplier_cnt=col("ps_suppkey").n_unique())
    return counts.sort("supplier_cnt", *keys, descending=[True, False, False, False])


def _q17(data):
    parts = _table(data, "part").filter(
        col("p_brand") == "Brand#23", col("p_container") == "MED BOX"
    )
    lines = _table(data, "lineitem")
    means = lines.group_by("l_partkey").agg(mean=col("l_quantity").mean())
    lines = lines.join(parts, left_on="l_partkey", right_on="p_partkey", how="semi")
    small = lines.join(means, on="l_partkey").filter(col("l_quantity") < 0.2 * col("mean"))
    return small.select(avg_yearly=col("l_extendedprice").sum() / 7.0)


def _q18(data):
    lines = _table(data, "lineitem")
    sums = lines.group_by("l_orderkey").agg(n=col("l_quantity").sum())
    orders = _table(data, "orders").join(
        sums.filter(col("n") > 300), left_on="o_orderkey", right_on="l_orderkey", how="semi"
    )
    bought = _table(data, "customer").join(orders, left_on="c_custkey", right_on="o_custkey")
    bought = bought.join(lines, left_on="o_orderkey", right_on="l_orderkey")
    keys = ["c_name", "c_custkey", "o_orderkey", "o_orderdate", "o_totalprice"]
    found = bought.group_by(keys).agg(sum_quantity=col("l_quantity").sum())
    by = ["o_totalprice", "o_orderdate", "o_orderkey"]
    return found.select(*keys, "sum_quantity").sort(by, descending=[True, False, False]).head(100)


def _q19(data):
    lines = _table(data, "lineitem").filter(
        col("l_shipmode").is_in(["AIR", "AIR REG"]),
        col("l_shipinstruct") == "DELIVER IN PERSON",
    )
    lines = lines.join(_table(data, "part"), left_on="l_partkey", right_on="p_partkey")

    def ordered(brand, containers, least, largest):
        return (
            (col("p_brand") == brand)
            & col("p_container").is_in(containers)
            & col("l_quantity").is_between(least, least + 10)
            & col("p_size").is_between(1, largest)
        )

    wanted = lines.filter(
        ordered("Brand#12", ["SM CASE", "SM BOX", "SM PACK", "SM PKG"], 1, 5)
        | ordered("Brand#23", ["MED BAG", "MED BOX", "MED PKG", "MED PACK"], 10, 10)
        | ordered("Brand#34", ["LG CASE", "LG BOX", "LG PACK", "LG PKG"], 20, 15)
    )
    return wanted.select(revenue=_revenue().sum())


def _q20(data):
    parts = _table(data, "part").filter(col("p_name").str.starts_with("forest"))
    lines = _within(_table(data, "lineitem"), "l_shipdate", (1994, 1, 1), (1995, 1, 1))
    shipped = lines.group_by("l_partkey", "l_suppkey").agg(n=col("l_quantity").sum())
    offers = _table(data, "partsupp").join(
        parts, left_on="ps_partkey", right_on="p_partkey", how="semi"
    )
    offers = offers.join(
        shipped, left_on=["ps_partkey", "ps_suppkey"], right_on=["l_partkey", "l_suppkey"]
    )
    offers = offers.filter(col("ps_availqty") > 0.5 * col("n"))
    nation = _table(data, "nation").filter(col("n_name") == "CANADA")
    found = _table(data, "supplier").join(
        offers, left_on="s_suppkey", right_on="ps_suppkey", how="semi"
    )
    found = found.join(nation, left_on="s_nationkey", right_on="n_nationkey", how="semi")
    return found.select("s_name", "s_address").sort("s_name")


def _q21(data):
    late = _table(data, "lineitem").filter(col("l_receiptdate") > col("l_commitdate"))
    suppliers = _table(data, "lineitem").group_by("l_orderkey").agg(n=col("l_suppkey").n_unique())
    guilty = late.join(suppliers.filter(col("n") > 1), on="l_orderkey")
    alone = guilty.group_by("l_orderkey").agg(m=col("l_suppkey").n_unique()).filter(col("m") == 1)
    nation = _table(data, "nation").filter(col("n_name") == "SAUDI ARABIA")
    orders = _table(data, "orders").filter(col("o_orderstatus") == "F")
    found = (
        guilty.join(alone, on="l_orderkey")
        .join(_table(data, "supplier"), left_on="l_suppkey", right_on="s_suppkey")
        .join(nation, left_on="s_nationkey", right_on="n_nationkey")
        .join(orders, left_on="l_orderkey", right_on="o_orderkey")
    )
    counts = found.group_by("s_name").agg(numwait=rows())
    return counts.sort("numwait", "s_name", descending=[True, False]).head(100)


def _q22(data):
    customers = _table(data, "customer").with_columns(cntrycode=col("c_phone").str.slice(0, 2))
    customers = customers.filter(col("cntrycode").is_in(PHONE_CODES))
    balance = col("c_acctbal")
    rich = customers.filter(balance > balance.filter(balance > 0).mean())
    idle = rich.join(_table(data, "orders"), left_on="c_custkey", right_on="o_custkey", how="anti")
    found = idle.group_by("cntrycode").agg(numcust=rows(), totacctbal=balance.sum())
    return found.sort("cntrycode")
