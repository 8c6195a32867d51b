"""DataFrame workloads that bring together the rows of each key."""

from __future__ import annotations

from _frames import by_bucket, frame_of, keyed_frame, one_row, shuffle_by, sums_by_key
from _shuffle import warm_up_shuffle

from benchkit.measure import expect, workload

REQUIRES = ["pandas", "pyarrow", "dask.dataframe"]
START = "2000-01-01"
#: Rows of each key in each partition: most rows of a partition are duplicates.
REPEATS = 5
#: Coprime to any number of keys, so that the keys of neighbouring rows differ widely.
STRIDE = 1_000_003

#: Options of all workloads that reduce the same rows, to one partition or to several.
reduction = workload(
    category="df",
    variants={"split_out": [1, 8]},
    tags=["reduction", "nightly", "ci[split_out=8]"],
    requires=REQUIRES,
    version=2,
)


@reduction
def drop_duplicates(scale, seed, *, split_out):
    """Keep one row for each key of a frame in which every partition has all keys five times.

    Stresses the reduction of partial results with equal keys, which do not shrink when they are
    combined: to one partition, or by a shuffle to eight.

    Scale: 0.2 x cluster memory, linear; a partition is 1/128 of one thread's memory.
    About 3 s on 2 x 1 x 1 GiB.
    Check: each key once, in a row that has this key.
    """
    rows = _repeating(scale, seed).drop_duplicates(subset="key", split_out=split_out)
    # A function hides the selection from the optimiser, which would drop columns earlier.
    return rows.map_partitions(_whole)["key"].compute()


@drop_duplicates.prepare
def _():
    warm_up_shuffle()


@drop_duplicates.check
def _(result, scale, seed):
    _, n_keys = _counted(scale, seed)
    expect(_keys_of(result.index, n_keys), equals=result.to_numpy(), what="keys of the rows")
    expect(result.sort_values().to_numpy(), equals=list(range(n_keys)), what="keys")


@reduction
def value_counts(scale, seed, *, split_out):
    """Count the rows of each key of a column in which every partition has all keys five times.

    Stresses the reduction of partial results with equal keys, which do not shrink when they are
    combined: to one partition, or by a shuffle to eight.

    Scale: 0.2 x cluster memory, linear; a partition is 1/128 of one thread's memory.
    About 3 s on 2 x 1 x 1 GiB.
    Check: the rows of every key, which are distributed evenly.
    """
    return _repeating(scale, seed)["key"].value_counts(split_out=split_out).compute()


@value_counts.prepare
def _():
    warm_up_shuffle()


@value_counts.check
def _(result, scale, seed):
    n_rows, n_keys = _counted(scale, seed)
    got = result.sort_index()
    expect(got.index.to_numpy(), equals=list(range(n_keys)), what="keys")
    expect(got.to_numpy(), equals=_planted(n_rows, n_keys), what="rows of a key")


@reduction
def nunique(scale, seed, *, split_out):
    """Count the distinct keys of a column in which every partition has all keys five times.

    Like `drop_duplicates` on one column, but the result is a number. Stresses the same reduction:
    to one partition, or by a shuffle to eight.

    Scale: 0.2 x cluster memory, linear; a partition is 1/128 of one thread's memory.
    About 3 s on 2 x 1 x 1 GiB.
    Check: the number of keys of the input.
    """
    # Same as `nunique`, which has no `split_out` in old releases.
    return _repeating(scale, seed)["key"].drop_duplicates(split_out=split_out).count().compute()


@nunique.prepare
def _():
    warm_up_shuffle()


@nunique.check
def _(result, scale, seed):
    _, n_keys = _counted(scale, seed)
    expect(int(result), equals=n_keys, what="distinct keys")


@workload(
    category="df",
    variants={"method": ["tasks", "p2p"]},
    tags=["groupby", "shuffle", "nightly", "ci[method=p2p]", "p2p[method=p2p]"],
    requires=REQUIRES,
    version=2,
)
def groupby_high_cardinality(scale, seed, *, method):
    """Sum and average a column by a key with a fifth as many groups as rows.

    Most rows of a partition belong to different groups: partial results have almost as many rows as
    the input and are shuffled, to four partitions per thread. Stresses the shuffle of a group-by,
    by tasks or P2P.

    Scale: 0.15 x cluster memory, linear; a partition is 1/128 of one thread's memory.
    About 4 s on 2 x 1 x 1 GiB.
    Check: by NumPy from both columns: number of groups, sum of sums, of sums times key, of means.
    """
    with shuffle_by(method):
        grouped = _many_groups(scale, seed).groupby("key")
        sums = grouped.agg({"float_1": ["sum", "mean"]}, split_out=4 * scale.threads)
        meta = {"groups": int, "sums": float, "by_key": float, "means": float}
        return sums.map_partitions(_describe_groups, meta=meta).sum().compute()


@groupby_high_cardinality.prepare
def _(client):
    warm_up_shuffle()


@groupby_high_cardinality.check
def _(result, scale, seed):
    wanted = {"groups": 0, "sums": 0.0, "by_key": 0.0, "means": 0.0}
    for (rows,) in by_bucket(scale, _many_groups(scale, seed)[["key", "float_1"]]):
        keys, counts, sums = sums_by_key(rows)
        wanted["groups"] += len(keys)
        wanted["sums"] += float(sums.sum())
        wanted["by_key"] += float(keys @ sums)
        wanted["means"] += float((sums / counts).sum())
    expect(int(result["groups"]), equals=wanted["groups"], what="groups")
    expect(float(result["sums"]), close_to=wanted["sums"], what="sum of sums")
    expect(float(result["by_key"]), close_to=wanted["by_key"], what="sum of sums times key")
    expect(float(result["means"]), close_to=wanted["means"], what="sum of means")


def _repeating(scale, seed):
    """Return a frame whose key is a function of the row number."""
    frame = frame_of(scale, seed, 0.2, {"float": 5}, freq="1s")
    return frame.map_partitions(_plant, _counted(scale, seed)[1])


def _counted(scale, seed):
    """Return the number of rows and keys of the frame, from its divisions."""
    import pandas as pd

    divisions = frame_of(scale, seed, 0.2, {"float": 5}, freq="1s").divisions
    n_rows = round((divisions[-1] - divisions[0]) / pd.Timedelta("1s")) + 1
    rows_of_a_partition = n_rows // (len(divisions) - 1)
    return n_rows, max(10, rows_of_a_partition // REPEATS)


def _plant(part, n_keys):
    return part.assign(key=_keys_of(part.index, n_keys))


def _keys_of(moments, n_keys):
    import pandas as pd

    numbers = (moments - pd.Timestamp(START)) // pd.Timedelta("1s")
    return numbers.to_numpy().astype("int64") * STRIDE % n_keys


def _planted(n_rows, n_keys):
    """Return the rows of each key: each sequence of as many rows as there are keys has all keys."""
    import numpy as np

    rest = np.arange(n_rows % n_keys) * STRIDE % n_keys
    return n_rows // n_keys + np.bincount(rest, minlength=n_keys)


def _whole(part):
    return part


def _many_groups(scale, seed):
    # Rows are 21 values of 8 B; nearly all possible keys occur.
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
