"""Read a NetCDF4 file that `benchkit.store.runfile.writer` wrote, as a DataTree.

By h5py, whose lock makes it safe to call from any thread. xarray's netcdf4 engine is as fast, but
the netCDF library is not made for threads and xarray guards its reads only: sixteen threads that
open, read and drop trees end in a segmentation fault, and a dashboard has threads. The h5netcdf
engine is safe and takes seven times as long.

Small variables are read at once. Large variables are read on use and open the file each time:
store files never change, and nothing has to be closed.
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

from benchkit.store.runfile.writer import NO_VARIABLE, WRITER

__all__ = ["is_ours", "read_tree"]

#: Variables up to this size in B are read when the file is opened; a run has about 100.
_SMALL_BYTES = 2**18
_DIMENSION_ID, _DIMENSION_IDS = "_Netcdf4Dimid", "_Netcdf4Coordinates"
#: Attributes of the HDF5 representation of NetCDF4, hidden from readers.
_SKIPPED = {"DIMENSION_LIST", "REFERENCE_LIST"}
_INNER = {"CLASS", "NAME", "_NCProperties", _DIMENSION_ID, _DIMENSION_IDS}


def is_ours(path: Path) -> bool:
    """Return whether benchkit wrote a file, so that `read_tree` can read it."""
    with h5py.File(path, "r") as file:
        return WRITER in str(file.attrs.get("_NCProperties", ""))


def read_tree(path: Path, groups: Collection[str] | None = None) -> xr.DataTree:
    """Return the DataTree in a file, the inverse of `encode_tree`.

    Parameters
    ----------
    path : Path
        A file that `is_ours`.
    groups : collection of str, optional
        Only these groups, in addition to the root; by default all.

    Returns
    -------
    DataTree
        The tree.

    Raises
    ------
    OSError, KeyError, ValueError, RuntimeError
        The file is damaged.
    """
    found: dict[str, xr.Dataset] = {}
    with h5py.File(path, "r") as file:
        _read_group(file, "/", path, found, groups)
    return xr.DataTree.from_dict(found)


def _read_group(
    group: h5py.Group,
    name: str,
    path: Path,
    found: dict[str, xr.Dataset],
    wanted: Collection[str] | None = None,
) -> None:
    attrs = _read_attrs(group.id)
    found[name] = xr.Dataset()  # parents come before their children
    items, dims = {}, {}
    for key in group:
        if wanted is not None and key not in wanted and group.get(key, getclass=True) is h5py.Group:
            continue
        item = group[key]
        if isinstance(item, h5py.Group):
            _read_group(item, f"{name.rstrip('/')}/{key}", path, found)
            continue
        own = _read_attrs(item.id)
        if _DIMENSION_ID in own:
            dims[int(own[_DIMENSION_ID])] = key
        if not own.get("NAME", "").startswith(NO_VARIABLE):
            items[key] = (item, own)
    coordinates = set(attrs.pop("coordinates", "").split())
    variables = {}
    for key, (item, own) in items.items():
        coordinates.update(own.pop("coordinates", "").split())
        inner = own.get(_DIMENSION_IDS, ())
        own_dims = tuple(dims[int(number)] for number in inner) or (key,) * item.ndim
        visible = {name: value for name, value in own.items() if name not in _INNER}
        variables[key] = _variable(item, key, own_dims, visible, path)
    visible = {name: value for name, value in attrs.items() if name not in _INNER}
    dataset = xr.Dataset(variables, attrs=visible)
    found[name] = dataset.set_coords([key for key in coordinates if key in variables])


def _variable(
    item: h5py.Dataset, name: str, dims: tuple[str, ...], attrs: dict[str, Any], path: Path
) -> xr.Variable:
    data: Any
    if item.dtype.kind == "O":
        data = item.asstr()[()]
    elif item.nbytes <= _SMALL_BYTES:
        data = item[()]
    else:
        data = indexing.LazilyIndexedArray(_Stored(path, item))
    variable = xr.Variable(dims, data, attrs)
    if "dtype" in attrs or " since " in str(attrs.get("units", "")):  # booleans and times
        variable = conventions.decode_cf_variable(name, variable)
    return variable


def _read_attrs(owner: Any) -> dict[str, Any]:
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


class _Stored(BackendArray):
    """A variable that is read on use."""

    def __init__(self, path: Path, item: h5py.Dataset) -> None:
        self.path, self.name = path, item.name
        self.shape, self.dtype = item.shape, item.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER_1VECTOR, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        with h5py.File(self.path, "r") as file:
            return file[self.name][key]
