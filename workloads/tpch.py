"""TPC-H: queries 1 to 11.

The code of the queries is in `_tpch_queries`, the known results are in `_tpch_sql`.
"""

from __future__ import annotations

from _tpch_queries import (
    cheapest_supplier,
    forecast_revenue,
    important_stock,
    late_orders,
    local_suppliers,
    market_share,
    pricing_summary,
    profit_of_green_parts,
    returned_items,
    trade_between_nations,
    unshipped_orders,
)
from _tpch_sql import Q01, Q02, Q03, Q04, Q05, Q06, Q07, Q08, Q09, Q10, Q11
from _tpch_tables import data_and_answer, query


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
