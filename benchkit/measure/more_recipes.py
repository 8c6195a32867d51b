"""More shipped recipes: text, partitioned and oddly written tables, a cube, archives.

Continues `recipes`, which is the one door to all of them. What a recipe knows of its data (sums,
counts) is in the manifest under ``known``, so that checks need not read everything again.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from benchkit.measure.errors import MissingPackage
from benchkit.measure.recipe import recipe

__all__ = ["gdelt", "hive", "int_cube", "spark_like", "tarballs", "taxi_csv"]

#: Columns of a line of GDELT's table of events; the last is the address of the source.
GDELT_COLUMNS = 58
#: Which of them hold numbers with a fraction, and now and then a stray "#".
GDELT_FLOATS = (30, 34, 39)
NEWSPAPERS = ("washingtonpost", "nytimes")
WORD = b"matplotlib"


@recipe(
    "taxi_csv",
    version=1,
    sizes={
        "tiny": {"rows_per_month": 500},
        "ci": {"rows_per_month": 20_000},
        "laptop": {"rows_per_month": 200_000},
        "cluster": {"rows_per_month": 7_000_000},
    },
)
def taxi_csv(folder: Path, *, rows_per_month: int = 20_000, seed: int = 0) -> Mapping[str, Any]:
    """Make twelve monthly files with the 18 columns of New York's yellow cabs.

    Tips grow with the number of passengers, in whole cents, so that sums by passengers are known.

    Parameters
    ----------
    folder : Path
        Where to write.
    rows_per_month : int
        Lines of each file, without the header.
    seed : int
        Seed of the data.
    """
    _need("pandas", "taxi_csv")
    import numpy as np
    import pandas as pd

    counts, cents = np.zeros(7, dtype=int), np.zeros(7, dtype=int)
    for month in range(1, 13):
        rng = np.random.default_rng([seed, month])
        rows = rows_per_month
        begin = pd.Timestamp(2019, month, 1) + pd.to_timedelta(
            np.sort(rng.integers(0, 28 * 86400, rows)), unit="s"
        )
        passengers = rng.choice(7, rows, p=[0.02, 0.7, 0.15, 0.05, 0.02, 0.04, 0.02])
        tips = 100 + 25 * passengers + rng.integers(0, 300, rows)
        counts += np.bincount(passengers, minlength=7)
        cents += np.bincount(passengers, weights=tips, minlength=7).astype(int)
        fare = rng.integers(250, 6000, rows) / 100
        columns = {
            "VendorID": rng.integers(1, 3, rows),
            "tpep_pickup_datetime": begin,
            "tpep_dropoff_datetime": begin + pd.to_timedelta(rng.integers(60, 3600, rows), "s"),
            "passenger_count": passengers,
            "trip_distance": rng.integers(10, 2000, rows) / 100,
            "RatecodeID": rng.integers(1, 7, rows),
            "store_and_fwd_flag": np.where(rng.random(rows) < 0.01, "Y", "N"),
            "PULocationID": rng.integers(1, 264, rows),
            "DOLocationID": rng.integers(1, 264, rows),
            "payment_type": rng.integers(1, 5, rows),
            "fare_amount": fare,
            "extra": rng.integers(0, 3, rows) / 2,
            "mta_tax": np.full(rows, 0.5),
            "tip_amount": tips / 100,
            "tolls_amount": np.where(rng.random(rows) < 0.05, 5.76, 0.0),
            "improvement_surcharge": np.full(rows, 0.3),
            "total_amount": (fare + tips / 100).round(2),
            "congestion_surcharge": rng.choice([0.0, 2.5], rows),
        }
        pd.DataFrame(columns).to_csv(folder / f"2019-{month:02d}.csv", index=False)
    return {
        "rows": {"taxi": 12 * rows_per_month},
        "tables": {"taxi": "*.csv"},
        "seed": seed,
        "known": {"counts": counts.tolist(), "tip_cents": cents.tolist()},
        "generators": _versions("numpy", "pandas"),
    }


@recipe(
    "gdelt",
    version=1,
    sizes={
        "tiny": {"files": 4, "rows_per_file": 200},
        "ci": {"files": 20, "rows_per_file": 5000},
        "laptop": {"files": 100, "rows_per_file": 20_000},
        "cluster": {"files": 1000, "rows_per_file": 150_000},
    },
)
def gdelt(
    folder: Path, *, files: int = 20, rows_per_file: int = 5000, seed: int = 0
) -> Mapping[str, Any]:
    """Make tab-separated tables of events as GDELT publishes them, with their faults.

    One line in a hundred has columns too many, one float in a hundred is preceded by "#", a tenth
    of the lines repeat the address of an earlier one of their file, and one address in fifty is
    that of one of two newspapers.

    Parameters
    ----------
    folder : Path
        Where to write.
    files, rows_per_file : int
        Files, and lines of each.
    seed : int
        Seed of the data.
    """
    _need("numpy", "gdelt")
    import numpy as np

    kept, tenths = 0, 0
    for number in range(files):
        rng = np.random.default_rng([seed, number])
        rows = rows_per_file
        values = rng.integers(0, 100_000, (rows, GDELT_COLUMNS - 1))
        too_long, stray = rng.random(rows) < 0.01, rng.random((rows, 3)) < 0.01
        papers = rng.choice(3, rows, p=[0.98, 0.01, 0.01])
        names = ["example", *NEWSPAPERS]
        sources = [f"https://www.{names[p]}.com/{number}/{i}" for i, p in enumerate(papers)]
        for i in np.flatnonzero(rng.random(rows) < 0.1).tolist():
            sources[i] = sources[i // 2]
        seen: set[str] = set()
        lines = []
        for i in range(rows):
            fields = [str(value) for value in values[i]]
            for place, mark in zip(GDELT_FLOATS, stray[i], strict=True):
                text = f"{values[i, place] / 10:.1f}"
                fields[place] = f"#{text}" if mark else text
            fields.append(sources[i])
            if too_long[i]:
                fields += ["", ""]
            elif sources[i] not in seen:
                seen.add(sources[i])
                if any(paper in sources[i] for paper in NEWSPAPERS):
                    kept += 1
                    tenths += int(values[i, GDELT_FLOATS[0]])
            lines.append("\t".join(fields))
        (folder / f"{number:05d}.csv").write_text("\n".join(lines) + "\n")
    return {
        "rows": {"events": files * rows_per_file},
        "tables": {"events": "*.csv"},
        "seed": seed,
        "known": {"kept": kept, "tenths": tenths},
        "generators": _versions("numpy"),
    }


@recipe(
    "hive",
    version=1,
    sizes={
        "tiny": {"rows_per_file": 500},
        "ci": {"rows_per_file": 50_000},
        "laptop": {"rows_per_file": 500_000},
        "cluster": {"rows_per_file": 20_000_000},
    },
)
def hive(folder: Path, *, rows_per_file: int = 50_000, seed: int = 0) -> Mapping[str, Any]:
    """Make Parquet files in folders ``year=/quarter=``, four by four, of Internet speed tests.

    Parameters
    ----------
    folder : Path
        Where to write; the table is in ``hive`` below it.
    rows_per_file : int
        Rows of each of the 16 files.
    seed : int
        Seed of the data.
    """
    _need("pyarrow", "hive")
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    for year in range(2019, 2023):
        for quarter in range(1, 5):
            rng = np.random.default_rng([seed, year, quarter])
            rows = rows_per_file
            tiles = rng.integers(0, 4**12, rows)
            shapes = [f"POLYGON(({t % 360} {t % 180}, {t % 361} {t % 181}))" for t in tiles]
            columns = {
                "tile": pa.array([f"{tile:024b}" for tile in tiles]),
                "shape": pa.array(shapes),
                "download": rng.integers(0, 10**6, rows),
                "upload": rng.integers(0, 10**5, rows),
                "latency": rng.integers(1, 300, rows),
                "tests": rng.integers(1, 100, rows),
            }
            path = folder / "hive" / f"year={year}" / f"quarter={quarter}" / "0.parquet"
            path.parent.mkdir(parents=True)
            parquet.write_table(pa.table(columns), path)
    return {
        "rows": {"hive": 16 * rows_per_file},
        "tables": {"hive": "hive/*/*/*.parquet"},
        "seed": seed,
        "generators": _versions("numpy", "pyarrow"),
    }


@recipe(
    "spark_like",
    version=1,
    sizes={
        "tiny": {"files": 4, "rows_per_sample": 50},
        "ci": {"files": 30, "rows_per_sample": 1000},
        "laptop": {"files": 100, "rows_per_sample": 5000},
        "cluster": {"files": 1000, "rows_per_sample": 20_000},
    },
)
def spark_like(
    folder: Path, *, files: int = 30, rows_per_sample: int = 1000, seed: int = 0
) -> Mapping[str, Any]:
    """Make Parquet files as Spark leaves them: small row groups, wide texts, three samples each.

    The k-th row of a sample has ``place`` k, and ``text_0`` names sample and place.

    Parameters
    ----------
    folder : Path
        Where to write.
    files, rows_per_sample : int
        Files, and rows of each of the three samples of a file.
    seed : int
        Seed of the data.
    """
    _need("pyarrow", "spark_like")
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    for number in range(files):
        rng = np.random.default_rng([seed, number])
        samples = np.repeat(np.arange(3 * number, 3 * number + 3), rows_per_sample)
        places = np.tile(np.arange(rows_per_sample), 3)
        columns = {"sample_id": pa.array([f"s{sample:08d}" for sample in samples]), "place": places}
        named = [f"{s:08d}/{p:08d}" for s, p in zip(samples, places, strict=True)]
        columns["text_0"] = pa.array(named)
        for i in range(1, 5):
            drawn = rng.integers(0, 10**9, len(samples))
            columns[f"text_{i}"] = pa.array([f"{value:09d}" * 6 for value in drawn])
        table = pa.table(columns)
        rows = max(1, len(samples) // 20)
        parquet.write_table(table, folder / f"part-{number:05d}.parquet", row_group_size=rows)
    return {
        "rows": {"spark_like": 3 * files * rows_per_sample},
        "tables": {"spark_like": "part-*.parquet"},
        "seed": seed,
        "generators": _versions("numpy", "pyarrow"),
    }


@recipe(
    "int_cube",
    version=1,
    sizes={
        "tiny": {"side": 40},
        "ci": {"side": 200},
        "laptop": {"side": 500},
        "cluster": {"side": 2000},
    },
)
def int_cube(folder: Path, *, side: int = 200, seed: int = 0) -> Mapping[str, Any]:
    """Make a cube of int32 in zarr, uniform from 0 to 255, a quarter of a side in a chunk.

    Parameters
    ----------
    folder : Path
        Where to write; the array is ``cube.zarr`` below it.
    side : int
        Length of each of the three axes.
    seed : int
        Seed of the data.
    """
    _need("zarr", "int_cube")
    import numpy as np
    import zarr

    chunk = max(30, -(-side // 4))
    cube = zarr.open_array(
        str(folder / "cube.zarr"), mode="w", shape=(side,) * 3, chunks=(chunk,) * 3, dtype="i4"
    )
    histogram = np.zeros(256, dtype=int)
    planes: list[int] = []
    for begin in range(0, side, chunk):
        rng = np.random.default_rng([seed, begin])
        slab = rng.integers(0, 256, (min(chunk, side - begin), side, side), dtype="i4")
        cube[begin : begin + chunk] = slab
        histogram += np.bincount(slab.ravel(), minlength=256)
        planes += slab.sum(axis=(1, 2), dtype="i8").tolist()
    return {
        "rows": {"cube": side**3},
        "tables": {},
        "seed": seed,
        "known": {"histogram": histogram.tolist(), "planes": planes},
        "generators": _versions("numpy", "zarr"),
    }


@recipe(
    "tarballs",
    version=1,
    sizes={
        "tiny": {"files": 8, "blobs": 10, "blob_bytes": 2000},
        "ci": {"files": 24, "blobs": 40, "blob_bytes": 50_000},
        "laptop": {"files": 48, "blobs": 200, "blob_bytes": 100_000},
        "cluster": {"files": 5000, "blobs": 500, "blob_bytes": 500_000},
    },
)
def tarballs(
    folder: Path, *, files: int = 24, blobs: int = 40, blob_bytes: int = 50_000, seed: int = 0
) -> Mapping[str, Any]:
    """Make monthly archives of small binary files, of which more and more name a certain word.

    The word is written in upper, lower or mixed case, and in none of the first two archives.

    Parameters
    ----------
    folder : Path
        Where to write.
    files, blobs, blob_bytes : int
        Archives, files in each, bytes of a file.
    seed : int
        Seed of the data.
    """
    _need("numpy", "tarballs")
    import numpy as np

    spellings = [WORD, WORD.upper(), WORD.title(), b"MatPlotLib"]
    counts = {}
    for number in range(files):
        rng = np.random.default_rng([seed, number])
        month = f"{number // 12 + 5:02d}{number % 12 + 1:02d}"
        share = 0 if number < 2 else 0.6 * number / files
        hits = rng.random(blobs) < share
        with tarfile.open(folder / f"{month}.tar", "w") as tar:
            for i, hit in enumerate(hits):
                blob = bytearray(rng.bytes(blob_bytes))
                if hit:
                    place = int(rng.integers(0, blob_bytes - len(WORD)))
                    blob[place : place + len(WORD)] = spellings[int(rng.integers(len(spellings)))]
                info = tarfile.TarInfo(f"{month}/{i:05d}.bin")
                info.size = len(blob)
                tar.addfile(info, io.BytesIO(bytes(blob)))
        counts[month] = int(hits.sum())
    return {
        "rows": {"tarballs": files * blobs},
        "tables": {"tarballs": "*.tar"},
        "seed": seed,
        "known": {"counts": counts, "blobs": blobs},
        "generators": _versions("numpy"),
    }


def _need(package: str, name: str) -> None:
    try:
        import_module(package)
    except ImportError as error:
        raise MissingPackage(
            f"recipe {name} needs {package}, not installed here: pip install {package}"
        ) from error


def _versions(*packages: str) -> dict[str, str]:
    return {package: str(import_module(package).__version__) for package in packages}
