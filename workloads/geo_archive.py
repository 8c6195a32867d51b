"""Conversion of an archive of many files to one store."""

from __future__ import annotations

from _rasters import archive
from _scratch_data import new_folder, read_zarr, remove_folder, write_zarr
from _sizes import MOST_THREADS

from benchkit.measure import expect, workload

VARIABLES = ("tas", "pr")


@workload(
    category="geo",
    tags=["io", "shuffle", "nightly", "ci"],
    requires=["numpy", "pandas", "dask.array", "xarray", "zarr", "h5netcdf", "h5py"],
    max_threads=MOST_THREADS,
    version=2,
)
def cloud_optimize(prepared):
    """Convert an archive of NetCDF files, one for each variable and year, to one zarr store.

    Files are opened in parallel, joined along time without comparison, rechunked to long series and
    written. Stresses opening many files, the graph of readers, the shuffle and the file system.

    Scale: 0.1 x cluster memory, linear, float32, two variables; a file is 32 MiB at reference
    memory.
    About 6 s on 2 x 1 x 1 GiB, plus 2 s once to make the data.
    Check: about 200 random values and the sum of each day, from the manifest of the dataset; the
    sum at each position, by h5netcdf from the files.
    """
    import fsspec
    import xarray as xr

    parts = [
        xr.open_mfdataset(
            # Pass open files: older releases of xarray cannot open URLs.
            [each.open() for each in fsspec.open_files(files)],
            engine="h5netcdf", parallel=True, combine="nested", concat_dim="time",
            data_vars="minimal", coords="minimal", compat="override", join="override", chunks={},
        )
        for files in map(prepared["data"].files, VARIABLES)
    ]  # fmt: skip
    joined = xr.merge(parts, compat="override", join="override")
    side = max(1, -(-joined.sizes["lat"] // 8))
    series = joined.chunk(time=-1, lat=side, lon=2 * side)
    return write_zarr(series, prepared["folder"])


@cloud_optimize.prepare
def _(scale):
    return {"data": archive(scale), "folder": new_folder()}


@cloud_optimize.check
def _(result, prepared):
    import numpy as np
    import xarray as xr

    data, written = prepared["data"], read_zarr(result)
    for name in VARIABLES:
        known, axes = data.manifest["known"][name], ("time", "lat", "lon")
        got = written[name].transpose(*axes)
        expect(got.sizes["time"], equals=len(known["sums"]), what=f"days of {name}")
        places = tuple(np.array(known["points"]).T)
        expect(got.data.vindex[places].compute(), equals=known["values"], what=name)
        sums = got.sum(("lat", "lon"), dtype=float).to_numpy()
        expect(sums, close_to=known["sums"], rtol=1e-9, what=f"sum of each day of {name}")
        by_place = 0.0
        for path in data.files(name, here=True):
            with xr.open_dataset(path, engine="h5netcdf") as year:
                by_place = by_place + year[name].astype(float).sum("time").to_numpy()
        found = got.sum("time", dtype=float).to_numpy()
        expect(found, close_to=by_place, rtol=1e-9, what=f"sum at each place of {name}")


@cloud_optimize.cleanup
def _(prepared=None):
    remove_folder(prepared)
