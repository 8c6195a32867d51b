import numpy as np
import pytest

from benchkit.store.schema import COORDINATES, GROUPS, METRICS, RECORD_FIELDS, Metric, Variable
from benchkit.store.tables import read_table


def test_read_table_keeps_commas_and_order():
    rows = read_table("coordinates")
    assert [row["name"] for row in rows[:3]] == ["time", "address", "name"]
    assert rows[0]["long_name"] == "time after clock on, scheduler's clock"


def test_tables_become_metrics_and_variables():
    source = "process samples, high-water marks"
    long_name = "cluster process memory, highest sum"
    assert METRICS["memory_peak"] == Metric("memory_peak", "B", long_name, source, "lower", 2)
    assert METRICS["n_tasks"].better == ""
    assert RECORD_FIELDS["scale"] == "float"
    assert GROUPS["transfers"][2] == Variable(
        "count", ("pair",), "1", "fetches of task results", "workers' transfer logs", "f8"
    )
    assert COORDINATES["time"] == (
        Variable(
            "time",
            ("time",),
            "s",
            "time after clock on, scheduler's clock",
            "scheduler's clock",
            "f8",
        ),
    )


@pytest.mark.parametrize(
    ("table", "keys"),
    [
        ("metrics", ("name",)),
        ("record_fields", ("name",)),
        ("variables", ("group", "name")),
        ("coordinates", ("dim", "name")),
        ("coiled_columns", ("table", "column")),
    ],
)
def test_table_has_complete_unique_rows(table, keys):
    rows = read_table(table)
    assert all(None not in row and None not in row.values() for row in rows)
    names = [tuple(row[key] for key in keys) for row in rows]
    assert len(set(names)) == len(names)


def test_table_types_are_known():
    for table in ("variables", "coordinates"):
        for row in read_table(table):
            assert row["dtype"] == "str" or np.dtype(row["dtype"]).kind in "fiu", row
    assert {row["dtype"] for row in read_table("record_fields")} == {
        "str",
        "json",
        "int",
        "float",
        "time",
    }
    assert {row["better"] for row in read_table("metrics")} <= {"lower", "higher", ""}
