"""Encode a DataTree as the bytes of a NetCDF4 file.

Writes by h5py into memory, with the HDF5 layout that NetCDF4 defines. A run has 160 small
variables with 700 attributes, which h5py's usual interface writes in 65 ms and its low-level
interface, with each HDF5 type made once, in 28 ms of CPU; ``DataTree.to_netcdf`` needs 6 times as
long. Of these 28 are 8 for dimension scales, 8 for attributes and 11 for variables, nearly all in
HDF5. In memory, because an HDF5 file on a full disk cannot be closed cleanly.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, TypeAlias
from uuid import uuid4

import h5py
import numpy as np
import xarray as xr
from h5py import h5a, h5d, h5ds, h5g, h5p, h5s, h5t
from xarray import conventions

from benchkit.store.runfile.digest import with_trailer
from benchkit.values import clean_text

__all__ = ["NO_VARIABLE", "WITH_DIGEST", "WRITER", "encode_tree"]

#: Program name in the provenance attribute of each file; `reader` reads only such files.
WRITER = "benchkit"
#: Part of that attribute in files that end with their digest; before, it was ``benchkit=1``.
WITH_DIGEST = f"{WRITER}=2"

_TEXT = h5py.string_dtype()
_TEXT_TYPE = h5t.py_create(_TEXT, logical=True)
_SCALAR = h5s.create(h5s.SCALAR)
#: HDF5 1.10 of 2016: reads everywhere, and a compressed variable needs no chunk index (20 % less).
_LAYOUT = ("v110", "v110")
#: zlib 4 and shuffle: a file of 391 kB instead of 892 kB; level 9 saves 2 % and takes three times
#: as long.
_ZLIB_LEVEL = 4
#: Variables from this size in B are compressed; below it the overhead of a chunk is larger than
#: the savings.
_COMPRESS_FROM_BYTES = 2048
#: Maximum size of a compressed chunk in B.
_CHUNK_BYTES = 4 * 2**20
#: Attributes up to this length in B are in the header, which holds 64 kB in total.
_SHORT_TEXT_BYTES = 1024
#: Text with which netCDF-C marks a dimension without coordinate variable.
NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable."
_Target: TypeAlias = h5g.GroupID | h5d.DatasetID


def encode_tree(tree: xr.DataTree) -> bytes:
    """Return the NetCDF4 file of a tree.

    Parameters
    ----------
    tree : DataTree
        Numbers, texts and times. A NUL or half a surrogate pair inside a text, which HDF5 cannot
        hold, is written as its escape sequence.

    Returns
    -------
    bytes
        Numbers compressed with zlib 4 + shuffle, texts as UTF-8 of variable length; at the end the
        digest of the bytes before.
    """
    dimension_ids = itertools.count()  # unique in the whole file, or netCDF-C mixes them up
    # HDF5 opens a name only once in a process, also in memory.
    options: dict[str, Any] = {"driver": "core", "backing_store": False, "libver": _LAYOUT}
    with h5py.File(uuid4().hex, "w", **options) as file:
        file.attrs["_NCProperties"] = f"version=2,{WITH_DIGEST},h5py={h5py.__version__}"
        for node in tree.subtree:
            group = file.require_group(node.path).id
            _write_group(group, node.to_dataset(inherit=False), dimension_ids)
        file.flush()
        return with_trailer(file.id.get_file_image())


def _write_group(group: h5g.GroupID, dataset: xr.Dataset, dimension_ids: Iterator[int]) -> None:
    coordinates = {name for name in dataset.coords if name not in dataset.dims}
    for name, value in dataset.attrs.items():
        _write_attribute(group, str(name), value)
    written = {}
    related: set[Any] = set()
    for key, variable in dataset.variables.items():
        name = str(key)
        target = written[name] = _write_variable(group, name, variable)
        own = set() if key in coordinates else {
            coordinate for coordinate in coordinates
            if set(dataset.variables[coordinate].dims) <= set(variable.dims)
        }  # fmt: skip
        _write_coordinates(target, own)
        related |= own
    _write_coordinates(group, coordinates - related)
    ids = {}
    for dim, size in dataset.sizes.items():
        name = str(dim)
        label = name
        if name not in written:
            # NetCDF defines a dimension of length 0 as one without a maximum length.
            space, layout = _space((size,)), _layout(())
            if not size:
                space, layout = _growing((0,)), _layout((1024,))
            written[name] = h5d.create(group, name.encode(), h5t.IEEE_F32LE, space, layout)
            label = f"{NO_VARIABLE} {size:10d}"
        ids[dim] = next(dimension_ids)
        h5ds.set_scale(written[name], label.encode())
        _write_attribute(written[name], "_Netcdf4Dimid", np.int32(ids[dim]))
    for key, variable in dataset.variables.items():
        if not variable.dims or variable.dims == (key,):
            continue
        target = written[str(key)]
        for axis, dim in enumerate(variable.dims):
            h5ds.attach_scale(target, written[str(dim)], axis)
        # Optional; saves readers (netCDF-C, `reader`) from following references.
        numbers = np.array([ids[dim] for dim in variable.dims], np.int32)
        _write_attribute(target, "_Netcdf4Coordinates", numbers)


def _write_coordinates(target: _Target, names: set[Any]) -> None:
    if names:
        _write_attribute(target, "coordinates", " ".join(sorted(map(str, names))))


def _write_variable(group: h5g.GroupID, name: str, variable: xr.Variable) -> h5d.DatasetID:
    if variable.dtype.kind not in "fiuOU":  # times and booleans
        variable = conventions.encode_cf_variable(variable, name=name)
    values = np.ascontiguousarray(variable.values).reshape(variable.shape)
    kind = _number(values.dtype) if values.dtype.kind not in "OU" else _TEXT_TYPE
    if kind is _TEXT_TYPE:
        texts = [clean_text(v) for v in values.ravel().tolist()]
        values = np.array(texts, _TEXT).reshape(values.shape)
    if values.ndim and not values.size:
        chunks = tuple(size or 1024 for size in values.shape)
        target = h5d.create(group, name.encode(), kind, _growing(values.shape), _layout(chunks))
    else:
        rows = 0
        if values.nbytes >= _COMPRESS_FROM_BYTES and values.ndim and kind is not _TEXT_TYPE:
            rows = max(1, min(len(values), _CHUNK_BYTES // (values.nbytes // len(values) or 1)))
        layout = _layout((rows, *values.shape[1:]) if rows else ())
        target = h5d.create(group, name.encode(), kind, _space(values.shape), layout)
        # In memory a text is a Python object, not of the type in the file.
        target.write(h5s.ALL, h5s.ALL, values, mtype=None if kind is _TEXT_TYPE else kind)
    for key, value in variable.attrs.items():
        _write_attribute(target, str(key), value)
    return target


def _write_attribute(target: _Target, name: str, value: Any) -> None:
    if isinstance(value, str) and 0 < len(value) <= _SHORT_TEXT_BYTES:
        key, kind, data = _short_text(name, value)
        if kind is not None:
            h5a.create(target, key, kind, _SCALAR).write(data, mtype=kind)
            return
    if isinstance(value, str):
        value = clean_text(value)
    elif isinstance(value, (bool, np.bool_)):
        value = np.int8(value)  # netCDF-C cannot read HDF5's booleans
    elif isinstance(value, (list, tuple)) and value and isinstance(value[0], str):
        value = np.array([clean_text(v) for v in value], object)
    data = np.asarray(value)
    if data.dtype.kind in "OU":
        data, kind = data.astype(object), _TEXT_TYPE
    else:
        kind = _number(data.dtype)
    attribute = h5a.create(target, name.encode(), kind, _space(data.shape))
    attribute.write(data, mtype=None if kind is _TEXT_TYPE else kind)


def _growing(shape: tuple[int, ...]) -> h5s.SpaceID:
    """Return a shape whose empty dimensions may grow."""
    return h5s.create_simple(shape, tuple(size or h5s.UNLIMITED for size in shape))


@lru_cache
def _space(shape: tuple[int, ...]) -> h5s.SpaceID:
    return h5s.create_simple(shape) if shape else _SCALAR


@lru_cache
def _number(dtype: np.dtype) -> h5t.TypeID:
    return h5t.py_create(dtype, logical=True)


@lru_cache
def _layout(chunks: tuple[int, ...]) -> h5p.PropDCID:
    """Return options of a dataset, compressed if it has chunks."""
    options = h5p.create(h5p.DATASET_CREATE)
    options.set_obj_track_times(False)  # the same run gives the same bytes
    if chunks:
        options.set_chunk(chunks)
        options.set_shuffle()
        options.set_deflate(_ZLIB_LEVEL)
    return options


@lru_cache(maxsize=2000)  # names, units and sources: the same in all runs
def _short_text(name: str, text: str) -> tuple[bytes, h5t.TypeID | None, np.ndarray]:
    """Return name, type and value of an attribute; no type if the text is too long.

    As netCDF-C does: characters in the header, 10 % less file than texts of variable length.
    """
    data = clean_text(text).encode()
    if len(data) > _SHORT_TEXT_BYTES:
        return name.encode(), None, np.array(data)
    kind = h5t.TypeID.copy(h5t.C_S1)
    kind.set_size(len(data))
    kind.set_cset(h5t.CSET_UTF8)
    return name.encode(), kind, np.array(data, dtype=f"S{len(data)}")
