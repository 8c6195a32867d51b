"""Reports about Dask DataFrame and Bag: loops over rows, shuffles, repeated work, skew."""

from __future__ import annotations

import time
from operator import itemgetter
from typing import Any

import dask
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd

from validation.reports.client import DASK, DISTRIBUTED, DOCS
from validation.reports.table import pair

FRAMES = f"{DOCS}/dataframe-best-practices.html"


def measurements(part: int, n_rows: int = 20_000) -> pd.DataFrame:
    """Return a partition with a key, a time and two numbers."""
    random = np.random.default_rng(part)
    return pd.DataFrame(
        {
            "time": pd.date_range("2024-01-01", periods=n_rows, freq="s")
            + pd.Timedelta(seconds=part * n_rows),
            "key": random.integers(0, 2000, n_rows),
            "x": random.integers(0, 1000, n_rows),
            "y": random.integers(0, 1000, n_rows),
        }
    )


@pair(
    id="apply-over-rows",
    report=(f"{DASK}/issues/5994", f"{DASK}/issues/3948", f"{FRAMES}"),
    cause="python loop",
    advice="Replace apply(axis=1) by operations on columns.",
    wrong=("more threads", "larger partitions", "smaller partitions"),
    also=("gil",),
    speedup=3.0,
)
class ApplyOverRows:
    @staticmethod
    def sick(client: Any) -> int:
        frame = dd.from_map(measurements, range(12))
        values = frame.apply(lambda row: row["y"] * (row["x"] ** 2 + 1), axis=1, meta=("z", "i8"))
        return int(values.sum().compute())

    @staticmethod
    def mended(client: Any) -> int:
        frame = dd.from_map(measurements, range(12))
        return int((frame["y"] * (frame["x"] ** 2 + 1)).sum().compute())


@pair(
    id="sort-a-sorted-index",
    report=(f"{DASK}/pull/1143", f"{DASK}/issues/2201"),
    cause="shuffle",
    advice="The data are sorted already: set_index(..., sorted=True) with known divisions.",
    wrong=("more partitions", "more workers", "a faster network"),
    also=("repeated work", "transfer"),
    speedup=1.5,
)
class SortASortedIndex:
    @staticmethod
    def total(frame: pd.DataFrame) -> int:
        return int((frame["x"] * frame.index.second).sum())

    @staticmethod
    def sick(client: Any) -> int:
        frame = dd.from_map(measurements, range(16), n_rows=100_000).set_index("time")
        return sum(frame.map_partitions(SortASortedIndex.total, meta=(None, "i8")).compute())

    @staticmethod
    def mended(client: Any) -> int:
        frame = dd.from_map(measurements, range(16), n_rows=100_000)
        start = pd.Timestamp("2024-01-01")
        divisions = [start + pd.Timedelta(seconds=100_000 * part) for part in range(16)]
        divisions.append(start + pd.Timedelta(seconds=1_599_999))
        frame = frame.set_index("time", sorted=True, divisions=divisions)
        return sum(frame.map_partitions(SortASortedIndex.total, meta=(None, "i8")).compute())


@pair(
    id="shuffle-to-join-small-table",
    report=(f"{DASK}/pull/1154", f"{DASK}/pull/4569"),
    cause="shuffle",
    advice="Join the small table as a pandas frame (or one partition): no rows must move.",
    wrong=("more partitions", "more memory", "a faster network"),
    also=("transfer",),
    speedup=1.5,
)
class ShuffleToJoinSmallTable:
    @staticmethod
    def names() -> pd.DataFrame:
        return pd.DataFrame({"key": np.arange(2000), "weight": np.arange(2000) % 7})

    @staticmethod
    def sick(client: Any) -> int:
        frame = dd.from_map(measurements, range(16), n_rows=80_000)
        names = dd.from_pandas(ShuffleToJoinSmallTable.names(), npartitions=8)
        joined = frame.merge(names, on="key", broadcast=False)
        return int((joined["x"] * joined["weight"]).sum().compute())

    @staticmethod
    def mended(client: Any) -> int:
        frame = dd.from_map(measurements, range(16), n_rows=80_000)
        joined = frame.merge(ShuffleToJoinSmallTable.names(), on="key")
        return int((joined["x"] * joined["weight"]).sum().compute())


def spread(group: pd.DataFrame) -> int:
    """Return one number of a group."""
    return int(group["x"].max() - group["x"].min())


@pair(
    id="groupby-apply-to-reduce",
    report=(f"{DASK}/pull/4800", f"{DASK}/issues/3135"),
    cause="shuffle",
    advice="Use built-in aggregations (max, min) or dd.Aggregation: apply moves all rows.",
    wrong=("more partitions", "more threads", "more memory"),
    also=("python loop", "gil", "transfer"),
    speedup=2.0,
)
class GroupbyApplyToReduce:
    @staticmethod
    def sick(client: Any) -> int:
        frame = dd.from_map(measurements, range(10))
        spreads = frame[["key", "x"]].groupby("key").apply(spread, meta=("x", "i8"))
        return int(spreads.sum().compute())

    @staticmethod
    def mended(client: Any) -> int:
        frame = dd.from_map(measurements, range(10))
        ends = frame[["key", "x"]].groupby("key")["x"].agg(["max", "min"])
        return int((ends["max"] - ends["min"]).sum().compute())


def slow_part(part: int) -> pd.DataFrame:
    """Read a partition from something slow."""
    time.sleep(0.3)
    return measurements(part, 500)


@pair(
    id="length-after-each-step",
    report=(f"{DASK}/issues/9857", "https://github.com/dask/community/issues/301"),
    cause="repeated work",
    advice="Do not print len() of each step: it reads all again. Persist, or compute once.",
    wrong=("more threads", "larger partitions", "faster storage only"),
    also=("serial submit", "disk"),
    speedup=2.0,
    sleeping=True,
)
class LengthAfterEachStep:
    @staticmethod
    def sick(client: Any) -> tuple[int, ...]:
        frame = dd.from_map(slow_part, range(16))
        lengths = [len(frame)]
        frame = frame[frame["x"] > 100]
        lengths.append(len(frame))
        frame = frame[frame["y"] > 100]
        lengths.append(len(frame))
        return (*lengths, int(frame["x"].sum().compute()))

    @staticmethod
    def mended(client: Any) -> tuple[int, ...]:
        frame = dd.from_map(slow_part, range(16))
        some = frame[frame["x"] > 100]
        few = some[some["y"] > 100]
        sizes = [part.shape[0] for part in (frame, some, few)]
        return tuple(int(number) for number in dask.compute(*sizes, few["x"].sum()))


def cleaned(part: int) -> pd.DataFrame:
    """Read and clean a partition, with some computing."""
    frame = measurements(part, 60_000)
    frame["hour"] = frame["time"].dt.strftime("%H").astype(int)
    return frame


@pair(
    id="statistics-one-by-one",
    report=(f"{DASK}/issues/2614", f"{FRAMES}#persist-intelligently"),
    cause="repeated work",
    advice="Persist the cleaned frame, or compute all statistics in one dask.compute.",
    wrong=("more partitions", "more threads", "scatter the data"),
    also=("serial submit",),
    speedup=1.8,
)
class StatisticsOneByOne:
    @staticmethod
    def statistics() -> list[Any]:
        frame = dd.from_map(cleaned, range(10))
        by_hour = frame.groupby("hour")
        return [
            frame["x"].mean(),
            frame["y"].max(),
            by_hour["x"].sum().max(),
            by_hour["y"].sum().min(),
        ]

    @staticmethod
    def sick(client: Any) -> list[float]:
        return [float(lazy.compute()) for lazy in StatisticsOneByOne.statistics()]

    @staticmethod
    def mended(client: Any) -> list[float]:
        return [float(number) for number in dask.compute(*StatisticsOneByOne.statistics())]


def few_rows(part: int) -> pd.DataFrame:
    """Return the few rows that a filter has left of a partition."""
    return pd.DataFrame({"key": np.arange(5) + part % 7, "x": np.arange(5)})


def few_rows_of_many(parts: range) -> pd.DataFrame:
    """Return the rows of many files as one partition."""
    return pd.concat([few_rows(part) for part in parts])


@pair(
    id="partitions-of-five-rows",
    report=(f"{FRAMES}#repartition-to-reduce-overhead", f"{DASK}/issues/5729"),
    cause="tiny tasks",
    advice="Merge the small partitions (repartition, or read many files per partition) first.",
    wrong=("more workers", "more partitions", "more threads", "persist"),
    also=("graph", "client"),
    speedup=3.0,
)
class PartitionsOfFiveRows:
    @staticmethod
    def total(frame: dd.DataFrame) -> int:
        frame = frame.persist(optimize_graph=False)
        frame = frame[frame["x"] >= 0].assign(z=frame["x"] * 2).persist(optimize_graph=False)
        return int(frame.groupby("key")["z"].sum(split_every=8).sum().compute())

    @staticmethod
    def sick(client: Any) -> int:
        return PartitionsOfFiveRows.total(dd.from_map(few_rows, range(640)))

    @staticmethod
    def mended(client: Any) -> int:
        parts = [range(start, start + 80) for start in range(0, 640, 80)]
        return PartitionsOfFiveRows.total(dd.from_map(few_rows_of_many, parts))


def words(part: int) -> pd.DataFrame:
    """Return a partition with a column of text as Python objects."""
    numbers = np.random.default_rng(part).integers(0, 30, 120_000)
    text = np.array([f"customer number {n} of the shop" for n in range(30)], dtype=object)
    copies = [f"{word}" + "" for word in text[numbers]]
    return pd.DataFrame({"name": pd.Series(copies, dtype=object), "x": numbers})


def words_as_categories(part: int) -> pd.DataFrame:
    """Return the same partition with the text as categories."""
    numbers = np.random.default_rng(part).integers(0, 30, 120_000)
    text = [f"customer number {n} of the shop" for n in range(30)]
    return pd.DataFrame({"name": pd.Categorical.from_codes(numbers, text), "x": numbers})


def long_names(frame: pd.DataFrame) -> int:
    """Work on the text."""
    upper = frame["name"].str.upper().str.replace("SHOP", "MARKET").str.len()
    return int((upper * frame["x"]).sum())


def long_categories(frame: pd.DataFrame) -> int:
    """Work on the categories, each of which is handled once."""
    categories = frame["name"].cat.categories.astype(str)
    length = categories.str.upper().str.replace("SHOP", "MARKET").str.len().to_numpy()
    return int((length[frame["name"].cat.codes] * frame["x"]).sum())


@pair(
    id="text-as-objects",
    report=(f"{DASK}/issues/4001", f"{DASK}/issues/8842", f"{DISTRIBUTED}/issues/7880"),
    cause="python objects",
    advice="Use categories or Arrow strings for text; object columns work at Python's speed.",
    wrong=("more threads", "smaller partitions", "larger memory"),
    also=("gil", "python loop", "serialization"),
    speedup=2.0,
)
class TextAsObjects:
    @staticmethod
    def sick(client: Any) -> int:
        return sum(client.gather(client.map(long_names, client.map(words, range(12)))))

    @staticmethod
    def mended(client: Any) -> int:
        frames = client.map(words_as_categories, range(12))
        return sum(client.gather(client.map(long_categories, frames)))


def rows_of_shop(shop: int, start: int, stop: int) -> pd.DataFrame:
    """Return rows of a shop."""
    return pd.DataFrame({"shop": shop, "x": np.arange(start, stop)})


def slow_rows(frame: pd.DataFrame) -> int:
    """Work as long as the partition is."""
    time.sleep(len(frame) * 0.002)
    return int(frame["x"].sum())


@pair(
    id="one-large-partition",
    report=("https://github.com/dask/dask-expr/issues/417", f"{DASK}/issues/5475"),
    cause="skew",
    advice="Split the large partition (another key, or repartition to equal sizes).",
    wrong=("more workers", "more threads", "larger partitions"),
    also=("few tasks",),
    sleeping=True,
    speedup=1.5,
)
class OneLargePartition:
    SIZES = (*[100] * 15, 2000)

    @staticmethod
    def total(largest: int) -> int:
        lazy = []
        for shop, size in enumerate(OneLargePartition.SIZES):
            for start in range(0, size, largest):
                stop = min(start + largest, size)
                rows = dask.delayed(rows_of_shop)(shop, start, stop)
                lazy.append(dask.delayed(slow_rows)(rows))
        return sum(dask.compute(*lazy))

    @staticmethod
    def sick(client: Any) -> int:
        return OneLargePartition.total(2000)

    @staticmethod
    def mended(client: Any) -> int:
        return OneLargePartition.total(200)


def orders(part: int) -> list[dict[str, Any]]:
    """Return a list of records."""
    random = np.random.default_rng(part)
    people = random.integers(0, 50, 15_000).tolist()
    return [{"name": f"person {n}", "amount": n % 9} for n in people]


def add_amount(total: int, record: dict[str, Any]) -> int:
    """Add a record to a total."""
    return total + record["amount"]


def add(first: int, second: int) -> int:
    """Add two totals."""
    return first + second


def total_of_group(group: tuple[str, list[dict[str, Any]]]) -> int:
    """Return the total of a group of records."""
    return sum(map(itemgetter("amount"), group[1]))


@pair(
    id="bag-groupby",
    report=(
        f"{DISTRIBUTED}/issues/5611",
        "https://github.com/dask/dask-tutorial/issues/213",
        f"{DASK}/issues/2668",
    ),
    cause="shuffle",
    advice="Use foldby (or a frame): groupby of a bag moves every record.",
    wrong=("more partitions", "more threads", "larger memory"),
    also=("python objects", "serialization", "transfer"),
    speedup=1.5,
)
class BagGroupby:
    @staticmethod
    def bag() -> db.Bag:
        return db.from_sequence(range(8), npartitions=8).map(orders).flatten()

    @staticmethod
    def sick(client: Any) -> int:
        groups = BagGroupby.bag().groupby(itemgetter("name"), shuffle="tasks")
        return int(groups.map(total_of_group).sum().compute())

    @staticmethod
    def mended(client: Any) -> int:
        totals = BagGroupby.bag().foldby(itemgetter("name"), add_amount, 0, add, 0)
        return int(totals.map(itemgetter(1)).sum().compute())
