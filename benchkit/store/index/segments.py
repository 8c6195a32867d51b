"""Read segments: the Parquet files of the index, by columns, row groups and their statistics.

A segment lists each run once, by construction. Two segments can list the same run only if their
ranges of ids overlap, so only those are compared.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchkit.store.index.arrow import ENCODED

__all__ = [
    "Bounds",
    "DamagedSegment",
    "Segment",
    "listed_ids",
    "overlapping",
    "repeated_rows",
]

#: For each column, whether rows with values from `low` to `high` can be among the wanted ones.
Bounds = Mapping[str, Callable[[Any, Any], bool]]
#: Characters of an id.
_ID_LENGTH = 36
#: Offsets of the five words of 8 characters that cover an id, each with an odd factor.
_HASH_WORDS = (
    (0, 0x9E3779B97F4A7C15),
    (8, 0xC2B2AE3D27D4EB4F),
    (16, 0x165667B19E3779F9),
    (24, 0xD6E8FEB86659FD93),
    (28, 0xA0761D6478BD642F),
)


class DamagedSegment(Exception):
    """A segment cannot be read."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(segment.name)
        self.segment = segment


class Segment:
    """A Parquet file of the index; its metadata are read once, because files never change."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        with pq.ParquetFile(path, memory_map=True) as file:
            self.metadata = file.metadata
            self.columns: list[str] = file.schema_arrow.names
        if "id" not in self.columns:
            raise pa.ArrowInvalid("no column id")
        self.n_rows: int = self.metadata.num_rows
        self.n_groups: int = self.metadata.num_row_groups
        schema = self.metadata.schema
        self._leaves = {schema.column(i).path: i for i in range(self.metadata.num_columns)}
        self._ranges: dict[str, list[tuple[Any, Any] | None]] = {}

    def ranges(self, column: str) -> list[tuple[Any, Any] | None]:
        """Return the lowest and the highest value of a column in each row group."""
        if column not in self._ranges:
            leaf = self._leaves.get(column)
            groups = map(self.metadata.row_group, range(self.n_groups))
            found = [None if leaf is None else g.column(leaf).statistics for g in groups]
            self._ranges[column] = [(s.min, s.max) if s and s.has_min_max else None for s in found]
        return self._ranges[column]

    def groups(self, bounds: Bounds) -> list[int]:
        """Return the row groups that can contain wanted rows."""
        groups = list(range(self.n_groups))
        for column, is_possible in bounds.items():
            ranges = self.ranges(column)
            groups = [g for g in groups if (r := ranges[g]) is None or is_possible(*r)]
        return groups

    def sizes(self, groups: Sequence[int] | None = None) -> list[int]:
        """Return the numbers of rows of row groups."""
        groups = range(self.n_groups) if groups is None else groups
        return [self.metadata.row_group(group).num_rows for group in groups]

    def read(
        self, columns: Collection[str] | None = None, groups: Sequence[int] | None = None
    ) -> pa.Table:
        """Return columns of the segment; texts of few values as dictionaries."""
        names = [name for name in self.columns if columns is None or name in columns]
        encoded = [name for name in names if name in ENCODED]
        try:
            with pq.ParquetFile(
                self.path, memory_map=True, metadata=self.metadata, read_dictionary=encoded
            ) as file:
                return file.read(names) if groups is None else file.read_row_groups(groups, names)
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError) as error:
            raise DamagedSegment(self) from error

    def id_range(self) -> tuple[str, str] | None:
        """Return the lowest and the highest id; None without statistics or rows."""
        ranges = [r for r in self.ranges("id") if r is not None]
        if len(ranges) < max(self.n_groups, 1):
            return None
        return min(low for low, _ in ranges), max(high for _, high in ranges)


def repeated_rows(segments: Sequence[Segment]) -> dict[str, np.ndarray]:
    """Return the rows of runs that an earlier segment lists too."""
    repeated: dict[str, np.ndarray] = {}
    for members in overlapping(segments):
        names = [segment.name for segment in members]
        columns = [segment.read(["id"])["id"] for segment in members]
        mask = _repeated(pa.chunked_array([c for column in columns for c in column.chunks]))
        parts = np.split(mask, np.cumsum([len(column) for column in columns])[:-1])
        repeated |= {name: part for name, part in zip(names, parts, strict=True) if part.any()}
    return repeated


def listed_ids(segments: Sequence[Segment], ids: Collection[str]) -> set[str]:
    """Return the ids that at least one segment lists."""
    ordered = sorted(ids)

    def is_possible(low: str, high: str) -> bool:
        return bisect_left(ordered, low) < bisect_right(ordered, high)

    listed: set[str] = set()
    for segment in segments:
        groups = segment.groups({"id": is_possible}) if ordered else []
        if groups:
            column = segment.read(["id"], groups)["id"]
            listed.update(column.filter(pc.is_in(column, pa.array(ordered))).to_pylist())
    return listed


def overlapping(segments: Sequence[Segment]) -> list[list[Segment]]:
    """Return the segments whose ranges of ids overlap."""
    # A segment of another program may have no statistics: it can overlap with every other.
    ranges = [(s.id_range() or ("", "\U0010ffff"), n) for n, s in enumerate(segments) if s.n_rows]
    sets: list[list[int]] = []
    highest = ""
    for (low, high), number in sorted(ranges):
        if not sets or low > highest:
            sets.append([])
        sets[-1].append(number)
        highest = max(highest, high)
    return [[segments[n] for n in sorted(numbers)] for numbers in sets if len(numbers) > 1]


def _repeated(ids: pa.ChunkedArray) -> np.ndarray:
    """Return a mask of the values that occur earlier in a column."""
    ids = pc.fill_null(ids, "")
    try:
        hashes = np.concatenate([_hashes(chunk) for chunk in ids.chunks])
    except ValueError:  # not all are ids
        hashes = ids.combine_chunks().dictionary_encode().indices.to_numpy()
    ordered = np.sort(hashes)
    common = ordered[1:][ordered[1:] == ordered[:-1]]
    mask = np.zeros(len(hashes), bool)
    if len(common):
        rows = np.flatnonzero(np.isin(hashes, common))
        found: set[str] = set()
        for row, text in zip(rows.tolist(), ids.take(pa.array(rows)).to_pylist(), strict=True):
            mask[row] = text in found
            found.add(text)
    return mask


def _hashes(ids: pa.StringArray) -> np.ndarray:
    """Return a number for each id: equal for equal ids, and hardly ever for different ones.

    For a million ids, counting the distinct texts takes 900 ms, sorting these numbers 60.
    """
    if not len(ids):
        return np.zeros(0, np.uint64)
    offsets, characters = ids.buffers()[1:]
    ends = np.frombuffer(offsets, np.int32)[ids.offset : ids.offset + len(ids) + 1]
    if (np.diff(ends) != _ID_LENGTH).any():
        raise ValueError("not all texts are ids")
    hashes = np.zeros(len(ids), np.uint64)
    for offset, factor in _HASH_WORDS:
        start = int(ends[0]) + offset
        word = np.ndarray((len(ids),), "<u8", characters, start, (_ID_LENGTH,))
        hashes ^= hashes >> np.uint64(29)
        hashes += word
        hashes *= np.uint64(factor)
    return hashes
