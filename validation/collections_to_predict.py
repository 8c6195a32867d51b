"""Computations with arrays, tables and Python objects whose durations are predicted.

Each takes 2 to 5 s on a processor of 2025, in 100 to 1,000 tasks: runs below a second differ by
15 % from repeat to repeat, which no model can predict. Sizes do not depend on the cluster, so
graphs are the same on each.
"""

import json
import re
import zlib
from collections.abc import Callable
from typing import Any

import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask import delayed

#: Measured after the last change of the model: nothing of it was chosen with these.
NEW = (
    "array.bincount",
    "array.gradient",
    "array.median",
    "python.compress",
    "python.frequencies",
    "python.regex",
    "table.join",
    "table.rolling",
    "table.sort",
)


def _array(
    rows: int = 4000, columns: int = 4000, parts: int = 4, column_parts: int = 4
) -> da.Array:
    chunks = (rows // parts, columns // column_parts)
    return da.random.default_rng(0).random((rows, columns), chunks=chunks)


def _part(number: int, rows: int = 300_000) -> pd.DataFrame:
    rng = np.random.default_rng(number)
    return pd.DataFrame(
        {
            "key": rng.integers(0, 1000, rows),
            "word": rng.choice(["one", "two", "three", "four"], rows),
            "value": rng.random(rows),
        }
    )


def _table() -> dd.DataFrame:
    return dd.from_map(_part, range(48))


def _count(number: int, values: int = 600_000) -> int:
    return sum(value % 7 for value in range(values + number))


def _text(number: int) -> int:
    return len(json.loads(json.dumps([str(value) for value in range(100_000 + number)])))


def _numbers(number: int) -> int:
    text = " ".join(str(value) for value in range(100_000 + number))
    return sum(int(found[-1]) for found in re.findall(r"\d+7\b", text))


def _compressed(number: int) -> int:
    return len(
        zlib.compress(np.random.default_rng(number).integers(0, 50, 800_000, np.uint8).tobytes())
    )


def _words(number: int) -> list[str]:
    return [f"{value * 7919 % 1009}" for value in range(80_000 + number)]


def _large_values() -> Any:
    table = _table()
    return table[table["value"] > 0.5].groupby("word")["value"].mean()


def _product() -> Any:
    array = _array(4000, 4000, 8, 8)
    return (array @ array.T).sum()


def _standardize() -> Any:
    array = _array(9000, 12_000, 6, 8)
    return ((array - array.mean(axis=0)) / array.std(axis=0)).max()


def _smooth() -> Any:
    array = _array(11_200, 11_200, 16, 16)
    mean = array.map_overlap(lambda block: (block + np.roll(block, 1, 0)) / 2, depth=2)
    return np.sqrt(mean).sum()


def _transpose() -> Any:
    array = _array(11_200, 11_200, 16, 16)
    return (array + array.T).sum(axis=0)


def _merge() -> Any:
    small = pd.DataFrame({"key": range(1000), "weight": np.arange(1000) % 13})
    merged = _table().merge(dd.from_pandas(small, npartitions=1), on="key")
    return (merged["value"] * merged["weight"]).sum()


def _join() -> Any:
    left = dd.from_map(lambda number: _part(number, 60_000), range(24))
    right = left.groupby("key")["value"].mean(split_out=6).reset_index()
    return left.merge(right, on="key", shuffle_method="tasks")["value_y"].sum()


def _sorted_parts(table: dd.DataFrame) -> Any:
    def sort(part: pd.DataFrame) -> pd.DataFrame:
        return part.sort_values(["key", "value"])

    return table.map_partitions(sort)["value"].sum()


#: Name -> function that returns a collection to compute.
COLLECTIONS = {
    "array.product": _product,
    "array.standardize": _standardize,
    "array.smooth": _smooth,
    "array.transpose": _transpose,
    "array.sort": lambda: _array(32_000, 3000, 160, 1).map_blocks(np.sort, axis=1).sum(),  # type: ignore[call-arg, arg-type]
    "array.svd": lambda: da.linalg.svd_compressed(_array(160_000, 200, 80, 1), 10, seed=0)[1],
    "array.histogram": lambda: da.histogram(_array(10_800, 10_800, 12, 12), bins=100, range=(0, 1))[
        0
    ],
    "array.cumsum": lambda: _array(14_400, 14_400, 12, 12).cumsum(axis=0).sum(),
    "array.fourier": lambda: abs(da.fft.fft(_array(24_000, 4096, 120, 1), axis=1)).sum(),
    "array.median": lambda: da.median(_array(36_000, 2000, 150, 1), axis=1).sum(),
    "array.gradient": lambda: abs(da.gradient(_array(9600, 9600, 12, 12))[0]).max(axis=0),
    "array.bincount": lambda: da.bincount(
        (_array(24_000, 6000, 150, 1) * 1000).astype(int).ravel(), minlength=1000
    ),
    "table.correlation": lambda: _table()[["key", "value"]].corr(),
    "table.filter": _large_values,
    "table.groupby": lambda: _table().groupby("key")["value"].agg(["mean", "std"]),
    "table.words": lambda: _table()["word"].str.upper().value_counts(),
    "table.distinct": lambda: _table()["key"].nunique(),
    "table.merge": _merge,
    "table.rolling": lambda: (
        _table()["value"].map_partitions(lambda values: values.rolling(200).std()).sum()
    ),
    "table.sort": lambda: _sorted_parts(_table()),
    "table.join": _join,
    "python.regex": lambda: delayed(sum)([delayed(_numbers)(number) for number in range(128)]),
    "python.compress": lambda: delayed(sum)([delayed(_compressed)(number) for number in range(96)]),
    "python.frequencies": lambda: (
        db.from_sequence(range(100), npartitions=100).map(_words).flatten().frequencies()
    ),
    "python.text": lambda: delayed(sum)([delayed(_text)(number) for number in range(128)]),
    "python.count": lambda: delayed(sum)([delayed(_count)(number) for number in range(96)]),
}

#: Numbers of chunks of the same data: the second is predicted from the first.
N_CHUNKS = (128, 64)
#: Name -> function that returns a collection in a number of chunks.
CHUNKED: dict[str, Callable[[int], Any]] = {
    "array.square": lambda n: (_array(32_000, 3000, n, 1) ** 2).sum(),
    "array.sort": lambda n: _array(32_000, 3000, n, 1).map_blocks(np.sort, axis=1).sum(),  # type: ignore[call-arg, arg-type]
    "array.fourier": lambda n: abs(da.fft.fft(_array(24_576, 4096, n, 1), axis=1)).sum(),
    "table.sort": lambda n: _sorted_parts(dd.from_map(_part, range(n), rows=9_600_000 // n)),
    "python.count": lambda n: delayed(sum)(
        [delayed(_count)(number, 57_600_000 // n) for number in range(n)]
    ),
}
