"""Zarr workloads: chunked arrays in a store."""

from __future__ import annotations

import math

import _recipes.rasters  # noqa: F401  (declares the datasets)
from _sizes import MOST_THREADS

from benchkit.measure import dataset, expect, workload

#: Store of the dataset `cmip`.
STORE = "zg.zarr"
#: Most threads: two of the 64 chunks of the cube for each.
CUBE_THREADS = 32
#: Repeats of operations of some 0.01 s, which alone would measure noise only.
TIMES = 20


@workload(
    variants={"threshold": [50, 100, 200, 255]},
    tags=["io", "unknown-chunks", "ci[threshold=200]", "nightly"],
    requires=["numpy", "zarr", "dask.array"],
    max_threads=CUBE_THREADS,
)
def filter_average(prepared, *, threshold):
    """Average the values of a cube that are above a threshold.

    The higher the threshold, the fewer values are left; above 255 there is none, and the mean is
    NaN. Stresses flattening, which shuffles the cube by P2P, and arrays with unknown chunk sizes;
    reading and decompression need little time.

    Scale: 0.125 x cluster memory, linear, in steps of 40 per side; 64 chunks.
    About 5 s on 2 x 1 x 1 GiB, plus 5 s once to make the data.
    Check: the mean, from the histogram in the manifest of the dataset.
    """
    cube = _cube(prepared)
    return cube[cube > threshold].mean()


@filter_average.prepare
def _(scale):
    return _dataset(scale)


@filter_average.check
def _(result, prepared, *, threshold):
    histogram = prepared.manifest["known"]["histogram"]
    above = range(threshold + 1, 256)
    count = sum(histogram[value] for value in above)
    got = float(result.compute() if hasattr(result, "compute") else result)
    if count == 0:
        expect(math.isnan(got), equals=True, what="the mean of nothing is not a number")
        return
    total = sum(value * histogram[value] for value in above)
    expect(got, close_to=total / count, rtol=1e-12, what="mean")


@workload(
    variants={"part": ["third", "chunk", "item"]},
    tags=["io", "slicing", "latency", "ci[part=chunk]", "nightly"],
    requires=["numpy", "zarr", "dask.array"],
    max_threads=CUBE_THREADS,
    version=2,
)
def access_slices(prepared, scale, *, part):
    """Read parts of a cube one by one: a third of each side, less than a chunk, or one item.

    Stresses culling of unneeded chunks, and transfer of the data to the client; a single item is
    pure overhead.

    Scale: as zarr.filter_average; one third, or 20 smaller parts x fraction along the diagonal.
    About 2 s on 2 x 1 x 1 GiB.
    Check: every value, by zarr without Dask.
    """
    cube = _cube(prepared)
    return [cube[place].compute() for place in _places(cube.shape[0], part, scale)]


@access_slices.prepare
def _(scale):
    return _dataset(scale)


@access_slices.check
def _(result, prepared, scale, *, part):
    import numpy as np
    import zarr

    cube = zarr.open_array(str(prepared.path / "cube.zarr"), mode="r")
    places = _places(cube.shape[0], part, scale)
    expect(len(result), equals=len(places), what="parts")
    for got, place in zip(result, places, strict=True):
        wanted = cube[place]
        expect(list(np.shape(got)), equals=list(wanted.shape), what="shape")
        expect(int((np.asarray(got) != wanted).sum()), equals=0, what="values that differ")


@workload(
    tags=["io", "root-tasks", "ci", "nightly"],
    requires=["numpy", "zarr", "dask.array"],
    max_threads=CUBE_THREADS,
)
def sum_residuals(prepared):
    """Subtract the mean along one axis from a cube, and sum the residuals.

    The cube is read for the mean and used again for the difference. Stresses the order of work:
    chunks are either kept, which needs memory, or read twice.

    Scale: as zarr.filter_average. About 2 s on 2 x 1 x 1 GiB.
    Check: the sum is 0 except for rounding; the sum weighted by the position along the axis is that
    of the sums of planes in the manifest of the dataset.
    """
    import dask.array as da

    cube = _cube(prepared)
    residuals = cube - cube.mean(axis=0)
    weights = da.arange(cube.shape[0], chunks=cube.chunks[0])
    weighted = (residuals * weights[:, None, None]).sum()
    return da.stack([residuals.sum(), weighted])


@sum_residuals.prepare
def _(scale):
    return _dataset(scale)


@sum_residuals.check
def _(result, prepared):
    import numpy as np

    plain, weighted = np.asarray(result).tolist()
    planes = np.array(prepared.manifest["known"]["planes"], dtype=float)
    places = np.arange(len(planes))
    wanted = float((places * planes).sum() - places.sum() * planes.mean())
    expect(plain, close_to=0.0, rtol=0, atol=1e-11 * planes.sum(), what="sum of the residuals")
    atol = 1e-11 * planes.sum() * len(planes)
    expect(weighted, close_to=wanted, rtol=1e-9, atol=atol, what="weighted sum of the residuals")


@workload(
    tags=["io", "latency", "overhead", "ci", "nightly"],
    requires=["numpy", "zarr", "xarray", "cftime", "dask.array"],
    max_threads=MOST_THREADS,
    version=3,
)
def select_scalar(prepared):
    """Open the output of a climate model and select one value by coordinates, 20 times.

    Stresses work other than reading: decoding of times of a calendar without leap days, graphs for
    all chunks, and culling of all chunks except one.

    Scale: 0.05 x cluster memory, linear, a chunk is a year of months on 19 levels; 20 values x
    fraction, each from a newly opened store. About 1 s on 2 x 1 x 1 GiB.
    Check: the values, by zarr without Dask.
    """
    import xarray as xr

    data, points, _ = prepared
    heights = []
    for point in points:
        with xr.open_dataset(
            data.at(STORE), engine="zarr", chunks={}, consolidated=False
        ) as opened:
            heights.append(float(opened["zg"].sel(**point, method="nearest").compute()))
    return heights


@select_scalar.prepare
def _(scale, seed):
    import numpy as np
    import xarray as xr

    data = dataset("cmip", years=_years(scale))
    with xr.open_dataset(data.path / STORE, engine="zarr", consolidated=False) as opened:
        heights = opened["zg"]
        times = max(2, round(TIMES * scale.fraction))
        rng = np.random.default_rng(seed)
        at = np.stack([rng.integers(0, n, times) for n in heights.shape], axis=1).tolist()
        points = [
            {name: heights[name].values[i] for name, i in zip(heights.dims, one, strict=True)}
            for one in at
        ]
    return data, points, at


@select_scalar.check
def _(result, prepared):
    import zarr

    data, _, at = prepared
    heights = zarr.open_group(str(data.path / STORE), mode="r")["zg"]
    expect(result, equals=[float(heights[tuple(place)]) for place in at], what="heights")


def _dataset(scale):
    side = (scale.linear(0.125) / 4) ** (1 / 3)
    return dataset("int_cube", side=max(40, int(side / 40) * 40))


def _cube(prepared):
    import dask.array as da

    return da.from_zarr(prepared.at("cube.zarr"))


def _places(side, part, scale):
    """Return slices of the parts of a cube: at a corner, then along the diagonal."""
    n = {"third": round(0.35 * side), "chunk": max(2, round(0.0375 * side)), "item": 1}[part]
    times = 1 if part == "third" else max(2, round(TIMES * scale.fraction))
    step = (side - n) // max(1, times - 1)
    return [(slice(at, at + n),) * 3 for at in range(0, times * step, step)]


def _years(scale):
    year_bytes = 4 * 12 * 19 * 30 * 48  # months, levels, latitudes and longitudes of the dataset
    return max(4, round(scale.linear(0.05) / year_bytes))
