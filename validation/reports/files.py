"""Reports about reading: formats, sizes of pieces, metadata, and chunks that do not fit."""

import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import xarray as xr

from validation.reports.client import DASK, DOCS, csv_files
from validation.reports.table import pair

XARRAY = "https://github.com/pydata/xarray"


@cache
def csv_and_parquet() -> tuple[list[str], list[str]]:
    """Return the paths of CSV files and of Parquet files of the same rows."""
    folder = Path(tempfile.mkdtemp(prefix="reports-parquet-"))
    sources = csv_files()[:8]
    targets = [str(folder / f"{Path(path).stem}.parquet") for path in sources]
    for source, target in zip(sources, targets, strict=True):
        pd.read_csv(source, parse_dates=["when"]).to_parquet(target)
    return sources, targets


@pair(
    id="csv-for-each-question",
    report=(f"{DOCS}/best-practices.html#store-data-efficiently", f"{DASK}/issues/1401"),
    cause="disk",
    advice="Store the table as Parquet once; CSV is parsed anew for each question.",
    wrong=("more threads", "larger blocks", "more workers"),
    also=("repeated work", "serial submit", "python objects"),
    speedup=2.0,
    prepare=csv_and_parquet,
)
class CsvForEachQuestion:
    @staticmethod
    def answers(frame: dd.DataFrame) -> list[float]:
        return [
            float(frame["y"].sum().compute()),
            float(frame["x"].max().compute()),
            float(frame["when"].max().compute().hour),
        ]

    @staticmethod
    def sick(client: Any) -> list[float]:
        sources, _ = csv_and_parquet()
        return CsvForEachQuestion.answers(dd.read_csv(sources, parse_dates=["when"]))

    @staticmethod
    def mended(client: Any) -> list[float]:
        _, targets = csv_and_parquet()
        return CsvForEachQuestion.answers(dd.read_parquet(targets))


@cache
def wide_parquet() -> str:
    """Write a table with 60 columns, and return its folder."""
    folder = tempfile.mkdtemp(prefix="reports-wide-")
    for part in range(8):
        random = np.random.default_rng(part)
        frame = pd.DataFrame(random.random((60_000, 60)), columns=[f"c{n}" for n in range(60)])
        frame.to_parquet(f"{folder}/{part}.parquet", compression="zstd")
    return folder


@pair(
    id="all-columns-for-one",
    report=(
        "https://github.com/dask/community/issues/301",
        "https://www.coiled.io/blog/improving-parquet-experience-dask",
    ),
    cause="disk",
    advice="Read only the columns that are used: read_parquet(columns=[...]).",
    wrong=("more threads", "smaller partitions", "persist all columns"),
    also=("spill", "transfer"),
    speedup=2.0,
    prepare=wide_parquet,
)
class AllColumnsForOne:
    @staticmethod
    def total(frame: dd.DataFrame) -> float:
        return sum(dask.compute(*(dask.delayed(total_of_c7)(p) for p in frame.to_delayed())))

    @staticmethod
    def sick(client: Any) -> float:
        return AllColumnsForOne.total(dd.read_parquet(wide_parquet()))

    @staticmethod
    def mended(client: Any) -> float:
        return AllColumnsForOne.total(dd.read_parquet(wide_parquet(), columns=["c7"]))


def total_of_c7(frame: pd.DataFrame) -> float:
    """Return the sum of one column; Dask cannot know that no other is used."""
    return float(frame["c7"].sum())


@cache
def small_row_groups() -> str:
    """Write two files with 250 row groups each, and return their folder."""
    folder = tempfile.mkdtemp(prefix="reports-groups-")
    for part in range(2):
        table = pa.table({"x": np.arange(25_000) + part, "y": np.arange(25_000) % 11})
        pq.write_table(table, f"{folder}/{part}.parquet", row_group_size=100)
    return folder


@cache
def zip_and_plain() -> tuple[str, str]:
    """Write one compressed file, and the same lines as a plain file."""
    folder = Path(tempfile.mkdtemp(prefix="reports-gz-"))
    frame = pd.concat([pd.read_csv(path) for path in csv_files()[:6]])
    frame.to_csv(
        folder / "all.csv.gz", index=False, compression={"method": "gzip", "compresslevel": 1}
    )
    frame.to_csv(folder / "all.csv", index=False)
    return str(folder / "all.csv.gz"), str(folder / "all.csv")


@cache
def images_by_time() -> str:
    """Write an array with one compressed chunk for each time, and return its path."""
    path = tempfile.mkdtemp(prefix="reports-zarr-")
    data = np.random.default_rng(0).integers(0, 50, (32, 700, 700)).astype("i4")
    fields = xr.Dataset({"field": (("time", "y", "x"), data)})
    fields.to_zarr(path, encoding={"field": {"chunks": (1, 700, 700)}}, mode="w")
    return path


@pair(
    id="chunks-across-the-file",
    report=(f"{XARRAY}/issues/1440", f"{XARRAY}/issues/3486", f"{XARRAY}/issues/2329"),
    cause="misaligned chunks",
    advice="Open with chunks that are multiples of those in the file.",
    wrong=("smaller chunks", "more threads", "more workers"),
    also=("disk", "repeated work", "tiny tasks"),
    speedup=2.0,
    prepare=images_by_time,
)
class ChunksAcrossTheFile:
    @staticmethod
    def total(chunks: dict[str, int]) -> float:
        with xr.open_zarr(images_by_time(), chunks=chunks) as fields:
            return float(fields["field"].max("time").astype("f8").sum().compute())

    @staticmethod
    def sick(client: Any) -> float:
        return ChunksAcrossTheFile.total({"time": -1, "y": 700, "x": 35})

    @staticmethod
    def mended(client: Any) -> float:
        return ChunksAcrossTheFile.total({"time": 4, "y": 700, "x": 700})


@cache
def files_with_coordinates() -> list[str]:
    """Write 40 files of one time each, with coordinates on a grid."""
    folder = Path(tempfile.mkdtemp(prefix="reports-nc-"))
    latitude, longitude = np.meshgrid(np.linspace(-90, 90, 300), np.linspace(0, 360, 300))
    paths = []
    for number in range(40):
        fields = xr.Dataset(
            {"field": (("time", "y", "x"), np.full((1, 300, 300), number, "f4"))},
            coords={
                "time": [number],
                "latitude": (("y", "x"), latitude),
                "longitude": (("y", "x"), longitude),
            },
        )
        paths.append(str(folder / f"{number:02}.nc"))
        fields.to_netcdf(paths[-1], engine="h5netcdf")
    return paths


def read_small_objects(part: int) -> int:
    """Read 25 small objects one after another, each after the latency of a store."""
    return sum(read_object(25 * part + number) for number in range(25))


def read_large_object(part: int) -> int:
    """Read the same values as one object."""
    time.sleep(0.03 + 25 * 0.002)
    return sum(range(25 * part, 25 * part + 25))


def read_object(number: int) -> int:
    """Read an object from a store with a latency."""
    time.sleep(0.03 + 0.002)
    return number


@pair(
    id="objects-of-a-few-bytes",
    report=(f"{DASK}/pull/9637", "https://github.com/NVIDIA/cudf/issues/3142"),
    cause="disk",
    advice="Store fewer and larger objects: most of the time is the latency of each request.",
    wrong=("smaller partitions", "more threads only", "fewer workers"),
    also=("misaligned chunks",),
    speedup=3.0,
    sleeping=True,
)
class ObjectsOfAFewBytes:
    @staticmethod
    def sick(client: Any) -> int:
        return sum(client.gather(client.map(read_small_objects, range(20))))

    @staticmethod
    def mended(client: Any) -> int:
        return sum(client.gather(client.map(read_large_object, range(20))))
