"""Workloads of weather, climate and satellite archives, through xarray."""

from __future__ import annotations

import inspect
import time
from types import SimpleNamespace

from _climatology import DAYS, HOURS, WINDOW, climatology, climatology_of_block, triangle
from _fingerprints import fingerprint
from _grids import axis_weights, both_axes, interpolated, interpolated_by_axes
from _rasters import (
    OFFSET,
    OFFSET_FROM,
    covariances,
    hourly_fields,
    hours_from_2001,
    maps_of_the_globe,
    off_index,
    satellite_images,
    sea_surface,
    six_hourly,
    water_and_counties,
)
from _tasks import known_since
from _written import new_folder, read_zarr, remove_folder, write_zarr

from benchkit.measure import expect, workload

#: Products of anomalies of two fields: what moves momentum, heat and air.
PRODUCTS = {"uv": "uv", "vt": "vt", "uw": "uw"}
#: A resource that no worker has: tasks that need it are known to the scheduler and stay there.
NOBODY = "benchkit-nobody"


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
         for name, array in hourly_fields(scale, seed).items()}
    )  # fmt: skip
    fields = fields.assign_coords(time=hours_from_2001(fields.sizes["time"]))
    anomalies = fields - fields.mean("lon")
    products = xr.Dataset({name: anomalies[a] * anomalies[b] for name, (a, b) in PRODUCTS.items()})
    with xr.set_options(use_flox=False):
        daily = products.mean("lon").resample(time="1D").mean()
    return write_zarr(daily, prepared["folder"])


@atmospheric_circulation.prepare
def _():
    return {"folder": new_folder()}


@atmospheric_circulation.check
def _(result, scale, seed):
    import dask.array as da
    import numpy as np

    fields = hourly_fields(scale, seed)
    hours, levels, latitudes, _ = fields["u"].shape
    hourly = da.map_blocks(
        covariances, *fields.values(), dtype=float, drop_axis=3,
        chunks=((1,) * hours, (levels,), (len(PRODUCTS) * latitudes,)),
    ).compute()  # fmt: skip
    daily = hourly.reshape(hours // 24, 24, levels, len(PRODUCTS), latitudes).mean(axis=1)
    written = read_zarr(result)
    for number, name in enumerate(PRODUCTS):
        got = written[name].transpose("time", "level", "lat").to_numpy()
        wanted = daily[:, :, number]
        expect(got.shape, equals=wanted.shape, what=f"shape of {name}")
        furthest = float(np.abs(got - wanted).max())
        expect(furthest, at_most=1e-9, what=f"furthest value of {name}")


@atmospheric_circulation.cleanup
def _(prepared=None):
    remove_folder(prepared)


@workload(
    tags=["shuffle", "io", "nightly", "ci"],
    requires=["numpy", "dask.array", "xarray", "zarr"],
)
def era5_rechunk(scale, seed, prepared):
    """Rewrite an archive of sea surface temperature so that a place's whole series is one read.

    Chunks of one moment become chunks of all moments of a region, and are written to zarr.
    Stresses the shuffle and, behind it, the file system.

    Scale: 0.25 x cluster memory, linear, float32; a moment is 721 x 1440 values and a chunk
    written is 128 MiB at the reference, both by the grain. About 14 s on 2 x 1 x 1 GiB.
    Check: the sum and a sum weighted by position of what was written, and of what of it is
    missing (land), equal those of the source.
    """
    import xarray as xr

    temperatures = sea_surface(scale, seed)
    times, height, _ = temperatures.shape
    side = max(1, min(height, round((scale.chunk("128 MiB") / 4 / times) ** 0.5)))
    series = xr.Dataset({"sst": (("time", "lat", "lon"), temperatures)})
    return write_zarr(series.chunk(time=-1, lat=side, lon=side), prepared["folder"])


@era5_rechunk.prepare
def _():
    return {"folder": new_folder()}


@era5_rechunk.check
def _(result, scale, seed):
    import dask
    import dask.array as da

    source, written = sea_surface(scale, seed), read_zarr(result)["sst"].data
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
    remove_folder(prepared)


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

    series = six_hourly(scale, seed)
    time = series["time"].to_index()
    parts = {"year": time.year, "day": time.day_of_year, "hour": time.hour}
    series = series.drop_vars("time").assign_coords(
        {name: ("time", values) for name, values in parts.items()}
    )
    calendar = series.set_index(time=list(parts)).unstack("time")
    calendar = calendar.fillna(calendar.shift(day=1))
    around = calendar.pad(day=WINDOW // 2, mode="wrap")
    windows = around.rolling(day=WINDOW, center=True).construct("window")
    means = windows.weighted(xr.DataArray(triangle(), dims="window")).mean(("window", "year"))
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

    series = six_hourly(scale, seed)
    _, height, width = series.shape
    step = max(1, -(-height // (4 * scale.threads)))
    pencils = series.chunk(time=-1, lat=step, lon=width)
    template = xr.DataArray(
        np.zeros((len(HOURS), DAYS)), dims=("hour", "day"), coords={"hour": list(HOURS)}
    )
    template = template.chunk() + xr.zeros_like(pencils.isel(time=0, drop=True))
    means = pencils.map_blocks(climatology_of_block, template=template)
    return means.chunk(hour=-1, day=1, lat=-1, lon=-1).data


@climatology_map_blocks.check
def _(result, scale, seed):
    _expect_climatology(result, scale, seed)


def _expect_climatology(result, scale, seed):
    import dask
    import dask.array as da
    import numpy as np

    series = six_hourly(scale, seed)
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
    off = np.abs(np.asarray(result[:, :, middle]) - climatology(one_latitude, time)).max()
    expect(float(off), at_most=1e-9, what="furthest value on one latitude")


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

    depth, counties = water_and_counties(scale, seed)
    depth, counties = xr.align(depth, counties, join="override")
    known = np.arange(1, int(counties.max()) + 1)
    means = xarray_reduce(depth, counties.rename("county"), func="mean", expected_groups=(known,))
    return means.transpose("time", "county").data


@zonal_average.check
def _(result, scale, seed):
    import dask
    import numpy as np

    depth, counties = water_and_counties(scale, seed)
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
    reference, by the grain. About 21 s on 2 x 1 x 1 GiB.
    Check: one band is two to five times the other, by month and place: the index is known.
    """
    import pandas as pd
    import xarray as xr

    times, b08, b11 = satellite_images(scale)
    dims = ("time", "y", "x")
    bands = xr.Dataset({"b08": (dims, b08), "b11": (dims, b11)}, coords={"time": times})
    is_late = bands["time"] >= pd.Timestamp(OFFSET_FROM)
    bands = bands.where(~is_late, bands.clip(min=OFFSET) - OFFSET).astype(float)
    total = bands["b08"] + bands["b11"]
    humidity = (bands["b08"] - bands["b11"]) / total.where(total > 0)
    with xr.set_options(use_flox=False):
        monthly = humidity.groupby("time.month").mean("time")
    monthly = monthly.chunk(month=-1).transpose("month", "y", "x")
    return write_zarr(monthly.to_dataset(name="humidity"), prepared["folder"])


@satellite_filter.prepare
def _():
    return {"folder": new_folder()}


@satellite_filter.check
def _(result, scale):
    import numpy as np

    times, b08, _ = satellite_images(scale)
    written = read_zarr(result)
    months = sorted(set(times.month))
    expect(written["month"].to_numpy(), equals=months, what="months")
    got = written["humidity"].transpose("month", "y", "x").data.rechunk({0: -1})
    expect(got.shape, equals=(len(months), *b08.shape[1:]), what="shape")
    off = got.map_blocks(off_index, np.array(months), dtype=float)
    expect(float(off.max().compute()), at_most=1e-9, what="furthest value of the index")


@satellite_filter.cleanup
def _(prepared=None):
    remove_folder(prepared)


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

    maps = maps_of_the_globe(scale, seed)
    along, around = axis_weights(maps.shape, to)
    weights = both_axes(along, around)
    # One object that tasks depend on, not a copy in each.
    weights = dask.delayed(weights, pure=True)
    height, width = along.shape[0], around.shape[0]
    regridded = maps.map_blocks(
        interpolated, weights, height, width, dtype=float,
        chunks=(maps.chunks[0], (height,), (width,)),
    )  # fmt: skip
    return fingerprint(xr.DataArray(regridded, dims=("time", "lat", "lon")).data)


@regrid.check
def _(result, scale, seed, *, to):
    maps = maps_of_the_globe(scale, seed)
    along, around = axis_weights(maps.shape, to)
    by_axes = maps.map_blocks(
        interpolated_by_axes, along, around, dtype=float,
        chunks=(maps.chunks[0], (along.shape[0],), (around.shape[0],)),
    )  # fmt: skip
    expect(result.compute() if hasattr(result, "compute") else result,
           close_to=fingerprint(by_axes).compute(), rtol=1e-9, what="sums of the maps")  # fmt: skip


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
    known = known_since(client, begin)
    # No futures may be returned bare: they would be waited for.
    return SimpleNamespace(
        building=sent - begin, submission=known - begin, graph=graph, keys=keys, futures=futures
    )


@submission.prepare
def _(*, of):
    return {"folder": new_folder()}


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
    remove_folder(prepared)


def _tasks_of_nobody(dask_scheduler):
    return {
        key: task.state
        for key, task in dask_scheduler.tasks.items()
        if NOBODY in (task.resource_restrictions or {})
    }
