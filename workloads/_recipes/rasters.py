"""Recipes of arrays in zarr: a cube, weather, water, climate and satellite images.

Stores have zarr format 2, which zarr 2 and 3 read, so that all environments share them. Dimensions
and times have the attributes that xarray reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchkit.measure.data.recipe import need, recipe, versions_of

__all__ = ["cmip", "era5", "era5_surface", "int_cube", "nwm", "sentinel"]

#: Size of the output of a climate model.
CMIP_LEVELS = 19
CMIP_LATITUDES = 30
CMIP_LONGITUDES = 48
#: Days of the year before each month, without leap days.
DAYS_BEFORE = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
#: Offset of the values of satellite images.
SENTINEL_OFFSET = 1000
#: Date of the first image with the offset.
SENTINEL_OFFSET_FROM = "2022-01-25"
#: Date of the first image.
SENTINEL_FIRST = "2021-11-02"
#: Days between images.
SENTINEL_STEP = 5


@recipe(
    "cmip",
    version=1,
    sizes={
        "tiny": {"years": 4},
        "ci": {"years": 150},
        "laptop": {"years": 1000},
        "cluster": {"years": 50_000},
    },
)
def cmip(folder: Path, *, years: int = 150, seed: int = 0) -> Mapping[str, Any]:
    """Make a climate model's heights ``zg(time, plev, lat, lon)``, monthly, a year in a chunk.

    Its calendar has no leap days.

    Parameters
    ----------
    folder : Path
        Output folder; the store is ``zg.zarr`` below it.
    years : int
        Years from 1850 on.
    seed : int
        Seed of the data.
    """
    need("zarr", "cmip")
    import numpy as np

    store = _store(folder / "zg.zarr")
    dims = ("time", "plev", "lat", "lon")
    shape = (12 * years, CMIP_LEVELS, CMIP_LATITUDES, CMIP_LONGITUDES)
    heights = _array(store, "zg", dims, shape, (12, *shape[1:]), "f4", units="m")
    for year in range(years):
        rng = np.random.default_rng([seed, year])
        heights[12 * year : 12 * (year + 1)] = rng.random((12, *shape[1:]), dtype="f4")
    # The 15th of each month.
    days = (np.arange(years)[:, None] * 365 + np.array(DAYS_BEFORE) + 14).reshape(-1)
    _coordinate(store, "time", days, units="days since 1850-01-01", calendar="noleap")
    _coordinate(store, "plev", np.geomspace(1e5, 1e2, CMIP_LEVELS), units="Pa")
    _coordinate(store, "lat", np.linspace(-87.0, 87.0, CMIP_LATITUDES))
    _coordinate(store, "lon", np.linspace(0.0, 352.5, CMIP_LONGITUDES))
    return _facts(seed, {"zg": int(np.prod(shape))})


@recipe(
    "era5",
    version=1,
    sizes={
        "tiny": {"days": 2, "latitudes": 8},
        "ci": {"days": 10, "latitudes": 60},
        "laptop": {"days": 10, "latitudes": 361},
        "cluster": {"days": 30, "latitudes": 721},
    },
)
def era5(
    folder: Path, *, days: int = 10, levels: int = 5, latitudes: int = 60, seed: int = 0
) -> Mapping[str, Any]:
    """Make hourly fields ``U, V, T, W(time, level, lat, lon)`` of float32, an hour in a chunk.

    `T` is correlated with `V`, and `W` with `U`. The daily means of their zonal covariances are in
    ``expected.zarr``, computed with NumPy.

    Parameters
    ----------
    folder : Path
        Output folder; the store is ``fields.zarr`` below it.
    days, levels, latitudes : int
        Days from 2001-01-01 on, levels, and latitudes; there are twice as many longitudes.
    seed : int
        Seed of the data.
    """
    need("zarr", "era5")
    import numpy as np

    store, answers = _store(folder / "fields.zarr"), _store(folder / "expected.zarr")
    dims = ("time", "level", "lat", "lon")
    shape = (24 * days, levels, latitudes, 2 * latitudes)
    fields = {
        name: _array(store, name, dims, shape, (1, *shape[1:]), "f4")
        for name in ("U", "V", "T", "W")
    }
    _coordinate(store, "time", np.arange(24 * days), units="hours since 2001-01-01")
    by_day = {
        name: _array(answers, name, dims[:3], (days, *shape[1:3]), (1, *shape[1:3]), "f8")
        for name in ("UV", "VT", "UW")
    }
    for day in range(days):
        sums = {name: np.zeros(shape[1:3]) for name in by_day}
        for hour in range(24 * day, 24 * (day + 1)):
            rng = np.random.default_rng([seed, hour])
            u, v, t, w = rng.random((4, *shape[1:]), dtype="f4")
            moment = {"U": u, "V": v, "T": t + v, "W": w - u}
            for name, values in moment.items():
                fields[name][hour] = values
            for name, total in sums.items():
                left, right = (moment[part].astype(float) for part in name)
                total += (left * right).mean(-1) - left.mean(-1) * right.mean(-1)
        for name, total in sums.items():
            by_day[name][day] = total / 24
    return _facts(seed, dict.fromkeys(fields, int(np.prod(shape))))


@recipe(
    "era5_surface",
    version=1,
    sizes={
        "tiny": {"moments": 100, "latitudes": 8},
        "ci": {"latitudes": 60},
        "laptop": {"latitudes": 181},
        "cluster": {"latitudes": 721},
    },
)
def era5_surface(
    folder: Path,
    *,
    variable: str = "t2m",
    moments: int = 4384,
    latitudes: int = 60,
    moments_per_chunk: int = 1,
    seed: int = 0,
) -> Mapping[str, Any]:
    """Make a field ``(time, lat, lon)`` of float32, every six hours from 2019 on.

    4384 moments are three years, the second of which is a leap year.

    Parameters
    ----------
    folder : Path
        Output folder; the store is ``surface.zarr`` below it.
    variable : {"t2m", "sst"}
        Name of the field; ``sst`` (sea surface temperature) is NaN over land, 25 % of the area.
    moments, latitudes, moments_per_chunk : int
        Moments, latitudes (there are twice as many longitudes), moments in a chunk.
    seed : int
        Seed of the data.
    """
    need("zarr", "era5_surface")
    import numpy as np

    store = _store(folder / "surface.zarr")
    shape = (moments, latitudes, 2 * latitudes)
    chunks = (moments_per_chunk, *shape[1:])
    field = _array(store, variable, ("time", "lat", "lon"), shape, chunks, "f4")
    _coordinate(store, "time", 6 * np.arange(moments), units="hours since 2019-01-01")
    down, across = np.indices(shape[1:])
    is_land = ((down // 7 + across // 11) % 4 == 0) & (variable == "sst")
    sums = []
    for begin in range(0, moments, moments_per_chunk):
        rng = np.random.default_rng([seed, begin])
        values = rng.random((min(moments_per_chunk, moments - begin), *shape[1:]), dtype="f4")
        sums += np.where(is_land, 0.0, values).sum(axis=(1, 2), dtype=float).tolist()
        values[:, is_land] = np.nan
        field[begin : begin + moments_per_chunk] = values
    known = {"sums": sums, "missing": int(is_land.sum())}
    return _facts(seed, {variable: int(np.prod(shape))}, known)


@recipe(
    "nwm",
    version=2,
    sizes={
        "tiny": {"days": 20, "tile": 8, "across": 2},
        "ci": {"days": 730, "tile": 100, "across": 2},
        "laptop": {"days": 730, "tile": 350, "across": 8},
        "cluster": {"days": 730, "tile": 350, "across": 80},
    },
)
def nwm(
    folder: Path, *, days: int = 730, tile: int = 100, across: int = 2, seed: int = 0
) -> Mapping[str, Any]:
    """Make depths of water ``(time, y, x)`` of float32, and a raster of counties.

    Chunks of ten days are in two rows of tiles. Counties are stripes, three per two tiles, not
    aligned with tiles; 0 is outside of all counties. Coordinates of depth and counties differ by
    1e-9.

    Parameters
    ----------
    folder : Path
        Output folder; the stores are ``depth.zarr`` and ``counties.zarr`` below it.
    days, tile, across : int
        Days from 2001-01-01 on, places along each side of a tile, and tiles in a row.
    seed : int
        Seed of the data.
    """
    need("zarr", "nwm")
    import numpy as np

    water, counties = _store(folder / "depth.zarr"), _store(folder / "counties.zarr")
    shape = (days, 2 * tile, across * tile)
    depth = _array(water, "depth", ("time", "y", "x"), shape, (10, tile, tile), "f4", units="m")
    down, over = np.ogrid[: shape[1], : shape[2]]
    column = (over + down // 3) * across // (shape[2] + shape[1])
    county = (1 + column + across * (down // max(1, tile - 1))).astype("i4")
    county[(down + over) % 17 == 0] = 0
    # Consecutive numbers; 0 stays 0, because it always occurs.
    county = np.unique(county, return_inverse=True)[1].reshape(county.shape).astype("i4")
    _array(counties, "county", ("y", "x"), county.shape, (tile, tile), "i4")[:] = county
    for store, off in ((water, 0.0), (counties, 1e-9)):
        _coordinate(store, "y", np.arange(shape[1]) + off)
        _coordinate(store, "x", np.arange(shape[2]) - off)
    _coordinate(water, "time", np.arange(days), units="days since 2001-01-01")
    sums, inside = [], county > 0
    for begin in range(0, days, 10):
        rng = np.random.default_rng([seed, begin])
        values = rng.random((min(10, days - begin), *shape[1:]), dtype="f4")
        sums += [float(moment[inside].sum(dtype=float)) for moment in values]
        depth[begin : begin + 10] = values
    return _facts(seed, {"depth": int(np.prod(shape)), "county": county.size}, {"sums": sums})


@recipe(
    "sentinel",
    version=1,
    sizes={
        "tiny": {"images": 60, "tile": 16, "across": 1},
        "ci": {"images": 60, "tile": 256, "across": 1},
        "laptop": {"images": 60, "tile": 1024, "across": 4},
        "cluster": {"images": 60, "tile": 1024, "across": 200},
    },
)
def sentinel(
    folder: Path, *, images: int = 60, tile: int = 256, across: int = 1
) -> Mapping[str, Any]:
    """Make two bands ``B08, B11(time, y, x)`` of 16-bit numbers, an image of a tile in a chunk.

    ``B08`` is two to five times ``B11``, by month and position; the ratio is in ``expected.zarr``.
    20 % of each image is 0, which means no data. From 2022-01-25 on, values have an offset of
    1000. The data are deterministic.

    Parameters
    ----------
    folder : Path
        Output folder; the store is ``bands.zarr`` below it.
    images, tile, across : int
        Images, places along each side of a tile, and tiles, which lie in a row.
    """
    need("zarr", "sentinel")
    import numpy as np

    store, answers = _store(folder / "bands.zarr"), _store(folder / "expected.zarr")
    dims, shape, chunks = ("time", "y", "x"), (images, tile, across * tile), (1, tile, tile)
    first, second = (_array(store, name, dims, shape, chunks, "u2") for name in ("B08", "B11"))
    days = SENTINEL_STEP * np.arange(images)
    _coordinate(store, "time", days, units=f"days since {SENTINEL_FIRST}")
    dates = np.datetime64(SENTINEL_FIRST) + days
    month_of = dates.astype("datetime64[M]").astype(int) % 12 + 1
    months = np.unique(month_of)
    answer = _array(answers, "ratio", ("month", "y", "x"), (len(months), *shape[1:]), chunks, "u1")
    _coordinate(answers, "month", months)
    for left in range(0, across * tile, tile):
        there = (slice(None), slice(left, left + tile))
        y, x = np.ogrid[:tile, left : left + tile]
        for place, month in enumerate(months.tolist()):
            answer[(place, *there)] = 2 + (month + y // 8 + x // 8) % 4
        for number, date in enumerate(dates):
            values = 500 + (y * 31 + x * 17 + number * 101) % 2003
            offset = SENTINEL_OFFSET * (date >= np.datetime64(SENTINEL_OFFSET_FROM))
            has_data = (y + x + number) % 5 > 0
            ratio = 2 + (month_of[number] + y // 8 + x // 8) % 4
            first[(number, *there)] = np.where(has_data, values * ratio + offset, 0)
            second[(number, *there)] = np.where(has_data, values + offset, 0)
    return _facts(0, dict.fromkeys(("B08", "B11"), int(np.prod(shape))))


@recipe(
    "int_cube",
    version=2,
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
        Output folder; the array is ``cube.zarr`` below it.
    side : int
        Length of each of the three axes.
    seed : int
        Seed of the data.
    """
    need("zarr", "int_cube")
    import numpy as np

    chunk = max(30, -(-side // 4))
    cube = _array(folder, "cube.zarr", ("z", "y", "x"), (side,) * 3, (chunk,) * 3, "i4")
    histogram = np.zeros(256, dtype=int)
    planes: list[int] = []
    for begin in range(0, side, chunk):
        rng = np.random.default_rng([seed, begin])
        slab = rng.integers(0, 256, (min(chunk, side - begin), side, side), dtype="i4")
        cube[begin : begin + chunk] = slab
        for plane in slab:
            histogram += np.bincount(plane.ravel(), minlength=256)
        planes += slab.sum(axis=(1, 2), dtype="i8").tolist()
    return _facts(seed, {"cube": side**3}, {"histogram": histogram.tolist(), "planes": planes})


def _facts(
    seed: int, values: Mapping[str, int], known: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the entries of the manifest for zarr stores; `values` is the size of each variable."""
    return {
        "rows": dict(values),
        "tables": {},
        "seed": seed,
        "known": dict(known or {}),
        "generators": versions_of("numpy", "zarr"),
    }


def _store(path: Path) -> Path:
    """Make an empty zarr group."""
    import zarr

    zarr.open_group(str(path), mode="w", **_format())
    return path


def _array(
    store: Path,
    name: str,
    dims: Sequence[str],
    shape: Sequence[int],
    chunks: Sequence[int],
    dtype: str,
    **attributes: str,
) -> Any:
    """Make an empty array in a group, without a fill value.

    The compressor is fixed, because defaults of zarr releases differ: reading costs the same.
    """
    import numcodecs
    import zarr

    array = zarr.open_array(
        str(store / name), mode="w", shape=tuple(shape), chunks=tuple(chunks), dtype=dtype,
        fill_value=None, compressor=numcodecs.Zstd(level=0), **_format(),
    )  # fmt: skip
    array.attrs.update(_ARRAY_DIMENSIONS=list(dims), **attributes)
    return array


def _coordinate(store: Path, dim: str, values: Any, **attributes: str) -> None:
    _array(store, dim, (dim,), values.shape, values.shape, values.dtype.str, **attributes)[:] = (
        values
    )


def _format() -> dict[str, Any]:
    import zarr

    # zarr before 3 has only format 2 and no such argument.
    return {} if int(zarr.__version__.split(".")[0]) < 3 else {"zarr_format": 2}
