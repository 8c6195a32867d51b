"""Make random arrays and frames on the workers, equal on every cluster for one seed.

Tasks contain the function by value, so workers do not need benchkit. Each chunk and partition has
its own random stream, drawn from the seed and its number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchkit.measure.errors import InvalidParameterError

#: Compressibility of arrays: none, or that of real data with lz4 (42 %).
DATA_MODES = ("uncompressible", "compressible")
#: Columns of the wide time series, 25 of each kind.
WIDE = {"str": 25, "float": 25, "int": 25, "category": 25}
START = "2000-01-01"
KINDS = ("str", "float", "int", "category")
#: B of a value in memory; a text in Arrow is an offset of 8 B and 9 letters on average.
ROW_BYTES = {"str": 17, "float": 8, "int": 8, "category": 1}


def random_array(
    shape: Sequence[int], *, chunks: Any, data: str = "uncompressible", seed: int = 0
) -> Any:
    """Return a Dask array of uniform float64 in [0, 1).

    Parameters
    ----------
    shape : sequence of int
        Shape.
    chunks : Any
        Chunks in a format of Dask.
    data : {"uncompressible", "compressible"}
        With "compressible", every second element is 0 and lz4 reaches 42 %; all zeros would be
        unrealistically small.
    seed : int, default 0
        Seed of the data.

    Returns
    -------
    dask.array.Array
        Random values, or every second one 0.
    """
    import dask.array as da

    if data not in DATA_MODES:
        raise InvalidParameterError(f"data={data!r}: choose one of {', '.join(DATA_MODES)}")
    array = da.random.default_rng(seed).random(tuple(shape), chunks=chunks)
    return array if data == "uncompressible" else array.map_blocks(_zero_every_second())


def _zero_every_second() -> Callable[[Any], Any]:
    # A nested function is pickled by value: workers need not have benchkit.
    def zero_every_second(block: Any) -> Any:
        block = block.copy()
        block.reshape(-1)[::2] = 0
        return block

    return zero_every_second


def random_frame(
    nbytes: float,
    columns: Mapping[str, int],
    *,
    partition_bytes: float,
    freq: str | None = None,
    seed: int = 0,
) -> Any:
    """Return a Dask DataFrame of about `nbytes` of random data.

    The number of rows is computed from `ROW_BYTES`. `dask.sizeof` is not used: it samples objects
    with pandas 2, so that two calls gave frames of different lengths, and returns other sizes with
    pandas 3, so that two releases would get different data.

    Parameters
    ----------
    nbytes : float
        Requested size in memory, in B.
    columns : mapping of str to int
        Number of columns of each kind: ``float`` (uniform in [0, 1)), ``int`` (0 to 999), ``str``
        and ``category`` (100 words). Names are ``float_0``, ``float_1``, ...
    partition_bytes : float
        Size of a partition in memory, in B.
    freq : str, optional
        Interval of rows. The index is then a sorted time from 2000-01-01 on with known
        divisions.
    seed : int, default 0
        Seed of the data.

    Returns
    -------
    dask.dataframe.DataFrame
        Partitions have equal numbers of rows.
    """
    import dask.dataframe as dd
    import pandas as pd

    make_none = frame_maker(columns, 0, freq=freq, seed=seed)  # raises for unknown kinds
    index_bytes = 8 if freq is not None else 0
    row_bytes = index_bytes + sum(ROW_BYTES[kind] * count for kind, count in columns.items())
    n_partitions = max(1, round(nbytes / partition_bytes))
    rows = max(1, round(nbytes / n_partitions / row_bytes))
    make = frame_maker(columns, rows, freq=freq, seed=seed)
    options: dict[str, Any] = {"meta": make_none(0)}
    if freq is not None:
        start, step = pd.Timestamp(START), pd.Timedelta(freq)
        edges = [start + i * rows * step for i in range(n_partitions)]
        options["divisions"] = [*edges, start + (n_partitions * rows - 1) * step]
    return dd.from_map(make, range(n_partitions), **options)


def frame_maker(
    columns: Mapping[str, int], rows: int, *, freq: str | None = None, seed: int = 0
) -> Callable[[int], Any]:
    """Return a function that makes partition number i of a random frame, as a pandas DataFrame."""
    for kind in columns:
        if kind not in KINDS:
            raise InvalidParameterError(f"column kind {kind!r}: choose among {', '.join(KINDS)}")
    columns, start = dict(columns), START

    # A nested function is pickled by value: workers need not have benchkit.
    def make(number: int) -> Any:
        import numpy as np
        import pandas as pd

        rng = np.random.default_rng([seed, number])
        words = pd.Series([f"{'lorem ipsum'[: 1 + i % 11]}{i:03d}" for i in range(100)])
        data = {}
        for kind, count in columns.items():
            values: Sequence[Any]
            if kind == "float":
                values = list(rng.random((count, rows)))
            elif kind == "int":
                values = list(rng.integers(0, 1000, (count, rows)))
            else:
                codes = rng.integers(0, len(words), (count, rows), dtype=np.int8)
                values = [
                    pd.Categorical.from_codes(row, categories=words)
                    if kind == "category"
                    else words.array.take(row)
                    for row in codes
                ]
            data.update({f"{kind}_{i}": row for i, row in enumerate(values)})
        index = None
        if freq is not None:
            begin = pd.Timestamp(start) + number * rows * pd.Timedelta(freq)
            index = pd.date_range(begin, periods=rows, freq=freq, name="time")
        return pd.DataFrame(data, index=index)

    return make
