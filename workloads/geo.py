"""Workloads of weather, climate and satellite archives, through xarray."""

from __future__ import annotations

import inspect
import shutil
import time
from types import SimpleNamespace

from _fingerprints import fingerprint
from _written import new_folder

from benchkit.measure import expect, random_array, workload

LEVELS = 5
FIELDS = ("u", "v", "t", "w")
#: Products of anomalies of two fields: what moves momentum, heat and air.
PRODUCTS = {"uv": "uv", "vt": "vt", "uw": "uw"}
#: Days of the window of a climatology, and of a year that has all of them.
WINDOW, DAYS = 61, 366
HOURS = (0, 6, 12, 18)
#: From this day on, satellite images carry an offset.
OFFSET, OFFSET_FROM = 1000, "2022-01-25"
N_IMAGES = 60
VARIABLES = ("tas", "pr")
#: A resource that no worker has: tasks that need it are known to the scheduler and stay there.
NOBODY = "benchkit-nobody"
#: How long the scheduler may take to take in a graph.
SUBMISSION_TIMEOUT_S = 100.0


def _new_folder():
    """Return a new folder that client and workers share."""
    return new_folder()


def _write(dataset, folder):
    """Write a dataset to a zarr store in a folder; return the store's path."""
    store = f"{folder}/written.zarr"
    dataset.to_zarr(store, mode="w", consolidated=False)
    return store


def _read(store):
    import xarray as xr

    return xr.open_zarr(store, consolidated=False)


@workload(
    tags=["memory", "graph", "io", "nightly", "ci"],
    requires=["numpy", "pandas", "dask.array", "xarray", "zarr"],
)
def atmospheric_circulation(scale, seed, prepared):
    """Average products of anomalies around the globe, by day, and write them.

    Zonal means of four fields, anomalies, their products, the products' zonal means, and daily
    means of those: 24 of the input chunks shrink to three short columns. Stresses the order of
    tasks where four roots meet, and the graph.

    Scale: 0.4 x cluster memory for the four fields, linear, hourly; a chunk is one hour of 6 MiB
    at the reference, by the grain. About 8 s on 2 x 1 x 1 GiB.
    Check: the covariance of each chunk by NumPy, as mean product less product of means, averaged
    by day.
    """
    import xarray as xr

    fields = xr.Dataset(
        {name: (("time", "level", "lat", "lon"), array)
         for name, array in _hourly_fields(scale, seed).items()}
    )  # fmt: skip
    fields = fields.assign_coords(time=_hours(fields.sizes["time"]))
    anomalies = fields - fields.mean("lon")
    products = xr.Dataset({name: anomalies[a] * anomalies[b] for name, (a, b) in PRODUCTS.items()})
    with xr.set_options(use_flox=False):
        daily = products.mean("lon").resample(time="1D").mean()
    return _write(daily, prepared["folder"])


@atmospheric_circulation.prepare
def _():
    return {"folder": _new_folder()}


@atmospheric_circulation.check
def _(result, scale, seed):
    import dask.array as da
    import numpy as np

    fields = _hourly_fields(scale, seed)
    hours, levels, latitudes, _ = fields["u"].shape
    hourly = da.map_blocks(
        _covariances, *fields.values(), dtype=float, drop_axis=3,
        chunks=((1,) * hours, (levels,), (len(PRODUCTS) * latitudes,)),
    ).compute()  # fmt: skip
    daily = hourly.reshape(hours // 24, 24, levels, len(PRODUCTS), latitudes).mean(axis=1)
    written = _read(result)
    for number, name in enumerate(PRODUCTS):
        got = written[name].transpose("time", "level", "lat").to_numpy()
        wanted = daily[:, :, number]
        expect(got.shape, equals=wanted.shape, what=f"shape of {name}")
        furthest = float(np.abs(got - wanted).max())
        expect(furthest, at_most=1e-9, what=f"furthest value of {name}")


@atmospheric_circulation.cleanup
def _(prepared=None):
    _remove(prepared)


def _remove(prepared):
    if prepared is not None:
        shutil.rmtree(prepared["folder"], ignore_errors=True)


def _hours(count):
    import pandas as pd

    return pd.date_range("2001-01-01", periods=count, freq="h")


def _hourly_fields(scale, seed):
    """Return four fields by name; two that have something in common with another."""
    height = max(4, round((scale.chunk("6 MiB") / 8 / LEVELS / 2) ** 0.5))
    one_hour = LEVELS * height * 2 * height
    days = max(2, round(scale.linear(0.1) / 8 / one_hour / 24))
    shape, chunks = (24 * days, LEVELS, height, 2 * height), (1, LEVELS, height, 2 * height)
    u, v, t, w = (random_array(shape, chunks=chunks, seed=4 * seed + i) for i in range(4))
    return {"u": u, "v": v, "t": t + v, "w": w - u}


def _covariances(u, v, t, w):
    import numpy as np

    fields = {"u": u, "v": v, "t": t, "w": w}
    return np.concatenate(
        [(fields[a] * fields[b]).mean(-1) - fields[a].mean(-1) * fields[b].mean(-1)
         for a, b in ("uv", "vt", "uw")],
        axis=-1,
    )  # fmt: skip


@workload(
    tags=["shuffle", "io", "nightly", "ci"],
    requires=["numpy", "dask.array", "xarray", "zarr"],
)
def era5_rechunk(scale, seed, prepared):
    """Rewrite an archive of sea surface temperature so that a place's whole series is one read.

    Chunks of one moment become chunks of all moments of a region, and are written to zarr.
    Stresses the shuffle and, behind it, the file system.

    Scale: 0.25 x cluster memory, linear, float32; a moment is 721 x 1440 values and a chunk
    written is 128 MiB at the reference, both by the grain. About 7 s on 2 x 1 x 1 GiB.
    Check: the sum and a sum weighted by position of what was written, and of what of it is
    missing (land), equal those of the source.
    """
    import xarray as xr

    temperatures = _sea_surface(scale, seed)
    times, height, _ = temperatures.shape
    side = max(1, min(height, round((scale.chunk("128 MiB") / 4 / times) ** 0.5)))
    series = xr.Dataset({"sst": (("time", "lat", "lon"), temperatures)})
    return _write(series.chunk(time=-1, lat=side, lon=side), prepared["folder"])


@era5_rechunk.prepare
def _():
    return {"folder": _new_folder()}


@era5_rechunk.check
def _(result, scale, seed):
    import dask
    import dask.array as da

    source, written = _sea_surface(scale, seed), _read(result)["sst"].data
    expect(written.shape, equals=source.shape, what="shape")
    expect(written.numblocks[0], equals=1, what="chunks of a series")
    values, missing = (
        [fingerprint(da.nan_to_num(source)), fingerprint(da.nan_to_num(written))],
        [fingerprint(da.isnan(source)), fingerprint(da.isnan(written))],
    )
    for what, (wanted, got) in zip(
        ("values", "places without"), dask.compute(values, missing), strict=True
    ):
        expect(got, close_to=wanted, rtol=1e-9, what=f"sums of {what}")


@era5_rechunk.cleanup
def _(prepared=None):
    _remove(prepared)


def _sea_surface(scale, seed):
    """Return moments of float32, one a chunk, in which about a quarter of the places is land."""
    height = max(8, round((scale.chunk(721 * 1440 * 4) / 4 / 2) ** 0.5))
    shape = (max(8, round(scale.linear(0.25) / 4 / height / 2 / height)), height, 2 * height)
    return random_array(shape, chunks=(1, *shape[1:]), seed=seed).map_blocks(
        _without_land, dtype="float32"
    )


def _without_land(moment):
    import numpy as np

    down, across = np.indices(moment.shape[1:])
    is_land = (down // 7 + across // 11) % 4 == 0
    return np.where(is_land, np.nan, moment).astype("float32")


@workload(
    tags=["graph", "transfer", "nightly", "ci"],
    requires=["numpy", "pandas", "dask.array", "xarray"],
)
def climatology_highlevel(scale, seed):
    """Average hours of days of the year over three years and 61 days, in the words of xarray.

    Unstack to hours, days and years, fill the leap day, pad around the year's end, roll and
    average with weights. Stresses the graph that these words make, its size, and the chunks that
    they leave behind.

    Scale: 0.01 x cluster memory, linear, 4384 moments; a chunk is 16 MiB at the reference, by the
    grain. About 15 s on 2 x 1 x 1 GiB.
    Check: on one latitude, NumPy's product with the matrix of weights; everywhere, means over the
    days, which no window changes.
    """
    import xarray as xr

    series = _six_hourly(scale, seed)
    time = series["time"].to_index()
    parts = {"year": time.year, "day": time.day_of_year, "hour": time.hour}
    series = series.drop_vars("time").assign_coords(
        {name: ("time", values) for name, values in parts.items()}
    )
    calendar = series.set_index(time=list(parts)).unstack("time")
    calendar = calendar.fillna(calendar.shift(day=1))
    around = calendar.pad(day=WINDOW // 2, mode="wrap")
    windows = around.rolling(day=WINDOW, center=True).construct("window")
    means = windows.weighted(xr.DataArray(_triangle(), dims="window")).mean(("window", "year"))
    inside = slice(WINDOW // 2, WINDOW // 2 + DAYS)
    return means.isel(day=inside).transpose("hour", "day", "lat", "lon").data


@climatology_highlevel.check
def _(result, scale, seed):
    _expect_climatology(result, scale, seed)


@workload(
    tags=["shuffle", "transfer", "nightly", "ci"],
    requires=["numpy", "pandas", "dask.array", "xarray"],
)
def climatology_map_blocks(scale, seed):
    """Average hours of days of the year as `climatology_highlevel` does, by NumPy in each block.

    Chunks of some days become whole series of a region, a function makes their climatology, and
    the result is cut into days. Stresses rechunking there and back, and moves no more than that.

    Scale: 0.01 x cluster memory, linear, 4384 moments; a chunk is 16 MiB at the reference, by the
    grain. About 4 s on 2 x 1 x 1 GiB.
    Check: that of `climatology_highlevel`.
    """
    import numpy as np
    import xarray as xr

    series = _six_hourly(scale, seed)
    _, height, width = series.shape
    step = max(1, -(-height // (4 * scale.threads)))
    pencils = series.chunk(time=-1, lat=step, lon=width)
    template = xr.DataArray(
        np.zeros((len(HOURS), DAYS)), dims=("hour", "day"), coords={"hour": list(HOURS)}
    )
    template = template.chunk() + xr.zeros_like(pencils.isel(time=0, drop=True))
    means = pencils.map_blocks(_climatology_of_block, template=template)
    return means.chunk(hour=-1, day=1, lat=-1, lon=-1).data


@climatology_map_blocks.check
def _(result, scale, seed):
    _expect_climatology(result, scale, seed)


def _climatology_of_block(block):
    import xarray as xr

    means = _climatology(block.to_numpy(), block["time"].to_index())
    return xr.DataArray(means, dims=("hour", "day", "lat", "lon"), coords={"hour": list(HOURS)})


def _climatology(values, time):
    """Return the weighted means (hour, day, ...) of values (time, ...)."""
    import numpy as np

    years = sorted(set(time.year))
    calendar = np.empty((len(years), len(HOURS), DAYS, *values.shape[1:]))
    for number, year in enumerate(years):
        for place, hour in enumerate(HOURS):
            chosen = values[(time.year == year) & (time.hour == hour)]
            calendar[number, place, : len(chosen)] = chosen
            calendar[number, place, len(chosen) :] = chosen[-1]
    weights, moved = _triangle(), np.eye(DAYS)
    smooth = sum(
        weight * np.roll(moved, shift, axis=1)
        for weight, shift in zip(weights, range(-(WINDOW // 2), WINDOW // 2 + 1), strict=True)
    )
    return np.einsum("de,he...->hd...", smooth / weights.sum(), calendar.mean(axis=0))


def _expect_climatology(result, scale, seed):
    import dask
    import dask.array as da
    import numpy as np

    series = _six_hourly(scale, seed)
    time, middle = series["time"].to_index(), series.shape[1] // 2
    expect(result.shape, equals=(len(HOURS), DAYS, *series.shape[1:]), what="shape")
    # The last day of a year without a leap day counts twice.
    is_twice = (time.day_of_year == 365) & ~time.is_leap_year
    weights = np.where(is_twice, 2.0, 1.0) / (len(set(time.year)) * len(HOURS) * DAYS)
    means, one_latitude, got = dask.compute(
        da.tensordot(weights, series.data, axes=(0, 0)), series.data[:, middle],
        da.asarray(result).mean(axis=(0, 1)),
    )  # fmt: skip
    furthest = float(np.abs(got - means).max())
    expect(furthest, at_most=1e-9, what="furthest mean over all days")
    off = np.abs(np.asarray(result[:, :, middle]) - _climatology(one_latitude, time)).max()
    expect(float(off), at_most=1e-9, what="furthest value on one latitude")


def _triangle():
    import numpy as np

    return 1 - np.abs(np.arange(WINDOW) - WINDOW // 2) / (WINDOW // 2 + 1)


def _six_hourly(scale, seed):
    """Return three years of moments six hours apart, one of them a leap year."""
    import pandas as pd
    import xarray as xr

    times = pd.date_range("2019-01-01", "2021-12-31 18:00", freq="6h")
    cells = scale.linear(0.01) / 8 / len(times)
    height = max(2, round((cells / 2) ** 0.5))
    steps = max(1, round(scale.chunk("16 MiB") / 8 / height / 2 / height))
    shape, chunks = (len(times), height, 2 * height), (steps, height, 2 * height)
    array = random_array(shape, chunks=chunks, seed=seed)
    return xr.DataArray(array, dims=("time", "lat", "lon"), coords={"time": times})


@workload(
    tags=["reduction", "graph", "nightly", "ci"],
    requires=["numpy", "dask.array", "xarray", "flox"],
)
def zonal_average(scale, seed):
    """Average the depth of water over the area of each county, moment by moment.

    The counties are another raster, whose coordinates differ in the ninth digit and are taken to
    be equal. Stresses flox's reduction over two dimensions, where each tile holds few of the
    groups.

    Scale: 0.2 x cluster memory, linear, 100 moments; a chunk is ten moments of a tile, 8.5 MiB at
    the reference, by the grain; two counties a tile. About 5 s on 2 x 1 x 1 GiB.
    Check: at the first and the last moment, NumPy's `bincount`; at all, the mean over all
    counties.
    """
    import numpy as np
    import xarray as xr
    from flox.xarray import xarray_reduce

    depth, counties = _water(scale, seed)
    depth, counties = xr.align(depth, counties, join="override")
    known = np.arange(1, int(counties.max()) + 1)
    means = xarray_reduce(depth, counties.rename("county"), func="mean", expected_groups=(known,))
    return means.transpose("time", "county").data


@zonal_average.check
def _(result, scale, seed):
    import dask
    import numpy as np

    depth, counties = _water(scale, seed)
    flat = counties.to_numpy().reshape(-1)
    counts = np.bincount(flat)[1:]
    expect(result.shape, equals=(depth.shape[0], len(counts)), what="shape")
    got = np.asarray(result)
    first, last, totals = dask.compute(
        depth.data[0], depth.data[-1],
        (depth.data * (counties.to_numpy() > 0)).sum(axis=(1, 2)),
    )  # fmt: skip
    for place, moment in ((0, first), (-1, last)):
        wanted = np.bincount(flat, weights=moment.reshape(-1))[1:] / counts
        expect(got[place], close_to=wanted, rtol=1e-9, what=f"moment {place}")
    expect(got @ counts, close_to=totals, rtol=1e-9, what="sum over all counties")


def _water(scale, seed):
    """Return depths (time, y, x) and the numbers of counties, stripes between which is nothing."""
    import numpy as np
    import xarray as xr

    n_times = 100
    tile = max(4, round((scale.chunk("8.5 MiB") / 8 / 10) ** 0.5))
    across = max(2, round(scale.linear(0.2) / 8 / n_times / tile**2 / 2))
    shape = (n_times, 2 * tile, across * tile)
    array = random_array(shape, chunks=(10, tile, tile), seed=seed)
    y, x = np.arange(shape[1], dtype=float), np.arange(shape[2], dtype=float)
    depth = xr.DataArray(array, dims=("time", "y", "x"), coords={"y": y, "x": x})
    # Borders are slanted and ignore the tiles.
    down, over = np.indices(shape[1:])
    column = (over + down // 3) * across // (shape[2] + shape[1])
    county = 1 + column + across * (down // max(1, tile - 1))
    county = np.unique(county, return_inverse=True)[1].reshape(county.shape) + 1
    county[(down + over) % 17 == 0] = 0
    counties = xr.DataArray(county, dims=("y", "x"), coords={"y": y + 1e-9, "x": x - 1e-9})
    return depth, counties


@workload(
    tags=["reduction", "io", "nightly", "ci"],
    requires=["numpy", "pandas", "dask.array", "xarray", "zarr"],
)
def satellite_filter(scale, prepared):
    """Make monthly means of a humidity index of satellite images, and write them.

    Two bands of 16-bit numbers lose the offset that they have from a certain day on, and make an
    index; images without data are left out. Stresses many small steps on each chunk, whose type
    grows from two bytes to eight, and a reduction.

    Scale: 0.15 x cluster memory for each band, linear, 60 images; a chunk is 4 MiB at the
    reference, by the grain. About 7 s on 2 x 1 x 1 GiB.
    Check: one band is two to five times the other, by month and place: the index is known.
    """
    import pandas as pd
    import xarray as xr

    times, b08, b11 = _images(scale)
    dims = ("time", "y", "x")
    bands = xr.Dataset({"b08": (dims, b08), "b11": (dims, b11)}, coords={"time": times})
    is_late = bands["time"] >= pd.Timestamp(OFFSET_FROM)
    bands = bands.where(~is_late, bands.clip(min=OFFSET) - OFFSET).astype(float)
    total = bands["b08"] + bands["b11"]
    humidity = (bands["b08"] - bands["b11"]) / total.where(total > 0)
    with xr.set_options(use_flox=False):
        monthly = humidity.groupby("time.month").mean("time")
    monthly = monthly.chunk(month=-1).transpose("month", "y", "x")
    return _write(monthly.to_dataset(name="humidity"), prepared["folder"])


@satellite_filter.prepare
def _():
    return {"folder": _new_folder()}


@satellite_filter.check
def _(result, scale):
    import numpy as np

    times, b08, _ = _images(scale)
    written = _read(result)
    months = sorted(set(times.month))
    expect(written["month"].to_numpy(), equals=months, what="months")
    got = written["humidity"].transpose("month", "y", "x").data.rechunk({0: -1})
    expect(got.shape, equals=(len(months), *b08.shape[1:]), what="shape")
    off = got.map_blocks(_off_index, np.array(months), dtype=float)
    expect(float(off.max().compute()), at_most=1e-9, what="furthest value of the index")


@satellite_filter.cleanup
def _(prepared=None):
    _remove(prepared)


def _images(scale):
    """Return the days and two bands of images, four fifths of which hold data at any place."""
    import dask.array as da
    import pandas as pd

    times = pd.date_range("2021-11-02", periods=N_IMAGES, freq="5D")
    tile = max(8, round((scale.chunk("4 MiB") / 2) ** 0.5))
    across = max(1, round(scale.linear(0.15) / 2 / N_IMAGES / tile**2))
    chunks = ((1,) * N_IMAGES, (tile,), (tile,) * across)
    months, is_late = times.month.to_numpy(), (times >= OFFSET_FROM).astype(int)
    bands = [
        da.map_blocks(_band, months, is_late, is_b08, dtype="uint16", chunks=chunks)
        for is_b08 in (True, False)
    ]
    return times, *bands


def _band(months, is_late, is_b08, block_info=None):
    """Return one image of one band; its values differ from place to place and image to image."""
    import numpy as np

    (number, _), (top, bottom), (left, right) = block_info[None]["array-location"]
    y, x = np.arange(top, bottom)[:, None], np.arange(left, right)
    values = 500 + (y * 31 + x * 17 + number * 101) % 2003
    if is_b08:
        values = values * _times_as_much(months[number], y, x)
    has_data = (y + x + number) % 5 > 0
    return np.where(has_data, values + OFFSET * is_late[number], 0).astype("uint16")[None]


def _times_as_much(month, y, x):
    return 2 + (month + y // 8 + x // 8) % 4


def _off_index(block, months, block_info=None):
    import numpy as np

    _, (top, bottom), (left, right) = block_info[0]["array-location"]
    y, x = np.arange(top, bottom)[:, None], np.arange(left, right)
    ratio = _times_as_much(months[:, None, None], y, x)
    return np.nan_to_num(np.abs(block - (ratio - 1) / (ratio + 1)), nan=np.inf)


@workload(
    variants={"to": ["coarse", "finer"]},
    tags=["transfer", "graph", "nightly", "ci[to=coarse]"],
    requires=["numpy", "scipy", "dask.array", "xarray"],
)
def regrid(scale, seed, *, to):
    """Interpolate maps to another grid by one sparse matrix of weights.

    Bilinear, and periodic around the globe: to a grid of 1/4 or 5/4 as many points each way. Each
    task needs the same matrix. Stresses shipping it: its size is that of several maps.

    Scale: 0.1 x cluster memory, linear; a chunk is one map of 721 x 1440 values at the reference,
    by the grain. About 4 s on 2 x 1 x 1 GiB.
    Check: the sum and a sum weighted by position equal those of maps interpolated along one axis,
    then the other, from products with two small matrices.
    """
    import dask
    import xarray as xr

    maps = _maps(scale, seed)
    along, around = _axis_weights(maps.shape, to)
    weights = _both_axes(along, around)
    # One object that tasks depend on, not a copy in each.
    weights = dask.delayed(weights, pure=True)
    height, width = along.shape[0], around.shape[0]
    regridded = maps.map_blocks(
        _interpolated, weights, height, width, dtype=float,
        chunks=(maps.chunks[0], (height,), (width,)),
    )  # fmt: skip
    return fingerprint(xr.DataArray(regridded, dims=("time", "lat", "lon")).data)


@regrid.check
def _(result, scale, seed, *, to):
    maps = _maps(scale, seed)
    along, around = _axis_weights(maps.shape, to)
    by_axes = maps.map_blocks(
        _interpolated_by_axes, along, around, dtype=float,
        chunks=(maps.chunks[0], (along.shape[0],), (around.shape[0],)),
    )  # fmt: skip
    expect(result.compute() if hasattr(result, "compute") else result,
           close_to=fingerprint(by_axes).compute(), rtol=1e-9, what="sums of the maps")  # fmt: skip


def _maps(scale, seed):
    height = max(8, round((scale.chunk(721 * 1440 * 8) / 8 / 2) ** 0.5))
    shape = (max(8, round(scale.linear(0.1) / 8 / height / 2 / height)), height, 2 * height)
    return random_array(shape, chunks=(1, *shape[1:]), seed=seed)


def _axis_weights(shape, to):
    """Return the weights of interpolation from pole to pole, and around the globe."""
    import numpy as np

    ratio = {"coarse": 1 / 4, "finer": 5 / 4}[to]
    height, width = shape[1:]
    down = np.linspace(0, height - 1, max(2, round(height * ratio)))
    n_around = max(2, round(width * ratio))
    around = np.arange(n_around) * (width / n_around)
    return _linear_weights(down, height), _linear_weights(around, width)


def _linear_weights(places, count):
    """Return a sparse matrix that interpolates values on a circle at these places."""
    import numpy as np
    from scipy import sparse

    low = np.floor(places).astype(int)
    share = places - low
    rows = np.arange(len(places))
    values = np.concatenate([1 - share, share])
    columns = np.concatenate([low % count, (low + 1) % count])
    return sparse.csr_matrix((values, (np.tile(rows, 2), columns)), shape=(len(places), count))


def _both_axes(along, around):
    from scipy import sparse

    return sparse.kron(along, around, format="csr")


def _interpolated(block, weights, height, width):
    return (weights @ block.reshape(len(block), -1).T).T.reshape(len(block), height, width)


def _interpolated_by_axes(block, along, around):
    import numpy as np

    return np.stack([(around @ (along @ each).T).T for each in block])


@workload(
    tags=["io", "shuffle", "nightly", "ci"],
    requires=["numpy", "pandas", "dask.array", "xarray", "zarr", "h5netcdf"],
)
def cloud_optimize(prepared):
    """Turn an archive of NetCDF files, one for each variable and year, into one zarr store.

    Files are opened in parallel, joined along time without comparing them, rechunked to long
    series and written. Stresses opening many files, the graph of readers, the shuffle and the
    file system, one after the other.

    Scale: 0.1 x cluster memory, linear, float32, two variables; a file is 32 MiB at the reference,
    by the grain. About 8 s on 2 x 1 x 1 GiB.
    Check: the values of 200 random places, and the sums of all, by position, of the function that
    made them.
    """
    import xarray as xr

    parts = [
        xr.open_mfdataset(
            files, engine="h5netcdf", parallel=True, combine="nested", concat_dim="time",
            data_vars="minimal", coords="minimal", compat="override", join="override", chunks={},
        )
        for files in prepared["files"].values()
    ]  # fmt: skip
    archive = xr.merge(parts, compat="override", join="override")
    side = max(1, -(-archive.sizes["lat"] // 8))
    series = archive.chunk(time=-1, lat=side, lon=2 * side)
    for name in series.variables:
        series[name].encoding.clear()  # the chunks of the files
    return _write(series, prepared["folder"])


@cloud_optimize.prepare
def _(client, scale):
    n_years, side = _archive(scale)
    folder = _new_folder()
    files = {
        name: [f"{folder}/{name}_{1950 + year}.nc" for year in range(n_years)] for name in VARIABLES
    }
    jobs = [
        (path, number, name, year, side)
        for number, (name, paths) in enumerate(files.items())
        for year, path in enumerate(paths)
    ]
    client.gather(client.map(_write_year, jobs, pure=False))
    return {"folder": folder, "files": files}


@cloud_optimize.check
def _(result, scale):
    import dask.array as da
    import numpy as np

    n_years, side = _archive(scale)
    shape, written = (365 * n_years, side, 2 * side), _read(result)
    random = np.random.default_rng(0)
    for number, name in enumerate(VARIABLES):
        got = written[name].transpose("time", "lat", "lon").data
        expect(got.shape, equals=shape, what=f"shape of {name}")
        t, y, x = (random.integers(0, length, 100) for length in shape)
        expect(got.vindex[t, y, x].compute(), equals=_value(number, t, y, x), what=name)
        source = da.map_blocks(_block_of_archive, number, chunks=got.chunks, dtype="float32")
        wanted, sums = da.compute(fingerprint(source), fingerprint(got))
        expect(sums, close_to=wanted, rtol=1e-9, what=f"sums of {name}")


@cloud_optimize.cleanup
def _(prepared=None):
    _remove(prepared)


def _archive(scale):
    """Return the number of years, and the latitudes of a file, half as many as longitudes."""
    side = max(4, round((scale.chunk("32 MiB") / 4 / 365 / 2) ** 0.5))
    return max(2, round(scale.linear(0.1) / 4 / 365 / 2 / side**2 / len(VARIABLES))), side


def _write_year(job):
    import numpy as np
    import pandas as pd
    import xarray as xr

    path, number, name, year, side = job
    days = np.arange(365 * year, 365 * (year + 1))[:, None, None]
    values = _value(number, days, np.arange(side)[:, None], np.arange(2 * side))
    times = pd.date_range(f"{1950 + year}-01-01", periods=365)
    dataset = xr.Dataset({name: (("time", "lat", "lon"), values)}, coords={"time": times})
    dataset.to_netcdf(path, engine="h5netcdf")


def _block_of_archive(number, block_info=None):
    import numpy as np

    (t0, t1), (y0, y1), (x0, x1) = block_info[None]["array-location"]
    t, y, x = np.arange(t0, t1)[:, None, None], np.arange(y0, y1)[:, None], np.arange(x0, x1)
    return _value(number, t, y, x)


def _value(number, t, y, x):
    """Return values in [0, 1) that float32 holds exactly, and that look random."""
    place = (t * 1_000_003 + y * 10_007 + x * 101 + number * 7) * 2_654_435_761
    return (place % 2**24 / 2**24).astype("float32")


# -- submission alone -----------------------------------------------------------------------------


# Functions, not workloads: what a workload's source is follows functions.
_circulation, _era5, _highlevel, _map_blocks, _zonal, _satellite, _regrid = (
    each.main
    for each in (
        atmospheric_circulation,
        era5_rechunk,
        climatology_highlevel,
        climatology_map_blocks,
        zonal_average,
        satellite_filter,
        regrid,
    )
)


class _Submitted(Exception):
    """Ends a computation whose graph the scheduler was sent: there is nothing to wait for."""


@workload(
    variants={
        "of": [
            "atmospheric_circulation",
            "era5_rechunk",
            "climatology_highlevel",
            "climatology_map_blocks",
            "zonal_average",
            "satellite_filter",
            "regrid",
        ]
    },
    tags=["graph", "client", "overhead", "nightly", "ci[of=climatology_highlevel]"],
    requires=["numpy", "pandas", "scipy", "dask.array", "xarray", "zarr", "flox"],
    metrics={"building": "s", "submission": "s", "graph_tasks": "1"},
)
def submission(client, scale, seed, prepared, *, of):
    """Submit another workload of this category and run no task of it.

    Tasks ask for a resource that no worker has. Stresses the client, which builds and optimises
    the graph, and the scheduler, which takes it in: at a large scale that alone takes minutes.
    Metrics are the seconds until the graph is sent and until the scheduler knows it, by its own
    record of events. `cloud_optimize` is left out: workers open its files while it is built.

    Scale: that of the other workload. About 1 s on 2 x 1 x 1 GiB.
    Check: the scheduler knows as many tasks as the graph has, all that is asked for is among
    them, and none of them ran.
    """
    import dask

    run = {
        "atmospheric_circulation": _circulation,
        "era5_rechunk": _era5,
        "climatology_highlevel": _highlevel,
        "climatology_map_blocks": _map_blocks,
        "zonal_average": _zonal,
        "satellite_filter": _satellite,
        "regrid": _regrid,
    }[of]
    available = {"scale": scale, "seed": seed, "prepared": prepared, "to": "coarse"}
    asked_for = {name: available[name] for name in inspect.signature(run).parameters}
    begin = time.time()

    def submit(graph, keys, **options):
        sent = time.time()
        futures = client.get(graph, keys, sync=False, resources={NOBODY: 1})
        raise _Submitted(sent, graph, keys, futures)

    with dask.config.set(scheduler=submit):
        try:
            dask.compute(run(**asked_for))
        except _Submitted as told:
            sent, graph, keys, futures = told.args
    known = _known_since(client, begin)
    # No futures may be returned bare: they would be waited for.
    return SimpleNamespace(
        building=sent - begin, submission=known - begin, graph=graph, keys=keys, futures=futures
    )


@submission.prepare
def _(*, of):
    return {"folder": _new_folder()}


@submission.check
def _(client, result):
    from dask.core import flatten

    tasks = client.run_on_scheduler(_tasks_of_nobody)
    count = len(dict(result.graph.__dask_graph__()))
    expect(len(tasks), equals=count, what="tasks that the scheduler knows")
    expect(len(set(flatten(result.keys)) - set(tasks)), equals=0, what="results it does not know")
    expect(set(tasks.values()), equals={"no-worker", "waiting"}, what="states of tasks")
    expect(result.building, at_least=0, at_most=result.submission, what="time until it was sent")
    return {
        "building": result.building,
        "submission": result.submission,
        "graph_tasks": count,
    }


@submission.cleanup
def _(prepared=None):
    _remove(prepared)


def _known_since(client, begin):
    """Wait until the scheduler has taken in a graph that was sent after `begin`; return when."""
    end = time.monotonic() + SUBMISSION_TIMEOUT_S
    while time.monotonic() < end:
        for moment, event in client.get_events(client.id):
            if moment >= begin and event.get("action") in ("update-graph", "update_graph"):
                return moment
        time.sleep(0.01)
    raise TimeoutError(f"the scheduler did not take in the graph in {SUBMISSION_TIMEOUT_S:.0f} s")


def _tasks_of_nobody(dask_scheduler):
    return {
        key: task.state
        for key, task in dask_scheduler.tasks.items()
        if NOBODY in (task.resource_restrictions or {})
    }
