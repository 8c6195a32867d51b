"""Group-by workloads on the table of db-benchmark (h2o.ai)."""

from __future__ import annotations

import _recipes.tpch_h2o  # noqa: F401  (declares the datasets)
from _frames import shuffle_by
from _shuffle import warm_up_shuffle
from _sizes import in_steps

from benchkit.measure import dataset, expect, workload

ROWS_PER_FILE = 250_000
#: B of cluster memory per row: for queries of Dask, and for those with a Python call per group.
BYTES_PER_ROW, SLOW_BYTES_PER_ROW = 200, 2000
REQUIRES = ["pandas", "pyarrow", "dask.dataframe"]
METHODS = {"method": ["tasks", "p2p"]}
#: Tags of queries that shuffle all rows.
SHUFFLED = ("shuffle", "ci[method=p2p]", "p2p[method=p2p]")
Q1 = "select id1, sum(v1)::bigint as v1 from h2o group by id1 order by id1"
Q2 = "select id1, id2, sum(v1)::bigint as v1 from h2o group by id1, id2 order by id1, id2"
Q3 = "select id3, sum(v1)::bigint as v1, avg(v3) as v3 from h2o group by id3 order by id3"
Q4 = """
    select id4, avg(v1) as v1, avg(v2) as v2, avg(v3) as v3 from h2o group by id4 order by id4
"""
Q5 = """
    select id6, sum(v1)::bigint as v1, sum(v2)::bigint as v2, sum(v3) as v3
    from h2o group by id6 order by id6
"""
Q6 = """
    select id4, id5, median(v3) as median, stddev_samp(v3) as std
    from h2o group by id4, id5 order by id4, id5
"""
Q7 = "select id3, max(v1) - min(v2) as range from h2o group by id3 order by id3"
Q8 = """
    select id6, v3 from h2o
    qualify row_number() over (partition by id6 order by v3 desc) <= 2
    order by id6, v3
"""
#: The correlation is undefined for a group with a single row or value.
Q9 = """
    select id2, id4, coalesce(nullif(corr(v1, v2) ^ 2, 'nan'), -1) as r2
    from h2o group by id2, id4 order by id2, id4
"""


def query(sql, *tags, bytes_per_row=BYTES_PER_ROW, **options):
    """Declare a query: a workload whose result is compared with that of DuckDB."""

    def declare(function):
        found = workload(tags=["groupby", "nightly", *tags], requires=REQUIRES, **options)(function)
        found.prepare(lambda scale: _table_and_answer(scale, sql, bytes_per_row))
        found.check(lambda result, prepared: _same_groups(result, prepared))
        return found

    return declare


@query(Q1, "io", "ci", version=2)
def q1(prepared):
    """Sum one column by a key with a hundred values.

    Partial results are tiny: reading and combining are left. Stresses Parquet reading of strings,
    and the overhead of a reduction.

    Scale: a row for each 200 B of cluster memory, in steps of 1, 2, 5; files of 250 000 rows.
    About 2 s on 2 x 1 x 1 GiB, plus 2 s once to make the data.
    Check: every sum, by DuckDB from the same files.
    """
    return _grouped(prepared, ["id1"], ["v1"]).agg({"v1": "sum"}).compute()


@query(Q2, "io", "ci", version=2)
def q2(prepared):
    """Sum one column by two keys with a hundred values each.

    All ten thousand groups are in every partition. Stresses group-by of several string columns, and
    partial results that do not shrink: Dask shuffles them to a few partitions.

    Scale: a row for each 200 B of cluster memory, in steps of 1, 2, 5; files of 250 000 rows.
    About 3 s on 2 x 1 x 1 GiB, plus 2 s once to make the data.
    Check: every sum, by DuckDB from the same files.
    """
    return _grouped(prepared, ["id1", "id2"], ["v1"]).agg({"v1": "sum"}).compute()


@query(Q3, "io", "ci", version=2)
def q3(prepared):
    """Sum one column and average another by a string key with a hundredth as many groups as rows.

    Like `q5`, with keys of twelve characters. Stresses strings in group-by and in partial results.

    Scale: a row for each 200 B of cluster memory, in steps of 1, 2, 5; files of 250 000 rows.
    About 3 s on 2 x 1 x 1 GiB, plus 2 s once to make the data.
    Check: every sum and mean, by DuckDB from the same files.
    """
    grouped = _grouped(prepared, ["id3"], ["v1", "v3"])
    return grouped.agg({"v1": "sum", "v3": "mean"}).compute()


@query(Q4, "io", "ci", version=2)
def q4(prepared):
    """Average three columns by an integer key with a hundred values.

    Like `q1`, without strings. Stresses Parquet reading, and means, which are two reductions each.

    Scale: a row for each 200 B of cluster memory, in steps of 1, 2, 5; files of 250 000 rows.
    About 2 s on 2 x 1 x 1 GiB, plus 2 s once to make the data.
    Check: every mean, by DuckDB from the same files.
    """
    grouped = _grouped(prepared, ["id4"], ["v1", "v2", "v3"])
    return grouped.agg({"v1": "mean", "v2": "mean", "v3": "mean"}).compute()


@query(Q5, "io", "first-twelve", "quick", "ci", version=2)
def q5(prepared):
    """Sum three columns by an integer key with a hundredth as many groups as rows.

    Each partition contains most groups, so that partial results hardly shrink. Stresses Parquet
    reading, the shuffle of large partial results to a few partitions (a tree reduction before
    dask-expr), and the group-by of pandas.

    Scale: a row for each 200 B of cluster memory, in steps of 1, 2, 5; files of 250 000 rows.
    About 2 s on 2 x 1 x 1 GiB, plus 2 s once to make the data.
    Check: every sum of every group, by DuckDB from the same files.
    """
    grouped = _grouped(prepared, ["id6"], ["v1", "v2", "v3"])
    return grouped.agg({"v1": "sum", "v2": "sum", "v3": "sum"}).compute()


@query(Q6, *SHUFFLED, variants=METHODS, version=2)
def q6(scale, prepared, *, method):
    """Compute the median and standard deviation of one column by two keys.

    A median needs all rows of its group in one partition: all rows are shuffled, to eight
    partitions per thread. Stresses the shuffle of many small rows, by tasks or P2P.

    Scale: a row for each 200 B of cluster memory, in steps of 1, 2, 5; files of 250 000 rows.
    About 6 s on 2 x 1 x 1 GiB, plus 2 s once to make the data.
    Check: every median and deviation, by DuckDB from the same files.
    """
    with shuffle_by(method):
        grouped = _grouped(prepared, ["id4", "id5"], ["v3"])
        n_out = 8 * scale.threads
        return grouped.agg({"v3": ["median", "std"]}, split_out=n_out).compute()["v3"]


@query(Q7, "io", "ci", version=2)
def q7(prepared):
    """Subtract the minimum of one column from the maximum of another, by a string key.

    There are a hundredth as many groups as rows. Stresses strings in group-by, and an aggregation
    that ends with one column.

    Scale: a row for each 200 B of cluster memory, in steps of 1, 2, 5; files of 250 000 rows.
    About 3 s on 2 x 1 x 1 GiB, plus 2 s once to make the data.
    Check: every difference, by DuckDB from the same files.
    """
    grouped = _grouped(prepared, ["id3"], ["v1", "v2"]).agg({"v1": "max", "v2": "min"})
    return grouped.assign(range=grouped["v1"] - grouped["v2"])[["range"]].compute()


@query(Q8, *SHUFFLED, variants=METHODS, bytes_per_row=SLOW_BYTES_PER_ROW)
def q8(prepared, *, method):
    """Select the two largest values of each group, with a hundredth as many groups as rows.

    All rows are shuffled, then a Python function is called for each group. Stresses the shuffle
    and, most of all, Python code that holds the GIL.

    Scale: a row for each 2000 B of cluster memory, in steps of 1, 2, 5; files of 250 000 rows.
    About 9 s on 2 x 1 x 1 GiB, plus 2 s once to make the data.
    Check: both values of every group, by DuckDB from the same files.
    """
    with shuffle_by(method):
        grouped = _grouped(prepared, ["id6"], ["v3"])["v3"]
        return grouped.apply(_two_largest, meta=("v3", float)).compute()


@query(Q9, *SHUFFLED, variants=METHODS, bytes_per_row=SLOW_BYTES_PER_ROW)
def q9(prepared, *, method):
    """Compute the squared correlation of two columns in each of ten thousand groups.

    All rows are shuffled, then a Python function is called for each group. Stresses the same as
    `q8`, with groups of two keys, one of them a string.

    Scale: a row for each 2000 B of cluster memory, in steps of 1, 2, 5; files of 250 000 rows.
    About 4 s on 2 x 1 x 1 GiB, plus 2 s once to make the data.
    Check: every group, by DuckDB from the same files.
    """
    with shuffle_by(method):
        grouped = _grouped(prepared, ["id2", "id4"], ["v1", "v2"])[["v1", "v2"]]
        return grouped.apply(_squared_correlation, meta=("r2", float)).compute().fillna(-1)


def _table_and_answer(scale, sql, bytes_per_row):
    """Return the files of the table and the result of DuckDB, sorted by key."""
    warm_up_shuffle()  # recent Dask combines many partial results by a shuffle
    rows = int(in_steps(max(20_000, scale.linear(1) / bytes_per_row)))
    # With a hundred groups, a small table would have one or two rows per pair of keys.
    groups = 100 if rows >= 1_000_000 else 20
    data = dataset("h2o", rows=rows, groups=groups, files=max(2, rows // ROWS_PER_FILE))
    return data.files("h2o"), data.answer(sql)


def _grouped(prepared, keys, columns):
    import dask.dataframe as dd

    files, _ = prepared
    frame = dd.read_parquet(files, columns=[*keys, *columns])
    return frame.groupby(keys, dropna=False, observed=True)


def _same_groups(result, prepared):
    """Compare all columns with the known result, whose first column is a key, in any order."""
    _, wanted = prepared
    got = result.rename(wanted.columns[-1]) if result.ndim == 1 else result
    got = got.reset_index([name for name in got.index.names if name in wanted])
    got = got.sort_values(list(wanted.columns))
    expect(len(got), equals=len(wanted), what="rows")
    for name in wanted:
        known = wanted[name].to_numpy()
        if known.dtype.kind == "f":
            # A correlation of zero has only rounding errors.
            expect(got[name].to_numpy(), close_to=known, rtol=1e-6, atol=1e-12, what=name)
        else:
            expect(got[name].to_numpy(), equals=known, what=name)


def _two_largest(group):
    return group.nlargest(2)


def _squared_correlation(group):
    return group["v1"].corr(group["v2"]) ** 2
