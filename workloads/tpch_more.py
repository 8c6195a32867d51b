"""TPC-H: queries 12 to 22.

The code of the queries is in `_tpch_more_queries`, the known results are in `_tpch_sql`.
"""

from __future__ import annotations

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
from _tpch_sql import Q12, Q13, Q14, Q15, Q16, Q17, Q18, Q19, Q20, Q21, Q22
from _tpch_tables import data_and_answer, query


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
