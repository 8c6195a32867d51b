from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.large_index import index_table

from benchkit.store.files import LocalFiles
from benchkit.store.index import compaction
from benchkit.store.index.arrow import SCHEMA, unite, without_dictionaries
from benchkit.store.index.segments import Segment, overlapping, repeated_rows


@pytest.fixture
def files(tmp_path):
    return LocalFiles(tmp_path)


def segments_of(files):
    return [Segment(name, files.path(name)) for name in files.list("index", ".parquet")]


def rows_of(segments):
    table = without_dictionaries(unite([segment.read() for segment in segments]))
    return table.sort_by("id")


def test_write_segments_cuts_by_id_and_sorts_by_workload(files, monkeypatch):
    monkeypatch.setattr(compaction, "SEGMENT_ROWS", 40)
    table = index_table(100)

    compaction.write_segments(files, table.take(pa.array(range(99, -1, -1))))

    segments = segments_of(files)
    assert sorted(segment.n_rows for segment in segments) == [20, 40, 40]
    assert overlapping(segments) == []
    assert rows_of(segments).equals(table.sort_by("id").combine_chunks())
    for segment in segments:
        rows = pq.read_table(segment.path, columns=["workload", "id"]).to_pylist()
        assert rows == sorted(rows, key=lambda row: (row["workload"], row["id"]))


def test_merge_segments_writes_each_run_once(files, monkeypatch):
    monkeypatch.setattr(compaction, "SEGMENT_ROWS", 35)
    monkeypatch.setattr(compaction, "_GROUP_ROWS", 8)
    table = index_table(100)
    for start, n in ((0, 30), (20, 30), (60, 30)):
        compaction.write_segments(files, table.slice(start, n))
    old = segments_of(files)

    n_runs = compaction.merge_segments(files, old, table.slice(85, 15))

    new = [segment for segment in segments_of(files) if segment.name not in {s.name for s in old}]
    expected = unite([table.slice(0, 50), table.slice(60)]).sort_by("id")
    assert n_runs == 90
    assert sorted(segment.n_rows for segment in new) == [20, 35, 35]
    assert overlapping(new) == []
    assert repeated_rows(new) == {}
    assert rows_of(new).equals(expected)


def test_merge_segments_without_segments_or_runs_writes_nothing(files):
    assert compaction.merge_segments(files, [], SCHEMA.empty_table()) == 0
    assert segments_of(files) == []


def test_memory_of_merging_hardly_grows_with_the_number_of_runs(files, monkeypatch):
    n_rows = 4000
    monkeypatch.setattr(compaction, "SEGMENT_ROWS", n_rows)
    monkeypatch.setattr(compaction, "_GROUP_ROWS", 500)
    default = pa.default_memory_pool()

    def peak(n_segments):
        for name in files.list("index"):
            files.delete(name)
        # Every segment has runs of the whole time, so that all are needed for each new one.
        table = index_table(n_segments * n_rows)
        for start in range(n_segments):
            rows = pa.array(range(start, table.num_rows, n_segments))
            compaction.write_segments(files, table.take(rows))
        segments, size = segments_of(files), table.nbytes
        del table
        pool = pa.proxy_memory_pool(default)
        pa.set_memory_pool(pool)
        try:
            assert compaction.merge_segments(files, segments, SCHEMA.empty_table())
        finally:
            pa.set_memory_pool(default)
        return pool.max_memory(), size

    (few, small), (many, large) = peak(3), peak(12)

    # The ids of all runs are held, a tenth of the columns, but one segment of the others.
    assert many - few < 0.25 * (large - small)
    assert many < 0.4 * large
