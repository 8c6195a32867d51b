"""DataFrame workloads: operations on columns and on small tables."""

from __future__ import annotations

from _frames import frame_of, one_row
from _shuffle import warm_up_shuffle
from _sizes import MOST_THREADS, rideshare

from benchkit.measure import expect, workload
from benchkit.measure.scale import timeseries

REQUIRES = ["pandas", "pyarrow", "dask.dataframe"]
#: The word that `cow_chain` replaces, and its replacement.
OLD, NEW = "l000", "x"
#: One row in this many has NaN in all float columns.
GAP = 10
#: Columns that describe a partition of the result of `cow_chain`.
CHAINED = {"columns": int, "rows": int, "floats": float, "integers": float, "new": int,
           "float64": int, "float32": int, "int64": int}  # fmt: skip
#: Company of each license number.
COMPANIES = {"HV0002": "Juno", "HV0003": "Uber", "HV0004": "Via", "HV0005": "Lyft"}


@workload(tags=["alignment", "nightly", "ci"], requires=REQUIRES, version=2)
def align(prepared):
    """Subtract two time series that have no time in common, and compute the mean.

    The divisions of the two differ: both are split again before rows are matched. Stresses the
    alignment of divisions and its graph.

    Scale: 0.25 and 0.125 x cluster memory, linear; a partition is 1/128 of one thread's memory.
    About 8 s on 2 x 1 x 1 GiB.
    Check: the result has the rows of both series and all columns, and every mean is NaN.
    """
    early, late = prepared
    difference = late - early
    rows = difference.map_partitions(len, meta=("rows", int))
    return _computed(mean=difference.mean(), rows=rows.sum(), count=difference.count().sum())


@align.prepare
def _(scale, seed):
    return _series(scale, seed)


@align.check
def _(result, prepared):
    early, late = prepared
    expect(list(result["mean"].index), equals=list(early.columns), what="columns")
    expect(int(result["mean"].isna().sum()), equals=len(early.columns), what="means of nothing")
    rows = sum(each.map_partitions(len, meta=("rows", int)).sum().compute()
               for each in (early, late))  # fmt: skip
    expect(int(result["rows"]), equals=int(rows), what="rows")
    expect(int(result["count"]), equals=0, what="differences")


@workload(tags=["filter", "nightly", "ci"], requires=REQUIRES)
def filter(scale, seed):
    """Keep the rows that have the same word as the first row, one in a hundred.

    Stresses comparison of strings, and root tasks whose results are small relative to their inputs
    (coiled/benchmarks#1116).

    Scale: 0.5 x cluster memory, linear; a partition is 1/128 of one thread's memory.
    About 4 s on 2 x 1 x 1 GiB.
    Check: rows and the sum of one column, from partitions grouped by word.
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


@workload(tags=["memory", "nightly", "ci"], requires=REQUIRES, version=2)
def cow_chain(scale, seed):
    """Rename, replace, fill, convert and select columns, one after another.

    Each step may copy the whole frame, or only what it changes. Stresses copy-on-write, and memory
    that Dask does not account for.

    Scale: 0.25 x cluster memory, linear; a partition is 1/128 of one thread's memory.
    About 3 s on 2 x 1 x 1 GiB.
    Check: columns and their types; rows; the sum of all numbers weighted by the index of their
    column, with NaN as 0; the number of replaced words.
    """
    frame = _mixed(scale, seed)
    frame = frame.rename(columns={name: name.upper() for name in frame.columns})
    frame = frame.replace(OLD, NEW)
    frame = frame.fillna({name: 0 for name in frame.columns if name.startswith("FLOAT")})
    frame = frame.astype({"INT_3": "float32"})
    frame = frame[list(frame.columns)[2:]]
    return frame.map_partitions(_describe_chained, meta=CHAINED).compute()


@cow_chain.check
def _(result, scale, seed):
    frame = _mixed(scale, seed)
    wanted = frame.map_partitions(_describe_unchained, meta=CHAINED).compute().sum()
    got = result.sum(skipna=False)  # pandas skips NaN by default
    for name in set(CHAINED) - {"floats"}:
        expect(got[name], equals=wanted[name], what=name)
    expect(float(got["floats"]), close_to=float(wanted["floats"]), rtol=1e-9, what="sum of floats")


@workload(
    tags=["query", "io", "latency", "nightly", "ci"],
    requires=REQUIRES,
    max_threads=MOST_THREADS,
    version=3,
)
def rideshare_eda(prepared):
    """Explore a table of trips: number of rows, missing values, who tips, and where.

    Files of very different lengths are read and persisted; then short queries run one after another
    on data in memory. Stresses latency: graphs are small, and each query waits for its result.

    Scale: 0.05 x cluster memory x fraction, at 100 bytes a trip, in 10 files per thread.
    About 6 s on 2 x 1 x 1 GiB, plus 2 s once to make the data.
    Check: all results, by DuckDB from the same files.
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
    warm_up_shuffle()  # used by `value_counts`
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


def _series(scale, seed):
    """Return an early and a late series with the same columns."""
    dtypes = {f"float_{i}": float for i in range(50)}
    rows = max(10, round(scale.memory_per_thread / 128 / 8 / (len(dtypes) + 1)))
    cut = {"freq": "600ms", "partition_freq": f"{rows * 600}ms", "dtypes": dtypes}
    early = timeseries(scale.linear(0.25), start="2010-01-01", seed=2 * seed, **cut)
    return early, timeseries(scale.linear(0.125), start="2020-01-01", seed=2 * seed + 1, **cut)


def _named(scale, seed):
    return frame_of(scale, seed, 0.5, {"str": 1, "float": 4, "int": 2})


def _first_word(frame):
    return frame["str_0"].head(1).iloc[0]


def _sums_by_word(part):
    return part.groupby("str_0")["float_0"].agg(["size", "sum"]).reset_index()


def _mixed(scale, seed):
    frame = frame_of(scale, seed, 0.25, {"float": 20, "int": 19, "str": 5})
    return frame.map_partitions(_with_gaps)


def _with_gaps(part):
    floats = {name: part[name].to_numpy(copy=True) for name in part if name.startswith("float")}
    for values in floats.values():
        values[::GAP] = float("nan")
    return part.assign(**floats)


def _describe_chained(part):
    return one_row(
        columns=part.shape[1],
        rows=len(part),
        **_sums_by_place(part),
        new=int((part["STR_2"] == NEW).sum()),
        **_types(part),
    )


def _describe_unchained(part):
    part = part.iloc[:, 2:].fillna({name: 0 for name in part if name.startswith("float")})
    types = _types(part)
    types.update(float32=1, int64=types["int64"] - 1)
    return one_row(
        columns=part.shape[1],
        rows=len(part),
        **_sums_by_place(part),
        new=int((part["str_2"] == OLD).sum()),
        **types,
    )


def _types(part):
    return {name: int((part.dtypes == name).sum()) for name in ("float64", "float32", "int64")}


def _sums_by_place(part):
    """Return sums of columns weighted by column index: of float columns, and of the others."""
    sums = {"floats": 0.0, "integers": 0}
    for place, (name, column) in enumerate(part.select_dtypes("number").items(), start=1):
        kind = "floats" if name.upper().startswith("FLOAT") else "integers"
        sums[kind] += place * column.to_numpy().sum(dtype=float)
    return sums
