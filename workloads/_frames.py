"""Functions for workloads with frames: shuffle method, input frames, and sums by key."""

from __future__ import annotations

import time

import dask

from benchkit.measure import expect, random_frame

PAYLOAD = "float_1"
#: Taxi zones of New York.
N_ZONES = 263
META = {"key": "int64", "rows": "int64", "payload": float}


def shuffle_by(method):
    """Return a context in which Dask shuffles frames by this method."""
    old = "dataframe.shuffle.algorithm"
    # The table of deprecations has the current name of the option.
    return dask.config.set({dask.config.deprecations.get(old, old): method})


def keyed_frame(scale, seed, *, factor, n_keys, n_columns=20):
    """Return a frame of random floats, and a column `key` of random integers below `n_keys`."""
    frame = frame_of(scale, seed, factor, {"float": n_columns})
    return frame.assign(key=(frame["float_0"] * n_keys).astype("int64"))


def gathered(frame):
    """Return a frame in the client, partition by partition.

    ``frame.compute()`` concatenates all partitions on one worker, which may not have enough memory.
    """
    import pandas as pd

    return pd.concat(dask.compute(*frame.to_delayed()))


def by_bucket(scale, *frames):
    """Yield the rows of each frame in the client, for some keys at a time.

    All rows at once would need a client as large as the cluster.
    """
    frames = dask.persist(*frames)
    for number in range(scale.workers):
        yield [gathered(frame[frame["key"] % scale.workers == number]) for frame in frames]


def sums_by_key(frame):
    """Return the keys of a pandas frame, and the number of rows and sum of payload of each."""
    import numpy as np

    keys, place, rows = np.unique(frame["key"], return_inverse=True, return_counts=True)
    return keys, rows, np.bincount(place, weights=frame[PAYLOAD], minlength=len(keys))


def rows_by_key(part, nap_s=0.0):
    """Return `sums_by_key` of a partition as a frame, after a sleep."""
    import pandas as pd

    time.sleep(nap_s)
    keys, rows, payload = sums_by_key(part)
    return pd.DataFrame({"key": keys, "rows": rows, "payload": payload})


def count_by_key(frame, nap_s=0.0):
    """Return `rows_by_key` of each partition: a key in two partitions has two rows."""
    return frame.map_partitions(rows_by_key, nap_s, meta=META)


def expect_by_key(got, source):
    """Compare counts by key with those of the source; a key must be in one partition only."""
    wanted = count_by_key(source).compute().groupby("key", as_index=False).sum()
    got = got.sort_values("key")
    expect(len(got), equals=len(wanted), what="keys in all partitions")
    for name in ("key", "rows"):
        expect(got[name].to_numpy(), equals=wanted[name].to_numpy(), what=name)
    payload = wanted["payload"].to_numpy()
    expect(got["payload"].to_numpy(), close_to=payload, rtol=1e-9, what="payload")


def expect_sorted(edges, rows, product):
    """Compare a frame with one row per sorted partition with the rows before sorting.

    `product` is the sum of sort key times payload over all rows.
    """
    expect(int(edges["rows"].sum()), equals=int(rows), what="rows")
    # pandas skips NaN by default.
    expect(float(edges["product"].sum(skipna=False)), close_to=float(product), rtol=1e-9,
           what="sum of key times payload")  # fmt: skip
    expect(bool(edges["is_sorted"].all()), equals=True, what="order inside partitions")
    full = edges[edges["rows"] > 0]
    lows, highs = list(full["low"])[1:], list(full["high"])[:-1]
    are_after = all(low >= high for low, high in zip(lows, highs, strict=True))
    expect(are_after, equals=True, what="order of partitions")


def trips(scale, seed, *, factor, n_columns=10):
    """Return trips, each with its zone of pickup, one of 263; zones with small numbers are busy.

    Zone numbers follow a power law: one has a sixth of the rows, most less than 1/400.
    """
    frame = frame_of(scale, seed, factor, {"float": n_columns})
    return frame.assign(zone=(frame["float_0"] ** 3 * N_ZONES).astype("int64") + 1)


def frame_of(scale, seed, factor, columns, freq=None):
    """Return a random frame of a share of cluster memory, in small partitions."""
    part = scale.memory_per_thread / 128
    return random_frame(scale.linear(factor), columns, partition_bytes=part, freq=freq, seed=seed)


def one_row(**values):
    """Return a frame of one row, which describes a partition."""
    import pandas as pd

    return pd.DataFrame({name: [value] for name, value in values.items()})
