"""Queries by Dask and by other engines on the same data."""

import numpy as np
import pandas as pd
import pytest

from benchkit.show.pages.engines import engines


def run(workload, duration, **fields):
    same = {"host": "h", "n_threads": 4, "memory_limit": 4e9, "scale": 1.0, "outcome": "ok"}
    return {"workload": workload, "duration": duration, **same, **fields}


def texts(cell):
    return cell if isinstance(cell, str) else f"{cell.text} {cell.small}"


def test_engines_are_compared_with_dask_on_the_same_data():
    disturbed = {"quality": '{"duration": "disturbed"}'}
    rows = [
        *(run("tpch.q01", seconds) for seconds in (1.9, 2.0, 9.0)),
        run("engines.tpch[engine=duckdb,query=q01]", 0.2, **disturbed),
        run("engines.tpch[engine=polars,query=q01]", 1.0),
        run("tpch.q03", 4.0), run("engines.tpch[engine=duckdb,query=q03]", 4.0),
        run("engines.tpch_spark[query=q03]", np.nan, outcome="failed"),
        run("tpch.q05", 4.0), run("array.sum", 1.0),
        run("tpch.q01", 20.0, scale=10.0),
        run("engines.tpch[engine=duckdb,query=q01]", 1.0, scale=0.1),
    ]  # fmt: skip

    (section,) = engines(pd.DataFrame(rows))

    assert section.title == "How far is Dask from other engines at scale 1 (4 threads on h)?"
    assert section.content.columns == ["query", "dask", "duckdb", "polars", "runs"]
    assert [[texts(cell) for cell in row.cells] for row in section.content.rows] == [
        ["q01", "2.00 s", "200 ms −90 %", "1.00 s −50 %", "5 runs, 1 disturbed"],
        ["q03", "4.00 s", "4.00 s ±0 %", "–", "2 runs"],
        ["2 queries, geometric mean", "", "−68 %", "−50 %", ""],
    ]


@pytest.mark.parametrize("names", [[], ["tpch.q01"], ["engines.tpch[engine=duckdb,query=q01]"]])
def test_engines_without_a_pair_have_no_table(names):
    columns = list(run("", 1.0))

    assert engines(pd.DataFrame([run(name, 1.0) for name in names], columns=columns)) == []
