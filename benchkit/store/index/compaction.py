"""Write segments: Parquet files of up to `SEGMENT_ROWS` runs, and merge them.

Segments are cut by id, which is the order of time, so that their ranges of ids do not overlap:
only overlapping segments can list a run twice. Within a segment runs are sorted by workload, so
that a reader of one workload skips most row groups.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchkit.measure.run_ids import new_id
from benchkit.store.index.arrow import unite, without_dictionaries
from benchkit.store.index.segments import Segment, repeated_rows
from benchkit.store.storage import Files

__all__ = ["SEGMENT_ROWS", "merge_segments", "write_segments", "write_without"]

#: Maximum number of runs per segment; merging holds one segment in memory, 250 MB.
SEGMENT_ROWS = 250_000
#: Number of runs per row group, the smallest part of a segment that can be read.
_GROUP_ROWS = 16_384


def write_segments(files: Files, table: pa.Table) -> None:
    """Write runs as segments."""
    order = pc.sort_indices(table["id"])
    for start in range(0, table.num_rows, SEGMENT_ROWS):
        whole = table.num_rows <= SEGMENT_ROWS
        _write_segment(files, table if whole else table.take(order[start : start + SEGMENT_ROWS]))


def _write_segment(files: Files, table: pa.Table) -> None:
    keys = without_dictionaries(table.select(["workload", "id"]))
    order = pc.sort_indices(keys, [("workload", "ascending"), ("id", "ascending")])
    sink, writer = io.BytesIO(), None
    for start in range(0, len(order), _GROUP_ROWS):
        rows = without_dictionaries(table.take(order[start : start + _GROUP_ROWS]))
        if writer is None:
            # Uncompressed: 91 ms for 8 columns of a million runs, zstd 267 ms. Dictionaries of
            # values that hardly repeat: a fifth larger, and twice the time to read.
            repeats = [name for name in rows.column_names if _repeats(rows[name])]
            writer = pq.ParquetWriter(sink, rows.schema, compression="none", use_dictionary=repeats)
        writer.write_table(rows)
    if writer:
        writer.close()
        files.create(f"index/{new_id()}.parquet", sink.getvalue())


def _repeats(column: pa.ChunkedArray) -> bool:
    return bool(pc.count_distinct(column).as_py() <= len(column) / 2)


def merge_segments(files: Files, segments: Sequence[Segment], new: pa.Table) -> int:
    """Write the runs of segments and new runs as segments whose ids do not overlap.

    Reads row group by row group, and holds one new segment at a time.
    """
    repeated = repeated_rows(segments)
    listed = [segment.read(["id"])["id"] for segment in segments]
    known = pa.chunked_array([c for column in listed for c in column.chunks], pa.string())
    new = new.filter(pc.invert(pc.is_in(new["id"], known)))
    kept = [
        column.filter(pa.array(~repeated[segment.name])) if segment.name in repeated else column
        for segment, column in zip(segments, listed, strict=True)
    ]
    ids = pa.chunked_array([c for column in (*kept, new["id"]) for c in column.chunks], pa.string())
    first = pc.sort_indices(ids)[::SEGMENT_ROWS]
    cuts = [*ids.take(first).to_pylist(), None]
    for low, high in pairwise(cuts):
        parts = [_cut(new, low, high)]
        for segment in segments:
            parts += _rows_between(segment, repeated.get(segment.name), low, high)
        _write_segment(files, unite(parts))
    return len(ids)


def write_without(files: Files, segment: Segment, ids: Collection[str]) -> None:
    """Write the runs of a segment except some as a new segment."""
    table = segment.read()
    _write_segment(files, table.filter(pc.invert(pc.is_in(table["id"], pa.array(sorted(ids))))))


def _cut(table: pa.Table, low: str, high: str | None) -> pa.Table:
    """Return the rows with ids from `low` up to, but without, `high`."""
    keep = pc.greater_equal(table["id"], low)
    return table.filter(keep if high is None else pc.and_(keep, pc.less(table["id"], high)))


def _rows_between(
    segment: Segment, repeated: np.ndarray | None, low: str, high: str | None
) -> Iterator[pa.Table]:
    """Yield the rows of a segment in a range of ids, without repeated rows, by row group."""
    groups = segment.groups({"id": lambda a, b: b >= low and (high is None or a < high)})
    starts = np.cumsum([0, *segment.sizes()])
    for group in groups:
        table = segment.read(groups=[group])
        if repeated is not None:
            table = table.filter(pa.array(~repeated[starts[group] : starts[group + 1]]))
        yield _cut(table, low, high)
