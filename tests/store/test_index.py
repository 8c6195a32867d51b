import json
import threading
from datetime import datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchkit.errors import AlreadyStored, StoreError
from benchkit.measure.run_ids import new_id
from benchkit.store import index as module
from benchkit.store.files import LocalFiles
from benchkit.store.index import Index, write_segments
from benchkit.store.runfile import encode_run
from benchkit.store.storage import run_name
from validation.large_index import index_table
from validation.synthetic_runs import make_record


@pytest.fixture
def index(tmp_path):
    return Index(LocalFiles(tmp_path))


def record(**fields):
    return {"id": new_id(), "workload": "array.sum", **fields}


def add(index, n, **fields):
    records = [record(**fields) for _ in range(n)]
    for entry in records:
        index.add(entry)
    return {entry["id"] for entry in records}


def files_of(index):
    return sorted(index.files.walk("index"))


def test_index_without_files_is_empty(index):
    assert index.ids() == set()
    assert index.table().num_rows == 0
    assert index.compact() == {"runs": 0, "records": 0, "segments": 0, "adopted": 0}


def test_index_lists_added_records(index):
    ids = add(index, 3)

    assert index.ids() == ids


def test_index_add_rejects_second_record_of_a_run(index):
    entry = record()
    index.add(entry)

    with pytest.raises(AlreadyStored):
        index.add(entry)


def test_index_writes_records_as_strict_json(index):
    entry = record(duration=float("nan"), memory_peak=float("inf"), cost=1.5)
    index.add(entry)

    text = index.files.read(f"index/new/{entry['id']}.json").decode()

    assert "NaN" not in text
    assert "Infinity" not in text
    assert json.loads(text)["cost"] == 1.5


def test_index_table_is_unchanged_by_compaction(index):
    rng = np.random.default_rng(0)
    for number in range(20):
        more = {"unknown_number": number, "unknown_text": "x"}
        index.add(make_record(number, rng) | more)
    index.add({"id": new_id()})
    before = index.table()

    index.compact()

    after = index.table()
    assert after.schema == before.schema
    assert after.sort_by("id").equals(before.sort_by("id"))
    assert [name.rpartition(".")[2] for name in files_of(index)] == ["parquet"]


def test_index_with_cached_records_sees_other_changes(index):
    other = Index(index.files)
    ids = add(index, 5)
    assert other.ids() == ids

    index.compact()
    ids |= add(index, 2)

    assert other.ids() == ids


def test_index_table_reads_requested_columns_and_id(index):
    add(index, 2, duration=1.0)
    index.compact()
    add(index, 1, duration=2.0)

    assert index.table(["duration"]).column_names == ["id", "duration"]


def test_index_table_returns_repeated_runs_once(index):
    entry = record(duration=1.0)
    index.add(entry)
    data = index.files.read(f"index/new/{entry['id']}.json")
    index.compact()
    write_segments(index.files, index.table())
    assert len(files_of(index)) == 2
    index.files.create(f"index/new/{entry['id']}.json", data)

    assert index.table().num_rows == 1

    index.compact()
    assert index.table().num_rows == 1
    assert len(files_of(index)) == 1


def test_compaction_keeps_fields_of_newer_benchkit(index):
    add(index, 1, joules=12.5)
    index.compact()
    add(index, 1, colour="red")
    index.compact()

    table = index.table()

    assert sorted(table["joules"].to_pylist(), key=str) == [12.5, None]
    assert sorted(table["colour"].to_pylist(), key=str) == [None, "red"]
    assert {"joules", "colour"} <= index.names()


def test_index_unites_fields_of_different_types(index):
    add(index, 1, colour=1.5, block="three", duration="fast")
    index.compact()
    add(index, 1, colour="red", block=4, duration=2)

    table = index.table()

    assert sorted(table["colour"].to_pylist()) == ["1.5", "red"]
    assert sorted(table["block"].to_pylist(), key=str) == [4, None]


def test_index_retries_if_files_were_compacted(index, monkeypatch):
    ids = add(index, 4)
    list_ = Index._list
    listings = []

    def compacted_after_first_listing(self):
        names = list_(self)
        listings.append(names)
        if len(listings) == 1:
            Index(index.files).compact()
        return names

    monkeypatch.setattr(Index, "_list", compacted_after_first_listing)

    assert Index(index.files).ids() == ids


def test_index_raises_if_index_keeps_changing(index, monkeypatch):
    add(index, 1)

    def missing_file(_):
        raise FileNotFoundError

    monkeypatch.setattr(module, "_READ_ATTEMPTS", 3)
    monkeypatch.setattr(index.files, "read", missing_file)

    with pytest.raises(StoreError, match="changed 3 times during reading"):
        index.ids()


def test_compaction_deletes_only_files_it_read(index, monkeypatch):
    ids = add(index, 3)
    create = LocalFiles.create

    def create_after_another_add(files, name, data):
        monkeypatch.setattr(LocalFiles, "create", create)
        ids.update(add(index, 1))
        create(files, name, data)

    monkeypatch.setattr(LocalFiles, "create", create_after_another_add)

    assert index.compact()["records"] == 3
    assert len(index.files.list("index/new")) == 1
    assert index.ids() == ids


def test_compaction_deletes_nothing_if_writing_fails(index, monkeypatch):
    ids = add(index, 3)

    def full(*_):
        raise StoreError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(index.files, "create", full)
        with pytest.raises(StoreError):
            index.compact()

    assert index.ids() == ids


def test_compaction_adds_unlisted_runs_of_newest_months(index, make_run):
    run_id, _, data = encode_run(make_run(groups=False))
    index.files.create(run_name(run_id), data)

    assert index.compact()["adopted"] == 1
    assert index.ids() == {run_id}
    assert index.compact()["adopted"] == 0


def test_compaction_splits_and_keeps_full_segments(index, monkeypatch):
    monkeypatch.setattr(module, "SEGMENT_ROWS", 10)
    ids = add(index, 25)

    index.compact()
    n_rows = {n: pq.read_metadata(index.files.path(n)).num_rows for n in files_of(index)}
    full = {name for name, rows in n_rows.items() if rows == 10}
    ids |= add(index, 2)
    index.compact()

    assert sorted(n_rows.values()) == [5, 10, 10]
    assert full < set(files_of(index))
    assert index.ids() == ids


def test_compaction_without_folding_keeps_few_segments(index, monkeypatch):
    monkeypatch.setattr(module, "MAX_SEGMENTS", 3)
    ids = set()
    counts = []
    for _ in range(6):
        ids |= add(index, 1)
        index.compact(fold=False)
        counts.append(len(files_of(index)))

    assert counts == [1, 2, 3, 4, 1, 2]
    assert index.ids() == ids


@pytest.mark.parametrize("data", [b"", b"PAR1 but not really", b"{}"])
def test_index_with_damaged_segment_is_not_read(index, data):
    ids = add(index, 2)
    index.compact()
    bad = f"index/{new_id()}.parquet"
    index.files.create(bad, data)

    for read in (index.ids, index.table, index.compact, lambda: len(index)):
        with pytest.raises(StoreError, match=f"{bad}: damaged .*`benchkit store check` rebuilds"):
            read()

    assert list(index.damaged()) == [bad]
    index.left_out = [bad]
    assert index.ids() == ids


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"id": "another"}', b"\xff\xfe"])
def test_index_with_damaged_record_is_not_read(index, data):
    add(index, 2)
    bad = f"index/new/{new_id()}.json"
    index.files.create(bad, data)

    with pytest.raises(StoreError, match=f"{bad}: damaged"):
        index.ids()
    assert list(Index(index.files).damaged()) == [bad]


def test_index_reports_segment_without_id_column(index):
    bad = f"index/{new_id()}.parquet"
    index.files.create("index/x", b"")
    pq.write_table(pa.table({"other": [1]}), index.files.path(bad))

    assert index.damaged() == {bad: "no column id"}


def flip_bit(data, rng):
    data[rng.integers(len(data))] ^= 1 << rng.integers(8)


def zero_bytes(data, rng):
    start = rng.integers(len(data) - 64)
    data[start : start + 64] = bytes(64)


def truncate(data, rng):
    del data[rng.integers(len(data)) :]


@pytest.mark.parametrize("damage", [flip_bit, zero_bytes, truncate])
@pytest.mark.parametrize("compacted", [True, False])
def test_every_damage_of_the_index_is_found(index, damage, compacted):
    """Nothing else is read than what was written, or an error is raised."""
    rng = np.random.default_rng(0)
    for number in range(12):
        index.add(make_record(number, rng))
    if compacted:
        index.compact()
    before = index.table().sort_by("id")
    name = files_of(index)[0]
    path = index.files.path(name)
    whole = path.read_bytes()
    n_found = n_harmless = 0
    for _ in range(60):
        data = bytearray(whole)
        damage(data, rng)
        path.write_bytes(data)
        try:
            assert Index(index.files).table().sort_by("id").equals(before)
            n_harmless += 1  # such as a name in the metadata that is not read
        except StoreError:
            n_found += 1
            assert list(Index(index.files).damaged()) == [name]

    assert n_found + n_harmless == 60
    assert n_harmless <= 3


def test_damage_of_a_column_stops_only_readers_of_it(index):
    index.add_many([record(workload=f"made.w{n}", duration=float(n)) for n in range(500)])
    (name,) = files_of(index)
    path = index.files.path(name)
    group = pq.ParquetFile(path).metadata.row_group(0)
    (column,) = [
        c for c in map(group.column, range(group.num_columns)) if "duration" == c.path_in_schema
    ]
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 2] ^= 8
    path.write_bytes(data)

    assert Index(index.files).table(["workload"]).num_rows == 500
    with pytest.raises(StoreError, match="column duration differs from its digest"):
        Index(index.files).table(["duration"])


def test_segment_of_an_early_benchkit_is_read(index):
    """Its metadata have no digests."""
    ids = add(index, 3)
    index.compact()
    (name,) = files_of(index)
    table = pq.read_table(index.files.path(name)).replace_schema_metadata(None)
    index.files.delete(name)
    pq.write_table(table, index.files.path(f"index/{new_id()}.parquet"))

    assert Index(index.files).ids() == ids
    assert Index(index.files).damaged() == {}


def test_index_counts_runs_and_finds_prefixes(index):
    assert len(index) == 0
    assert index.latest() is None
    ids = sorted(add(index, 3))
    index.compact()
    ids += sorted(add(index, 2))
    name = f"index/new/{ids[0]}.json"
    index.files.create(name, json.dumps(record(id=ids[0])).encode())

    assert len(index) == 5
    assert index.ids() == set(ids)
    assert index.ids(ids[1]) == {ids[1]}
    assert index.ids("0") == set(ids)
    assert index.ids("f") == set()


@pytest.mark.parametrize("compacted", [0, 1, 2, 3, 4])
def test_latest_run_started_last_but_not_in_the_future(index, compacted):
    now = datetime.now(timezone.utc)
    ages = {"old": 2, "late": 1, "soon": -0.5 / 24, "future": -365 * 70}
    moments = {name: (now - timedelta(days=days)).isoformat() for name, days in ages.items()}
    entries = {name: record(started=moments[name]) for name in ("late", "future", "soon", "old")}
    entries["unknown"] = record()
    for number, entry in enumerate(entries.values()):
        if number == compacted:
            index.compact()
        index.add(entry)

    assert index.latest() == entries["soon"]["id"]
    index.remove([entries["soon"]["id"]])
    assert index.latest() == entries["late"]["id"]
    index.remove([entries["late"]["id"], entries["old"]["id"]])
    assert index.latest() == entries["future"]["id"]  # there is no other start time
    index.remove([entries["future"]["id"]])
    assert index.latest() == entries["unknown"]["id"]


def test_compaction_of_many_full_segments_is_not_repeated(index, monkeypatch):
    monkeypatch.setattr(module, "SEGMENT_ROWS", 2)
    monkeypatch.setattr(module, "MAX_SEGMENTS", 3)
    ids = add(index, 20)
    index.compact()

    assert len(files_of(index)) == 10
    assert not index.wants_compaction()
    assert index.compact(fold=False) == {"runs": 0, "records": 0, "segments": 0, "adopted": 0}
    assert index.ids() == ids


def test_compaction_separates_full_segments_that_overlap(index, monkeypatch):
    monkeypatch.setattr(module, "SEGMENT_ROWS", 10)
    records = [record(workload=f"made.w{n % 3}") for n in range(20)]
    index.add_many(records[0::2])
    index.add_many(records[1::2])
    before = set(files_of(index))

    assert index.compact() == {"runs": 20, "records": 0, "segments": 2, "adopted": 0}

    after = files_of(index)
    ranges = sorted(
        (min(ids), max(ids))
        for name in after
        if (ids := pq.read_table(index.files.path(name))["id"].to_pylist())
    )
    assert before.isdisjoint(after)
    assert len(ranges) == 2
    assert ranges[0][1] < ranges[1][0]
    assert index.compact()["segments"] == 0


def test_index_loses_no_run_with_concurrent_access(index):
    stop, wrong, ids = threading.Event(), [], set()

    def compact():
        while not stop.is_set():
            Index(index.files).compact()

    def read():
        reader = Index(index.files)
        while not stop.is_set():
            expected = set(ids)
            missing = expected - reader.ids()
            if missing:
                wrong.append(missing)

    threads = [threading.Thread(target=work) for work in (compact, compact, read, read)]
    for thread in threads:
        thread.start()
    for _ in range(150):
        entry = record()
        index.add(entry)
        ids.add(entry["id"])
    stop.set()
    for thread in threads:
        thread.join()

    assert wrong == []
    assert index.ids() == ids
    assert index.table().num_rows == 150


def segments_of(index):
    return index._open(index._list()[1])


def write(index, table):
    """Write a table as one file, as another program would."""
    index.files.create(f"index/{new_id()}.parquet", b"")
    name = max(index.files.list("index", ".parquet"))
    pq.write_table(table, index.files.path(name))
    return name


def test_segment_finds_groups_by_range_of_values(index, monkeypatch):
    monkeypatch.setattr(module, "GROUP_ROWS", 100)
    write_segments(index.files, index_table(1000))
    (segment,) = segments_of(index)

    groups = segment.groups(pc.field("workload") == "frame.work_1")

    workloads = [set(segment.read(["workload"], [g])["workload"].to_pylist()) for g in range(10)]
    assert groups == [
        g for g in range(10) if min(workloads[g]) <= "frame.work_1" <= max(workloads[g])
    ]
    assert 0 < len(groups) < 3
    assert segment.sizes(groups) == [100] * len(groups)


def test_segment_reads_texts_as_dictionaries_and_ids_as_texts(index):
    write_segments(index.files, index_table(10))
    (segment,) = segments_of(index)

    table = segment.read(["workload", "id", "duration", "unknown"])

    assert sorted(table.column_names) == ["duration", "id", "workload"]
    assert pa.types.is_dictionary(table["workload"].type)
    assert table["id"].type == pa.string()


def test_written_segments_have_plain_texts(index):
    write_segments(index.files, index_table(10))
    index.add_many(index_table(5, first=10).to_pylist())
    index.compact()

    (name,) = files_of(index)
    metadata = pq.read_metadata(index.files.path(name))
    columns = metadata.row_group(0).to_dict()["columns"]
    encoded = {c["path_in_schema"] for c in columns if c["has_dictionary_page"]}
    assert pq.read_schema(index.files.path(name)).field("workload").type == pa.string()
    assert "category" in encoded
    assert encoded.isdisjoint({"id", "started", "duration"})


def test_segments_that_do_not_overlap_are_not_compared(index, monkeypatch):
    table = index_table(300)
    for start in (200, 0, 100):
        write(index, table.slice(start, 100))
    segments_of(index)
    monkeypatch.setattr(module._Segment, "read", lambda *_: pytest.fail("read"))

    assert len(index) == 300


def test_overlapping_sets_are_complete_and_in_order(index):
    table = index_table(100)
    parts = [(0, 10), (5, 10), (14, 2), (50, 10), (90, 1), (59, 5)]
    numbers = {write(index, table.slice(*part)): number for number, part in enumerate(parts)}

    sets = module._overlapping(segments_of(index))

    assert [[numbers[s.name] for s in members] for members in sets] == [[0, 1, 2], [3, 5]]


def test_segment_without_statistics_may_overlap_every_other(index):
    table = index_table(20)
    write(index, table.slice(0, 10))
    pq.write_table(
        table.slice(10), index.files.path(f"index/{new_id()}.parquet"), write_statistics=False
    )

    first, second = segments_of(index)
    assert second.ranges("id") == []
    assert module._overlapping([first, second]) == [[first, second]]
    assert len(index) == 20


def test_record_of_a_listed_run_reads_only_groups_in_range(index, monkeypatch):
    monkeypatch.setattr(module, "GROUP_ROWS", 10)
    table = index_table(100)
    write_segments(index.files, table.slice(0, 50))
    segments = segments_of(index)
    ids = table["id"].to_pylist()

    assert module._listed(segments, [ids[3], ids[49], ids[50], ids[99]]) == {ids[3], ids[49]}
    assert module._listed(segments, []) == set()
    read = module._Segment.read
    groups = []
    monkeypatch.setattr(
        module._Segment, "read", lambda s, c, g=None: groups.append(g) or read(s, c, g)
    )
    assert module._listed(segments, ids[50:]) == set()
    assert groups == [[]]


def test_write_segments_cuts_by_id_and_sorts_by_workload(index, monkeypatch):
    monkeypatch.setattr(module, "SEGMENT_ROWS", 40)
    table = index_table(100)

    write_segments(index.files, table.take(pa.array(range(99, -1, -1))))

    segments = segments_of(index)
    assert sorted(segment.n_rows for segment in segments) == [20, 40, 40]
    assert module._overlapping(segments) == []
    assert index.table().sort_by("id").equals(table.sort_by("id").combine_chunks())
    for segment in segments:
        rows = pq.read_table(segment.path, columns=["workload", "id"]).to_pylist()
        assert rows == sorted(rows, key=lambda row: (row["workload"], row["id"]))


def test_compaction_writes_each_run_once(index, monkeypatch):
    monkeypatch.setattr(module, "SEGMENT_ROWS", 35)
    monkeypatch.setattr(module, "GROUP_ROWS", 8)
    table = index_table(100)
    for start, n in ((0, 30), (20, 30), (60, 30), (85, 15)):
        write_segments(index.files, table.slice(start, n))

    assert index.compact()["runs"] == 90

    expected = pa.concat_tables([table.slice(0, 50), table.slice(60)]).sort_by("id")
    assert sorted(segment.n_rows for segment in segments_of(index)) == [20, 35, 35]
    assert module._overlapping(segments_of(index)) == []
    assert index.table().sort_by("id").equals(expected.combine_chunks())


@pytest.mark.slow
def test_memory_of_merging_hardly_grows_with_the_number_of_runs(index, monkeypatch):
    n_rows = 2000
    monkeypatch.setattr(module, "SEGMENT_ROWS", n_rows)
    monkeypatch.setattr(module, "GROUP_ROWS", 250)
    default = pa.default_memory_pool()

    def peak(n_segments):
        for name in index.files.list("index"):
            index.files.delete(name)
        # Every segment has runs of the whole time, so that all are needed for each new one.
        table = index_table(n_segments * n_rows)
        for start in range(n_segments):
            rows = pa.array(range(start, table.num_rows, n_segments))
            write_segments(index.files, table.take(rows))
        size = table.nbytes
        del table
        pool = pa.proxy_memory_pool(default)
        pa.set_memory_pool(pool)
        try:
            assert Index(index.files).compact()["segments"] == n_segments
        finally:
            pa.set_memory_pool(default)
        return pool.max_memory(), size

    (few, small), (many, large) = peak(3), peak(12)

    # The ids of all runs are held, a tenth of the columns, but one segment of the others.
    assert many - few < 0.25 * (large - small)
    assert many < 0.4 * large
