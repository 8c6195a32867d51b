"""Workloads through xarray."""

from __future__ import annotations

from benchkit.measure import expect, random_array, workload


@workload(
    variants={"data": ["uncompressible"]},
    tags=["memory", "root-tasks", "first-twelve", "quick"],
    requires=["numpy", "dask.array", "xarray"],
)  # fmt: skip
def anom_mean(scale, seed, *, data):
    """Average the anomalies against a climatology: group mean, difference, mean over time.

    Each root chunk is needed twice, for the group means and for the difference. Stresses
    back-pressure: a scheduler that makes roots faster than they can be let go fills the memory
    (distributed#2602).

    Scale: 0.16 x cluster memory, linear; a chunk is one row of 10 MiB at the reference, by the
    grain; a group for each 100 rows. About 8 s on 2 x 1 x 1 GiB.
    Check: anomalies average to zero within 1e-10, in every column.
    """
    import numpy as np
    import xarray as xr

    rows, width = _geometry(scale)
    array = random_array((rows, width), chunks=(1, width), data=data, seed=seed)
    day = np.arange(rows) % max(2, rows // 100)
    series = xr.DataArray(array, dims=("time", "x"), coords={"day": ("time", day)})
    with xr.set_options(use_flox=False):
        climatology = series.groupby("day").mean(dim="time")
        return (series.groupby("day") - climatology).mean(dim="time").data


@anom_mean.check
def _(result, scale, *, data):
    import numpy as np

    _, width = _geometry(scale)
    got = np.asarray(result)
    expect(got.shape, equals=(width,), what="shape")
    expect(float(np.abs(got).max()), at_most=1e-10, what="largest mean anomaly")


def _geometry(scale):
    width = scale.chunk("10 MiB") // 8
    return max(4 * scale.threads, round(scale.linear(0.16) / 8 / width)), width
