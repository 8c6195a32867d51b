"""DataFrame workloads in which the order or position of rows matters."""

from __future__ import annotations

from _frames import expect_sorted, frame_of, gathered, one_row
from _shuffle import warm_up_shuffle

from benchkit.measure import expect, random_frame, workload

REQUIRES = ["pandas", "pyarrow", "dask.dataframe"]
#: Rows of the window of the rolling mean.
WINDOW = 60
SORTED_BY = {"float": ["float_0"], "text": ["str_0", "int_0"]}
EDGES = {"rows": int, "low": object, "high": object, "is_sorted": bool, "product": float}
ROLLED = {"rows": int, "total": float, "head": float}
#: Trades per quote, and how many of them are within the tolerance.
TRADES, TIMELY = 10, 7


@workload(
    category="df",
    variants={"by": ["float", "text"]},
    tags=["shuffle", "p2p", "nightly", "ci[by=float]"],
    requires=REQUIRES,
    version=2,
)
def sort_values(scale, seed, *, by):
    """Sort rows by a random float, or by a string and an integer.

    There are only a hundred strings, so that partitions differ in size. Stresses the pass over the
    data that computes divisions, the shuffle, and sorting.

    Scale: 0.15 x cluster memory, linear; a partition is 1/128 of one thread's memory.
    About 4 s on 2 x 1 x 1 GiB.
    Check: all rows are complete, partitions are sorted, and their ranges are in order.
    """
    columns = SORTED_BY[by]
    ordered = _sortable(scale, seed).sort_values(columns)
    return ordered.map_partitions(_describe_order, columns, meta=EDGES).compute()


@sort_values.prepare
def _(client):
    warm_up_shuffle()


@sort_values.check
def _(result, scale, seed, *, by):
    source = _sortable(scale, seed).map_partitions(_describe_order, SORTED_BY[by], meta=EDGES)
    wanted = source.compute()[["rows", "product"]].sum()
    expect_sorted(result, wanted["rows"], wanted["product"])


@workload(category="df", tags=["rolling", "nightly", "ci"], requires=REQUIRES)
def rolling(scale, seed):
    """Compute the rolling mean over a minute of a series with one value per second.

    Each partition needs the end of the previous one. Stresses this transfer, with a task for each
    boundary of partitions.

    Scale: 0.25 x cluster memory, linear; a partition is 1/128 of one thread's memory.
    About 4 s on 2 x 1 x 1 GiB.
    Check: rows and the sum of all means, as each value except those at the ends is in sixty
    windows; and pandas on three partitions with the rows before them.
    """
    rolled = _seconds(scale, seed).rolling("60s").mean()
    return rolled.map_partitions(_describe_rolled, meta=ROLLED).compute()


@rolling.check
def _(result, scale, seed):
    import numpy as np
    import pandas as pd

    frame = _seconds(scale, seed)
    result = result.reset_index(drop=True)
    sums = frame["float_0"].map_partitions(_rows_and_sum, meta={"rows": int, "total": float})
    wanted = sums.compute()
    n_rows = int(wanted["rows"].sum())
    expect(int(result["rows"].sum()), equals=n_rows, what="rows")
    # Each value is in as many windows as a window has rows, with weight 1 / rows.
    share = 1 / np.minimum(np.arange(2 * WINDOW) + 1, WINDOW)
    head = np.array([share[i : i + WINDOW].sum() for i in range(WINDOW)]) - 1
    tail = np.arange(WINDOW, 0, -1) / WINDOW - 1
    first = frame["float_0"].partitions[0].compute().to_numpy()[:WINDOW]
    last = frame["float_0"].partitions[-1].compute().to_numpy()[-WINDOW:]
    total = wanted["total"].sum() + head @ first + tail @ last
    expect(float(result["total"].sum(skipna=False)), close_to=float(total), rtol=1e-9, what="sum")
    for number in sorted({1, frame.npartitions // 2, frame.npartitions - 1}):
        before = frame.partitions[number - 1].compute()
        means = pd.concat([before, frame.partitions[number].compute()]).rolling("60s").mean()
        known = _describe_rolled(means.iloc[len(before) :]).iloc[0]
        for name in known.index:
            expect(float(result[name][number]), close_to=float(known[name]), rtol=1e-9,
                   what=f"{name} of partition {number}")  # fmt: skip


@workload(category="df", tags=["join", "alignment", "nightly", "ci"], requires=REQUIRES)
def merge_asof(scale, seed):
    """Join each trade with the last quote before it that is at most two seconds old.

    There are ten trades per quote; partitions end between a trade and its quote. Stresses the
    alignment of two sorted series, and transfer of rows from one partition to the next.

    Scale: trades of 0.15 and quotes of 0.015 x cluster memory, linear; a partition is 1/128 of one
    thread's memory. About 2 s on 2 x 1 x 1 GiB.
    Check: the number of trades with a quote and the sum of their quotes, from the intervals of
    trades and quotes.
    """
    import dask.dataframe as dd
    import pandas as pd

    trades, quotes = _market(scale, seed)
    merged = dd.merge_asof(
        trades, quotes, left_index=True, right_index=True, tolerance=pd.Timedelta("2s")
    )
    meta = {"rows": int, "quoted": int, "total": float, "product": float}
    return merged.map_partitions(_describe_quoted, meta=meta).sum().compute()


@merge_asof.check
def _(result, scale, seed):
    import numpy as np

    trades, quotes = _market(scale, seed)
    asked = gathered(quotes["quote"]).to_numpy()  # 1/50 of the values of the trades
    rows, n_quoted, total, product = 0, 0, 0.0, 0.0
    for begin in range(0, trades.npartitions, scale.threads):  # all at once may not fit into memory
        prices = gathered(trades["float_0"].partitions[begin : begin + scale.threads]).to_numpy()
        number = np.arange(rows, rows + len(prices))
        quoted = (number % TRADES < TIMELY) & (number // TRADES < len(asked))
        matched = asked[number[quoted] // TRADES]
        rows += len(prices)
        n_quoted += int(quoted.sum())
        total += float(matched.sum())
        product += float(matched @ prices[quoted])
    expect(int(result["rows"]), equals=rows, what="trades")
    expect(int(result["quoted"]), equals=n_quoted, what="trades with a quote")
    expect(float(result["total"]), close_to=total, what="sum of quotes")
    expect(float(result["product"]), close_to=product, what="sum of quotes times trades")


@workload(category="df", tags=["memory", "imbalance", "nightly", "ci"], requires=REQUIRES,
          metrics={"largest_over_median": "1"})  # fmt: skip
def repartition_uneven(scale, seed):
    """Split and join partitions of very different sizes into partitions of about equal size.

    Sizes are log-normal; the largest is at least forty times the smallest. Dask measures all of
    them, then makes them again, splits the large and joins the small ones. Stresses the first pass.

    Scale: 0.2 x cluster memory, linear; output partitions are 1/128 of one thread's memory.
    About 2 s on 2 x 1 x 1 GiB.
    Check: rows contain their number: all exist, in order.
    """
    target = int(scale.memory_per_thread / 128)
    # Persist first: before Python 3.12, Dask 2026.8 hangs when sizes are computed within a larger
    # expression (a lock of `cached_property`, if the scheduler is in this process).
    even = _uneven(scale, seed).repartition(partition_size=target).persist()
    meta = {"rows": int, "first": float, "last": float, "total": int, "is_sorted": bool}
    return even.map_partitions(_describe_numbers, meta=meta).compute()


@repartition_uneven.check
def _(result, scale, seed):
    n_rows = int(_sizes(scale, seed).sum())
    full = result[result["rows"] > 0]
    expect(int(full["rows"].sum()), equals=n_rows, what="rows")
    expect(int(full["total"].sum()), equals=n_rows * (n_rows - 1) // 2, what="sum of numbers")
    expect(bool(full["is_sorted"].all()), equals=True, what="order inside partitions")
    edges = full["first"].to_numpy()[1:] - full["last"].to_numpy()[:-1]
    expect(edges, equals=[1.0] * (len(full) - 1), what="steps between partitions")
    rows = full["rows"]
    return {"largest_over_median": float(rows.max() / rows.median())}


@workload(category="df", tags=["graph", "overhead", "nightly", "ci"], requires=REQUIRES)
def to_from_array_delayed(scale, seed):
    """Convert a frame to an array, delayed objects and a bag, and each back to a frame.

    Partitions are small and many. Stresses the graph, which grows with each conversion, and bags,
    whose rows are Python objects.

    Scale: 50 partitions of 200 rows per thread x fraction.
    About 3 s on 2 x 1 x 1 GiB.
    Check: rows, their order and all values of the last frame equal those of the first.
    """
    import dask.dataframe as dd

    frame = _small_parts(scale, seed)
    names = list(frame.columns)
    array = frame.to_dask_array(lengths=True)
    frame = dd.from_dask_array(array, columns=names)
    frame = dd.from_delayed(frame.to_delayed(), meta=frame._meta)
    frame = frame.to_bag(format="dict").to_dataframe(meta=dict.fromkeys(names, float))
    return frame[names].compute()


@to_from_array_delayed.check
def _(result, scale, seed):
    wanted = _small_parts(scale, seed).compute()
    expect(list(result.columns), equals=list(wanted.columns), what="columns")
    expect(len(result), equals=len(wanted), what="rows")
    wrong = (result.to_numpy() != wanted.to_numpy()).sum()
    expect(int(wrong), equals=0, what="values that differ")


def _sortable(scale, seed):
    return frame_of(scale, seed, 0.15, {"float": 8, "int": 2, "str": 1})


def _describe_order(part, columns):
    low, high = (tuple(part[columns].iloc[place]) if len(part) else () for place in (0, -1))
    ranks, weights = _ranks_and_weights(part, columns)
    return one_row(
        rows=len(part),
        low=low,
        high=high,
        is_sorted=bool((ranks[1:] >= ranks[:-1]).all()),
        product=float(weights @ part["float_1"].to_numpy()),
    )


def _ranks_and_weights(part, columns):
    """Return for each row a number in the order of its keys, and a number computed from its keys.

    The rank of a string is that within the partition; the number at its end is the same everywhere.
    """
    import numpy as np
    import pandas as pd

    if len(columns) == 1:
        return [part[columns[0]].to_numpy()] * 2
    text, integer = (part[name] for name in columns)
    codes, words = pd.factorize(text, sort=True)
    numbers = np.array([int(word[-3:]) for word in words], dtype=int)
    return codes * 1000 + integer.to_numpy(), numbers[codes] / 100 + integer.to_numpy() / 100_000


def _seconds(scale, seed):
    return frame_of(scale, seed, 0.25, {"float": 4}, freq="1s")


def _describe_rolled(part):
    column = part["float_0"]
    head = float(column.iloc[: WINDOW - 1].sum())
    return one_row(rows=len(part), total=float(column.sum(skipna=False)), head=head)


def _rows_and_sum(column):
    return one_row(rows=len(column), total=float(column.sum()))


def _market(scale, seed):
    """Return trades every 300 ms and quotes every 3 s."""
    trades = frame_of(scale, seed, 0.15, {"float": 4}, freq="300ms")
    quotes = frame_of(scale, seed + 1, 0.015, {"float": 4}, freq="3s")
    return trades, quotes.rename(columns={"float_0": "quote"})[["quote"]]


def _describe_quoted(part):
    has_quote = part[part["quote"].notna()]
    quotes = has_quote["quote"].to_numpy()
    return one_row(
        rows=len(part),
        quoted=len(has_quote),
        total=float(quotes.sum()),
        product=float(quotes @ has_quote["float_0"].to_numpy()),
    )


def _sizes(scale, seed):
    """Return the number of rows of each uneven partition; a row has 40 B."""
    import numpy as np

    count = max(8, 16 * scale.threads)
    drawn = np.random.default_rng(seed).lognormal(0, 1, count)
    return np.maximum(1, (drawn / drawn.sum() * scale.linear(0.2) / 40).astype(int))


def _uneven(scale, seed):
    import dask.dataframe as dd
    import numpy as np

    sizes = _sizes(scale, seed)
    ends = np.cumsum(sizes)
    return dd.from_map(_make_uneven, (ends - sizes).tolist(), ends.tolist(), seed=seed,
                       meta=_make_uneven(0, 0, seed=seed))  # fmt: skip


def _make_uneven(begin, end, *, seed):
    import numpy as np
    import pandas as pd

    random = np.random.default_rng([seed, begin])
    values = {f"float_{i}": random.random(end - begin) for i in range(4)}
    return pd.DataFrame({"number": np.arange(begin, end, dtype="int64"), **values})


def _describe_numbers(part):
    number = part["number"]
    return one_row(
        rows=len(part),
        first=float(number.min()),
        last=float(number.max()),
        total=int(number.sum()),
        is_sorted=bool(number.is_monotonic_increasing),
    )


def _small_parts(scale, seed):
    count = max(6, round(50 * scale.threads * scale.fraction))
    part = 200 * 5 * 8
    return random_frame(count * part, {"float": 5}, partition_bytes=part, seed=seed)
