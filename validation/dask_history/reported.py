"""Slowdowns and memory growth that people reported between releases of Dask, in small.

Each workload does what its report does on a size that takes 0.1 to 3 s and stays below 300 MB. The
ones that only build a graph take their time in the client.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pandas as pd

from benchkit.measure import expect, workload

N_PARTS, N_ROWS = 8, 500_000
#: Variable with the number of times that objects were serialised.
_COUNT = "REPORTED_N_SERIALISED"


class _Big:
    """An object that counts how often it is serialised.

    The class is serialised too and must be the same each time, so the count is a variable.
    """

    def __init__(self, n: int) -> None:
        self.texts = {i: str(i) for i in range(n)}

    def __reduce__(self):
        os.environ[_COUNT] = str(_n_serialised() + 1)
        return _restored, (self.texts,)


def _n_serialised():
    return int(os.environ[_COUNT])


def _restored(texts):
    big = _Big(0)
    big.texts = texts
    return big


class _Table:
    """An object without a token of its own: Dask serialises it to make one."""

    def __init__(self, n: int) -> None:
        self.texts = {i: str(i) for i in range(n)}


def _size(each):
    return len(each.texts)


def _add_size(block, table=None):
    return block + len(table.texts)


def _part(i):
    random = np.random.RandomState(i)
    columns = {"a": random.randint(0, 100, N_ROWS), "b": random.rand(N_ROWS)}
    return pd.DataFrame({**columns, "c": random.rand(N_ROWS)}).sort_values("b")


@workload
def repeated_index(client):
    """Take each row of an array 24 times in turn, as upsampling does (dask/dask#11453)."""
    x = da.ones((4000, 3), chunks=(100, 3))
    return float((x[np.repeat(np.arange(4000), 24)] * 2 + 1).mean().compute())


@repeated_index.check
def _(result):
    expect(result, equals=3.0, what="mean")


@workload
def tokens_of_objects(client):
    """Map a function with an object that Dask serialises for a token (dask/dask#11416)."""
    table = _Table(100_000)
    for _ in range(4):
        ones = da.ones((200, 200), chunks=(100, 100))
        total = ones.map_blocks(_add_size, table=table, dtype="f8").sum()
    return float(total.compute())


@tokens_of_objects.check
def _(result):
    expect(result, equals=200 * 200 * 100_001.0, what="sum")


def _total():
    """Return the sum of a frame in which one expression is used twice, not computed."""
    import dask.dataframe as dd

    meta = pd.DataFrame({"a": np.zeros(0, int), "b": np.zeros(0), "c": np.zeros(0)})
    df = dd.from_map(_part, list(range(N_PARTS)), meta=meta)
    df = df[df.a > 1]
    df = df[df.b < 0.9]
    return df.assign(d=df.b * df.c).sum()


@workload
def fused_frame(client):
    """Use one expression twice in a fused task of a frame (dask/dask#11507)."""
    return float(_total().compute()["d"])


@workload
def optimised_frame(client):
    """Do as `fused_frame`, and ask for the fusion of tasks (dask/dask#11736)."""
    return float(_total().optimize().compute()["d"])


@fused_frame.check
@optimised_frame.check
def _(result):
    expect(result / (N_PARTS * N_ROWS), at_least=0.19, at_most=0.21, what="mean of b x c")


@workload
def index_by_list(client):
    """Build the graph of an index by a list into many chunks (dask/dask#11735)."""
    x = da.ones((200_000,), chunks=(1,))
    return x[np.arange(x.size)].npartitions


@index_by_list.check
def _(result):
    expect(result, equals=200_000, what="chunks")


@workload
def ravel(client):
    """Build the graph of ``ravel`` of an array of many chunks three times (dask/dask#11579)."""
    shape = (28, 30, 8, 1, 21, 3)
    x = da.zeros(shape, chunks=(1, 1, 1, 1, 1, 3))
    return [x.ravel().npartitions for _ in range(3)]


@ravel.check
def _(result):
    expect(result, equals=[141_120] * 3, what="chunks")


@workload
def slice_and_mask(client):
    """Build the graph of a slice, then of a mask of it (dask/dask#12020)."""
    data = da.ones((750, 72, 2000, 2000, 50), chunks=(1, 8, 200, 200, -1))
    mask = np.arange(120) % 2 == 0
    return data[300:420][mask].npartitions


@slice_and_mask.check
def _(result):
    expect(result, equals=54_000, what="chunks")


@workload
def slice_of_file(client, prepared):
    """Load a slice of a file that is opened as one chunk (pydata/xarray#9926)."""
    import xarray as xr

    dataset = xr.open_zarr(prepared, chunks={"time": -1})
    return float(dataset.ua.isel(time=slice(50, 60)).load().mean())


@slice_of_file.prepare
def _():
    import xarray as xr

    path = f"{tempfile.mkdtemp()}/ua.zarr"
    data = da.random.random((200, 250, 400), chunks=(10, 250, 400))
    xr.Dataset({"ua": (("time", "lat", "lon"), data)}).to_zarr(path, mode="w")
    return path


@slice_of_file.cleanup
def _(prepared):
    shutil.rmtree(Path(prepared).parent)


@slice_of_file.check
def _(result):
    expect(result, at_least=0.49, at_most=0.51, what="mean")


@workload
def frame_of_selection(client, prepared):
    """Make a frame of a small selection in the threads of the client (dask/dask#11592)."""
    import xarray as xr

    labels = {"c1": pd.date_range("2024-11-01", "2024-11-10").to_numpy(), "c2": [5000]}
    with dask.config.set(scheduler="threads"):
        return len(xr.open_zarr(prepared).reindex(**labels).to_dask_dataframe().compute())


@frame_of_selection.prepare
def _():
    import xarray as xr

    path, shape = f"{tempfile.mkdtemp()}/table.zarr", (1200, 9000)
    coords = {"c1": np.arange(shape[0]), "c2": np.arange(shape[1])}
    a = xr.DataArray(da.random.random(shape, chunks=(30, 1200)), coords, ("c1", "c2"))
    xr.Dataset({"a": a, "b": a + 1}).to_zarr(path, mode="w")
    return path


@frame_of_selection.cleanup
def _(prepared):
    shutil.rmtree(Path(prepared).parent)


@frame_of_selection.check
def _(result):
    expect(result, equals=10, what="rows")


@workload(metrics={"n_serialised": ("1", "less")})
def submitted_objects(client):
    """Submit a dozen objects and count how often each is serialised (distributed#9054)."""
    os.environ[_COUNT] = "0"
    big = [_Big(20_000) for _ in range(12)]
    client.gather([client.submit(_size, each, pure=False) for each in big])
    return _n_serialised()


@submitted_objects.check
def _(result):
    expect(result, at_least=12, what="how often objects were serialised")
    return {"n_serialised": result}


@workload
def delayed_of_collection(client):
    """Make a delayed call with an array of many tasks, as ``to_zarr`` does (dask/dask#12298)."""
    a = da.zeros((10, 10), chunks=(1, 1))
    for _ in range(5):
        a = a @ a
    return type(dask.delayed(len)(a)).__name__


@delayed_of_collection.check
def _(result):
    expect(result, equals="Delayed", what="type")
