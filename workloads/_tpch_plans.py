"""Inspect optimised plans of TPC-H."""

from __future__ import annotations

import re

from benchkit.measure.errors import MissingPackage


class Planned:
    """An optimised collection, hidden from the code that persists results of a run.

    It has the seconds of each planning.
    """

    def __init__(self, collection, seconds=()):
        self.collection, self.seconds = collection, seconds


def need_planning():
    """Raise for a release of Dask without query planning."""
    import dask.dataframe as dd

    if not hasattr(dd.DataFrame, "optimize"):
        raise MissingPackage(
            "needs query planning: dask 2024.3 or later, with dask-expr before 2025.1"
        )


def readers(collection):
    """Return the steps of a plan that read tables, each once."""
    found, seen, stack = [], set(), [collection.expr]
    while stack:
        step = stack.pop()
        if isinstance(step, (list, tuple)):
            stack.extend(step)
        # Compare the class: a Delayed, which `isin` makes, has every attribute.
        elif hasattr(type(step), "_parameters") and id(step) not in seen:
            seen.add(id(step))
            stack.extend(step.operands)
            if "ReadParquet" in type(step).__name__:
                found.append(step)
    return found


def columns_named(sql, data):
    """Return the columns of the tables that a query in SQL names."""
    from pyarrow import parquet

    tables = data.manifest["tables"]
    schemas = [parquet.read_schema(data.files(table, here=True)[0]) for table in tables]
    known = {name for schema in schemas for name in schema.names}
    return known & set(re.findall(r"\w+", sql))
