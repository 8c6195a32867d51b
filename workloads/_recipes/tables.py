"""Recipes of tables: text files, Parquet folders by year, Parquet files of different lengths.

Known answers (sums, counts) are in the manifest under ``known``, so that checks do not read all
data again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchkit.measure.data.recipe import need, recipe, versions_of

__all__ = ["gdelt", "hive", "rideshare", "spark_like", "taxi_csv"]

#: Columns of GDELT's table of events; the last is the URL of the source.
GDELT_COLUMNS = 58
#: Indices of the columns of floats, which sometimes have a leading "#".
GDELT_FLOATS = (30, 34, 39)
NEWSPAPERS = ("washingtonpost", "nytimes")
#: Taxi zones of New York.
N_ZONES = 263
#: Borough -> group of boroughs.
BOROUGHS = {
    "Bronx": "Upper", "Brooklyn": "Lower", "EWR": "Others", "Manhattan": "Upper",
    "Queens": "Lower", "Staten Island": "Others", "Unknown": "Unknown",
}  # fmt: skip


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

    Tips depend on the number of passengers and are whole cents, so that sums are known exactly.

    Parameters
    ----------
    folder : Path
        Output folder.
    rows_per_month : int
        Lines of each file, without the header.
    seed : int
        Seed of the data.
    """
    need("pandas", "taxi_csv")
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
        "generators": versions_of("numpy", "pandas"),
    }


@recipe(
    "gdelt",
    version=2,
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
    """Make tab-separated tables of events as GDELT publishes them, including format errors.

    1 % of the lines have too many columns, 1 % of the floats have a leading "#", 10 % of the lines
    repeat the URL of an earlier line of the file, and 2 % of the URLs are of one of two newspapers.
    The first line is valid, because pandas takes the number of columns from it.

    Parameters
    ----------
    folder : Path
        Output folder.
    files, rows_per_file : int
        Files, and lines of each.
    seed : int
        Seed of the data.
    """
    need("numpy", "gdelt")
    import numpy as np

    kept, tenths = 0, 0
    for number in range(files):
        rng = np.random.default_rng([seed, number])
        rows = rows_per_file
        values = rng.integers(0, 100_000, (rows, GDELT_COLUMNS - 1))
        too_long, stray = rng.random(rows) < 0.01, rng.random((rows, 3)) < 0.01
        too_long[0] = False
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
        "generators": versions_of("numpy"),
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
    """Make Parquet files of Internet speed tests in folders ``year=/quarter=``, 4 x 4.

    Parameters
    ----------
    folder : Path
        Output folder; the table is in ``hive`` below it.
    rows_per_file : int
        Rows of each of the 16 files.
    seed : int
        Seed of the data.
    """
    need("pyarrow", "hive")
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
        "generators": versions_of("numpy", "pyarrow"),
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
    """Make Parquet files as Spark writes them: small row groups, long texts, three samples each.

    The k-th row of a sample has ``place`` k; ``text_0`` contains sample and place.

    Parameters
    ----------
    folder : Path
        Output folder.
    files, rows_per_sample : int
        Files, and rows of each of the three samples of a file.
    seed : int
        Seed of the data.
    """
    need("pyarrow", "spark_like")
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
        "generators": versions_of("numpy", "pyarrow"),
    }


@recipe(
    "rideshare",
    version=1,
    sizes={
        "tiny": {"rows": 2000, "files": 4},
        "ci": {"rows": 1_000_000},
        "laptop": {"rows": 20_000_000, "files": 100},
        "cluster": {"rows": 1_000_000_000, "files": 700},
    },
)
def rideshare(
    folder: Path, *, rows: int = 1_000_000, files: int = 20, seed: int = 0
) -> Mapping[str, Any]:
    """Make trips of for-hire vehicles in Parquet files of very different lengths, and their zones.

    ``on_scene`` is missing for 10 % of the trips; ``airport_fee`` is a text, "None" for half of the
    trips. 263 zones are in 7 boroughs, which are in 3 groups and "Unknown".

    Parameters
    ----------
    folder : Path
        Output folder; the tables are ``trips`` and ``zones``.
    rows, files : int
        Number of trips and files. Lengths of files are log-normal, the longest about ten times
        the median.
    seed : int
        Seed of the data.
    """
    need("pandas", "rideshare")
    need("pyarrow", "rideshare")
    import numpy as np
    import pandas as pd

    shares = np.random.default_rng(seed).lognormal(0, 1, files)
    lengths = np.maximum(1, shares / shares.sum() * rows).astype(int)
    for number, length in enumerate(lengths.tolist()):
        rng = np.random.default_rng([seed, number])
        pickup = pd.Timestamp("2019-02-01") + pd.to_timedelta(rng.integers(0, 10**8, length), "s")
        on_scene = pd.Series(pickup + pd.Timedelta("60s")).mask(rng.random(length) < 0.1)
        columns = {
            "license": rng.choice(["HV0002", "HV0003", "HV0004", "HV0005"], length),
            "on_scene": on_scene,
            "pickup": pickup,
            "PULocationID": rng.integers(1, N_ZONES + 1, length),
            "DOLocationID": rng.integers(1, N_ZONES + 1, length),
            "trip_miles": rng.lognormal(1, 1, length),
            "trip_time": rng.lognormal(6.5, 0.8, length),
            "tolls": np.where(rng.random(length) < 0.05, 6.94, 0.0),
            "congestion_surcharge": rng.choice([0.0, 0.75, 2.75], length),
            "airport_fee": rng.choice(["None", "None", "0.0", "2.5"], length),
            "wav": rng.choice(["Y", "N"], length, p=[0.1, 0.9]),
            "tips": rng.choice([0.0, 0.0, 1.0, 2.5], length),
        }
        pd.DataFrame(columns).to_parquet(folder / f"trips-{number:05d}.parquet", index=False)
    zone = np.arange(1, N_ZONES + 1)
    boroughs = [list(BOROUGHS)[number * 5 % len(BOROUGHS)] for number in zone.tolist()]
    zones = {"zone": zone, "borough": boroughs, "group": [BOROUGHS[name] for name in boroughs]}
    pd.DataFrame(zones).to_parquet(folder / "zones.parquet", index=False)
    return {
        "rows": {"trips": int(lengths.sum()), "zones": N_ZONES},
        "tables": {"trips": "trips-*.parquet", "zones": "zones.parquet"},
        "seed": seed,
        "generators": versions_of("numpy", "pandas", "pyarrow"),
    }
