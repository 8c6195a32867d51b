from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.large_index import index_table

from benchkit.measure.run_ids import new_id
from benchkit.store.files import LocalFiles
from benchkit.store.index import compaction
from benchkit.store.index.segments import (
    DamagedSegment,
    Segment,
    listed_ids,
    overlapping,
    repeated_rows,
)


@pytest.fixture
def files(tmp_path):
    return LocalFiles(tmp_path)


def write(files, table):
    """Write a table as one file, as another program would."""
    name = f"index/{new_id()}.parquet"
    files.create(name, b"")
    pq.write_table(table, files.path(name))
    return Segment(name, files.path(name))


def segments_of(files):
    return [Segment(name, files.path(name)) for name in files.list("index", ".parquet")]


def test_segment_finds_groups_by_range_of_values(files, monkeypatch):
    monkeypatch.setattr(compaction, "_GROUP_ROWS", 100)
    compaction.write_segments(files, index_table(1000))
    (segment,) = segments_of(files)

    groups = segment.groups({"workload": lambda low, high: low <= "frame.work_1" <= high})

    workloads = [set(segment.read(["workload"], [g])["workload"].to_pylist()) for g in range(10)]
    assert groups == [
        g for g in range(10) if min(workloads[g]) <= "frame.work_1" <= max(workloads[g])
    ]
    assert 0 < len(groups) < 3
    assert segment.groups({"unknown": lambda low, high: False}) == list(range(10))
    assert segment.sizes(groups) == [100] * len(groups)


def test_segment_reads_texts_as_dictionaries_and_ids_as_texts(files):
    compaction.write_segments(files, index_table(10))
    (segment,) = segments_of(files)

    table = segment.read(["workload", "id", "duration", "unknown"])

    assert sorted(table.column_names) == ["duration", "id", "workload"]
    assert pa.types.is_dictionary(table["workload"].type)
    assert table["id"].type == pa.string()


def test_written_segments_have_plain_texts(files):
    compaction.write_segments(files, index_table(10))
    (segment,) = segments_of(files)
    compaction.merge_segments(files, [segment], index_table(5, first=10))

    written = segments_of(files)
    types = [pq.read_schema(s.path).field("workload").type for s in written]
    groups = [s.metadata.row_group(0).to_dict()["columns"] for s in written]
    encoded = [{c["path_in_schema"] for c in g if c["has_dictionary_page"]} for g in groups]

    assert types == [pa.string()] * 2
    for names in encoded:
        assert "category" in names
        assert names.isdisjoint({"id", "started", "duration"})


def test_damaged_pages_of_a_segment_are_named(files):
    compaction.write_segments(files, index_table(1000))
    (segment,) = segments_of(files)
    data = bytearray(segment.path.read_bytes())
    data[4:-200_000] = b"\xff" * (len(data) - 200_004)
    segment.path.write_bytes(data)

    with pytest.raises(DamagedSegment, match=segment.name):
        segment.read(["workload", "id"])


def test_repeated_rows_marks_later_rows_only(files):
    table = index_table(100)
    first, second = write(files, table.slice(0, 60)), write(files, table.slice(40))

    repeated = repeated_rows([first, second])

    assert list(repeated) == [second.name]
    assert np.flatnonzero(repeated[second.name]).tolist() == list(range(20))


def test_repeated_rows_compares_texts_that_are_not_ids(files):
    first = write(files, pa.table({"id": ["a", "b", None]}))
    second = write(files, pa.table({"id": ["c", "b", None]}))

    repeated = repeated_rows([first, second])

    assert repeated[second.name].tolist() == [False, True, True]


def test_repeated_rows_does_not_read_segments_that_do_not_overlap(files, monkeypatch):
    table = index_table(300)
    parts = [table.slice(start, 100) for start in (200, 0, 100)]
    segments = [write(files, part) for part in parts]
    monkeypatch.setattr(Segment, "read", lambda *_: pytest.fail("read"))

    assert repeated_rows(segments) == {}


def test_equal_hashes_of_different_ids_are_no_repetition(files, monkeypatch):
    monkeypatch.setattr(
        "benchkit.store.index.segments._hashes", lambda ids: np.zeros(len(ids), np.uint64)
    )
    table = index_table(10)
    first, second = write(files, table.slice(0, 6)), write(files, table.slice(4))

    assert repeated_rows([first, second])[second.name].tolist() == [True] * 2 + [False] * 4


def test_overlapping_sets_are_complete_and_in_order(files):
    table = index_table(100)
    parts = [(0, 10), (5, 10), (14, 2), (50, 10), (90, 1), (59, 5)]
    segments = [write(files, table.slice(*part)) for part in parts]
    numbers = {segment.name: number for number, segment in enumerate(segments)}

    sets = overlapping(segments)

    assert [[numbers[s.name] for s in members] for members in sets] == [[0, 1, 2], [3, 5]]


def test_segment_without_statistics_may_overlap_every_other(files):
    table = index_table(20)
    first = write(files, table.slice(0, 10))
    name = f"index/{new_id()}.parquet"
    pq.write_table(table.slice(10), files.path(name), write_statistics=False)
    second = Segment(name, files.path(name))

    assert second.id_range() is None
    assert overlapping([first, second]) == [[first, second]]
    assert repeated_rows([first, second]) == {}


def test_listed_ids_reads_only_groups_in_range(files, monkeypatch):
    monkeypatch.setattr(compaction, "_GROUP_ROWS", 10)
    table = index_table(100)
    compaction.write_segments(files, table.slice(0, 50))
    segments = segments_of(files)
    ids = table["id"].to_pylist()

    assert listed_ids(segments, [ids[3], ids[49], ids[50], ids[99]]) == {ids[3], ids[49]}
    assert listed_ids(segments, []) == set()
    monkeypatch.setattr(Segment, "read", lambda *_: pytest.fail("read"))
    assert listed_ids(segments, ids[50:]) == set()
