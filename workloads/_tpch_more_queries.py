"""Queries 12 to 22 of TPC-H in Dask DataFrame, as lazy collections."""

from __future__ import annotations

from _tpch_tables import (
    found_in,
    in_order,
    not_found_in,
    revenue_of,
    suppliers_in,
    table,
    within,
)

PHONE_CODES = ("13", "31", "23", "29", "30", "18", "17")


def shipping_modes(data):
    """Query 12."""
    lines = table(data, "lineitem")
    lines = lines[
        lines["l_shipmode"].isin(["MAIL", "SHIP"])
        & (lines["l_commitdate"] < lines["l_receiptdate"])
        & (lines["l_shipdate"] < lines["l_commitdate"])
        & within(lines["l_receiptdate"], (1994, 1, 1), (1995, 1, 1))
    ]
    lines = table(data, "orders").merge(lines, left_on="o_orderkey", right_on="l_orderkey")
    urgent = lines["o_orderpriority"].isin(["1-URGENT", "2-HIGH"])
    lines["high_line_count"] = urgent.astype("int64")
    lines["low_line_count"] = (~urgent).astype("int64")
    sums = lines.groupby("l_shipmode")[["high_line_count", "low_line_count"]].sum()
    return in_order(sums.reset_index(), ["l_shipmode"])


def orders_of_customers(data):
    """Query 13."""
    orders = table(data, "orders")
    orders = orders[~orders["o_comment"].str.contains("special.*requests")]
    both = table(data, "customer").merge(
        orders, left_on="c_custkey", right_on="o_custkey", how="left"
    )
    each = both.groupby("c_custkey").agg(c_count=("o_orderkey", "count")).reset_index()
    counts = each.groupby("c_count").agg(custdist=("c_custkey", "count")).reset_index()
    return in_order(counts, ["custdist", "c_count"], [False, False])


def effect_of_promotion(data):
    """Query 14."""
    lines = table(data, "lineitem")
    lines = lines[within(lines["l_shipdate"], (1995, 9, 1), (1995, 10, 1))]
    lines = lines.merge(table(data, "part"), left_on="l_partkey", right_on="p_partkey")
    revenue = revenue_of(lines)
    promoted = revenue.where(lines["p_type"].str.startswith("PROMO"), 0.0)
    return 100.0 * promoted.sum() / revenue.sum()


def top_supplier(data):
    """Query 15."""
    lines = table(data, "lineitem")
    lines = lines[within(lines["l_shipdate"], (1996, 1, 1), (1996, 4, 1))]
    lines["total_revenue"] = revenue_of(lines)
    sums = lines.groupby("l_suppkey")["total_revenue"].sum().round(4).reset_index()
    sums = sums[sums["total_revenue"] == sums["total_revenue"].max()]
    found = table(data, "supplier").merge(sums, left_on="s_suppkey", right_on="l_suppkey")
    found = found[["s_suppkey", "s_name", "s_address", "s_phone", "total_revenue"]]
    return in_order(found, ["s_suppkey"])


def suppliers_of_parts(data):
    """Query 16."""
    parts, suppliers = table(data, "part"), table(data, "supplier")
    parts = parts[
        (parts["p_brand"] != "Brand#45")
        & ~parts["p_type"].str.startswith("MEDIUM POLISHED")
        & parts["p_size"].isin([49, 14, 23, 45, 19, 3, 36, 9])
    ]
    blamed = suppliers[suppliers["s_comment"].str.contains("Customer.*Complaints")]
    offers = not_found_in(table(data, "partsupp"), blamed, "ps_suppkey", "s_suppkey")
    offers = offers.merge(parts, left_on="ps_partkey", right_on="p_partkey")
    keys = ["p_brand", "p_type", "p_size"]
    counts = offers.groupby(keys)["ps_suppkey"].nunique().reset_index()
    counts = counts.rename(columns={"ps_suppkey": "supplier_cnt"})
    return in_order(counts, ["supplier_cnt", *keys], [False, True, True, True])


def small_quantities(data):
    """Query 17."""
    parts, lines = table(data, "part"), table(data, "lineitem")
    parts = parts[(parts["p_brand"] == "Brand#23") & (parts["p_container"] == "MED BOX")]
    means = lines.groupby("l_partkey").agg(mean=("l_quantity", "mean")).reset_index()
    means = means.rename(columns={"l_partkey": "partkey"})
    lines = lines.merge(parts, left_on="l_partkey", right_on="p_partkey")
    lines = lines.merge(means, left_on="p_partkey", right_on="partkey")
    small = lines[lines["l_quantity"] < 0.2 * lines["mean"]]
    return small["l_extendedprice"].sum() / 7.0


def large_orders(data):
    """Query 18."""
    lines = table(data, "lineitem")
    # One group per order: too many for one partition.
    sums = lines.groupby("l_orderkey").agg(
        {"l_quantity": "sum"}, split_out=len(data.files("lineitem"))
    )
    large = sums[sums["l_quantity"] > 300].reset_index()
    orders = found_in(table(data, "orders"), large, "o_orderkey", "l_orderkey")
    orders = table(data, "customer").merge(orders, left_on="c_custkey", right_on="o_custkey")
    lines = orders.merge(lines, left_on="o_orderkey", right_on="l_orderkey")
    keys = ["c_name", "c_custkey", "o_orderkey", "o_orderdate", "o_totalprice"]
    found = lines.groupby(keys).agg(sum_quantity=("l_quantity", "sum")).reset_index()
    by = ["o_totalprice", "o_orderdate", "o_orderkey"]
    return in_order(found, by, [False, True, True], first=100)


def delivered_by_air(data):
    """Query 19."""
    lines = table(data, "lineitem")
    lines = lines[
        lines["l_shipmode"].isin(["AIR", "AIR REG"])
        & (lines["l_shipinstruct"] == "DELIVER IN PERSON")
    ]
    lines = lines.merge(table(data, "part"), left_on="l_partkey", right_on="p_partkey")

    def ordered(brand, containers, least, largest):
        return (
            (lines["p_brand"] == brand)
            & lines["p_container"].isin(containers)
            & (lines["l_quantity"] >= least)
            & (lines["l_quantity"] <= least + 10)
            & (lines["p_size"] >= 1)
            & (lines["p_size"] <= largest)
        )

    wanted = lines[
        ordered("Brand#12", ["SM CASE", "SM BOX", "SM PACK", "SM PKG"], 1, 5)
        | ordered("Brand#23", ["MED BAG", "MED BOX", "MED PKG", "MED PACK"], 10, 10)
        | ordered("Brand#34", ["LG CASE", "LG BOX", "LG PACK", "LG PKG"], 20, 15)
    ]
    return revenue_of(wanted).sum()


def surplus_of_suppliers(data):
    """Query 20."""
    parts, lines = table(data, "part"), table(data, "lineitem")
    parts = parts[parts["p_name"].str.startswith("forest")]
    lines = lines[within(lines["l_shipdate"], (1994, 1, 1), (1995, 1, 1))]
    shipped = lines.groupby(["l_partkey", "l_suppkey"])["l_quantity"].sum().reset_index()
    offers = found_in(table(data, "partsupp"), parts, "ps_partkey", "p_partkey")
    offers = offers.merge(
        shipped, left_on=["ps_partkey", "ps_suppkey"], right_on=["l_partkey", "l_suppkey"]
    )
    offers = offers[offers["ps_availqty"] > 0.5 * offers["l_quantity"]]
    found = found_in(suppliers_in(data, "CANADA"), offers, "s_suppkey", "ps_suppkey")
    return in_order(found[["s_name", "s_address"]], ["s_name"])


def waiting_for_one(data):
    """Query 21."""
    lines, orders = table(data, "lineitem"), table(data, "orders")
    late = lines[lines["l_receiptdate"] > lines["l_commitdate"]]
    orders = orders[orders["o_orderstatus"] == "F"]
    suppliers = lines.groupby("l_orderkey")["l_suppkey"].nunique().reset_index()
    shared = suppliers[suppliers["l_suppkey"] > 1][["l_orderkey"]]
    guilty = late.merge(shared, on="l_orderkey")
    alone = guilty.groupby("l_orderkey")["l_suppkey"].nunique().reset_index()
    alone = alone[alone["l_suppkey"] == 1][["l_orderkey"]]
    guilty = guilty.merge(alone, on="l_orderkey")
    guilty = guilty.merge(
        suppliers_in(data, "SAUDI ARABIA"), left_on="l_suppkey", right_on="s_suppkey"
    )
    guilty = guilty.merge(orders, left_on="l_orderkey", right_on="o_orderkey")
    counts = guilty.groupby("s_name").agg(numwait=("l_orderkey", "count")).reset_index()
    return in_order(counts, ["numwait", "s_name"], [False, True], first=100)


def customers_without_orders(data):
    """Query 22."""
    customers = table(data, "customer")
    customers["cntrycode"] = customers["c_phone"].str.slice(0, 2)
    customers = customers[customers["cntrycode"].isin(list(PHONE_CODES))]
    balances = customers["c_acctbal"]
    rich = customers[balances > balances[balances > 0].mean()]
    idle = not_found_in(rich, table(data, "orders"), "c_custkey", "o_custkey")
    groups = idle.groupby("cntrycode")
    found = groups.agg(numcust=("c_custkey", "count"), totacctbal=("c_acctbal", "sum"))
    return in_order(found.reset_index(), ["cntrycode"])
