"""Workloads of weather, climate and satellite archives, through xarray."""

from __future__ import annotations

import inspect
import re
import time
from types import SimpleNamespace

from _climatology import DAYS, HOURS, WINDOW, climatology, climatology_of_block, triangle
from _fingerprints import fingerprint
from _grids import axis_weights, both_axes, interpolated, interpolated_by_axes
from _rasters import (
    OFFSET,
    OFFSET_FROM,
    atmosphere,
    maps_of_the_globe,
    satellite_images,
    sea_surface,
    three_years,
    water_and_counties,
)
from _scratch_data import new_folder, read_here, read_zarr, remove_folder, write_zarr
from _sizes import MOST_THREADS
from _tasks import await_graph

from benchkit.measure import expect, workload

#: Products of anomalies of two fields: transport of momentum and heat.
PRODUCTS = ("UV", "VT", "UW")
#: A resource that no worker has: tasks that need it stay on the scheduler.
ABSENT_RESOURCE = "benchkit-nobody"
#: File name of a chunk of two or more dimensions, in variables that workloads read lazily.
CHUNK = re.compile(r"(?!expected|counties).*/\d+(\.\d+)+")


@workload(
    tags=["memory", "graph", "io", "nightly", "ci"],
    requires=["numpy", "pandas", "dask.array", "xarray", "zarr"],
    max_threads=MOST_THREADS,
    version=2,
)
def atmospheric_circulation(prepared):
    """Compute daily means of zonal covariances of four fields, and write them.

    Zonal means, anomalies, their products, zonal means of the products, and daily means: 24 input
    chunks are reduced to three short columns. Stresses the order of tasks with four inputs, and the
    graph.

    Scale: 0.2 x cluster memory for the four fields, linear, hourly, float32; a chunk is one hour of
    3 MiB at reference memory.
    About 13 s on 2 x 1 x 1 GiB, plus 4 s once to make the data.
    Check: the daily covariances, which the recipe of the dataset computed with NumPy.
    """
    import xarray as xr

    fields = read_zarr(prepared["data"].at("fields.zarr"))
    anomalies = fields - fields.mean("lon")
    products = xr.Dataset({name: anomalies[name[0]] * anomalies[name[1]] for name in PRODUCTS})
    with xr.set_options(use_flox=False):
        daily = products.mean("lon").resample(time="1D").mean()
    return write_zarr(daily, prepared["folder"])


@atmospheric_circulation.prepare
def _(scale):
    return {"data": atmosphere(scale), "folder": new_folder()}


@atmospheric_circulation.check
def _(result, prepared):
    written, known = read_zarr(result), read_here(prepared["data"].path / "expected.zarr")
    for name in PRODUCTS:
        got = written[name].transpose("time", "level", "lat").to_numpy()
        wanted = known[name].to_numpy()
        expect(got.shape, equals=wanted.shape, what=f"shape of {name}")
        # Fields and their products are float32.
        furthest = float(abs(got - wanted).max())
        expect(furthest, at_most=1e-6, what=f"furthest value of {name}")


@atmospheric_circulation.cleanup
def _(prepared=None):
    remove_folder(prepared)


@workload(
    tags=["shuffle", "io", "nightly", "ci"],
    requires=["numpy", "dask.array", "xarray", "zarr"],
    max_threads=MOST_THREADS,
    version=2,
)
def era5_rechunk(prepared, scale):
    """Rewrite an archive of sea surface temperatures so that the series of a position is one read.

    Chunks of one time become chunks of all times of a region, and are written to zarr. Stresses the
    shuffle and the file system.

    Scale: 0.25 x cluster memory, linear, float32; a map is 721 x 1440 values and a written chunk is
    128 MiB, both at reference memory.
    About 11 s on 2 x 1 x 1 GiB, plus 9 s once to make the data.
    Check: the sum and the sum weighted by position of values and of missing values (land) equal
    those of the source; the sum of each time, from the manifest of the dataset.
    """
    series = read_zarr(prepared["data"].at("surface.zarr"))
    side = (scale.chunk("128 MiB") / 4 / series.sizes["time"]) ** 0.5
    side = max(1, min(series.sizes["lat"], round(side)))
    return write_zarr(series.chunk(time=-1, lat=side, lon=side), prepared["folder"])


@era5_rechunk.prepare
def _(scale):
    return {"data": sea_surface(scale), "folder": new_folder()}


@era5_rechunk.check
def _(result, prepared):
    import dask
    import dask.array as da

    source = read_zarr(prepared["data"].at("surface.zarr"))["sst"].data
    written = read_zarr(result)["sst"].transpose("time", "lat", "lon").data
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
    sums = da.nansum(written.astype(float), axis=(1, 2)).compute()
    known = prepared["data"].manifest["known"]
    expect(sums, close_to=known["sums"], rtol=1e-9, what="sum of each moment")


@era5_rechunk.cleanup
def _(prepared=None):
    remove_folder(prepared)


@workload(
    tags=["graph", "transfer", "nightly", "ci"],
    requires=["numpy", "pandas", "dask.array", "xarray", "zarr"],
    max_threads=MOST_THREADS,
    version=2,
)
def climatology_highlevel(prepared):
    """Compute means by hour and day of the year over three years and 61 days, with xarray.

    Unstack to hours, days and years, fill the leap day, pad around the end of the year, and compute
    weighted rolling means. Stresses the graph of these methods, its size, and the resulting chunks.

    Scale: 0.005 x cluster memory, linear, 4384 times of float32; a chunk is 8 MiB at reference
    memory.
    About 24 s on 2 x 1 x 1 GiB.
    Check: on one latitude, the product with the matrix of weights by NumPy; everywhere, means over
    all days, which do not depend on the window.
    """
    import xarray as xr

    series = _series(prepared)
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


@climatology_highlevel.prepare
def _(scale):
    return {"data": three_years(scale)}


@climatology_highlevel.check
def _(result, prepared):
    _expect_climatology(result, prepared)


@workload(
    tags=["shuffle", "transfer", "nightly", "ci"],
    requires=["numpy", "pandas", "dask.array", "xarray", "zarr"],
    max_threads=MOST_THREADS,
    version=2,
)
def climatology_map_blocks(prepared, scale):
    """Compute the same means as `climatology_highlevel`, by NumPy in each block.

    Chunks of some days become whole series of a region, a function computes the climatology, and
    the result is split into days. Stresses rechunking in both directions, without other transfers.

    Scale: 0.005 x cluster memory, linear, 4384 times of float32; a chunk is 8 MiB at reference
    memory.
    About 3 s on 2 x 1 x 1 GiB.
    Check: as for `climatology_highlevel`.
    """
    import numpy as np
    import xarray as xr

    series = _series(prepared)
    _, height, width = series.shape
    step = max(1, -(-height // (4 * scale.threads)))
    pencils = series.chunk(time=-1, lat=step, lon=width)
    template = xr.DataArray(
        np.zeros((len(HOURS), DAYS)), dims=("hour", "day"), coords={"hour": list(HOURS)}
    )
    template = template.chunk() + xr.zeros_like(pencils.isel(time=0, drop=True))
    means = pencils.map_blocks(climatology_of_block, template=template)
    return means.chunk(hour=-1, day=1, lat=-1, lon=-1).data


@climatology_map_blocks.prepare
def _(scale):
    return {"data": three_years(scale)}


@climatology_map_blocks.check
def _(result, prepared):
    _expect_climatology(result, prepared)


def _expect_known_sums(maps, prepared):
    """Compare the sum of each time (time, lat, lon) with the manifest of the dataset."""
    known = prepared["data"].manifest["known"]["sums"]
    sums = maps.astype(float).sum(axis=(1, 2)).compute()
    expect(sums, close_to=known, rtol=1e-9, what="sum of each moment as it was read")


def _series(prepared):
    return read_zarr(prepared["data"].at("surface.zarr"))["t2m"].astype(float)


def _expect_climatology(result, prepared):
    import dask
    import dask.array as da
    import numpy as np

    series = _series(prepared)
    _expect_known_sums(series.data, prepared)
    time, middle = series["time"].to_index(), series.shape[1] // 2
    expect(result.shape, equals=(len(HOURS), DAYS, *series.shape[1:]), what="shape")
    # The last day of a year without leap day counts twice.
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
    requires=["numpy", "dask.array", "xarray", "zarr", "flox"],
    max_threads=MOST_THREADS,
    version=2,
)
def zonal_average(prepared):
    """Average water depth over the area of each county, for each day.

    The counties are another raster, whose coordinates differ in the ninth digit and are treated as
    equal. Stresses the reduction of flox over two dimensions, where each tile has few of the
    groups.

    Scale: 0.1 x cluster memory, linear, 100 days of float32; a chunk is ten days of a tile, 4.25
    MiB at reference memory; three counties per two tiles.
    About 7 s on 2 x 1 x 1 GiB, plus 2 s once to make the data.
    Check: the first and the last day, by `bincount` of NumPy; for all days the sum over all
    counties, from the manifest of the dataset.
    """
    import numpy as np
    import xarray as xr
    from flox.xarray import xarray_reduce

    depth = read_zarr(prepared["data"].at("depth.zarr"))["depth"]
    counties = read_here(prepared["data"].at("counties.zarr"))["county"].load()
    depth, counties = xr.align(depth, counties, join="override")
    known = np.arange(1, int(counties.max()) + 1)
    means = xarray_reduce(depth, counties.rename("county"), func="mean", expected_groups=(known,))
    return means.transpose("time", "county").data


@zonal_average.prepare
def _(scale):
    return {"data": water_and_counties(scale)}


@zonal_average.check
def _(result, prepared):
    import numpy as np

    data = prepared["data"]
    depth = read_here(data.path / "depth.zarr")["depth"]
    flat = read_here(data.path / "counties.zarr")["county"].to_numpy().reshape(-1)
    counts = np.bincount(flat)[1:]
    expect(result.shape, equals=(depth.sizes["time"], len(counts)), what="shape")
    got = np.asarray(result, dtype=float)
    for place in (0, -1):
        moment = depth[place].to_numpy().reshape(-1)
        wanted = np.bincount(flat, weights=moment)[1:] / counts
        expect(got[place], close_to=wanted, rtol=1e-4, what=f"moment {place}")
    # Depths are float32, and some methods add them as float32.
    known = data.manifest["known"]["sums"]
    expect(got @ counts, close_to=known, rtol=1e-5, what="sum over all counties")


@workload(
    tags=["reduction", "io", "nightly", "ci"],
    requires=["numpy", "pandas", "dask.array", "xarray", "zarr"],
    max_threads=MOST_THREADS,
    version=2,
)
def satellite_filter(prepared):
    """Compute monthly means of a humidity index of satellite images, and write them.

    An offset is subtracted from two bands of 16-bit numbers from a date on, and the bands make an
    index; pixels without data are excluded. Stresses many small steps on each chunk, whose type
    grows from two bytes to eight, and a reduction.

    Scale: 0.15 x cluster memory for each band, linear, 60 images; a chunk is 4 MiB at reference
    memory. About 17 s on 2 x 1 x 1 GiB, plus 9 s once to make the data.
    Check: one band is two to five times the other, by month and position, so that the index is
    known.
    """
    import pandas as pd
    import xarray as xr

    bands = read_zarr(prepared["data"].at("bands.zarr"))
    is_late = bands["time"] >= pd.Timestamp(OFFSET_FROM)
    bands = bands.where(~is_late, bands.clip(min=OFFSET) - OFFSET).astype(float)
    total = bands["B08"] + bands["B11"]
    humidity = (bands["B08"] - bands["B11"]) / total.where(total > 0)
    with xr.set_options(use_flox=False):
        monthly = humidity.groupby("time.month").mean("time")
    monthly = monthly.chunk(month=-1).transpose("month", "y", "x")
    return write_zarr(monthly.to_dataset(name="humidity"), prepared["folder"])


@satellite_filter.prepare
def _(scale):
    return {"data": satellite_images(scale), "folder": new_folder()}


@satellite_filter.check
def _(result, prepared):
    import numpy as np

    ratio = read_zarr(prepared["data"].at("expected.zarr"))["ratio"].astype(float)
    got = read_zarr(result)["humidity"].transpose("month", "y", "x")
    expect(got["month"].to_numpy(), equals=ratio["month"].to_numpy().tolist(), what="months")
    expect(got.shape, equals=ratio.shape, what="shape")
    off = abs(got - (ratio - 1) / (ratio + 1)).fillna(np.inf)
    expect(float(off.max()), at_most=1e-9, what="furthest value of the index")


@satellite_filter.cleanup
def _(prepared=None):
    remove_folder(prepared)


@workload(
    variants={"to": ["coarse", "finer", "finest"]},
    tags=["transfer", "graph", "nightly", "ci[to=finer]"],
    requires=["numpy", "scipy", "dask.array", "xarray", "zarr"],
    max_threads=MOST_THREADS,
    version=3,
)
def regrid(prepared):
    """Interpolate maps to another grid with one sparse matrix of weights, which is an input.

    Bilinear and periodic around the globe, to a grid of 1/4, 5/4 or 5/2 as many points per axis.
    Each task needs the same matrix. Stresses its transfer from the client to all workers: it is as
    large as one map, 20 maps or 75.

    Scale: 0.1 x cluster memory, linear, float32; a chunk is one map of 721 x 1440 values at
    reference memory. About 4 s on 2 x 1 x 1 GiB, plus 4 s once to make the data.
    Check: the sum and the sum weighted by position equal those of maps interpolated along one axis,
    then the other, with two small matrices.
    """
    import dask
    import xarray as xr

    maps = read_zarr(prepared["data"].at("surface.zarr"))["t2m"].data
    # A single dependency of all tasks, not a copy in each.
    weights = dask.delayed(prepared["weights"], pure=True)
    height, width = prepared["grid"]
    regridded = maps.map_blocks(
        interpolated, weights, height, width, dtype=float,
        chunks=(maps.chunks[0], (height,), (width,)),
    )  # fmt: skip
    return fingerprint(xr.DataArray(regridded, dims=("time", "lat", "lon")).data)


@regrid.prepare
def _(scale, *, to):
    return _maps_and_weights(scale, to)


@regrid.check
def _(result, prepared, *, to):
    maps = read_zarr(prepared["data"].at("surface.zarr"))["t2m"].data
    _expect_known_sums(maps, prepared)
    along, around = axis_weights(maps.shape, to)
    by_axes = maps.map_blocks(
        interpolated_by_axes, along, around, dtype=float,
        chunks=(maps.chunks[0], (along.shape[0],), (around.shape[0],)),
    )  # fmt: skip
    expect(result.compute() if hasattr(result, "compute") else result,
           close_to=fingerprint(by_axes).compute(), rtol=1e-9, what="sums of the maps")  # fmt: skip


def _maps_and_weights(scale, to):
    data = maps_of_the_globe(scale)
    along, around = axis_weights(read_zarr(data.at("surface.zarr"))["t2m"].shape, to)
    return {
        "data": data,
        "weights": both_axes(along, around),
        "grid": (along.shape[0], around.shape[0]),
    }


# Functions, not workloads: the source of a workload includes functions that it uses.
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
    """Ends a computation after its graph was sent to the scheduler, because no task will run."""


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
    max_threads=MOST_THREADS,
    version=3,
    metrics={"building": "s", "submission": "s", "graph_tasks": "1"},
)
def submission(client, scale, prepared, *, of):
    """Submit another workload of this category without running its tasks.

    Tasks need a resource that no worker has. Stresses the client, which builds and optimises the
    graph, and the scheduler, which receives it: at a large scale this takes minutes. Metrics are
    the seconds until the graph is sent and until the scheduler has it, by its own events.
    `cloud_optimize` is excluded: workers open its files while the graph is built.

    Scale: that of the other workload. About 3 s on 2 x 1 x 1 GiB.
    Check: the scheduler has as many tasks as the graph, including all requested results, and none
    of them ran.
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
    available = {"scale": scale, "prepared": prepared}
    asked_for = {name: available[name] for name in inspect.signature(run).parameters}
    begin = time.time()

    def submit(graph, keys, **options):
        sent = time.time()
        futures = client.get(graph, keys, sync=False, resources={ABSENT_RESOURCE: 1})
        raise _Submitted(sent, graph, keys, futures)

    with dask.config.set(scheduler=submit):
        try:
            dask.compute(run(**asked_for))
        except _Submitted as reports:
            sent, graph, keys, futures = reports.args
    known = await_graph(client, begin)
    # Hide the futures: benchkit would wait for them.
    return SimpleNamespace(
        building=sent - begin, submission=known - begin, graph=graph, keys=keys, futures=futures
    )


@submission.prepare
def _(scale, *, of):
    if of == "regrid":
        return {**_maps_and_weights(scale, "coarse"), "folder": new_folder()}
    find_data = {
        "atmospheric_circulation": atmosphere,
        "era5_rechunk": sea_surface,
        "climatology_highlevel": three_years,
        "climatology_map_blocks": three_years,
        "zonal_average": water_and_counties,
        "satellite_filter": satellite_images,
    }[of]
    return {"data": find_data(scale), "folder": new_folder()}


@submission.check
def _(client, result, prepared):
    from dask.core import flatten

    tasks = client.run_on_scheduler(_tasks_with_absent_resource)
    graph = result.graph  # a dict in old releases of Dask
    count = len(dict(graph.__dask_graph__() if hasattr(graph, "__dask_graph__") else graph))
    expect(len(tasks), equals=count, what="tasks that the scheduler knows")
    chunks = sum(CHUNK.fullmatch(name) is not None for name in prepared["data"].manifest["files"])
    expect(count, at_least=chunks, what="tasks, one at least for each chunk that is read")
    # Old schedulers have names of keys.
    unknown = set(map(str, flatten(result.keys))) - set(map(str, tasks))
    expect(len(unknown), equals=0, what="results it does not know")
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


def _tasks_with_absent_resource(dask_scheduler):
    return {
        key: task.state
        for key, task in dask_scheduler.tasks.items()
        if ABSENT_RESOURCE in (task.resource_restrictions or {})
    }
