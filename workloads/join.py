"""Join workloads: rows that must meet, or be sorted, across all partitions."""

from __future__ import annotations

from _shuffle import warm_up_shuffle

from benchkit.measure import expect, random_frame, workload

N_COLUMNS = 20
#: Range of the key: large beside any number of rows, so that nearly every key is unique.
KEY_RANGE = 10**9
PAYLOAD = "float_1"


@workload(
    variants={"factor": [0.1]},
    tags=["shuffle", "p2p", "first-twelve", "quick"],
    requires=["pandas", "pyarrow", "dask.dataframe"],
)
def join_big(scale, seed, *, factor):
    """Join two large frames on an integer key with about as many values as rows.

    Both sides are shuffled whole. Stresses P2P: its transfer, its buffers on disk, and two
    shuffles at once that feed one output.

    Scale: `factor` x cluster memory each, linear; a partition is 1/128 of one thread's memory.
    About 6 s on 2 x 1 x 1 GiB.
    Check: by NumPy, from one key and one payload column a side: matches, the sum of their keys,
    and the sum of payload products, which changes when a row meets another's payload; and every
    column of every match is there.
    """
    left, right = _sides(scale, seed, factor)
    joined = left.merge(right, on="key", how="inner")
    # Through a function the optimiser cannot see, so that no column is left out of the shuffle.
    meta = {"rows": int, "keys": int, "cells": int, "product": float}
    return joined.map_partitions(_count_matches, meta=meta)


@join_big.prepare
def _(client, *, factor):
    warm_up_shuffle()


@join_big.check
def _(result, scale, seed, *, factor):
    import numpy as np

    # By key: how many rows a side has, and the sum of their payload.
    sides = []
    for side in _sides(scale, seed, factor):
        frame = side[["key", PAYLOAD]].compute()
        keys, place, counts = np.unique(frame["key"], return_inverse=True, return_counts=True)
        sides.append((keys, counts, np.bincount(place, weights=frame[PAYLOAD])))
    (left, n_left, sum_left), (right, n_right, sum_right) = sides
    keys, i, j = np.intersect1d(left, right, assume_unique=True, return_indices=True)
    matches = n_left[i] * n_right[j]
    got = result.compute().sum(skipna=False)  # pandas leaves NaN out: it would hide one
    expect(int(got["rows"]), equals=int(matches.sum()), what="matches")
    expect(int(got["keys"]), equals=int((keys * matches).sum()), what="sum of the matches' keys")
    expect(int(got["cells"]), equals=int(got["rows"]) * (2 * N_COLUMNS + 1), what="cells")
    product = float((sum_left[i] * sum_right[j]).sum())
    expect(float(got["product"]), close_to=product, rtol=1e-9, what="sum of payload products")


def _sides(scale, seed, factor):
    frames = []
    for number in (0, 1):
        frame = random_frame(
            scale.linear(factor),
            {"float": N_COLUMNS},
            partition_bytes=scale.memory_per_thread / 128,
            seed=2 * seed + number,
        )
        frames.append(frame.assign(key=(frame["float_0"] * KEY_RANGE).astype("int64")))
    return frames


def _count_matches(part):
    import pandas as pd

    product = part[f"{PAYLOAD}_x"].to_numpy() @ part[f"{PAYLOAD}_y"].to_numpy()
    return pd.DataFrame(
        {
            "rows": [len(part)],
            "keys": [part["key"].sum()],
            "cells": [part.size],
            "product": [float(product)],
        }
    )


@workload(
    variants={"data": ["lazy", "persisted"]},
    tags=["shuffle", "p2p", "first-twelve[data=lazy]", "quick[data=lazy]"],
    requires=["pandas", "pyarrow", "dask.dataframe"],
)
def set_index(prepared):
    """Sort a frame by a column of random floats.

    A pass over the column estimates quantiles, then P2P moves every row. Data that is not
    persisted is made twice. Stresses the quantiles' tree, the shuffle, and memory of rows that
    have no place yet.

    Scale: 0.15 x cluster memory, linear; a partition is 1/128 of one thread's memory.
    About 5 s on 2 x 1 x 1 GiB.
    Check: no row is lost or torn apart, partitions are sorted inside, do not overlap, and lie
    within their divisions.
    """
    ordered = prepared.set_index("float_0")
    meta = {"rows": int, "low": float, "high": float, "is_sorted": bool, "product": float}
    edges = ordered.map_partitions(_describe_partition, meta=meta)
    return {"edges": edges.compute(), "divisions": ordered.divisions}


@set_index.prepare
def _(client, scale, seed, *, data):
    from distributed import wait

    warm_up_shuffle()
    frame = random_frame(
        scale.linear(0.15),
        {"float": N_COLUMNS},
        partition_bytes=scale.memory_per_thread / 128,
        seed=seed,
    )
    if data == "persisted":
        frame = frame.persist()
        wait(frame)
    return frame


@set_index.check
def _(result, prepared):
    edges, divisions = result["edges"].reset_index(drop=True), result["divisions"]
    source = prepared.map_partitions(_describe_rows, meta={"rows": int, "product": float}).compute()
    expect(int(edges["rows"].sum()), equals=int(source["rows"].sum()), what="rows")
    expect(
        edges["product"].sum(skipna=False),  # pandas leaves NaN out: it would hide one
        close_to=source["product"].sum(),
        rtol=1e-9,
        what="sum of index times first column",
    )
    expect(bool(edges["is_sorted"].all()), equals=True, what="order inside partitions")
    expect(len(divisions), equals=len(edges) + 1, what="divisions")
    full = edges[edges["rows"] > 0]
    expect((full["low"].to_numpy()[1:] >= full["high"].to_numpy()[:-1]).all(), equals=True,
           what="order of partitions")  # fmt: skip
    for number, row in full.iterrows():
        expect(row["low"], at_least=divisions[number], what=f"minimum of partition {number}")
        expect(row["high"], at_most=divisions[number + 1], what=f"maximum of partition {number}")


def _describe_partition(part):
    import pandas as pd

    index = part.index
    return pd.DataFrame(
        {
            "rows": [len(part)],
            "low": [index.min()],
            "high": [index.max()],
            "is_sorted": [bool(index.is_monotonic_increasing)],
            "product": [float(index.to_numpy() @ part["float_1"].to_numpy())],
        }
    )


def _describe_rows(part):
    import pandas as pd

    product = float(part["float_0"].to_numpy() @ part["float_1"].to_numpy())
    return pd.DataFrame({"rows": [len(part)], "product": [product]})
