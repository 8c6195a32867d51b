"""What an optimised plan of TPC-H says of itself."""

from __future__ import annotations

import re

from benchkit.measure.errors import MissingPackage


class Planned:
    """An optimised collection, where what persists the results of a run does not find it.

    With the seconds that it took to plan, each time that it was planned.
    """

    def __init__(self, collection, seconds=()):
        self.collection, self.seconds = collection, seconds


def need_planning():
    """Refuse a Dask whose frames are not planned before they are computed."""
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
        # By the class: a Delayed, which `isin` makes, has any attribute.
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
