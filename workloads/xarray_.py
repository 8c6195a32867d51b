"""Workloads that use xarray."""

from __future__ import annotations

from _fingerprints import fingerprint
from _rasters import two_years_of_water
from _scratch_data import read_zarr
from _sizes import MOST_THREADS

from benchkit.measure import expect, random_array, workload

#: Interval of the dates of one group of `climatic_mean`.
N_DATE_GROUPS = 10


@workload(
    variants={"data": ["uncompressible", "compressible"]},
    version=3,
    tags=[
        "memory",
        "root-tasks",
        "first-twelve[data=uncompressible]",
        "quick[data=uncompressible]",
        "nightly",
        "ci[data=uncompressible]",
    ],
    requires=["numpy", "dask.array", "xarray"],
)
def anom_mean(scale, seed, *, data):
    """Compute the mean over time of anomalies from a climatology: group means, difference, mean.

    Each root chunk is used twice, for the group means and for the difference. Stresses
    back-pressure: a scheduler that makes root chunks faster than they can be released fills the
    memory (distributed#2602). Times have weights, because unweighted means are zero for any groups.

    Scale: 0.3 x cluster memory, linear; a chunk is one row of 10 MiB at reference memory; a group
    per 100 rows. About 8 s on 2 x 1 x 1 GiB.
    Check: every column, by Dask without xarray from the weighted sum of the array and the means of
    its slices.
    """
    import numpy as np
    import xarray as xr

    array = _array(scale, seed, data)
    rows, _ = array.shape
    day = np.arange(rows) % _n_days(rows)
    series = xr.DataArray(array, dims=("time", "x"), coords={"day": ("time", day)})
    weights = xr.DataArray(_weights(rows), dims="time")
    with xr.set_options(use_flox=False):
        climatology = series.groupby("day").mean(dim="time")
        return ((series.groupby("day") - climatology) * weights).mean(dim="time").data


@anom_mean.check
def _(result, scale, seed, *, data):
    import dask
    import numpy as np

    rows, width = _geometry(scale)
    array, weights = _array(scale, seed, data), _weights(rows)
    n_days = _n_days(rows)
    parts = [array[day::n_days].mean(axis=0) for day in range(n_days)]
    total, *means = dask.compute((array * weights[:, None]).sum(axis=0), *parts)
    for day, mean in enumerate(means):
        total = total - weights[day::n_days].sum() * mean
    got = np.asarray(result)
    expect(got.shape, equals=(width,), what="shape")
    expect(got, close_to=total / rows, rtol=1e-9, atol=1e-12, what="weighted mean anomaly")


def _array(scale, seed, data):
    rows, width = _geometry(scale)
    return random_array((rows, width), chunks=(1, width), data=data, seed=seed)


def _n_days(rows):
    return max(2, rows // 100)


def _weights(rows):
    """Return the weight of each time: days differ, and so do the times of one day.

    If all days had the same sum, means of the wrong day would not be noticed.
    """
    import numpy as np

    time, n_days = np.arange(rows), _n_days(rows)
    return 1.0 + time % n_days + time // n_days % 3


def _geometry(scale):
    width = scale.chunk("10 MiB") // 8
    return max(4 * scale.threads, round(scale.linear(0.3) / 8 / width)), width


@workload(
    variants={"result_as": ["arrays", "frame"]},
    tags=["memory", "root-tasks", "order", "nightly", "ci[result_as=arrays]"],
    requires=["numpy", "pandas", "dask.array", "dask.dataframe", "xarray"],
)
def quadratic_mean(scale, seed, *, result_as):
    """Compute the means over time of the squares and the product of two velocities.

    Three reductions share their root tasks, and no root chunk is needed for long. Stresses the
    order of tasks: a chunk of one velocity must not wait long for the matching chunk of the other.
    A result as a frame is optimised in another way (dask#10384).

    Scale: 0.5 x cluster memory for each velocity, linear; a chunk is 10 times of 987 x 1920 values
    at reference memory. About 5 s on 2 x 1 x 1 GiB.
    Check: means of squares are 1/3 and that of the product 1/4, within 5 sigma, and in every cell
    within 8 sigma; on one latitude the means are those of NumPy.
    """
    import xarray as xr

    u, v = _velocities(scale, seed)
    dims = ("time", "face", "j", "i")
    velocities = xr.Dataset({"u": (dims, u), "v": (dims, v)})
    squares = velocities**2
    squares["uv"] = velocities["u"] * velocities["v"]
    means = squares.mean("time")
    if result_as == "frame":
        return means.to_dask_dataframe(dim_order=["face", "j", "i"])
    return {name: means[name].data for name in ("u", "v", "uv")}


@quadratic_mean.check
def _(result, scale, seed, *, result_as):
    import dask
    import numpy as np

    u, v = _velocities(scale, seed)
    n_times, _, height, width = u.shape
    if result_as == "frame":
        frame = result.compute()
        expect(len(frame), equals=height * width, what="rows")
        expect(frame["i"].to_numpy()[:width], equals=np.arange(width), what="order of the rows")
        means = {name: frame[name].to_numpy().reshape(height, width) for name in ("u", "v", "uv")}
    else:
        means = {name: np.asarray(mean)[0] for name, mean in result.items()}
    middle = height // 2
    u, v = dask.compute(u[:, 0, middle], v[:, 0, middle])
    by_numpy = {"u": u * u, "v": v * v, "uv": u * v}
    for name, (mean, variance) in {
        "u": (1 / 3, 4 / 45), "v": (1 / 3, 4 / 45), "uv": (1 / 4, 7 / 144),
    }.items():  # fmt: skip
        found, sigma = means[name], (variance / n_times) ** 0.5
        expect(found.shape, equals=(height, width), what=f"shape of {name}")
        expect(float(found.mean()), close_to=mean, rtol=0, atol=5 * sigma / found.size**0.5,
               what=f"mean of {name}")  # fmt: skip
        furthest = float(np.abs(found - mean).max())
        expect(furthest, at_most=8 * sigma, what=f"furthest cell of {name}")
        expect(found[middle], close_to=by_numpy[name].mean(axis=0), what=f"one latitude of {name}")


def _velocities(scale, seed):
    items = scale.chunk(10 * 987 * 1920 * 8) / 8 / 10
    height, width = (max(4, round((items * ratio) ** 0.5)) for ratio in (987 / 1920, 1920 / 987))
    n_chunks = max(2, round(scale.linear(0.5) / 8 / 10 / height / width))
    shape, chunks = (10 * n_chunks, 1, height, width), (10, 1, height, width)
    u = random_array(shape, chunks=chunks, seed=2 * seed)
    return u, random_array(shape, chunks=chunks, seed=2 * seed + 1)


@workload(
    variants={"method": ["map-reduce", "cohorts", "rechunk-cohorts", "flox-off"]},
    tags=["reduction", "graph", "nightly", "ci[method=cohorts]"],
    requires=["numpy", "pandas", "dask.array", "xarray", "zarr", "flox"],
    max_threads=MOST_THREADS,
    version=2,
)
def groupby_reduction(prepared, *, method):
    """Average two years of water depths by month of the year, for each position.

    Chunks are short in time: each has days of one or two months. With flox, all months are reduced
    together, or in cohorts of months that share chunks, or in cohorts after the chunks were split
    at the ends of months; or without flox. Stresses the graph of the reduction, and transfers where
    months are reduced across workers.

    Scale: 0.04 x cluster memory, linear, 730 days of float32; a chunk is ten days of a tile, 0.75
    MiB at reference memory.
    About 8 s on 2 x 1 x 1 GiB, plus 2 s once to make the data.
    Check: for each position, the sum of months weighted by their number equals one product of the
    days with these weights.
    """
    import xarray as xr

    days = _days(prepared)
    if method == "rechunk-cohorts":
        ends = days["time"].dt.is_month_end.to_numpy().nonzero()[0] + 1
        lengths = [int(last - first) for first, last in zip([0, *ends], ends, strict=False)]
        days = days.chunk(time=tuple(lengths))
    with xr.set_options(use_flox=method != "flox-off"):
        groups = days.groupby("time.month")
        if method == "flox-off":
            means = groups.mean("time")
        else:
            means = groups.mean("time", method=method.removeprefix("rechunk-"))
    return means.transpose("month", "y", "x").data


@groupby_reduction.prepare
def _(scale):
    return two_years_of_water(scale)


@groupby_reduction.check
def _(result, prepared):
    import dask.array as da
    import numpy as np

    days = _days(prepared)
    months = days["time"].dt.month.to_numpy()
    weights = (months / np.bincount(months)[months]).astype(float)
    expect(result.shape, equals=(12, *days.shape[1:]), what="shape")
    wanted = da.tensordot(weights, days.data, axes=(0, 0)).compute()
    got = np.tensordot(np.arange(1.0, 13.0), np.asarray(result), axes=(0, 0))
    # Depths and means are float32.
    expect(got, close_to=wanted, rtol=1e-6, what="weighted sum of the months")


def _days(prepared):
    return read_zarr(prepared.at("depth.zarr"))["depth"]


@workload(
    variants={"data": ["uncompressible", "compressible"]},
    tags=["memory", "root-tasks", "nightly", "ci[data=uncompressible]"],
    requires=["numpy", "dask.array", "xarray"],
)
def climatic_mean(scale, seed, *, data):
    """Average an ensemble of forecasts by start date, without flox.

    Dates of one group are in chunks far apart. Stresses back-pressure, like `anom_mean`, with
    chunks that are 20 times as large (distributed#2602, coiled/benchmarks#253).

    Scale: 1.2 x cluster memory, linear, about 20 dates in 10 groups; a chunk is one forecast of 199
    MiB at reference memory. About 15 s on 2 x 1 x 1 GiB.
    Check: the sum and the sum weighted by all six positions equal those of arrays sliced and
    averaged by Dask, without xarray.
    """
    import numpy as np
    import xarray as xr

    array = _forecasts(scale, seed, data)
    group = np.arange(array.shape[1]) % N_DATE_GROUPS
    forecasts = xr.DataArray(
        array,
        dims=("member", "date", "latitude", "lead", "level", "longitude"),
        coords={"group": ("date", group)},
    )
    with xr.set_options(use_flox=False):
        means = forecasts.groupby("group").mean("date")
    return fingerprint(means.transpose("member", "group", ...).data)


@climatic_mean.check
def _(result, scale, seed, *, data):
    import dask.array as da
    import numpy as np

    array = _forecasts(scale, seed, data)
    groups = [array[:, first::N_DATE_GROUPS] for first in range(N_DATE_GROUPS)]
    wanted = fingerprint(da.stack([group.mean(axis=1) for group in groups], axis=1)).compute()
    expect(np.asarray(result), close_to=wanted, rtol=1e-9, what="sums of the means")


def _forecasts(scale, seed, data):
    latitudes = max(1, round(scale.chunk(96 * 21 * 90 * 144 * 8) / 8 / 21 / 90 / 144))
    inner = (latitudes, 21, 90, 144)
    n_chunks = scale.linear(1.2) / 8 / 21 / 90 / 144 / latitudes
    members = max(2, round(n_chunks / 2 / N_DATE_GROUPS))
    dates = max(N_DATE_GROUPS + 1, round(n_chunks / members))
    return random_array((members, dates, *inner), chunks=(1, 1, *inner), data=data, seed=seed)
