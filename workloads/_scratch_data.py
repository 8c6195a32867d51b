"""Temporary data of workloads: folders, zarr stores, and objects of random bytes."""

from __future__ import annotations

import os
import shutil
import tempfile
import zlib

from benchkit.measure.data.dataset import data_folder


def new_folder():
    """Return a new empty folder that client and workers share; the caller removes it."""
    root = data_folder() / "written"
    root.mkdir(parents=True, exist_ok=True)
    return tempfile.mkdtemp(dir=root)


def remove_folder(prepared):
    """Remove the folder of the prepare step, if that step made it."""
    if prepared is not None and "folder" in prepared:
        shutil.rmtree(prepared["folder"], ignore_errors=True)


def write_zarr(dataset, folder):
    """Write a dataset to a zarr store in a folder, in its own chunks; return the path."""
    store = f"{folder}/written.zarr"
    for name in dataset.variables:
        dataset[name].encoding.clear()  # chunks of the source
    dataset.to_zarr(store, mode="w", consolidated=False)
    return store


def read_zarr(store):
    """Return the dataset of a zarr store, lazily."""
    import xarray as xr

    return xr.open_zarr(store, consolidated=False)


def read_here(store):
    """Return the dataset of a zarr store in the client, without Dask."""
    import xarray as xr

    return xr.open_zarr(store, consolidated=False, chunks=None)


def write_objects(client, count, *, nbytes, seed):
    """Write new files of random bytes; return their paths and folder."""
    folder = new_folder()
    paths = [os.path.join(folder, f"{number:05d}.bin") for number in range(count)]
    client.gather(client.map(_write, paths, nbytes=nbytes, seed=seed, pure=False))
    return {"paths": paths, "folder": folder}


def checksums(paths):
    """Return the CRC-32 of files."""
    found = []
    for path in paths:
        with open(path, "rb") as file:
            found.append(zlib.crc32(file.read()))
    return found


def _write(path, *, nbytes, seed):
    import numpy as np

    number = int(os.path.basename(path).split(".")[0])
    with open(path, "wb") as file:
        file.write(np.random.default_rng([seed, number]).bytes(nbytes))
