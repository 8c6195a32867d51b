"""Join workloads: rows that are matched or sorted across all partitions."""

from __future__ import annotations

from _frames import (
    by_bucket,
    expect_sorted,
    frame_of,
    keyed_frame,
    one_row,
    shuffle_by,
    sums_by_key,
    trips,
)
from _shuffle import warm_up_shuffle

from benchkit.measure import expect, workload

N_COLUMNS = 20
#: Range of the key. Nearly all keys are unique on a laptop, about 70 % of rows with 300 GiB.
KEY_RANGE = 10**9
PAYLOAD = "float_1"


@workload(
    variants={"factor": [0.1, 0.5]},
    tags=[
        *("nightly", "join", "shuffle", "p2p"),
        *("first-twelve[factor=0.1]", "quick[factor=0.1]", "ci[factor=0.1]"),
    ],
    deadline_s=600,
    requires=["pandas", "pyarrow", "dask.dataframe"],
)
def join_big(scale, seed, *, factor):
    """Join two large frames on an integer key with about as many values as rows.

    Both frames are shuffled. Stresses P2P: its transfers, its buffers on disk, and two concurrent
    shuffles with one output.

    Scale: `factor` x cluster memory each, linear; a partition is 1/128 of one thread's memory.
    About 6 s on 2 x 1 x 1 GiB with a factor of 0.1, 45 s with 0.5; with 1 workers of 1 GiB die.
    Check: by NumPy, from key and one payload column of each frame: number of matches, sum of their
    keys, and sum of payload products, which changes if a row is matched with another payload; all
    columns of all matches.
    """
    left, right = _sides(scale, seed, factor)
    joined = left.merge(right, on="key", how="inner")
    # A function hides the selection from the optimiser, which would not shuffle all columns.
    meta = {"rows": int, "keys": int, "cells": int, "product": float}
    return joined.map_partitions(_count_matches, meta=meta)


@join_big.prepare
def _():
    warm_up_shuffle()


@join_big.check
def _(result, scale, seed, *, factor):
    import numpy as np

    rows, key_sum, product = 0, 0, 0.0
    sides = [side[["key", PAYLOAD]] for side in _sides(scale, seed, factor)]
    for bucket in by_bucket(scale, *sides):
        # By key: rows of each frame, and the sum of their payload.
        (left, n_left, sum_left), (right, n_right, sum_right) = map(sums_by_key, bucket)
        keys, i, j = np.intersect1d(left, right, assume_unique=True, return_indices=True)
        matches = n_left[i] * n_right[j]
        rows += int(matches.sum())
        key_sum += int((keys * matches).sum())
        product += float((sum_left[i] * sum_right[j]).sum())
    got = result.compute().sum(skipna=False)  # pandas skips NaN by default
    expect(int(got["rows"]), equals=rows, what="matches")
    expect(int(got["keys"]), equals=key_sum, what="sum of the matches' keys")
    expect(int(got["cells"]), equals=int(got["rows"]) * (2 * N_COLUMNS + 1), what="cells")
    expect(float(got["product"]), close_to=product, rtol=1e-9, what="sum of payload products")


def _sides(scale, seed, factor):
    return [keyed_frame(scale, 2 * seed + number, factor=factor, n_keys=KEY_RANGE)
            for number in (0, 1)]  # fmt: skip


def _count_matches(part):
    product = part[f"{PAYLOAD}_x"].to_numpy() @ part[f"{PAYLOAD}_y"].to_numpy()
    return one_row(rows=len(part), keys=part["key"].sum(), cells=part.size, product=float(product))


@workload(
    variants={"factor": [0.15, 1.0], "data": ["lazy", "persisted"]},
    tags=[
        *("nightly", "shuffle", "p2p"),
        "first-twelve[factor=0.15,data=lazy]",
        "quick[factor=0.15,data=lazy]",
        "ci[factor=0.15,data=lazy]",
    ],
    requires=["pandas", "pyarrow", "dask.dataframe"],
    deadline_s=600,
)
def set_index(prepared):
    """Sort a frame by a column of random floats.

    A first pass over the column estimates quantiles, then P2P moves every row. Data that is not
    persisted is made twice. Stresses the reduction of quantiles, the shuffle, and memory of rows
    that wait for their output partition.

    Scale: `factor` x cluster memory, linear; a partition is 1/128 of one thread's memory.
    About 5 s on 2 x 1 x 1 GiB with a factor of 0.15, 45 s with 1.
    Check: all rows are complete; partitions are sorted, do not overlap, and are within their
    divisions.
    """
    ordered = prepared.set_index("float_0")
    meta = {"rows": int, "low": float, "high": float, "is_sorted": bool, "product": float}
    edges = ordered.map_partitions(_describe_partition, meta=meta)
    return {"edges": edges.compute(), "divisions": ordered.divisions}


@set_index.prepare
def _(client, scale, seed, *, factor, data):
    from distributed import wait

    warm_up_shuffle()
    frame = frame_of(scale, seed, factor, {"float": N_COLUMNS})
    if data == "persisted":
        frame = frame.persist()
        wait(frame)
    return frame


@set_index.check
def _(result, prepared):
    _check_order(result, prepared, "float_0")


def _check_order(result, prepared, by):
    edges, divisions = result["edges"].reset_index(drop=True), result["divisions"]
    source = prepared.map_partitions(_describe_rows, by, meta={"rows": int, "product": float})
    wanted = source.compute().sum()
    expect_sorted(edges, wanted["rows"], wanted["product"])
    expect(len(divisions), equals=len(edges) + 1, what="divisions")
    for number, row in edges[edges["rows"] > 0].iterrows():
        expect(row["low"], at_least=divisions[number], what=f"minimum of partition {number}")
        expect(row["high"], at_most=divisions[number + 1], what=f"maximum of partition {number}")


def _describe_partition(part):
    index = part.index
    return one_row(
        rows=len(part),
        low=index.min(),
        high=index.max(),
        is_sorted=bool(index.is_monotonic_increasing),
        product=float(index.to_numpy() @ part[PAYLOAD].to_numpy()),
    )


def _describe_rows(part, by):
    return one_row(rows=len(part), product=float(part[by].to_numpy() @ part[PAYLOAD].to_numpy()))


@workload(
    variants={"method": ["tasks", "p2p"]},
    tags=["join", "broadcast", "nightly", "ci[method=p2p]", "p2p[method=p2p]"],
    requires=["pandas", "pyarrow", "dask.dataframe"],
)
def join_big_small(scale, seed, prepared, *, method):
    """Join a large frame with one that fits into a partition, on an integer key.

    The small frame is sent to every partition of the large one, which need not move, whatever
    method is set for shuffles. Stresses the choice of this plan, and the transfer of one result to
    all workers; smaller frames only showed noise (coiled/benchmarks#820).

    Scale: the large frame is 0.3 x cluster memory, linear, with partitions of 1/128 of one thread's
    memory; the small one is 20 MiB at reference memory.
    About 4 s on 2 x 1 x 1 GiB.
    Check: by NumPy, from key and one payload column of each frame: number of matches, sum of their
    keys, and sum of payload products; all columns of all matches.
    """
    with shuffle_by(method):
        joined = _large_side(scale, seed).merge(prepared, on="key", how="inner")
        meta = {"rows": int, "keys": int, "cells": int, "product": float}
        return joined.map_partitions(_count_matches, meta=meta).compute()


@join_big_small.prepare
def _(client, scale, seed):
    warm_up_shuffle()
    return _small_side(scale, seed)


@join_big_small.check
def _(result, scale, seed, prepared):
    import pandas as pd

    by_key = prepared.groupby("key")[PAYLOAD].agg(["size", "sum"])
    large = _large_side(scale, seed)[["key", PAYLOAD]]
    meta = {"rows": int, "keys": int, "product": float}
    # Before 2024.3, Dask aligns frames that are positional arguments.
    matched = large.map_partitions(_look_up, by_key=by_key, meta=meta)
    wanted = matched.compute().sum()
    got = pd.DataFrame(result).sum(skipna=False)
    expect(int(wanted["rows"]), at_least=1, what="matches to be found")
    for name in ("rows", "keys"):
        expect(int(got[name]), equals=int(wanted[name]), what=name)
    expect(int(got["cells"]), equals=int(got["rows"]) * (2 * N_COLUMNS + 1), what="cells")
    expect(float(got["product"]), close_to=float(wanted["product"]), rtol=1e-9,
           what="sum of payload products")  # fmt: skip


@workload(
    variants={"method": ["tasks", "p2p"]},
    tags=["shuffle", "imbalance", "nightly", "ci[method=p2p]", "p2p[method=p2p]"],
    requires=["pandas", "pyarrow", "dask.dataframe"],
)
def set_index_rideshare(prepared, *, method):
    """Sort trips by the zone of their pickup: 263 keys, a few of which have most rows.

    Quantiles of so few values repeat, so that partitions differ widely in size, and some may be
    missing. Stresses the choice of divisions and the memory of the largest partition.

    Scale: 0.15 x cluster memory, linear; a partition is 1/128 of one thread's memory.
    About 5 s on 2 x 1 x 1 GiB.
    Check: all rows are complete; partitions are sorted, do not overlap, and are within their
    divisions.
    """
    with shuffle_by(method):
        ordered = prepared.set_index("zone")
        meta = {"rows": int, "low": float, "high": float, "is_sorted": bool, "product": float}
        edges = ordered.map_partitions(_describe_partition, meta=meta)
        return {"edges": edges.compute(), "divisions": ordered.divisions}


@set_index_rideshare.prepare
def _(client, scale, seed):
    warm_up_shuffle()
    return trips(scale, seed, factor=0.15)


@set_index_rideshare.check
def _(result, prepared):
    _check_order(result, prepared, "zone")


def _large_side(scale, seed):
    return keyed_frame(scale, seed, factor=0.3, n_keys=KEY_RANGE // 1000)


def _small_side(scale, seed):
    """Return a pandas frame with some keys of the large frame, some of them twice."""
    import numpy as np
    import pandas as pd

    rows = max(1000, scale.chunk("20 MiB") // 8 // (N_COLUMNS + 1))
    random = np.random.default_rng([seed, 1])
    columns = {f"float_{i}": random.random(rows) for i in range(N_COLUMNS)}
    return pd.DataFrame({**columns, "key": random.integers(0, KEY_RANGE // 1000, rows)})


def _look_up(part, by_key):
    found = part[part["key"].isin(by_key.index)]
    known = by_key.loc[found["key"]]
    sizes, sums = known["size"].to_numpy(), known["sum"].to_numpy()
    return one_row(
        rows=int(sizes.sum()),
        keys=int(found["key"].to_numpy() @ sizes),
        product=float(found[PAYLOAD].to_numpy() @ sums),
    )
