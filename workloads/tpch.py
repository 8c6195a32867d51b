"""TPC-H: the 22 queries; their planning alone is in `tpch_planning`.

The code of the queries is in `_tpch_queries`, the known answers in `_tpch_sql`.
"""

from __future__ import annotations

from _tpch_queries import (
    cheapest_supplier,
    customers_without_orders,
    delivered_by_air,
    effect_of_promotion,
    forecast_revenue,
    important_stock,
    large_orders,
    late_orders,
    local_suppliers,
    market_share,
    orders_of_customers,
    pricing_summary,
    profit_of_green_parts,
    returned_items,
    shipping_modes,
    small_quantities,
    suppliers_of_parts,
    surplus_of_suppliers,
    top_supplier,
    trade_between_nations,
    unshipped_orders,
    waiting_for_one,
)
from _tpch_sql import (
    Q01,
    Q02,
    Q03,
    Q04,
    Q05,
    Q06,
    Q07,
    Q08,
    Q09,
    Q10,
    Q11,
    Q12,
    Q13,
    Q14,
    Q15,
    Q16,
    Q17,
    Q18,
    Q19,
    Q20,
    Q21,
    Q22,
)
from _tpch_tables import data_and_answer, same_rows

from benchkit.measure import workload


def query(*tags):
    """Declare a query: a workload whose result is compared with that of DuckDB."""

    def declare(function):
        found = workload(
            tags=["query", "io", *tags], requires=["pandas", "pyarrow", "dask.dataframe"]
        )(function)
        found.check(same_rows)
        return found

    return declare


@query("scan", "groupby", "ci", "nightly")
def q01(prepared):
    """Sum the lines shipped until a date, by return flag and status (TPC-H query 1).

    Nearly all lines are read and four groups are left. Stresses Parquet reading, arithmetic on
    columns and a group-by of eight aggregates with a tiny result.

    Scale: by scale factor, as q03. About 2 s on 2 x 1 x 1 GiB.
    Check: the rows, by DuckDB from the same files.
    """
    return pricing_summary(prepared["data"]).compute()


q01.prepare(lambda scale: data_and_answer(scale, Q01))


@query("join", "nightly")
def q02(prepared):
    """Find the cheapest European supplier of each brass part of one size (TPC-H query 2).

    Many small joins, then a minimum by part that is joined with its own input. Stresses the
    planning of joins, and reuse of a subtree that occurs twice.

    Scale: by scale factor, as q03. About 5 s on 2 x 1 x 1 GiB.
    Check: the rows, by DuckDB from the same files.
    """
    return cheapest_supplier(prepared["data"]).compute()


q02.prepare(lambda scale: data_and_answer(scale, Q02))


@query("join", "ci", "first-twelve", "quick", "nightly")
def q03(prepared):
    """Find the ten unshipped orders of one market segment with the largest value (TPC-H query 3).

    Three tables are filtered, joined twice, grouped and limited to the first rows. Stresses the
    optimiser (columns and filters pushed down to Parquet), two successive shuffles and a large
    group-by.

    Scale: scale factor 1 for each 4 GiB of cluster memory, in steps of 1, 2, 5; 16 files of a large
    table per unit. About 2 s on 2 x 1 x 1 GiB, plus 5 s once to make the data.
    Check: the ten rows, by DuckDB from the same files.
    """
    return unshipped_orders(prepared["data"]).compute()


q03.prepare(lambda scale: data_and_answer(scale, Q03))


@query("join", "nightly")
def q04(prepared):
    """Count the orders of a quarter that have a late line, by priority (TPC-H query 4).

    Stresses the semi join: lines only select orders, and must not multiply them.

    Scale: by scale factor, as q03. About 2 s on 2 x 1 x 1 GiB.
    Check: the rows, by DuckDB from the same files.
    """
    return late_orders(prepared["data"]).compute()


q04.prepare(lambda scale: data_and_answer(scale, Q04))


@query("join", "ci", "nightly")
def q05(prepared):
    """Sum sales of a year within each Asian nation (TPC-H query 5).

    Five joins, one of them on two keys. Stresses shuffles of the two largest tables, and filters on
    small tables that reach the large ones only through joins.

    Scale: by scale factor, as q03. About 4 s on 2 x 1 x 1 GiB.
    Check: the rows, by DuckDB from the same files.
    """
    return local_suppliers(prepared["data"]).compute()


q05.prepare(lambda scale: data_and_answer(scale, Q05))


@query("scan", "ci", "nightly")
def q06(prepared):
    """Sum the discounts on small quantities in a year (TPC-H query 6).

    No join and no groups. Stresses filters at the reading of Parquet, and the selection of four of
    16 columns.

    Scale: by scale factor, as q03. About 1 s on 2 x 1 x 1 GiB.
    Check: the number, by DuckDB from the same files.
    """
    return forecast_revenue(prepared["data"]).compute()


q06.prepare(lambda scale: data_and_answer(scale, Q06))


@query("join", "nightly")
def q07(prepared):
    """Sum trade between France and Germany, by direction and year (TPC-H query 7).

    The same joins twice, with the nations exchanged, and a concatenation. Stresses detection of
    common subtrees: the input of both halves should be read once.

    Scale: by scale factor, as q03. About 9 s on 2 x 1 x 1 GiB.
    Check: the rows, by DuckDB from the same files.
    """
    return trade_between_nations(prepared["data"]).compute()


q07.prepare(lambda scale: data_and_answer(scale, Q07))


@query("join", "nightly")
def q08(prepared):
    """Compute the market share of Brazil in America for one steel type, by year (TPC-H query 8).

    Seven joins of eight tables. Stresses planning, which takes longer than in any other query, and
    joins of large tables with few rows of a small one.

    Scale: by scale factor, as q03. About 7 s on 2 x 1 x 1 GiB.
    Check: the rows, by DuckDB from the same files.
    """
    return market_share(prepared["data"]).compute()


q08.prepare(lambda scale: data_and_answer(scale, Q08))


@query("join", "ci", "nightly")
def q09(prepared):
    """Sum the profit on parts named after a colour, by nation and year (TPC-H query 9).

    Stresses a search in strings, and six joins without a filter on the largest tables, one of them
    on two keys.

    Scale: by scale factor, as q03. About 5 s on 2 x 1 x 1 GiB.
    Check: the rows, by DuckDB from the same files.
    """
    return profit_of_green_parts(prepared["data"]).compute()


q09.prepare(lambda scale: data_and_answer(scale, Q09))


@query("join", "groupby", "nightly")
def q10(prepared):
    """Find the twenty customers with the largest returns in a quarter (TPC-H query 10).

    Stresses a group-by of seven keys, most of them strings, which are columns of all joins.

    Scale: by scale factor, as q03. About 9 s on 2 x 1 x 1 GiB.
    Check: the rows, by DuckDB from the same files.
    """
    return returned_items(prepared["data"]).compute()


q10.prepare(lambda scale: data_and_answer(scale, Q10))


@query("join", "groupby", "nightly")
def q11(prepared):
    """Find the parts with the largest shares of the stock in Germany (TPC-H query 11).

    The sum over all parts is the limit for each. Stresses a scalar that is used in a filter of the
    frame from which it was computed.

    Scale: by scale factor, as q03. About 3 s on 2 x 1 x 1 GiB.
    Check: the rows, by DuckDB from the same files.
    """
    return important_stock(prepared["data"]).compute()


q11.prepare(lambda scale: data_and_answer(scale, Q11))


@query("join", "nightly")
def q12(prepared):
    """Count urgent and other late orders by two shipping modes (TPC-H query 12).

    Stresses filters that compare columns of the largest table, before a join and two conditional
    sums.

    Scale: by scale factor, as q03. About 3 s on 2 x 1 x 1 GiB.
    Check: the rows, by DuckDB from the same files.
    """
    return shipping_modes(prepared["data"]).compute()


q12.prepare(lambda scale: data_and_answer(scale, Q12))


@query("join", "groupby", "nightly")
def q13(prepared):
    """Count customers by number of orders (TPC-H query 13).

    Stresses a regular expression on long strings, a left join, and a group-by of a group-by.

    Scale: by scale factor, as q03. About 3 s on 2 x 1 x 1 GiB.
    Check: the rows, by DuckDB from the same files.
    """
    return orders_of_customers(prepared["data"]).compute()


q13.prepare(lambda scale: data_and_answer(scale, Q13))


@query("join", "nightly")
def q14(prepared):
    """Compute the share of promoted parts in the revenue of a month (TPC-H query 14).

    Stresses a join of few lines with all parts, and a ratio of two sums of one frame.

    Scale: by scale factor, as q03. About 2 s on 2 x 1 x 1 GiB.
    Check: the number, by DuckDB from the same files.
    """
    return effect_of_promotion(prepared["data"]).compute()


q14.prepare(lambda scale: data_and_answer(scale, Q14))


@query("groupby", "nightly")
def q15(prepared):
    """Find the supplier with the largest revenue in a quarter (TPC-H query 15).

    Stresses a maximum that is used in a filter of the sums from which it was computed. The sums
    must not be computed twice: their last bit may differ (the standard defines a view).

    Scale: by scale factor, as q03. About 2 s on 2 x 1 x 1 GiB.
    Check: the rows, by DuckDB from the same files.
    """
    return top_supplier(prepared["data"]).compute()


q15.prepare(lambda scale: data_and_answer(scale, Q15))


@query("join", "groupby", "nightly")
def q16(prepared):
    """Count suppliers without complaints by brand, type and size of parts (TPC-H query 16).

    Stresses a regular expression, an anti join, and distinct counts in very many groups.

    Scale: by scale factor, as q03. About 3 s on 2 x 1 x 1 GiB.
    Check: the rows, by DuckDB from the same files.
    """
    return suppliers_of_parts(prepared["data"]).compute()


q16.prepare(lambda scale: data_and_answer(scale, Q16))


@query("join", "groupby", "ci", "nightly")
def q17(prepared):
    """Compute the yearly revenue lost without small orders of one kind of part (TPC-H query 17).

    The mean of all lines by part is joined with the lines of few parts. Stresses a large group-by
    and a join of its result, where a filter could be applied first.

    Scale: by scale factor, as q03. About 2 s on 2 x 1 x 1 GiB.
    Check: the number, by DuckDB from the same files.
    """
    return small_quantities(prepared["data"]).compute()


q17.prepare(lambda scale: data_and_answer(scale, Q17))


@query("join", "groupby", "nightly")
def q18(prepared):
    """Find the hundred most expensive orders of more than 300 units (TPC-H query 18).

    Stresses the largest group-by of all queries, with one group per order in several partitions,
    and a semi join that keeps very few of them.

    Scale: by scale factor, as q03. About 6 s on 2 x 1 x 1 GiB.
    Check: the rows, by DuckDB from the same files.
    """
    return large_orders(prepared["data"]).compute()


q18.prepare(lambda scale: data_and_answer(scale, Q18))


@query("join", "nightly")
def q19(prepared):
    """Sum the revenue of parts shipped by air that match one of three conditions (TPC-H query 19).

    Stresses a disjunction of three conditions on two tables, which can only be applied after the
    join.

    Scale: by scale factor, as q03. About 4 s on 2 x 1 x 1 GiB.
    Check: the number, by DuckDB from the same files.
    """
    return delivered_by_air(prepared["data"]).compute()


q19.prepare(lambda scale: data_and_answer(scale, Q19))


@query("join", "groupby", "nightly")
def q20(prepared):
    """Find suppliers in Canada with a surplus of some parts (TPC-H query 20).

    Stresses nested semi joins and a join on two keys with a large group-by.

    Scale: by scale factor, as q03. About 4 s on 2 x 1 x 1 GiB.
    Check: the rows, by DuckDB from the same files.
    """
    return surplus_of_suppliers(prepared["data"]).compute()


q20.prepare(lambda scale: data_and_answer(scale, Q20))


@query("join", "groupby", "ci", "nightly")
def q21(prepared):
    """Find suppliers in Saudi Arabia who were the only late supplier of an order (TPC-H query 21).

    The largest table is used three times: all lines, late lines, and lines of finished orders.
    Stresses joins of large tables with each other, and distinct counts with one group per order.

    Scale: by scale factor, as q03. About 5 s on 2 x 1 x 1 GiB.
    Check: the rows, by DuckDB from the same files.
    """
    return waiting_for_one(prepared["data"]).compute()


q21.prepare(lambda scale: data_and_answer(scale, Q21))


@query("join", "nightly")
def q22(prepared):
    """Count customers with a high balance and no orders, by country (TPC-H query 22).

    Stresses an anti join with a whole table, a mean that is used in a filter, and substrings.

    Scale: by scale factor, as q03. About 3 s on 2 x 1 x 1 GiB.
    Check: the rows, by DuckDB from the same files.
    """
    return customers_without_orders(prepared["data"]).compute()


q22.prepare(lambda scale: data_and_answer(scale, Q22))
