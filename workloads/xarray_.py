"""Workloads through xarray."""

from __future__ import annotations

from _fingerprints import fingerprint
from _rasters import two_years_of_water
from _scratch_data import read_zarr
from _sizes import MOST_THREADS

from benchkit.measure import expect, random_array, workload

#: Dates that fall into one group of `climatic_mean` are so many apart.
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
    """Average the anomalies against a climatology: group mean, difference, mean over time.

    Each root chunk is needed twice, for the group means and for the difference. Stresses
    back-pressure: a scheduler that makes roots faster than they can be let go fills the memory
    (distributed#2602). Moments have weights, as plain means are zero whatever the groups.

    Scale: 0.3 x cluster memory, linear; a chunk is one row of 10 MiB at the reference, by the
    grain; a group for each 100 rows. About 8 s on 2 x 1 x 1 GiB.
    Check: every column, by plain Dask from the array's weighted sum and the means of its slices.
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
    """Return what each moment counts: days differ, and so do the moments of one day.

    With the same sum for each day, means of one day would pass for those of another.
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
    """Average the squares and the product of two velocities over time.

    Three reductions share their roots, and none of the roots is needed for long. Stresses the
    order of tasks: a chunk of one velocity must not wait long for its partner. As a frame, the
    result takes another way through Dask's optimisation (dask#10384).

    Scale: 0.5 x cluster memory for each velocity, linear; a chunk is 10 moments of 987 x 1920
    values at the reference, by the grain. About 5 s on 2 x 1 x 1 GiB.
    Check: squares average to 1/3 and the product to 1/4 within 5 sigma, and every cell within
    8 sigma; on one latitude the means are those of NumPy.
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
    """Average two years of depths of water by month of the year, place by place.

    Chunks are short in time, so that each holds days of one month or two. With flox: all months
    are reduced together, in cohorts of months that share chunks, or in cohorts after the chunks
    were cut at the months' ends; and without flox. Stresses the reduction's graph, and transfer
    where months are reduced across workers.

    Scale: 0.04 x cluster memory, linear, 730 days of float32; a chunk is ten days of a tile,
    0.75 MiB at the reference, by the grain.
    About 8 s on 2 x 1 x 1 GiB, plus 2 s once to make the data.
    Check: every place's months, weighted by their number and added, are what one product of the
    days with those weights gives.
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
    # Depths are float32, and so are their means.
    expect(got, close_to=wanted, rtol=1e-6, what="weighted sum of the months")


def _days(prepared):
    return read_zarr(prepared.at("depth.zarr"))["depth"]


@workload(
    variants={"data": ["uncompressible", "compressible"]},
    tags=["memory", "root-tasks", "nightly", "ci[data=uncompressible]"],
    requires=["numpy", "dask.array", "xarray"],
)
def climatic_mean(scale, seed, *, data):
    """Average an ensemble of forecasts by the date they began on, without flox.

    Dates of one group lie in chunks far from each other. Stresses back-pressure, as `anom_mean`
    does, with chunks that are 20 times as large (distributed#2602, coiled/benchmarks#253).

    Scale: 1.2 x cluster memory, linear, about 20 dates in 10 groups; a chunk is one forecast of
    199 MiB at the reference, by the grain. About 15 s on 2 x 1 x 1 GiB.
    Check: the sum and a sum weighted by all six positions equal those of arrays sliced and
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
