"""Reports about Dask DataFrame and Bag: loops over rows, shuffles, repeated work, skew."""

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
