"""Recipes of archives of many files: binary files in tar, and a climate in NetCDF."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchkit.measure.data.recipe import need, recipe, versions_of

__all__ = ["nex_nc", "tarballs"]

WORD = b"matplotlib"
NEX_VARIABLES = ("tas", "pr")
NEX_FIRST_YEAR = 1950
#: Values of a variable that the manifest lists, with their positions.
NEX_POINTS = 100


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
    """Make monthly archives of small binary files, an increasing share of which contains a word.

    The word is in upper, lower or mixed case, and absent from the first two archives.

    Parameters
    ----------
    folder : Path
        Output folder.
    files, blobs, blob_bytes : int
        Archives, files in each, bytes of a file.
    seed : int
        Seed of the data.
    """
    need("numpy", "tarballs")
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
        "generators": versions_of("numpy"),
    }


@recipe(
    "nex_nc",
    version=1,
    sizes={
        "tiny": {"years": 2, "latitudes": 4},
        "ci": {"years": 10, "latitudes": 30},
        "laptop": {"years": 30, "latitudes": 150},
        "cluster": {"years": 30, "latitudes": 600},
    },
)
def nex_nc(
    folder: Path, *, years: int = 10, latitudes: int = 30, seed: int = 0
) -> Mapping[str, Any]:
    """Make NetCDF files of a downscaled climate, one for each variable and year of 365 days.

    Parameters
    ----------
    folder : Path
        Output folder; a table for each variable, ``tas`` and ``pr``.
    years, latitudes : int
        Years from 1950 on, and latitudes; there are twice as many longitudes.
    seed : int
        Seed of the data.
    """
    for package in ("pandas", "xarray", "h5netcdf", "h5py"):
        need(package, "nex_nc")
    import numpy as np
    import pandas as pd
    import xarray as xr

    shape = (365, latitudes, 2 * latitudes)
    known: dict[str, Any] = {}
    for number, name in enumerate(NEX_VARIABLES):
        answers: dict[str, list[Any]] = {"sums": [], "points": [], "values": []}
        for year in range(years):
            rng = np.random.default_rng([seed, number, year])
            values = rng.random(shape, dtype="f4")
            times = pd.date_range(f"{NEX_FIRST_YEAR + year}-01-01", periods=365)
            path = folder / f"{name}_{NEX_FIRST_YEAR + year}.nc"
            data = xr.Dataset({name: (("time", "lat", "lon"), values)}, coords={"time": times})
            data.to_netcdf(path, engine="h5netcdf")
            answers["sums"] += values.sum(axis=(1, 2), dtype=float).tolist()
            places = rng.integers(0, shape, (-(-NEX_POINTS // years), 3))
            answers["points"] += (places + np.array([365 * year, 0, 0])).tolist()
            answers["values"] += values[tuple(places.T)].tolist()
        known[name] = answers
    return {
        "rows": {name: years * int(np.prod(shape)) for name in NEX_VARIABLES},
        "tables": {name: f"{name}_*.nc" for name in NEX_VARIABLES},
        "seed": seed,
        "known": known,
        "generators": versions_of("numpy", "xarray", "h5netcdf"),
    }
