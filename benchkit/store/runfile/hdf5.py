"""Arrange the bytes of an HDF5 file in memory.

Follows the HDF5 File Format Specification with superblock 1, object headers 1 and groups as symbol
tables, which each version of HDF5 reads; types are encoded by h5py. For a run of 190 datasets with
1100 attributes, HDF5 itself needs 28 ms of CPU and this module 4 ms. Knows bytes, not xarray.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from struct import pack

import numpy as np
from h5py import h5t

from benchkit.errors import UsageError

__all__ = [
    "OBJECT_REFERENCE",
    "SCALE_USER",
    "TEXT",
    "Hdf5Bytes",
    "attribute",
    "number",
    "short_text",
]

_UNDEFINED = b"\xff" * 8
#: Bytes of the superblock, where the first object begins.
_SUPERBLOCK_BYTES = 104
#: Names in a leaf of a group.
_LEAF_NAMES = 8
#: Bytes of a collection of texts, HDF5's minimum; a longer text has a collection of its own.
_COLLECTION_BYTES = 4096
#: Kinds of messages in an object header.
_SPACE, _TYPE, _FILL, _LAYOUT, _FILTERS, _ATTRIBUTE, _LINKS = 1, 3, 5, 8, 11, 12, 17
#: zlib 4 and shuffle: a file of 391 kB instead of 892 kB; level 9 saves 2 % and takes three times
#: as long.
_ZLIB_LEVEL = 4
#: Largest message in an object header, in B.
_MESSAGE_BYTES = 2**16 - 8


def _encoded(kind: h5t.TypeID, size: int | None = None) -> bytes:
    """Return the type as in a file; `size` in B there, if it differs from that in memory."""
    data: bytes = kind.encode()[2:]
    return data if size is None else data[:4] + pack("<I", size) + data[8:]


def _scale_user() -> bytes:
    kind = h5t.create(h5t.COMPOUND, 16)
    kind.insert(b"dataset", 0, h5t.STD_REF_OBJ)
    kind.insert(b"dimension", 8, h5t.STD_I32LE)
    return _encoded(kind)


#: Types: a text of any length, a list of references to objects, and an element of the list of
#: datasets that use a dimension.
TEXT = _encoded(h5t.py_create(np.dtype("O", metadata={"vlen": str}), logical=True), 16)
OBJECT_REFERENCE = _encoded(h5t.vlen_create(h5t.STD_REF_OBJ), 16)
SCALE_USER = _scale_user()


@lru_cache
def number(dtype: np.dtype) -> bytes:
    """Return the HDF5 type of numbers."""
    return _encoded(h5t.py_create(dtype, logical=True))


def _message(kind: int, data: bytes) -> bytes:
    padding = -len(data) % 8
    return pack("<HHB3x", kind, len(data) + padding, 0) + data + bytes(padding)


@lru_cache
def _space(shape: tuple[int, ...]) -> bytes:
    """Return a shape; empty dimensions may grow."""
    if not shape:
        return pack("<BBBB", 2, 0, 0, 0)
    sizes = pack(f"<BBBB{len(shape)}Q", 2, len(shape), 0 in shape, 1, *shape)
    limits = [pack("<Q", size) if size else _UNDEFINED for size in shape]
    return sizes + b"".join(limits) if 0 in shape else sizes


def attribute(name: str, kind: bytes, shape: tuple[int, ...], data: bytes) -> bytes:
    """Return an attribute, a part of an object header."""
    key, space = name.encode() + b"\0", _space(shape)
    sizes = (len(key), len(kind), len(space), not name.isascii())
    content = pack("<BBHHHB", 3, 0, *sizes) + key + kind + space + data
    if len(content) > _MESSAGE_BYTES:
        size = f"{len(content)} B, and an attribute has at most {_MESSAGE_BYTES}"
        raise UsageError(f"attribute {name!r}: {size}: make it a variable")
    return _message(_ATTRIBUTE, content)


@lru_cache(maxsize=4000)
def short_text(name: str, data: bytes, *, end: bool = False) -> bytes:
    """Return an attribute with a text in the object header: 10 % less file than `TEXT`."""
    kind = h5t.TypeID.copy(h5t.C_S1)
    kind.set_size(len(data) + end)
    if not end:
        kind.set_cset(h5t.CSET_UTF8)
    return attribute(name, _encoded(kind), (), data + bytes(end))


class Hdf5Bytes:
    """A file that grows."""

    def __init__(self, most_chunks: int, most_links: int) -> None:
        self._data = bytearray(_SUPERBLOCK_BYTES)
        self._chunk_k = -(-most_chunks // 2) or 1
        self._group_k = -(-most_links // (2 * _LEAF_NAMES)) or 1
        # The open collection of texts: its address, the first free byte, the next number.
        self._collection, self._free, self._end, self._number = 0, 0, 0, 1

    def append(self, data: bytes) -> int:
        """Write bytes and return their address."""
        self._data += bytes(-len(self._data) % 8)
        address = len(self._data)
        self._data += data
        return address

    def patch(self, address: int, data: bytes) -> None:
        """Replace bytes."""
        self._data[address : address + len(data)] = data

    def element(self, data: bytes, *, length: int | None = None) -> tuple[bytes, int]:
        """Write the content of an element of variable length."""
        if not data:
            return bytes(16), 0
        size = 16 + len(data) + -len(data) % 8
        if self._free + size > self._end or self._number > 0xFFFF:
            self._open_collection(size)
        content = self._free + 16
        self.patch(self._free, pack("<HHIQ", self._number, 0, 0, len(data)) + data)
        n_parts = len(data) if length is None else length
        element = pack("<IQI", n_parts, self._collection, self._number)
        self._free += size
        self._number += 1
        return element, content

    def _open_collection(self, size: int) -> None:
        self._close_collection()
        size = max(16 + size, _COLLECTION_BYTES)
        self._collection = self.append(b"GCOL" + pack("<B3xQ", 1, size) + bytes(size - 16))
        self._free, self._end, self._number = self._collection + 16, self._collection + size, 1

    def _close_collection(self) -> None:
        """Describe the rest of the open collection as free."""
        if self._end - self._free >= 16:
            self.patch(self._free, pack("<HHIQ", 0, 0, 0, self._end - self._free))

    def _header(self, messages: Sequence[bytes]) -> int:
        size = sum(map(len, messages))
        start = pack("<BxHIII", 1, len(messages), 1, size, 0)
        return self.append(b"".join((start, *messages)))

    def dataset(
        self,
        shape: tuple[int, ...],
        kind: bytes,
        data: bytes | None,
        attributes: Sequence[bytes],
    ) -> int:
        """Write a dataset whose elements are together."""
        size = int.from_bytes(kind[4:8], "little")
        if 0 in shape:  # a dimension that may grow needs chunks
            chunks = pack(f"<{len(shape)}I", *(length or 1024 for length in shape))
            layout = pack("<BBB", 3, 2, len(shape) + 1) + _UNDEFINED + chunks + pack("<I", size)
        else:
            n_bytes = size * int(np.prod(shape))
            address = _UNDEFINED if data is None else pack("<Q", self.append(data))
            layout = pack("<BB", 3, 1) + address + pack("<Q", n_bytes)
        return self._dataset(shape, kind, 3 if 0 in shape else 2, layout, attributes)

    def compressed(
        self, values: np.ndarray, kind: bytes, rows: int, attributes: Sequence[bytes]
    ) -> int:
        """Write a dataset whose elements are compressed."""
        size, rank = values.dtype.itemsize, values.ndim
        starts = range(0, len(values), rows)
        node = bytearray(b"TREE" + pack("<BBH", 1, 0, len(starts)) + 2 * _UNDEFINED)
        for start in starts:
            chunk = values[start : start + rows]
            if len(chunk) < rows:  # each chunk is whole
                padding = np.zeros((rows - len(chunk), *chunk.shape[1:]), chunk.dtype)
                chunk = np.concatenate([chunk, padding])
            shuffled = chunk.reshape(-1).view(np.uint8).reshape(-1, size).T.tobytes()
            data = zlib.compress(shuffled, _ZLIB_LEVEL)
            address = self.append(data)
            node += pack(f"<II{rank + 1}QQ", len(data), 0, start, *[0] * rank, address)
        node += pack(f"<II{rank + 1}Q", 0, 0, len(starts) * rows, *[0] * rank)
        node_bytes = 24 + (2 * self._chunk_k + 1) * (8 + 8 * (rank + 1)) + 2 * self._chunk_k * 8
        tree = self.append(bytes(node) + bytes(node_bytes - len(node)))
        sizes = (rows, *values.shape[1:], size)
        layout = pack(f"<BBBQ{rank + 1}I", 3, 2, rank + 1, tree, *sizes)
        filters = pack("<BBHHHIHHHI", 2, 2, 2, 1, 1, size, 1, 1, 1, _ZLIB_LEVEL)
        more = (_message(_FILTERS, filters), *attributes)
        return self._dataset(values.shape, kind, 3, layout, more)

    def _dataset(
        self,
        shape: tuple[int, ...],
        kind: bytes,
        allocation: int,
        layout: bytes,
        messages: Sequence[bytes],
    ) -> int:
        space, fill = _message(_SPACE, _space(shape)), pack("<BBBBI", 2, allocation, 2, 1, 0)
        more = (_message(_TYPE, kind), _message(_FILL, fill), _message(_LAYOUT, layout))
        return self._header([space, *more, *messages])

    def group(self, links: Mapping[str, int], attributes: Sequence[bytes]) -> int:
        """Write a group."""
        names, places = bytearray(8), {}
        ordered = sorted((name.encode(), address) for name, address in links.items())
        for name, _ in ordered:
            places[name] = len(names)
            names += name + bytes(8 - len(name) % 8)
        segment = self.append(bytes(names))
        heap = self.append(b"HEAP" + pack("<B3xQQQ", 0, len(names), 1, segment))
        leaves = [ordered[i : i + _LEAF_NAMES] for i in range(0, len(ordered), _LEAF_NAMES)]
        node = bytearray(b"TREE" + pack("<BBH", 0, 0, len(leaves)) + 2 * _UNDEFINED + bytes(8))
        for leaf in leaves:
            entries = (pack("<QQ24x", places[name], address) for name, address in leaf)
            start = b"SNOD" + pack("<BBH", 1, 0, len(leaf))
            data = start + b"".join(entries) + bytes(40 * (_LEAF_NAMES - len(leaf)))
            node += pack("<QQ", self.append(data), places[leaf[-1][0]])
        node_bytes = 24 + (2 * self._group_k + 1) * 8 + 2 * self._group_k * 8
        tree = self.append(bytes(node) + bytes(node_bytes - len(node)))
        return self._header([_message(_LINKS, pack("<QQ", tree, heap)), *attributes])

    def finish(self, root: int) -> bytes:
        """Return the whole file."""
        self._close_collection()
        self.append(b"")
        start = b"\x89HDF\r\n\x1a\n" + bytes([1, 0, 0, 0, 0, 8, 8, 0])
        sizes = pack("<HHIHH", _LEAF_NAMES // 2, self._group_k, 0, self._chunk_k, 0)
        addresses = pack("<Q", 0) + _UNDEFINED + pack("<Q", len(self._data)) + _UNDEFINED
        self.patch(0, start + sizes + addresses + pack("<QQ24x", 0, root))
        return bytes(self._data)
