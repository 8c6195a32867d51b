"""Encode a DataTree as the bytes of a NetCDF4 file.

A NetCDF4 file is an HDF5 file with dimension scales; `hdf5` writes its bytes, in memory, because an
HDF5 file on a full disk cannot be closed cleanly.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from struct import pack
from typing import Any

import h5py
import numpy as np
import xarray as xr
from xarray import conventions

from benchkit.store.runfile.digest import with_trailer
from benchkit.store.runfile.hdf5 import (
    OBJECT_REFERENCE,
    SCALE_USER,
    TEXT,
    Hdf5Bytes,
    attribute,
    number,
    short_text,
)
from benchkit.values import clean_text

__all__ = ["NO_VARIABLE", "WITH_DIGEST", "WRITER", "encode_tree"]

#: Program name in the provenance attribute of each file; `reader` reads only such files.
WRITER = "benchkit"
#: Part of that attribute in files that end with their digest; before, it was ``benchkit=1``.
WITH_DIGEST = f"{WRITER}=2"

#: Variables from this size in B are compressed; below it the overhead of a chunk is larger than
#: the savings.
_COMPRESS_FROM_BYTES = 2048
#: Maximum size of a compressed chunk in B.
_CHUNK_BYTES = 4 * 2**20
#: Texts up to this length in B are in the header of their object.
_SHORT_TEXT_BYTES = 1024
#: Type of the values of a dimension without variable, which are never read.
_FLOAT = number(np.dtype("<f4"))
#: Text with which netCDF-C marks a dimension without coordinate variable.
NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable."


def encode_tree(tree: xr.DataTree) -> bytes:
    """Return the NetCDF4 file of a tree."""
    nodes = [(node, node.to_dataset(inherit=False)) for node in tree.subtree]
    largest = max((v.nbytes for _, dataset in nodes for v in dataset.variables.values()), default=0)
    links = (len({*data.variables, *data.sizes, *node.children}) for node, data in nodes)
    # A chunk holds a whole number of rows: up to twice as many chunks as by bytes.
    file = Hdf5Bytes(2 * largest // _CHUNK_BYTES + 2, max(links))
    dimension_ids = itertools.count()  # unique in the whole file, or netCDF-C mixes them up
    addresses: dict[str, int] = {}
    # Children come before their parents, which hold their addresses.
    for node, dataset in reversed(nodes):
        children = {name: addresses[child.path] for name, child in node.children.items()}
        properties = {}
        if node.parent is None:
            properties["_NCProperties"] = f"version=2,{WITH_DIGEST},h5py={h5py.__version__}"
        addresses[node.path] = _write_group(file, dataset, children, properties, dimension_ids)
    return with_trailer(file.finish(addresses[tree.path]))


def _write_group(
    file: Hdf5Bytes,
    dataset: xr.Dataset,
    children: dict[str, int],
    properties: dict[str, str],
    dimension_ids: Iterator[int],
) -> int:
    """Write a group whose children are written; return its address."""
    coordinates = {str(name) for name in dataset.coords if name not in dataset.dims}
    ids = {str(dim): next(dimension_ids) for dim in dataset.sizes}
    # The addresses of dimensions, which are written after the variables that refer to them.
    references = {dim: file.element(bytes(8), length=1) for dim in ids}
    users: dict[str, list[bytes]] = {dim: [] for dim in ids}
    links, related = dict(children), set[str]()
    variables = {str(name): variable for name, variable in dataset.variables.items()}
    for name, variable in sorted(variables.items(), key=lambda item: item[0] in ids):
        dims = tuple(map(str, variable.dims))
        own = set() if name in coordinates else {
            coordinate for coordinate in coordinates
            if set(variables[coordinate].dims) <= set(dims)
        }  # fmt: skip
        related |= own
        more = _coordinates(file, own)
        if dims and dims != (name,):
            # Optional; saves readers (netCDF-C, `reader`) from following references.
            numbers = np.array([ids[dim] for dim in dims], np.int32)
            more.append(_attribute(file, "_Netcdf4Coordinates", numbers))
        if name in ids:
            more += _scale(name, ids[name], users[name])
        elif dims:
            elements = b"".join(references[dim][0] for dim in dims)
            more.append(attribute("DIMENSION_LIST", OBJECT_REFERENCE, (len(dims),), elements))
        links[name] = _write_variable(file, name, variable, more)
        if name not in ids:
            for axis, dim in enumerate(dims):
                users[dim].append(pack("<QII", links[name], axis, 0))
    for key, size in dataset.sizes.items():
        name = str(key)
        if name not in variables:
            more = _scale(f"{NO_VARIABLE} {size:10d}", ids[name], users[name])
            links[name] = file.dataset((size,), _FLOAT, None, more)
        file.patch(references[name][1], pack("<Q", links[name]))
    attributes = [_attribute(file, str(name), value) for name, value in dataset.attrs.items()]
    attributes += [_attribute(file, name, value) for name, value in properties.items()]
    return file.group(links, [*attributes, *_coordinates(file, coordinates - related)])


def _scale(label: str, dimension_id: int, users: list[bytes]) -> list[bytes]:
    """Return the attributes of a dimension that some datasets use."""
    attributes = [
        short_text("CLASS", b"DIMENSION_SCALE", end=True),
        short_text("NAME", label.encode(), end=True),
        attribute("_Netcdf4Dimid", number(np.dtype(np.int32)), (), pack("<i", dimension_id)),
    ]
    if users:
        shape = (len(users),)
        attributes.append(attribute("REFERENCE_LIST", SCALE_USER, shape, b"".join(users)))
    return attributes


def _coordinates(file: Hdf5Bytes, names: set[str]) -> list[bytes]:
    return [_attribute(file, "coordinates", " ".join(sorted(names)))] if names else []


def _write_variable(
    file: Hdf5Bytes, name: str, variable: xr.Variable, attributes: list[bytes]
) -> int:
    if variable.dtype.kind not in "fiuOU":  # times and booleans
        variable = conventions.encode_cf_variable(variable, name=name)
    attributes += [_attribute(file, str(key), value) for key, value in variable.attrs.items()]
    values = np.ascontiguousarray(variable.values).reshape(variable.shape)
    if values.dtype.kind in "OU":
        texts = [clean_text(text).encode() for text in values.ravel().tolist()]
        data = b"".join([file.element(text)[0] for text in texts])
        return file.dataset(values.shape, TEXT, data, attributes)
    kind = number(values.dtype)
    if values.nbytes < _COMPRESS_FROM_BYTES or not values.ndim:
        return file.dataset(values.shape, kind, values.tobytes(), attributes)
    rows = max(1, min(len(values), _CHUNK_BYTES // (values.nbytes // len(values))))
    return file.compressed(values, kind, rows, attributes)


def _attribute(file: Hdf5Bytes, name: str, value: Any) -> bytes:
    if isinstance(value, str):
        text = clean_text(value).encode()
        if 0 < len(text) <= _SHORT_TEXT_BYTES:
            return short_text(name, text)
        return attribute(name, TEXT, (), file.element(text)[0])
    if isinstance(value, (bool, np.bool_)):
        value = np.int8(value)  # netCDF-C cannot read HDF5's booleans
    data = np.asarray(value)
    if data.dtype.kind in "OU":
        texts = [clean_text(text).encode() for text in data.ravel().tolist()]
        elements = b"".join([file.element(text)[0] for text in texts])
        return attribute(name, TEXT, data.shape, elements)
    return attribute(name, number(data.dtype), data.shape, data.tobytes())
