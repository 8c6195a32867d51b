"""Group-by workloads on the h2o (db-benchmark) table."""

from __future__ import annotations

from _sizes import in_steps

from benchkit.measure import dataset, expect, workload

ROWS_PER_FILE = 250_000
Q5 = """
    select id6, sum(v1)::double as v1, sum(v2)::double as v2, sum(v3) as v3
    from h2o group by id6 order by id6
"""


@workload(
    tags=["groupby", "io", "first-twelve", "quick"],
    requires=["pandas", "pyarrow", "dask.dataframe"],
)
def q5(prepared):
    """Sum three columns by an integer key with a hundredth as many groups as rows.

    Each partition holds most groups, so partial results hardly shrink. Stresses Parquet reading,
    the tree reduction of large partial results, and pandas' group-by.

    Scale: a row for each 200 B of cluster memory, in steps of 1, 2, 5; files of 250 000 rows.
    About 2 s on 2 x 1 x 1 GiB, plus 2 s once to make the data.
    Check: every sum of every group, by DuckDB from the same files.
    """
    import dask.dataframe as dd

    files, _ = prepared
    frame = dd.read_parquet(files, columns=["id6", "v1", "v2", "v3"])
    grouped = frame.groupby("id6", dropna=False, observed=True)
    return grouped.agg({"v1": "sum", "v2": "sum", "v3": "sum"}).compute()


@q5.prepare
def _(scale):
    rows = int(in_steps(max(20_000, scale.linear(1) / 200)))
    data = dataset("h2o", rows=rows, groups=100, files=max(2, rows // ROWS_PER_FILE))
    return data.files("h2o"), data.answer(Q5)


@q5.check
def _(result, prepared):
    _, wanted = prepared
    got = result.sort_index()
    expect(len(got), equals=len(wanted), what="groups")
    for name, value in {"id6": got.index, "v1": got["v1"], "v2": got["v2"]}.items():
        expect(value.to_numpy(), equals=wanted[name].to_numpy(), what=name)
    expect(got["v3"].to_numpy(), close_to=wanted["v3"].to_numpy(), rtol=1e-6, what="v3")
