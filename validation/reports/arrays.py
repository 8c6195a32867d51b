"""Reports about arrays and xarray: chunks, rechunking, loops over cells."""

import time
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr

from validation.reports.client import DASK, DOCS
from validation.reports.table import pair

ARRAYS = f"{DOCS}/array-best-practices.html"
XARRAY = "https://github.com/pydata/xarray"


@pair(
    id="chunks-of-kilobytes",
    report=(f"{ARRAYS}#select-a-good-chunk-size", f"{DASK}/issues/2497"),
    cause="tiny tasks",
    advice="Use larger chunks, 10 MB or more: each chunk is a task, and a task costs 1 ms.",
    wrong=("smaller chunks", "more workers", "more threads", "more memory"),
    also=("graph", "client"),
    speedup=2.5,
)
class ChunksOfKilobytes:
    @staticmethod
    def total(chunks: int) -> float:
        array = da.ones((1500, 1500), chunks=chunks)
        return float((array + array.T).sum().compute())

    @staticmethod
    def sick(client: Any) -> float:
        return ChunksOfKilobytes.total(50)

    @staticmethod
    def mended(client: Any) -> float:
        return ChunksOfKilobytes.total(750)


def field_of(block_info: Any = None) -> np.ndarray:
    """Return a chunk of a field."""
    location = block_info[None]["array-location"]
    shape = [stop - start for start, stop in location]
    return np.full(shape, float(location[0][0] % 97))


@pair(
    id="rechunk-to-reduce",
    report=("https://github.com/xarray-contrib/xarray-tutorial/issues/157", f"{XARRAY}/pull/6569"),
    cause="rechunk",
    advice="Do not rechunk before a reduction: mean works on any chunks and moves almost nothing.",
    wrong=("smaller chunks", "more memory", "a faster network"),
    also=("transfer", "tiny tasks"),
    speedup=1.4,
)
class RechunkToReduce:
    @staticmethod
    def field() -> da.Array:
        chunks = ((400,) * 20, (4000,))
        return da.map_blocks(field_of, chunks=chunks, dtype=float, meta=np.empty((0, 0)))

    @staticmethod
    def sick(client: Any) -> float:
        columns = RechunkToReduce.field().rechunk({0: -1, 1: 100})
        return float(columns.mean(axis=0).sum().compute())

    @staticmethod
    def mended(client: Any) -> float:
        return float(RechunkToReduce.field().mean(axis=0).sum().compute())


def slow_field(block_id: Any = None) -> np.ndarray:
    """Read a chunk from something slow."""
    time.sleep(0.3)
    return np.full((10, 50), float(block_id[0]))


@pair(
    id="row-by-row-from-slow-chunks",
    report=f"{DASK}/pull/7905",
    cause="repeated work",
    advice="Compute (or persist) whole chunks once; each row computes its chunk again.",
    wrong=("larger chunks", "more threads", "more workers"),
    also=("serial submit", "gather"),
    speedup=4.0,
    sleeping=True,
)
class RowByRowFromSlowChunks:
    @staticmethod
    def field() -> da.Array:
        return da.map_blocks(slow_field, chunks=((10, 10), (50,)), dtype=float)

    @staticmethod
    def sick(client: Any) -> float:
        field = RowByRowFromSlowChunks.field()
        return sum(float(field[row].sum().compute()) for row in range(20))

    @staticmethod
    def mended(client: Any) -> float:
        return sum(float(row.sum()) for row in RowByRowFromSlowChunks.field().compute())


def slope(series: np.ndarray) -> float:
    """Return the slope of a series."""
    steps = np.arange(len(series)) - (len(series) - 1) / 2
    return float((steps * series).sum() / (steps * steps).sum())


def slopes(block: np.ndarray) -> np.ndarray:
    """Return the slopes of all series of a block."""
    steps = np.arange(block.shape[-1]) - (block.shape[-1] - 1) / 2
    return block @ steps / (steps @ steps)


@pair(
    id="ufunc-per-pixel",
    report=(f"{DASK}/issues/6218", f"{XARRAY}/issues/3762"),
    cause="python loop",
    advice="Write the function for whole blocks; vectorize=True calls it for each pixel.",
    wrong=("smaller chunks", "more threads", "larger memory"),
    also=("gil",),
    speedup=3.0,
)
class UfuncPerPixel:
    @staticmethod
    def series() -> xr.DataArray:
        data = da.random.RandomState(0).random_sample((300, 300, 24), chunks=(50, 300, 24))
        return xr.DataArray(data, dims=("y", "x", "time"))

    @staticmethod
    def slope_sum(function: Any, vectorize: bool) -> float:
        result = xr.apply_ufunc(
            function,
            UfuncPerPixel.series(),
            input_core_dims=[["time"]],
            vectorize=vectorize,
            dask="parallelized",
            output_dtypes=[float],
        )
        return round(float(result.sum().compute()), 6)

    @staticmethod
    def sick(client: Any) -> float:
        return UfuncPerPixel.slope_sum(slope, vectorize=True)

    @staticmethod
    def mended(client: Any) -> float:
        return UfuncPerPixel.slope_sum(slopes, vectorize=False)


@pair(
    id="one-chunk-for-all",
    report=(f"{DOCS}/array-chunks.html", "https://github.com/dask/dask-blog/pull/119"),
    cause="few tasks",
    advice="Use at least two chunks per thread: a single chunk is a single task.",
    wrong=("more threads", "more memory", "a faster network"),
    speedup=1.5,
    sleeping=True,
)
class OneChunkForAll:
    @staticmethod
    def total(chunks: int) -> float:
        array = da.ones((800, 10), chunks=(chunks, 10))
        return float(array.map_blocks(slow_rows_of, dtype=float).sum().compute())

    @staticmethod
    def sick(client: Any) -> float:
        return OneChunkForAll.total(800)

    @staticmethod
    def mended(client: Any) -> float:
        return OneChunkForAll.total(50)


def slow_rows_of(block: np.ndarray) -> np.ndarray:
    """Work as long as the block is."""
    if block.size > 10:  # not when Dask infers the type
        time.sleep(0.006 * len(block))
    return block + 1
