"""Queries 1 to 11 of TPC-H in Dask DataFrame, as lazy collections.

The code is that of a careful user: plain merges in the order of the SQL, early filters. The
optimiser selects the columns that are read, and moves filters. It runs on Dask with and without
query planning.
"""

from __future__ import annotations

from datetime import datetime

from _tpch_more_queries import (
    customers_without_orders,
    delivered_by_air,
    effect_of_promotion,
    large_orders,
    orders_of_customers,
    shipping_modes,
    small_quantities,
    suppliers_of_parts,
    surplus_of_suppliers,
    top_supplier,
    waiting_for_one,
)
from _tpch_tables import (
    found_in,
    important_share,
    in_order,
    nations_of,
    revenue_of,
    suppliers_in,
    table,
    within,
)


def pricing_summary(data):
    """Query 1."""
    lines = table(data, "lineitem")
    lines = lines[lines["l_shipdate"] <= datetime(1998, 9, 2)]
    lines["disc_price"] = revenue_of(lines)
    lines["charge"] = lines["disc_price"] * (1 + lines["l_tax"])
    groups = lines.groupby(["l_returnflag", "l_linestatus"])
    sums = groups.agg(
        sum_qty=("l_quantity", "sum"),
        sum_base_price=("l_extendedprice", "sum"),
        sum_disc_price=("disc_price", "sum"),
        sum_charge=("charge", "sum"),
        avg_qty=("l_quantity", "mean"),
        avg_price=("l_extendedprice", "mean"),
        avg_disc=("l_discount", "mean"),
        count_order=("l_quantity", "count"),
    )
    return in_order(sums.reset_index(), ["l_returnflag", "l_linestatus"])


def cheapest_supplier(data):
    """Query 2."""
    parts = table(data, "part")
    parts = parts[(parts["p_size"] == 15) & parts["p_type"].str.endswith("BRASS")]
    suppliers = table(data, "supplier").merge(
        nations_of(data, "EUROPE"), left_on="s_nationkey", right_on="n_nationkey"
    )
    offers = parts.merge(table(data, "partsupp"), left_on="p_partkey", right_on="ps_partkey")
    offers = offers.merge(suppliers, left_on="ps_suppkey", right_on="s_suppkey")
    lowest = offers.groupby("p_partkey")["ps_supplycost"].min().reset_index()
    best = offers.merge(lowest, on=["p_partkey", "ps_supplycost"])
    best = best[
        ["s_acctbal", "s_name", "n_name", "p_partkey", "p_mfgr", "s_address", "s_phone",
         "s_comment"]
    ]  # fmt: skip
    by = ["s_acctbal", "n_name", "s_name", "p_partkey"]
    return in_order(best, by, [False, True, True, True], first=100)


def unshipped_orders(data):
    """Query 3."""
    moment = datetime(1995, 3, 15)
    customer, orders = table(data, "customer"), table(data, "orders")
    lineitem = table(data, "lineitem")
    customer = customer[customer["c_mktsegment"] == "BUILDING"]
    orders = orders[orders["o_orderdate"] < moment]
    lineitem = lineitem[lineitem["l_shipdate"] > moment]

    bought = customer.merge(orders, left_on="c_custkey", right_on="o_custkey")
    lines = bought.merge(lineitem, left_on="o_orderkey", right_on="l_orderkey")
    lines["revenue"] = revenue_of(lines)
    by_order = lines.groupby(["l_orderkey", "o_orderdate", "o_shippriority"])["revenue"].sum()
    top = by_order.reset_index().nlargest(10, columns="revenue")
    return top[["l_orderkey", "revenue", "o_orderdate", "o_shippriority"]]


def late_orders(data):
    """Query 4."""
    orders, lines = table(data, "orders"), table(data, "lineitem")
    orders = orders[within(orders["o_orderdate"], (1993, 7, 1), (1993, 10, 1))]
    late = lines[lines["l_commitdate"] < lines["l_receiptdate"]]
    orders = found_in(orders, late, "o_orderkey", "l_orderkey")
    counts = orders.groupby("o_orderpriority").agg(order_count=("o_orderkey", "count"))
    return in_order(counts.reset_index(), ["o_orderpriority"])


def local_suppliers(data):
    """Query 5."""
    orders = table(data, "orders")
    orders = orders[within(orders["o_orderdate"], (1994, 1, 1), (1995, 1, 1))]
    customers = nations_of(data, "ASIA").merge(
        table(data, "customer"), left_on="n_nationkey", right_on="c_nationkey"
    )
    orders = customers.merge(orders, left_on="c_custkey", right_on="o_custkey")
    lines = orders.merge(table(data, "lineitem"), left_on="o_orderkey", right_on="l_orderkey")
    lines = lines.merge(
        table(data, "supplier"),
        left_on=["l_suppkey", "n_nationkey"],
        right_on=["s_suppkey", "s_nationkey"],
    )
    lines["revenue"] = revenue_of(lines)
    sums = lines.groupby("n_name")["revenue"].sum().reset_index()
    return in_order(sums, ["revenue", "n_name"], [False, True])


def forecast_revenue(data):
    """Query 6."""
    lines = table(data, "lineitem")
    lines = lines[
        within(lines["l_shipdate"], (1994, 1, 1), (1995, 1, 1))
        & (lines["l_discount"] >= 0.05)
        & (lines["l_discount"] <= 0.07)
        & (lines["l_quantity"] < 24)
    ]
    return (lines["l_extendedprice"] * lines["l_discount"]).sum()


def trade_between_nations(data):
    """Query 7."""
    import dask.dataframe as dd

    lines = table(data, "lineitem")
    lines = lines[within(lines["l_shipdate"], (1995, 1, 1), (1997, 1, 1))]
    nations, customers = table(data, "nation"), table(data, "customer")
    orders = table(data, "orders")

    def trade(seller, buyer):
        sellers = suppliers_in(data, seller).rename(columns={"n_name": "supp_nation"})
        buyers = customers.merge(
            nations[nations["n_name"] == buyer], left_on="c_nationkey", right_on="n_nationkey"
        ).rename(columns={"n_name": "cust_nation"})
        bought = buyers[["c_custkey", "cust_nation"]].merge(
            orders, left_on="c_custkey", right_on="o_custkey"
        )
        sold = sellers[["s_suppkey", "supp_nation"]].merge(
            lines, left_on="s_suppkey", right_on="l_suppkey"
        )
        return bought.merge(sold, left_on="o_orderkey", right_on="l_orderkey")

    both = dd.concat([trade("FRANCE", "GERMANY"), trade("GERMANY", "FRANCE")])
    both["l_year"] = both["l_shipdate"].dt.year
    both["revenue"] = revenue_of(both)
    keys = ["supp_nation", "cust_nation", "l_year"]
    return in_order(both.groupby(keys)["revenue"].sum().reset_index(), keys)


def market_share(data):
    """Query 8."""
    parts, orders = table(data, "part"), table(data, "orders")
    parts = parts[parts["p_type"] == "ECONOMY ANODIZED STEEL"]
    orders = orders[within(orders["o_orderdate"], (1995, 1, 1), (1997, 1, 1))]
    customers = table(data, "customer").merge(
        nations_of(data, "AMERICA"), left_on="c_nationkey", right_on="n_nationkey"
    )[["c_custkey"]]
    nations = table(data, "nation")[["n_nationkey", "n_name"]]
    lines = parts.merge(table(data, "lineitem"), left_on="p_partkey", right_on="l_partkey")
    lines = lines.merge(table(data, "supplier"), left_on="l_suppkey", right_on="s_suppkey")
    lines = lines.merge(orders, left_on="l_orderkey", right_on="o_orderkey")
    lines = lines.merge(customers, left_on="o_custkey", right_on="c_custkey")
    lines = lines.merge(nations, left_on="s_nationkey", right_on="n_nationkey")
    lines["o_year"] = lines["o_orderdate"].dt.year
    lines["volume"] = revenue_of(lines)
    lines["brazil"] = lines["volume"].where(lines["n_name"] == "BRAZIL", 0.0)
    sums = lines.groupby("o_year")[["brazil", "volume"]].sum().reset_index()
    sums["mkt_share"] = sums["brazil"] / sums["volume"]
    return in_order(sums[["o_year", "mkt_share"]], ["o_year"])


def profit_of_green_parts(data):
    """Query 9."""
    parts = table(data, "part")
    parts = parts[parts["p_name"].str.contains("green", regex=False)]
    offers = parts.merge(table(data, "partsupp"), left_on="p_partkey", right_on="ps_partkey")
    suppliers = table(data, "supplier").merge(
        table(data, "nation"), left_on="s_nationkey", right_on="n_nationkey"
    )
    offers = offers.merge(suppliers, left_on="ps_suppkey", right_on="s_suppkey")
    lines = table(data, "lineitem").merge(
        offers, left_on=["l_partkey", "l_suppkey"], right_on=["ps_partkey", "ps_suppkey"]
    )
    lines = lines.merge(table(data, "orders"), left_on="l_orderkey", right_on="o_orderkey")
    lines["o_year"] = lines["o_orderdate"].dt.year
    lines["sum_profit"] = revenue_of(lines) - lines["ps_supplycost"] * lines["l_quantity"]
    lines = lines.rename(columns={"n_name": "nation"})
    sums = lines.groupby(["nation", "o_year"])["sum_profit"].sum().reset_index()
    return in_order(sums, ["nation", "o_year"], [True, False])


def returned_items(data):
    """Query 10."""
    orders, lines = table(data, "orders"), table(data, "lineitem")
    orders = orders[within(orders["o_orderdate"], (1993, 10, 1), (1994, 1, 1))]
    lines = lines[lines["l_returnflag"] == "R"]
    bought = table(data, "customer").merge(orders, left_on="c_custkey", right_on="o_custkey")
    bought = bought.merge(lines, left_on="o_orderkey", right_on="l_orderkey")
    bought = bought.merge(table(data, "nation"), left_on="c_nationkey", right_on="n_nationkey")
    bought["revenue"] = revenue_of(bought)
    keys = ["c_custkey", "c_name", "c_acctbal", "c_phone", "n_name", "c_address", "c_comment"]
    sums = bought.groupby(keys)["revenue"].sum().reset_index()
    sums = sums[
        ["c_custkey", "c_name", "revenue", "c_acctbal", "n_name", "c_address", "c_phone",
         "c_comment"]
    ]  # fmt: skip
    return in_order(sums, ["revenue", "c_custkey"], [False, True], first=20)


def important_stock(data):
    """Query 11."""
    stock = table(data, "partsupp").merge(
        suppliers_in(data, "GERMANY"), left_on="ps_suppkey", right_on="s_suppkey"
    )
    stock["value"] = stock["ps_supplycost"] * stock["ps_availqty"]
    sums = stock.groupby("ps_partkey")["value"].sum().round(2).reset_index()
    sums = sums[sums["value"] > stock["value"].sum() * important_share(data)]
    return in_order(sums, ["value", "ps_partkey"], [False, True])


def plan_of(query, data):
    """Return the plan of a query by its name, ``q01`` to ``q22``."""
    plans = (
        pricing_summary,
        cheapest_supplier,
        unshipped_orders,
        late_orders,
        local_suppliers,
        forecast_revenue,
        trade_between_nations,
        market_share,
        profit_of_green_parts,
        returned_items,
        important_stock,
        shipping_modes,
        orders_of_customers,
        effect_of_promotion,
        top_supplier,
        suppliers_of_parts,
        small_quantities,
        large_orders,
        delivered_by_air,
        surplus_of_suppliers,
        waiting_for_one,
        customers_without_orders,
    )
    return plans[int(query[1:]) - 1](data)
