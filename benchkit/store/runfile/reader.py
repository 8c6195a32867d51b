"""Read a NetCDF4 file that `benchkit.store.runfile.writer` wrote, as a DataTree.

Uses h5py, whose lock makes it safe to call from any thread. xarray's netcdf4 engine is as fast,
but the netCDF library is not thread-safe and xarray locks only its reads: sixteen threads that
open, read and delete trees end in a segmentation fault, and a dashboard has threads. The h5netcdf
engine is safe and takes seven times as long.

Small variables are read when the file is opened. Large variables are read on use and open the file
each time: files of a store never change, and nothing has to be closed.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray as xr
from xarray import conventions
from xarray.backends import BackendArray
from xarray.core import indexing

from benchkit.errors import UnreadableRun
from benchkit.store.runfile.digest import verify
from benchkit.store.runfile.trial import check_size
from benchkit.store.runfile.writer import NO_VARIABLE, WITH_DIGEST, WRITER

__all__ = ["is_own_file", "open_verified", "read_tree"]

#: Variables up to this size in B are read when the file is opened; a run has about 100.
_SMALL_BYTES = 2**18
_DIMENSION_ID, _DIMENSION_IDS = "_Netcdf4Dimid", "_Netcdf4Coordinates"
#: Attributes of the HDF5 representation of NetCDF4 that are not read.
_SKIPPED = {"DIMENSION_LIST", "REFERENCE_LIST"}
#: Attributes of the HDF5 representation of NetCDF4 that are read, but not returned.
_HIDDEN = {"CLASS", "NAME", "_NCProperties", _DIMENSION_ID, _DIMENSION_IDS}


def is_own_file(path: Path) -> bool:
    """Return whether `benchkit.store.runfile.writer` wrote a file that is verified."""
    with open_verified(path) as file:
        return WRITER in str(file.attrs.get("_NCProperties", ""))


def open_verified(path: Path) -> h5py.File:
    """Open a file for HDF5 after its bytes were verified."""
    verified = verify(path)
    file = h5py.File(path, "r")
    if not verified.has_trailer and WITH_DIGEST in str(file.attrs.get("_NCProperties", "")):
        file.close()
        raise UnreadableRun(f"{path}: damaged run file: its end with the digest is lost")
    return file


def read_tree(path: Path, groups: Collection[str] | None = None) -> xr.DataTree:
    """Return the DataTree in a file, the inverse of `encode_tree`."""
    datasets: dict[str, xr.Dataset] = {}
    with open_verified(path) as file:
        _read_group(file, "/", path, datasets, groups)
    return xr.DataTree.from_dict(datasets)


def _read_group(
    group: h5py.Group,
    name: str,
    path: Path,
    datasets: dict[str, xr.Dataset],
    groups: Collection[str] | None = None,
) -> None:
    """Read a group and its groups into `datasets`."""
    attrs = _read_attrs(group.id)
    datasets[name] = xr.Dataset()  # parents come before their children
    items, dims = {}, {}
    for key in group:
        if groups is not None and key not in groups and group.get(key, getclass=True) is h5py.Group:
            continue
        item = group[key]
        if isinstance(item, h5py.Group):
            _read_group(item, f"{name.rstrip('/')}/{key}", path, datasets)
            continue
        item_attrs = _read_attrs(item.id)
        if _DIMENSION_ID in item_attrs:
            dims[int(item_attrs[_DIMENSION_ID])] = key
        if not item_attrs.get("NAME", "").startswith(NO_VARIABLE):
            items[key] = (item, item_attrs)
    coordinates = set(attrs.pop("coordinates", "").split())
    variables = {}
    for key, (item, item_attrs) in items.items():
        coordinates.update(item_attrs.pop("coordinates", "").split())
        ids = item_attrs.get(_DIMENSION_IDS, ())
        item_dims = tuple(dims[int(number)] for number in ids) or (key,) * item.ndim
        variables[key] = _variable(item, key, item_dims, _visible(item_attrs), path)
    dataset = xr.Dataset(variables, attrs=_visible(attrs))
    datasets[name] = dataset.set_coords([key for key in coordinates if key in variables])


def _visible(attrs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attrs.items() if name not in _HIDDEN}


def _variable(
    item: h5py.Dataset, name: str, dims: tuple[str, ...], attrs: dict[str, Any], path: Path
) -> xr.Variable:
    data: Any
    check_size(name, item.nbytes, item.id.get_storage_size())
    if item.dtype.kind == "O":
        data = item.asstr()[()]
    elif item.nbytes <= _SMALL_BYTES:
        data = item[()]
    else:
        data = indexing.LazilyIndexedArray(_StoredVariable(path, item))
    variable = xr.Variable(dims, data, attrs)
    if "dtype" in attrs or " since " in str(attrs.get("units", "")):  # booleans and times
        variable = conventions.decode_cf_variable(name, variable)
    return variable


def _read_attrs(owner: h5py.h5g.GroupID | h5py.h5d.DatasetID) -> dict[str, Any]:
    """Return all attributes, by the low-level API of h5py: 10 us per attribute instead of 30."""
    attrs: dict[str, Any] = {}
    for index in range(h5py.h5a.get_num_attrs(owner)):
        attribute = h5py.h5a.open(owner, index=index)
        name = attribute.name.decode()
        if name in _SKIPPED:
            continue
        kind = attribute.get_type()
        data = np.empty(attribute.shape, attribute.dtype)
        attribute.read(data)
        if isinstance(kind, h5py.h5t.TypeStringID):
            texts = [b.decode() if isinstance(b, bytes) else b for b in data.ravel().tolist()]
            attrs[name] = texts if attribute.shape else texts[0]
        else:
            attrs[name] = data[()] if attribute.shape else data[()].item()
    return attrs


class _StoredVariable(BackendArray):
    """A variable that is read on use."""

    def __init__(self, path: Path, item: h5py.Dataset) -> None:
        self.path, self.name = path, item.name
        self.shape, self.dtype = item.shape, item.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER_1VECTOR, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        with open_verified(self.path) as file:
            return np.asarray(file[self.name][key])
