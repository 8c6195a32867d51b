"""The checks of the TPC-H workloads accept the true result and reject wrong ones.

The check of query 3 is tested in `test_answers`.
"""

import shutil
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import dask.dataframe
import pandas as pd
import pytest
from helpers.wrong_results import TINY, VARIANTS, prove, proved_here

SPARK = "engines.tpch_spark"
QUERIES = [f"tpch.q{number:02d}" for number in range(1, 23)]


# -- wrong results --------------------------------------------------------------------------------


def changed(change):
    """Return a function that changes a result; a single number that loses its row becomes NaN."""

    def spoil(result):
        if isinstance(result, pd.DataFrame):
            return change(result.copy())
        frame = change(pd.DataFrame({"number": [result]}))
        return frame.iloc[0, 0] if frame.shape == (1, 1) else float("nan")

    return spoil


def value_off(frame):
    """Increase the first value of the last column slightly: a number, a text or a date."""
    name, first = frame.columns[-1], frame.iloc[0, -1]
    if isinstance(first, float):
        first = first * (1 + 1e-6) + 1e-4
    elif isinstance(first, str):
        first += "x"
    else:
        first += 1
    return frame.assign(**{name: [first, *frame[name].tolist()[1:]]})


def values_exchanged(frame):
    """Swap two different values of the first column that has them; else repeat all rows."""
    for name in frame.columns:
        values = frame[name].tolist()
        other = next((i for i, value in enumerate(values) if value != values[0]), None)
        if other is not None:
            values[0], values[other] = values[other], values[0]
            return frame.assign(**{name: values})
    return pd.concat([frame, frame])


(PLANNING,) = {
    id(each.workload): each.workload.main.__globals__
    for each in VARIANTS
    if each.workload.name == "tpch.optimize"
}.values()
SPOILED = {
    "a row is lost": changed(lambda frame: frame.iloc[1:]),
    "a value is off": changed(value_off),
    "two rows have exchanged a value": changed(values_exchanged),
    "a column is lost": changed(lambda frame: frame.iloc[:, 1:]),
}
WRONG = {name: SPOILED for name in [*QUERIES, "engines.tpch", SPARK] if name != "tpch.q03"}


def with_readers(change):
    """Return a function that changes the readers of a plan."""

    def spoil(planned):
        readers = PLANNING["readers"](planned.collection)
        return type(planned)(SimpleNamespace(expr=change(readers)))

    return spoil


def and_all_of(reader):
    return dask.dataframe.read_parquet(reader.operand("path")).expr


@cache
def rows_of(planned):
    """Return the rows of a plan, computed once for all changes of them."""
    return planned.collection.compute()


def with_rows(change):
    """Return a function that changes the rows that a plan produces, but not its readers."""

    def spoil(planned):
        plan, rows = planned.collection.expr, change(rows_of(planned))
        return type(planned)(SimpleNamespace(expr=plan, compute=lambda: rows))

    return spoil


READ = {
    "a table is read whole": with_readers(lambda readers: [*readers, and_all_of(readers[0])]),
    "a table is not read": with_readers(lambda readers: readers[1:]),
    "nothing is read": with_readers(lambda readers: []),
}
PLANS = {
    **READ,
    "a row is lost": with_rows(lambda rows: rows.iloc[1:]),
    "rows are found twice": with_rows(lambda rows: pd.concat([rows, rows])),
    "the order is lost": with_rows(lambda rows: rows.iloc[::-1]),
}
#: For queries that return a single number.
NUMBER = {**READ, "the number is off": with_rows(lambda number: 1.001 * number)}
WRONG |= {"tpch.optimize": PLANS, "tpch.optimize_files": PLANS}
WRONG |= {f"tpch.optimize[query={name}]": NUMBER for name in ("q06", "q14", "q19")}
#: With as few rows as the tests plan, these queries return no row or one.
WRONG |= {f"tpch.optimize[query={name}]": READ for name in ("q11", "q15", "q17", "q20", "q21")}


def marked(variant):
    """Skip the variant that needs Java where it is absent."""
    absent = variant.workload.name == SPARK and (
        variant.missing_packages() or not shutil.which("java")
    )
    marks = [pytest.mark.skipif(bool(absent), reason="no pyspark, or no java")]
    return pytest.param(variant, id=variant.name, marks=marks)


def proved():
    """Return the variants to test: of Spark, which starts slowly, the last query only."""
    return [each for each in proved_here(WRONG) if SPARK not in each.name or "q21" in each.name]


# -- the tests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", [marked(each) for each in proved()])
def test_check_rejects_wrong_results(client, variant, monkeypatch):
    monkeypatch.setitem(PLANNING, "PASSES", 1)  # all passes make the same plan
    if "optimize" in variant.name:  # of two to eight files for each large table
        fraction = 0.02 if variant.params.get("files") == 400 else 0.1
        prove(client, variant, WRONG, replace(TINY, fraction=fraction))
    else:
        prove(client, variant, WRONG, TINY)


def test_source_of_query_contains_plan_and_sql():
    found = {each.workload.name: each.workload for each in VARIANTS}
    hashes = {found[name].source_hash for name in QUERIES}
    used = {function.__name__ for function in found["tpch.q20"]._functions()}

    assert len(hashes) == len(QUERIES)
    assert {"surplus_of_suppliers", "found_in", "data_and_answer", "same_rows"} <= used
    assert "waiting_for_one" not in used


def test_source_hash_depends_on_sql(monkeypatch):
    found = {each.workload.name: each.workload for each in VARIANTS}
    names = found["tpch.q20"].main.__globals__
    before = {name: found[name].source_hash for name in ("tpch.q20", "tpch.q19")}

    monkeypatch.setitem(names, "Q20", names["Q20"].replace("CANADA", "PERU"))

    assert found["tpch.q20"].source_hash != before["tpch.q20"]
    assert found["tpch.q19"].source_hash == before["tpch.q19"]
