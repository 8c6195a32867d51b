"""An archive of many files that becomes one store."""

from __future__ import annotations

from _fingerprints import fingerprint
from _written import new_folder, read_zarr, remove_folder, write_zarr

from benchkit.measure import expect, workload

VARIABLES = ("tas", "pr")


@workload(
    category="geo",
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
    return write_zarr(series, prepared["folder"])


@cloud_optimize.prepare
def _(client, scale):
    n_years, side = _archive(scale)
    folder = new_folder()
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
    shape, written = (365 * n_years, side, 2 * side), read_zarr(result)
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
    remove_folder(prepared)


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
