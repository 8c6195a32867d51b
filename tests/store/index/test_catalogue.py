from __future__ import annotations

import json
import threading
from datetime import datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.synthetic_runs import make_record

from benchkit.errors import AlreadyStored, StoreError
from benchkit.measure.run_ids import new_id
from benchkit.store.files import LocalFiles
from benchkit.store.index import catalogue as module
from benchkit.store.index import compaction, index_reader
from benchkit.store.index.catalogue import Catalogue
from benchkit.store.runfile.file import encode_run, run_name


@pytest.fixture
def catalogue(tmp_path):
    return Catalogue(LocalFiles(tmp_path))


def record(**fields):
    return {"id": new_id(), "workload": "array.sum", **fields}


def add(catalogue, n, **fields):
    records = [record(**fields) for _ in range(n)]
    for entry in records:
        catalogue.add(entry)
    return {entry["id"] for entry in records}


def files_of(catalogue):
    return sorted(catalogue.files.walk("index"))


def test_catalogue_without_files_is_empty(catalogue):
    assert catalogue.ids() == set()
    assert catalogue.table().num_rows == 0
    assert catalogue.compact() == {"runs": 0, "records": 0, "segments": 0, "adopted": 0}


def test_catalogue_lists_added_records(catalogue):
    ids = add(catalogue, 3)

    assert catalogue.ids() == ids


def test_catalogue_add_rejects_second_record_of_a_run(catalogue):
    entry = record()
    catalogue.add(entry)

    with pytest.raises(AlreadyStored):
        catalogue.add(entry)


def test_catalogue_writes_records_as_strict_json(catalogue):
    entry = record(duration=float("nan"), memory_peak=float("inf"), cost=1.5)
    catalogue.add(entry)

    text = catalogue.files.read(f"index/new/{entry['id']}.json").decode()

    assert "NaN" not in text
    assert "Infinity" not in text
    assert json.loads(text)["cost"] == 1.5


def test_catalogue_table_is_unchanged_by_compaction(catalogue):
    rng = np.random.default_rng(0)
    for index in range(20):
        catalogue.add(make_record(index, rng) | {"unknown_number": index, "unknown_text": "x"})
    catalogue.add({"id": new_id()})
    before = catalogue.table()

    catalogue.compact()

    after = catalogue.table()
    assert after.schema == before.schema
    assert after.sort_by("id").equals(before.sort_by("id"))
    assert [name.rpartition(".")[2] for name in files_of(catalogue)] == ["parquet"]


def test_catalogue_with_cached_records_sees_other_changes(catalogue):
    other = Catalogue(catalogue.files)
    ids = add(catalogue, 5)
    assert other.ids() == ids

    catalogue.compact()
    ids |= add(catalogue, 2)

    assert other.ids() == ids


def test_catalogue_table_reads_requested_columns_and_id(catalogue):
    add(catalogue, 2, duration=1.0)
    catalogue.compact()
    add(catalogue, 1, duration=2.0)

    assert catalogue.table(["duration"]).column_names == ["id", "duration"]


def test_catalogue_table_returns_repeated_runs_once(catalogue):
    entry = record(duration=1.0)
    catalogue.add(entry)
    data = catalogue.files.read(f"index/new/{entry['id']}.json")
    catalogue.compact()
    segment = catalogue.files.list("index", ".parquet")[0]
    catalogue.files.create(f"index/{new_id()}.parquet", catalogue.files.read(segment))
    catalogue.files.create(f"index/new/{entry['id']}.json", data)

    assert catalogue.table().num_rows == 1

    catalogue.compact()
    assert catalogue.table().num_rows == 1
    assert len(files_of(catalogue)) == 1


def test_compaction_keeps_fields_of_newer_benchkit(catalogue):
    add(catalogue, 1, joules=12.5)
    catalogue.compact()
    add(catalogue, 1, colour="red")
    catalogue.compact()

    table = catalogue.table()

    assert sorted(table["joules"].to_pylist(), key=str) == [12.5, None]
    assert sorted(table["colour"].to_pylist(), key=str) == [None, "red"]
    assert {"joules", "colour"} <= catalogue.names()


def test_catalogue_unites_fields_of_different_types(catalogue):
    add(catalogue, 1, colour=1.5, block="three", duration="fast")
    catalogue.compact()
    add(catalogue, 1, colour="red", block=4, duration=2)

    table = catalogue.table()

    assert sorted(table["colour"].to_pylist()) == ["1.5", "red"]
    assert sorted(table["block"].to_pylist(), key=str) == [4, None]


def test_catalogue_retries_if_files_were_compacted(catalogue, monkeypatch):
    ids = add(catalogue, 4)
    list_files = Catalogue._list_files
    listings = []

    def compacted_after_first_listing(self):
        names = list_files(self)
        listings.append(names)
        if len(listings) == 1:
            Catalogue(catalogue.files).compact()
        return names

    monkeypatch.setattr(Catalogue, "_list_files", compacted_after_first_listing)

    assert Catalogue(catalogue.files).ids() == ids


def test_catalogue_raises_if_index_keeps_changing(catalogue, monkeypatch):
    add(catalogue, 1)

    def missing_file(_):
        raise FileNotFoundError

    monkeypatch.setattr(index_reader, "_READ_ATTEMPTS", 3)
    monkeypatch.setattr(catalogue.files, "read", missing_file)

    with pytest.raises(StoreError, match="changed 3 times during reading"):
        catalogue.ids()


def test_compaction_deletes_only_files_it_read(catalogue, monkeypatch):
    ids = add(catalogue, 3)
    create = LocalFiles.create

    def create_after_another_add(files, name, data):
        monkeypatch.setattr(LocalFiles, "create", create)
        ids.update(add(catalogue, 1))
        create(files, name, data)

    monkeypatch.setattr(LocalFiles, "create", create_after_another_add)

    assert catalogue.compact()["records"] == 3
    assert len(catalogue.files.list("index/new")) == 1
    assert catalogue.ids() == ids


def test_compaction_deletes_nothing_if_writing_fails(catalogue, monkeypatch):
    ids = add(catalogue, 3)

    def full(*_):
        raise StoreError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(catalogue.files, "create", full)
        with pytest.raises(StoreError):
            catalogue.compact()

    assert catalogue.ids() == ids


def test_compaction_adds_unlisted_runs_of_newest_months(catalogue, make_run):
    run_id, _, data = encode_run(make_run(groups=False))
    catalogue.files.create(run_name(run_id), data)

    assert catalogue.compact()["adopted"] == 1
    assert catalogue.ids() == {run_id}
    assert catalogue.compact()["adopted"] == 0


def test_compaction_splits_and_keeps_full_segments(catalogue, monkeypatch):
    monkeypatch.setattr(compaction, "SEGMENT_ROWS", 10)
    ids = add(catalogue, 25)

    catalogue.compact()
    n_rows = {n: pq.read_metadata(catalogue.files.path(n)).num_rows for n in files_of(catalogue)}
    full = {name for name, rows in n_rows.items() if rows == 10}
    ids |= add(catalogue, 2)
    catalogue.compact()

    assert sorted(n_rows.values()) == [5, 10, 10]
    assert full < set(files_of(catalogue))
    assert catalogue.ids() == ids


def test_compaction_without_folding_keeps_few_segments(catalogue, monkeypatch):
    monkeypatch.setattr(module, "COMPACT_SEGMENTS", 3)
    ids = set()
    counts = []
    for _ in range(6):
        ids |= add(catalogue, 1)
        catalogue.compact(fold=False)
        counts.append(len(files_of(catalogue)))

    assert counts == [1, 2, 3, 4, 1, 2]
    assert catalogue.ids() == ids


def test_compaction_sorts_segments_by_workload_and_id(catalogue):
    for workload in ("c", "a", "b", "a"):
        catalogue.add(record(workload=workload))
    catalogue.compact()

    (name,) = files_of(catalogue)
    table = pq.read_table(catalogue.files.path(name), columns=["workload", "id"]).to_pylist()

    assert table == sorted(table, key=lambda row: (row["workload"], row["id"]))


@pytest.mark.parametrize("data", [b"", b"PAR1 but not really", b"{}"])
def test_catalogue_skips_damaged_segment_with_warning(catalogue, data):
    ids = add(catalogue, 2)
    catalogue.compact()
    ids |= add(catalogue, 1)
    bad = f"index/{new_id()}.parquet"
    catalogue.files.create(bad, data)

    with pytest.warns(UserWarning, match=f"{bad}: skipped.*benchkit store check"):
        assert catalogue.ids() == ids
    with pytest.warns(UserWarning, match="skipped"):
        catalogue.compact()

    assert catalogue.damaged() == [bad]


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"id": "another"}', b"\xff\xfe"])
def test_catalogue_skips_damaged_record_with_warning(catalogue, data):
    ids = add(catalogue, 2)
    bad = f"index/new/{new_id()}.json"
    catalogue.files.create(bad, data)

    with pytest.warns(UserWarning, match=f"{bad}: skipped"):
        assert catalogue.ids() == ids
    assert Catalogue(catalogue.files).damaged() == [bad]


def test_catalogue_reports_segment_without_id_column(catalogue):
    bad = f"index/{new_id()}.parquet"
    catalogue.files.create("index/x", b"")
    pq.write_table(pa.table({"other": [1]}), catalogue.files.path(bad))

    assert catalogue.damaged() == [bad]


def test_catalogue_skips_segment_with_damaged_pages(catalogue):
    catalogue.add_many([record(workload=f"made.w{n}", environment="x" * 50) for n in range(500)])
    (name,) = files_of(catalogue)
    ids = add(catalogue, 2)
    path = catalogue.files.path(name)
    data = bytearray(path.read_bytes())
    footer = int.from_bytes(data[-8:-4], "little") + 8
    data[4:-footer] = b"\xff" * (len(data) - footer - 4)
    path.write_bytes(data)

    for _ in range(2):
        with pytest.warns(UserWarning, match=f"{name}: skipped.*benchkit store check"):
            assert set(catalogue.table(["workload"])["id"].to_pylist()) == ids
    with pytest.warns(UserWarning, match="skipped"):
        assert catalogue.compact()["records"] == 2
    assert name in files_of(catalogue)


def test_catalogue_counts_runs_and_finds_prefixes(catalogue):
    assert len(catalogue) == 0
    assert catalogue.latest() is None
    ids = sorted(add(catalogue, 3))
    catalogue.compact()
    ids += sorted(add(catalogue, 2))
    name = f"index/new/{ids[0]}.json"
    catalogue.files.create(name, json.dumps(record(id=ids[0])).encode())

    assert len(catalogue) == 5
    assert catalogue.ids() == set(ids)
    assert catalogue.ids(ids[1]) == {ids[1]}
    assert catalogue.ids("0") == set(ids)
    assert catalogue.ids("f") == set()


@pytest.mark.parametrize("compacted", [0, 1, 2, 3, 4])
def test_latest_run_started_last_but_not_in_the_future(catalogue, compacted):
    now = datetime.now(timezone.utc)
    ages = {"old": 2, "late": 1, "soon": -0.5 / 24, "future": -365 * 70}
    moments = {name: (now - timedelta(days=days)).isoformat() for name, days in ages.items()}
    entries = {name: record(started=moments[name]) for name in ("late", "future", "soon", "old")}
    entries["unknown"] = record()
    for number, entry in enumerate(entries.values()):
        if number == compacted:
            catalogue.compact()
        catalogue.add(entry)

    assert catalogue.latest() == entries["soon"]["id"]
    catalogue.remove([entries["soon"]["id"]])
    assert catalogue.latest() == entries["late"]["id"]
    catalogue.remove([entries["late"]["id"], entries["old"]["id"]])
    assert catalogue.latest() == entries["future"]["id"]  # there is no other start time
    catalogue.remove([entries["future"]["id"]])
    assert catalogue.latest() == entries["unknown"]["id"]


def test_compaction_of_many_full_segments_is_not_repeated(catalogue, monkeypatch):
    monkeypatch.setattr(compaction, "SEGMENT_ROWS", 2)
    monkeypatch.setattr(module, "COMPACT_SEGMENTS", 3)
    ids = add(catalogue, 20)
    catalogue.compact()

    assert len(files_of(catalogue)) == 10
    assert not catalogue.wants_compaction()
    assert catalogue.compact(fold=False) == {"runs": 0, "records": 0, "segments": 0, "adopted": 0}
    assert catalogue.ids() == ids


def test_compaction_separates_full_segments_that_overlap(catalogue, monkeypatch):
    monkeypatch.setattr(compaction, "SEGMENT_ROWS", 10)
    records = [record(workload=f"made.w{n % 3}") for n in range(20)]
    catalogue.add_many(records[0::2])
    catalogue.add_many(records[1::2])
    before = set(files_of(catalogue))

    assert catalogue.compact() == {"runs": 20, "records": 0, "segments": 2, "adopted": 0}

    after = files_of(catalogue)
    ranges = sorted(
        (min(ids), max(ids))
        for name in after
        if (ids := pq.read_table(catalogue.files.path(name))["id"].to_pylist())
    )
    assert before.isdisjoint(after)
    assert len(ranges) == 2
    assert ranges[0][1] < ranges[1][0]
    assert catalogue.compact()["segments"] == 0


def test_catalogue_loses_no_run_with_concurrent_access(catalogue):
    stop, wrong, ids = threading.Event(), [], set()

    def compact():
        while not stop.is_set():
            Catalogue(catalogue.files).compact()

    def read():
        reader = Catalogue(catalogue.files)
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
        catalogue.add(entry)
        ids.add(entry["id"])
    stop.set()
    for thread in threads:
        thread.join()

    assert wrong == []
    assert catalogue.ids() == ids
    assert catalogue.table().num_rows == 150
