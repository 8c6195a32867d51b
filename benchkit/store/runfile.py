"""The run file: one NetCDF4 file per run, readable by all programs that read NetCDF.

`encode_run` makes the bytes of a file and `open_run` reads one; both use h5py. Every file ends with
the SHA-256 digest of the bytes before it, which readers of HDF5 ignore, and is compared with it
before HDF5 sees the file: HDF5 checks no values, and a zeroed sector can make its C code loop for
ever. A file without a digest, of another program, is read by `benchkit store import` only.

Why h5py and not an engine of xarray: to write a run of 186 variables with 1,100 attributes takes
30 to 45 ms of CPU by the low-level interface of h5py, 160 ms by ``to_netcdf`` with netCDF-C and
600 ms with h5netcdf. To read it takes 70 ms; netCDF-C takes 100 ms but is not thread-safe (16
threads that open, read and delete trees end in a segmentation fault), h5netcdf takes 700 ms.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias, cast

import h5py
import numpy as np
import pandas as pd
import xarray as xr
from h5py import h5a, h5d, h5ds, h5f, h5fd, h5g, h5i, h5o, h5p, h5s, h5t
from xarray import conventions
from xarray.backends import BackendArray
from xarray.core import indexing

from benchkit.errors import BenchkitError, UnreadableRun, UsageError
from benchkit.measure.run_ids import is_id
from benchkit.store.schema import dims_of, first_problem, variable_problem
from benchkit.store.storage import TRAILER, verify
from benchkit.values import clean_text

#: Program and version of the format in the provenance attribute that netCDF-C defines.
_WRITER = "benchkit=2"
#: Variables up to this size in B are read when the file is opened; a run has about 100. Larger ones
#: are read on use, and open the file each time: files of a store never change, and nothing has to
#: be closed.
_SMALL_BYTES = 2**18
#: Bytes of memory that a variable may need, and times its size in the file above that: a file of
#: 2 MB can hold gigabytes of zeros.
MAX_BYTES = 2**26
_MAX_RATIO = 200

_TEXT = h5py.string_dtype()
_TEXT_TYPE = h5t.py_create(_TEXT, logical=True)
_SCALAR = h5s.create(h5s.SCALAR)
#: zlib 4 and shuffle: a file of 391 kB instead of 892 kB; level 9 saves 2 % and takes three times
#: as long.
_ZLIB_LEVEL = 4
#: Smaller variables are not compressed: the overhead of a chunk is larger than the savings.
_MIN_COMPRESSED_BYTES = 2048
#: Maximum size of a compressed chunk in B.
_CHUNK_BYTES = 4 * 2**20
#: Attributes up to this length in B are in the header, which holds 64 kB in total.
_SHORT_TEXT_BYTES = 1024
#: Maximum size in B of an attribute that is no text.
_MAX_ATTRIBUTE_BYTES = 65_528
#: Text with which netCDF-C marks a dimension without coordinate variable.
_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable."
_DIMENSION_ID, _DIMENSION_IDS = "_Netcdf4Dimid", "_Netcdf4Coordinates"
_SCALE = _DIMENSION_ID.encode()
#: Attributes of the HDF5 representation of NetCDF4 that are not read.
_SKIPPED = {"DIMENSION_LIST", "REFERENCE_LIST"}
#: Attributes of the HDF5 representation of NetCDF4 that are read, but not returned.
_NUMBERS = {_DIMENSION_ID, _DIMENSION_IDS}
_HIDDEN = {"CLASS", "NAME", "_NCProperties", *_NUMBERS}
_Target: TypeAlias = h5g.GroupID | h5d.DatasetID


def encode_run(tree: xr.DataTree) -> tuple[str, dict[str, Any], bytes]:
    """Return the id, the record and the file content of a run."""
    run_id = tree.attrs.get("id")
    if not is_id(run_id):
        raise UsageError(f"run with attribute id {run_id!r}: the id must be a UUID of version 7")
    try:
        record = json.loads(tree.attrs["record"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"run {run_id}: attribute record is not JSON") from error
    if not isinstance(record, dict) or record.get("id") != run_id:
        raise UsageError(f"run {run_id}: its record belongs to another run")
    problem = first_problem(tree, record)
    if problem:
        raise UsageError(f"run {run_id}: {problem}")
    return str(run_id), record, encode_tree(tree)


def open_run(path: Path, groups: Collection[str] | None = None) -> xr.DataTree:
    """Open a run file; thread-safe, large variables are read on first use."""
    try:
        tree = read_tree(path, groups)
    except (FileNotFoundError, BenchkitError):
        raise
    except Exception as error:
        raise UnreadableRun(f"{path}: damaged run file: {_first_line(error)}") from error
    if "record" not in tree.attrs:
        raise UnreadableRun(f"{path}: a NetCDF file, but not a run of benchkit")
    problem = first_problem(tree, {})
    if problem:
        raise UnreadableRun(f"{path}: not as a run of this format: {problem}")
    return tree


def read_values(path: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Return the outcome of a run and variables by group and name, in a tenth of the usual time.

    Kinds, units and sizes are compared with the tables; the names of dimensions are not read.
    """
    values: dict[str, np.ndarray] = {}
    sizes: dict[tuple[str, Any], int] = {}
    try:
        with _open_verified(path) as file:
            values["outcome"] = np.array(_read_attr(h5a.open(file.id, b"outcome")))
            for name in names:
                if name.encode() not in file.id:
                    continue
                item = h5o.open(file.id, name.encode())
                found = values[name] = _array(item, name)
                units = h5a.exists(item, b"units") and _read_attr(h5a.open(item, b"units"))
                dims = dims_of(name, found.ndim)
                problem = variable_problem(name, found, dims, units or None)
                group = name.rpartition("/")[0]
                for dim, size in zip(dims, found.shape, strict=True):
                    if sizes.setdefault((group, dim), size) != size:
                        problem = problem or f"{name} has not the length of others along {dim}"
                if problem:
                    raise UnreadableRun(f"{path}: not as a run of this format: {problem}")
    except (FileNotFoundError, BenchkitError):
        raise
    except Exception as error:
        raise UnreadableRun(f"{path}: damaged run file: {_first_line(error)}") from error
    return values


def stored_record(path: Path) -> dict[str, Any]:
    """Return the record of a run file for the index, with the digest of the file."""
    record = read_record(path)
    try:
        return {**record, "digest": verify(path)}
    except FileNotFoundError as error:  # moved meanwhile
        raise UnreadableRun(f"{path}: missing") from error


def accepted_record(path: Path) -> dict[str, Any]:
    """Return `stored_record` of a file that a store may take: all variables as the tables say."""
    record = stored_record(path)
    problem = first_problem(open_run(path), record)
    if problem:
        raise UnreadableRun(f"{path}: not as a run of this format: {problem}")
    return record


def read_record(path: Path) -> dict[str, Any]:
    """Return the record of a run file."""
    try:
        record = json.loads(read_attribute(path, "record") or "")
    except ValueError as error:
        raise UnreadableRun(f"{path}: damaged run file: {_first_line(error)}") from error
    if not isinstance(record, dict):
        raise UnreadableRun(f"{path}: damaged run file: its record is not a JSON object")
    return record


def read_attribute(path: Path, name: str) -> str | None:
    """Return a root attribute of a run file as text; None if it is missing."""
    try:
        with _open_verified(path) as file:
            value = file.attrs.get(name)
    except (OSError, RuntimeError) as error:
        raise UnreadableRun(f"{path}: damaged run file: {_first_line(error)}") from error
    return value.decode() if isinstance(value, bytes) else value


def check_size(name: str, n_bytes: int, n_stored: int) -> None:
    """Raise an error for a variable that needs far more memory than it has in the file."""
    if n_bytes > max(MAX_BYTES, _MAX_RATIO * n_stored):
        raise ValueError(f"{name} has {n_stored} B in the file, but needs {n_bytes} B of memory")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _open_verified(path: Path) -> h5py.File:
    verify(path)
    return h5py.File(path, "r")


# -- write ----------------------------------------------------------------------------------------


def encode_tree(tree: xr.DataTree) -> bytes:
    """Return the NetCDF4 file of a tree, with its digest at the end.

    A NUL or half a surrogate pair inside a text, which HDF5 cannot hold, is written as its escape
    sequence. In memory, because an HDF5 file on a full disk cannot be closed cleanly.
    """
    dimension_ids = itertools.count()  # unique in the whole file, or netCDF-C mixes them up
    # Not the image of HDF5's own driver for memory: before HDF5 2.0 its checksum is wrong.
    buffer = BytesIO()
    access = h5p.create(h5p.FILE_ACCESS)
    # 1.10 of 2016: reads everywhere, and a compressed variable needs no chunk index (20 % less).
    access.set_libver_bounds(h5f.LIBVER_V110, h5f.LIBVER_V110)
    access.set_fclose_degree(h5f.CLOSE_STRONG)
    access.set_fileobj_driver(h5fd.fileobj_driver, buffer)
    name = f"run-{id(buffer)}".encode()  # HDF5 opens no two files of one name at once
    # Not by `h5py.File`, which takes 0.4 ms longer.
    file = h5f.create(name, h5f.ACC_TRUNC, _creation(not tree.children), access)
    try:
        root = h5g.open(file, b"/")
        _write_attribute(root, "_NCProperties", f"version=2,{_WRITER},h5py={h5py.__version__}")
        for node in tree.subtree:
            group = (
                root if node is tree else h5g.create(root, node.path[1:].encode(), gcpl=_group())
            )
            _write_group(group, node.to_dataset(inherit=False), dimension_ids)
    finally:
        file.close()
    buffer.seek(0, os.SEEK_END)
    buffer.write(TRAILER % sha256(buffer.getbuffer()).hexdigest().encode())
    return buffer.getvalue()


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
        name, label = str(dim), str(dim)
        if name not in written:
            # NetCDF defines a dimension of length 0 as one without a maximum length.
            space, layout = _space((size,)), _layout(())
            if not size:
                space, layout = _growing((0,)), _layout((1024,))
            written[name] = h5d.create(group, name.encode(), h5t.IEEE_F32LE, space, layout)
            label = f"{_NO_VARIABLE} {size:10d}"
        ids[dim] = next(dimension_ids)
        h5ds.set_scale(written[name], label.encode())
        _write_attribute(written[name], _DIMENSION_ID, np.int32(ids[dim]))
    for key, variable in dataset.variables.items():
        if not variable.dims or variable.dims == (key,):
            continue
        target = written[str(key)]
        for axis, dim in enumerate(variable.dims):
            h5ds.attach_scale(target, written[str(dim)], axis)
        # Optional; saves readers (netCDF-C, `open_run`) from following references.
        numbers = np.array([ids[dim] for dim in variable.dims], np.int32)
        _write_attribute(target, _DIMENSION_IDS, numbers)


def _write_coordinates(target: _Target, names: set[Any]) -> None:
    if names:
        _write_attribute(target, "coordinates", " ".join(sorted(map(str, names))))


def _write_variable(group: h5g.GroupID, name: str, variable: xr.Variable) -> h5d.DatasetID:
    if variable.dtype.kind not in "fiuOU":  # times and booleans
        variable = conventions.encode_cf_variable(variable, name=name)
    values = np.ascontiguousarray(variable.values).reshape(variable.shape)
    kind = _number(values.dtype) if values.dtype.kind not in "OU" else _TEXT_TYPE
    if kind is _TEXT_TYPE:
        texts = [clean_text(text) for text in values.ravel().tolist()]
        values = np.array(texts, _TEXT).reshape(values.shape)
    if values.ndim and not values.size:
        chunks = tuple(size or 1024 for size in values.shape)
        target = h5d.create(group, name.encode(), kind, _growing(values.shape), _layout(chunks))
    else:
        rows = 0
        if values.nbytes >= _MIN_COMPRESSED_BYTES and values.ndim and kind is not _TEXT_TYPE:
            rows = max(1, min(len(values), _CHUNK_BYTES // (values.nbytes // len(values) or 1)))
        layout = _layout((rows, *values.shape[1:]) if rows else ())
        target = h5d.create(group, name.encode(), kind, _space(values.shape), layout)
        # In memory a text is a Python object, not of the type in the file.
        target.write(h5s.ALL, h5s.ALL, values, mtype=None if kind is _TEXT_TYPE else kind)
    for key, value in variable.attrs.items():
        _write_attribute(target, str(key), value)
    return target


def _write_attribute(target: _Target, name: str, value: Any) -> None:
    if isinstance(value, str):
        value = clean_text(value)
        data = value.encode()
        if 0 < len(data) <= _SHORT_TEXT_BYTES:
            kind = _short_text(len(data))
            attribute = h5a.create(target, name.encode(), kind, _SCALAR)
            attribute.write(np.array(data, f"S{len(data)}"), mtype=kind)
            return
    elif isinstance(value, (bool, np.bool_)):
        value = np.int8(value)  # netCDF-C cannot read HDF5's booleans
    elif isinstance(value, (list, tuple)) and value and isinstance(value[0], str):
        value = np.array([clean_text(text) for text in value], object)
    array = np.asarray(value)
    if array.dtype.kind in "OU":
        array, kind = array.astype(object), _TEXT_TYPE
    else:
        kind = _number(array.dtype)
        if array.nbytes > _MAX_ATTRIBUTE_BYTES:
            text = f"attribute {name!r}: {array.nbytes} B, but HDF5 holds at most"
            raise UsageError(f"{text} {_MAX_ATTRIBUTE_BYTES}: make it a variable")
    attribute = h5a.create(target, name.encode(), kind, _space(array.shape))
    attribute.write(array, mtype=None if kind is _TEXT_TYPE else kind)


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
def _creation(is_small: bool) -> h5p.PropFCID:
    """Return options of a file; all attributes of a small one are in its header."""
    options = h5p.create(h5p.FILE_CREATE)
    options.set_obj_track_times(False)  # the same run gives the same bytes
    if is_small:  # a result that was imported: 1.9 instead of 4.3 kB
        options.set_attr_phase_change(64, 0)
    return options


@lru_cache
def _group() -> h5p.PropGCID:
    options = h5p.create(h5p.GROUP_CREATE)
    options.set_obj_track_times(False)
    return options


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


@lru_cache(maxsize=_SHORT_TEXT_BYTES)
def _short_text(length: int) -> h5t.TypeID:
    """Return the type of characters in the header: 10 % less file than texts of variable length."""
    kind = h5t.TypeID.copy(h5t.C_S1)
    kind.set_size(length)
    kind.set_cset(h5t.CSET_UTF8)
    return kind


# -- read -----------------------------------------------------------------------------------------


def read_tree(path: Path, groups: Collection[str] | None = None) -> xr.DataTree:
    """Return the tree in a file, the inverse of `encode_tree`; of its groups only `groups`."""
    datasets: dict[str, xr.Dataset] = {}
    with _open_verified(path) as file:
        _read_group(file.id, "/", path, datasets, groups)
    return xr.DataTree.from_dict(datasets)


def _read_group(
    group: h5g.GroupID,
    name: str,
    path: Path,
    datasets: dict[str, xr.Dataset],
    wanted: Collection[str] | None = None,
) -> None:
    """Read a group and its groups into `datasets`; names in `wanted` are relative to the group."""
    attrs = _read_attrs(group)
    datasets[name] = xr.Dataset()  # parents come before their children
    items: dict[str, tuple[h5d.DatasetID, dict[str, Any]]] = {}
    dims = {}
    is_root = name == "/"
    for key_bytes in group:
        key, item = key_bytes.decode(), h5o.open(group, key_bytes)
        if isinstance(item, h5g.GroupID):
            inside = _inside(key, wanted)
            if inside is None or inside:
                _read_group(item, f"{name.rstrip('/')}/{key}", path, datasets, inside)
            continue
        if not (wanted is None or is_root or key in wanted or h5a.exists(item, _SCALE)):
            continue
        item_attrs = _read_attrs(item)
        if _DIMENSION_ID in item_attrs:
            dims[int(item_attrs[_DIMENSION_ID])] = key
        if not item_attrs.get("NAME", "").startswith(_NO_VARIABLE):
            items[key] = (item, item_attrs)
    coordinates = set(attrs.pop("coordinates", "").split())
    variables = {}
    for key, (item, item_attrs) in items.items():
        coordinates.update(item_attrs.pop("coordinates", "").split())
        ids = item_attrs.get(_DIMENSION_IDS, ())
        item_dims = tuple(dims[int(number)] for number in ids) or (key,) * item.rank
        variables[key] = _variable(item, key, item_dims, _visible(item_attrs), path)
    dataset = xr.Dataset(variables, attrs=_visible(attrs))
    datasets[name] = dataset.set_coords([key for key in coordinates if key in variables])


def _inside(group: str, wanted: Collection[str] | None) -> set[str] | None:
    """Return what is read of a group, of `wanted` in the group around it; None if all is."""
    if wanted is None or group in wanted:
        return None
    parts = (name.partition("/") for name in wanted)
    return {name for parent, _, name in parts if parent == group}


def _visible(attrs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attrs.items() if name not in _HIDDEN}


def _variable(
    item: h5d.DatasetID, name: str, dims: tuple[str, ...], attrs: dict[str, Any], path: Path
) -> xr.Variable:
    data: Any
    dtype, shape = item.dtype, item.shape
    if dtype.kind == "O" or math.prod(shape) * dtype.itemsize <= _SMALL_BYTES:
        data = _array(item, name)
    else:
        check_size(name, math.prod(shape) * dtype.itemsize, item.get_storage_size())
        stored = _StoredVariable(path, h5i.get_name(item).decode(), shape, dtype)
        data = indexing.LazilyIndexedArray(stored)
    is_encoded = "dtype" in attrs or " since " in str(attrs.get("units", ""))  # booleans and times
    # Without `fastpath` each variable, and without an index each coordinate of a dimension, is
    # tested for an array of Dask, whose import takes 0.1 s, or 0.3 s with arrays.
    if dims == (name,) and isinstance(data, np.ndarray) and not is_encoded:
        index = pd.Index(data, dtype=object if dtype.kind == "O" else None)
        coordinate: Any = xr.IndexVariable  # without types in xarray
        return cast("xr.Variable", coordinate(dims, index, attrs, fastpath=True))
    variable = xr.Variable(dims, data, attrs, fastpath=True)
    return conventions.decode_cf_variable(name, variable) if is_encoded else variable


def _array(item: h5d.DatasetID, name: str) -> np.ndarray:
    """Return the values of a variable."""
    dtype, shape = item.dtype, item.shape
    check_size(name, math.prod(shape) * dtype.itemsize, item.get_storage_size())
    data = np.empty(shape, dtype)
    if data.size:
        item.read(h5s.ALL, h5s.ALL, data)
    if data.dtype.kind == "O":
        texts = [text.decode() for text in data.ravel().tolist()]
        data = np.array(texts, object).reshape(shape)
    return data


def _read_attrs(owner: h5g.GroupID | h5d.DatasetID) -> dict[str, Any]:
    """Return all attributes, by the low-level API of h5py: 10 us per attribute instead of 30."""
    attrs: dict[str, Any] = {}
    for index in range(h5a.get_num_attrs(owner)):
        attribute = h5a.open(owner, index=index)
        name = attribute.name.decode()
        if name in _SKIPPED:
            continue
        attrs[name] = _read_attr(attribute, is_number=name in _NUMBERS)
    return attrs


def _read_attr(attribute: h5a.AttrID, *, is_number: bool = False) -> Any:
    """Return the value of an attribute."""
    kind = attribute.get_type()
    is_text = isinstance(kind, h5t.TypeStringID)
    # Most are one text of fixed length. To ask for the shape takes as long as to read it.
    if is_text and not kind.is_variable_str() and attribute.get_storage_size() == kind.get_size():
        data = np.empty((), f"S{kind.get_size()}")
        attribute.read(data, mtype=kind)
        return data.item().decode()
    shape = attribute.shape
    data = np.empty(shape, np.int32 if is_number else attribute.dtype)
    attribute.read(data, mtype=h5t.NATIVE_INT32 if is_number else None)
    if is_text:
        texts = [b.decode() if isinstance(b, bytes) else b for b in data.ravel().tolist()]
        return texts if shape else texts[0]
    return data[()] if shape else data[()].item()


class _StoredVariable(BackendArray):
    """A variable that is read on use."""

    def __init__(self, path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.path, self.name, self.shape, self.dtype = path, name, shape, dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER_1VECTOR, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        with _open_verified(self.path) as file:
            return np.asarray(file[self.name][key])
