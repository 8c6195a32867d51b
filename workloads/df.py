"""DataFrame workloads: what people do to tables, beside joins and shuffles."""

from __future__ import annotations

from _frames import frame_of, gathered, keyed_frame, one_row, shuffle_by
from _shuffle import warm_up_shuffle
from _sizes import MOST_THREADS, rideshare

from benchkit.measure import expect, workload
from benchkit.measure.sizing import timeseries

REQUIRES = ["pandas", "pyarrow", "dask.dataframe"]
START = "2000-01-01"
#: A key repeats after so many of as many rows, which are a hundred times more.
REPEATS = 100
#: Prime beside any number of keys, so that neighbours have keys that are far apart.
STRIDE = 1_000_003
#: What chains of column operations look for, and what they put there.
OLD, NEW = "l000", "x"
#: Who a license to carry passengers is of.
COMPANIES = {"HV0002": "Juno", "HV0003": "Uber", "HV0004": "Via", "HV0005": "Lyft"}


@workload(tags=["alignment", "nightly", "ci"], requires=REQUIRES)
def align(scale):
    """Subtract two time series that have no moment in common, and take the mean.

    Their partitions have unlike borders: both are cut again before a row can meet its partner.
    Stresses the alignment of divisions and the graph that it makes.

    Scale: 0.25 and 0.125 x cluster memory, linear; a partition is 1/128 of one thread's memory.
    About 8 s on 2 x 1 x 1 GiB.
    Check: rows are those of both together, no column is lost, and every mean is of nothing.
    """
    early, late = _series(scale)
    difference = late - early
    rows = difference.map_partitions(len, meta=("rows", int))
    return _computed(mean=difference.mean(), rows=rows.sum(), count=difference.count().sum())


@align.check
def _(result, scale):
    early, late = _series(scale)
    expect(list(result["mean"].index), equals=list(early.columns), what="columns")
    expect(int(result["mean"].isna().sum()), equals=len(early.columns), what="means of nothing")
    rows = sum(each.map_partitions(len, meta=("rows", int)).sum().compute()
               for each in (early, late))  # fmt: skip
    expect(int(result["rows"]), equals=int(rows), what="rows")
    expect(int(result["count"]), equals=0, what="differences")


@workload(tags=["filter", "nightly", "ci"], requires=REQUIRES)
def filter(scale, seed):
    """Keep the rows that have the same word as the first row, one in a hundred.

    Stresses comparison of text, and root tasks whose results are small beside their inputs
    (coiled/benchmarks#1116).

    Scale: 0.5 x cluster memory, linear; a partition is 1/128 of one thread's memory.
    About 4 s on 2 x 1 x 1 GiB.
    Check: rows and the sum of one column, with each partition grouped by word.
    """
    frame = _named(scale, seed)
    kept = frame[frame["str_0"] == _first_word(frame)]
    return _computed(rows=kept["float_0"].count(), total=kept["float_0"].sum())


@filter.check
def _(result, scale, seed):
    frame = _named(scale, seed)
    meta = {"str_0": "object", "size": int, "sum": float}
    by_word = frame.map_partitions(_sums_by_word, meta=meta).compute().groupby("str_0").sum()
    wanted = by_word.loc[_first_word(frame)]
    expect(int(result["rows"]), equals=int(wanted["size"]), what="rows")
    expect(float(result["total"]), close_to=float(wanted["sum"]), rtol=1e-9, what="sum")


@workload(tags=["memory", "nightly", "ci"], requires=REQUIRES)
def cow_chain(scale, seed):
    """Rename, replace, fill, convert and select columns, one after another.

    Each step may copy the frame, or only what it changes. Stresses copy-on-write, and memory
    that Dask does not see.

    Scale: 0.25 x cluster memory, linear; a partition is 1/128 of one thread's memory.
    About 3 s on 2 x 1 x 1 GiB.
    Check: columns and their types, rows, the sum of a column, and how often the word that was
    replaced is there.
    """
    frame = _mixed(scale, seed)
    frame = frame.rename(columns={name: name.upper() for name in frame.columns})
    frame = frame.replace(OLD, NEW)
    frame = frame.fillna({name: 0 for name in frame.columns if name.startswith("FLOAT")})
    frame = frame.astype({"INT_3": "float32"})
    frame = frame[list(frame.columns)[2:]]
    meta = {"columns": int, "rows": int, "total": float, "new": int, "is_float32": int}
    return frame.map_partitions(_describe_chained, meta=meta).sum().compute()


@cow_chain.check
def _(result, scale, seed):
    frame = _mixed(scale, seed)
    meta = {"columns": int, "rows": int, "total": float, "new": int, "is_float32": int}
    wanted = frame.map_partitions(_describe_unchained, meta=meta).compute().sum()
    for name in ("columns", "rows", "new", "is_float32"):
        expect(int(result[name]), equals=int(wanted[name]), what=name)
    expect(float(result["total"]), close_to=float(wanted["total"]), rtol=1e-9, what="sum")


@workload(
    variants={"split_out": [1, 8]},
    tags=["reduction", "nightly", "ci[split_out=8]"],
    requires=REQUIRES,
)
def drop_duplicates(scale, seed, *, split_out):
    """Keep one row for each of a hundredth as many keys as rows.

    All keys are in nearly all partitions. Stresses the reduction of partial results that hardly
    shrink: to one partition, or by a shuffle to eight.

    Scale: 0.2 x cluster memory, linear; a partition is 1/128 of one thread's memory.
    About 3 s on 2 x 1 x 1 GiB.
    Check: every key once.
    """
    frame = _repeating(scale, seed)
    return frame.drop_duplicates(subset="key", split_out=split_out)["key"].compute()


@drop_duplicates.check
def _(result, scale, seed):
    _, n_keys = _counted(scale, seed)
    expect(result.sort_values().to_numpy(), equals=list(range(n_keys)), what="keys")


@workload(
    variants={"split_out": [1, 8]},
    tags=["reduction", "nightly", "ci[split_out=8]"],
    requires=REQUIRES,
)
def value_counts(scale, seed, *, split_out):
    """Count the rows of each of a hundredth as many keys as rows.

    Stresses the reduction of partial results that hardly shrink: to one partition, or to eight.

    Scale: 0.2 x cluster memory, linear; a partition is 1/128 of one thread's memory.
    About 3 s on 2 x 1 x 1 GiB.
    Check: the rows of every key, which are planted evenly.
    """
    return _repeating(scale, seed)["key"].value_counts(split_out=split_out).compute()


@value_counts.check
def _(result, scale, seed):
    n_rows, n_keys = _counted(scale, seed)
    got = result.sort_index()
    expect(got.index.to_numpy(), equals=list(range(n_keys)), what="keys")
    expect(got.to_numpy(), equals=_planted(n_rows, n_keys), what="rows of a key")


@workload(tags=["reduction", "nightly", "ci"], requires=REQUIRES)
def nunique(scale, seed):
    """Count the distinct keys, a hundredth as many as rows.

    As `drop_duplicates`, of which only a number is left. Stresses the same reduction.

    Scale: 0.2 x cluster memory, linear; a partition is 1/128 of one thread's memory.
    About 3 s on 2 x 1 x 1 GiB.
    Check: as many as were planted.
    """
    return _repeating(scale, seed)["key"].nunique().compute()


@nunique.check
def _(result, scale, seed):
    _, n_keys = _counted(scale, seed)
    expect(int(result), equals=n_keys, what="distinct keys")


@workload(
    variants={"method": ["tasks", "p2p"]},
    tags=["groupby", "shuffle", "nightly", "ci[method=p2p]"],
    requires=REQUIRES,
)
def groupby_high_cardinality(scale, seed, *, method):
    """Sum and average a column by a key with a fifth as many groups as rows.

    Results are nearly as large as the input, so they are shuffled, not reduced to one partition.
    Stresses the shuffle behind a group-by, by tasks or P2P.

    Scale: 0.15 x cluster memory, linear; a partition is 1/128 of one thread's memory.
    About 4 s on 2 x 1 x 1 GiB.
    Check: by NumPy from both columns: groups, the sum of sums, of sums times key, of means.
    """
    with shuffle_by(method):
        grouped = _many_groups(scale, seed).groupby("key")
        sums = grouped.agg({"float_1": ["sum", "mean"]}, split_out=8)
        meta = {"groups": int, "sums": float, "by_key": float, "means": float}
        return sums.map_partitions(_describe_groups, meta=meta).sum().compute()


@groupby_high_cardinality.prepare
def _(client):
    warm_up_shuffle()


@groupby_high_cardinality.check
def _(result, scale, seed):
    import numpy as np

    frame = gathered(_many_groups(scale, seed)[["key", "float_1"]])
    keys, place, rows = np.unique(frame["key"], return_inverse=True, return_counts=True)
    sums = np.bincount(place, weights=frame["float_1"])
    expect(int(result["groups"]), equals=len(keys), what="groups")
    expect(float(result["sums"]), close_to=float(sums.sum()), what="sum of sums")
    expect(float(result["by_key"]), close_to=float(keys @ sums), what="sum of sums times key")
    expect(float(result["means"]), close_to=float((sums / rows).sum()), what="sum of means")


@workload(
    tags=["query", "io", "latency", "nightly", "ci"],
    requires=REQUIRES,
    max_threads=MOST_THREADS,
    version=2,
)
def rideshare_eda(prepared):
    """Ask a table of trips what one asks first: how many, what is missing, who tips, and where.

    Files of very different lengths are read and kept, then one short question after another is
    put to data in memory. Stresses latency: graphs are small, and every answer is waited for.

    Scale: 0.05 x cluster memory x the fraction, at 100 bytes a trip, in 10 files for each thread.
    About 6 s on 2 x 1 x 1 GiB, plus 2 s once to make the data.
    Check: all answers by DuckDB over the same files.
    """
    import dask.dataframe as dd

    frame = dd.read_parquet(prepared.files("trips"))
    frame["company"] = frame["license"].map(COMPANIES, meta=("company", frame["license"].dtype))
    frame["tipped"] = frame["tips"] > 0
    frame = frame.persist()
    by_company = frame.groupby("company")
    return {
        "rows": len(frame),
        "missing": float(frame["on_scene"].isna().mean().compute()),
        "companies": frame["company"].value_counts().compute(),
        "tips": by_company["tips"].agg(["count", "sum", "mean"]).compute(),
        "tipped": by_company["tipped"].mean().compute(),
        "by_zone": frame.groupby("PULocationID")["trip_miles"].agg(["count", "mean"]).compute(),
        "miles": float(frame[frame["tipped"]]["trip_miles"].sum().compute()),
        "longest": frame["trip_miles"].nlargest(10).compute(),
    }


@rideshare_eda.prepare
def _(scale):
    return rideshare(scale)


@rideshare_eda.check
def _(result, prepared):
    whole = prepared.answer(
        "select count(*) as n, count(*) filter (on_scene is null) as missing, "
        "sum(trip_miles) filter (tips > 0) as miles from trips"
    ).iloc[0]
    expect(result["rows"], equals=int(whole["n"]), what="trips")
    expect(result["missing"], close_to=whole["missing"] / whole["n"], what="share without a moment")
    expect(result["miles"], close_to=float(whole["miles"]), what="miles of trips with a tip")
    known = prepared.answer(
        "select license, count(*) as n, sum(tips) as tips, avg((tips > 0)::int) as tipped "
        "from trips group by license"
    )
    known = known.assign(company=known["license"].map(COMPANIES)).set_index("company").sort_index()
    by_company = {
        name: result[name].set_axis(result[name].index.astype(str)).sort_index()
        for name in ("companies", "tips", "tipped")
    }
    for name, got in by_company.items():
        expect(list(got.index), equals=list(known.index), what=f"companies of {name}")
    tips = by_company["tips"]
    expect(by_company["companies"].to_numpy(), equals=known["n"].to_numpy(), what="trips of each")
    expect(tips["count"].to_numpy(), equals=known["n"].to_numpy(), what="tips of each")
    expect(tips["sum"].to_numpy(), close_to=known["tips"].to_numpy(), what="sum of tips of each")
    means = (known["tips"] / known["n"]).to_numpy()
    expect(tips["mean"].to_numpy(), close_to=means, what="mean tip of each")
    shares = known["tipped"].to_numpy()
    expect(by_company["tipped"].to_numpy(), close_to=shares, what="share with a tip of each")
    zones = prepared.answer(
        "select PULocationID as zone, count(*) as n, avg(trip_miles) as miles "
        "from trips group by zone order by zone"
    )
    got = result["by_zone"].sort_index()
    expect(got.index.to_numpy(), equals=zones["zone"].to_numpy(), what="zones")
    expect(got["count"].to_numpy(), equals=zones["n"].to_numpy(), what="trips of a zone")
    expect(got["mean"].to_numpy(), close_to=zones["miles"].to_numpy(), what="mean miles of a zone")
    longest = prepared.answer("select trip_miles from trips order by trip_miles desc limit 10")
    expect(result["longest"].to_numpy(), equals=longest["trip_miles"].to_numpy(),
           what="longest trips")  # fmt: skip


def _computed(**collections):
    import dask

    return dict(zip(collections, dask.compute(*collections.values()), strict=True))


def _series(scale):
    """Return an early and a late series of the same columns."""
    dtypes = {f"float_{i}": float for i in range(50)}
    rows = max(10, round(scale.memory_per_thread / 128 / 8 / (len(dtypes) + 1)))
    cut = {"freq": "600ms", "partition_freq": f"{rows * 600}ms", "dtypes": dtypes}
    early = timeseries(scale.linear(0.25), start="2010-01-01", **cut)
    return early, timeseries(scale.linear(0.125), start="2020-01-01", **cut)


def _named(scale, seed):
    return frame_of(scale, seed, 0.5, {"str": 1, "float": 4, "int": 2})


def _first_word(frame):
    return frame["str_0"].head(1).iloc[0]


def _sums_by_word(part):
    return part.groupby("str_0")["float_0"].agg(["size", "sum"]).reset_index()


def _mixed(scale, seed):
    return frame_of(scale, seed, 0.25, {"float": 20, "int": 19, "str": 5})


def _describe_chained(part):
    return one_row(
        columns=part.shape[1],
        rows=len(part),
        total=part["FLOAT_7"].sum(),
        new=int((part["STR_2"] == NEW).sum()),
        is_float32=int(part["INT_3"].dtype == "float32"),
    )


def _describe_unchained(part):
    return one_row(
        columns=part.shape[1] - 2,
        rows=len(part),
        total=part["float_7"].sum(),
        new=int((part["str_2"] == OLD).sum()),
        is_float32=1,
    )


def _repeating(scale, seed):
    """Return a frame whose key is known from the number of its row."""
    frame = frame_of(scale, seed, 0.2, {"float": 5}, freq="1s")
    return frame.map_partitions(_plant, _counted(scale, seed)[1])


def _counted(scale, seed):
    """Return how many rows and keys the frame has, which its divisions tell."""
    import pandas as pd

    divisions = frame_of(scale, seed, 0.2, {"float": 5}, freq="1s").divisions
    n_rows = round((divisions[-1] - divisions[0]) / pd.Timedelta("1s")) + 1
    return n_rows, max(10, n_rows // REPEATS)


def _plant(part, n_keys):
    import pandas as pd

    numbers = (part.index - pd.Timestamp(START)) // pd.Timedelta("1s")
    return part.assign(key=numbers.to_numpy().astype("int64") * STRIDE % n_keys)


def _planted(n_rows, n_keys):
    import numpy as np

    return np.bincount(np.arange(n_rows) * STRIDE % n_keys, minlength=n_keys)


def _many_groups(scale, seed):
    # Rows are 21 values of 8 B; of the keys that may be, nearly all are there.
    n_keys = max(10, round(scale.linear(0.15) / 160 / 5))
    return keyed_frame(scale, seed, factor=0.15, n_keys=n_keys)


def _describe_groups(part):
    sums, means = part[("float_1", "sum")].to_numpy(), part[("float_1", "mean")].to_numpy()
    return one_row(
        groups=len(part),
        sums=float(sums.sum()),
        by_key=float(part.index.to_numpy() @ sums),
        means=float(means.sum()),
    )
