import json
import sqlite3
from contextlib import closing

import pandas as pd
import pytest

from benchkit.errors import InvalidImportError, UsageError
from benchkit.store import runfile
from benchkit.store.interchange.coiled import TABLES, import_sqlite
from benchkit.store.interchange.export import export_runs
from benchkit.store.store import Store

COMMON = {
    "session_id": "5c7a", "originalname": "test_x", "path": "benchmarks/test_array.py",
    "setup_outcome": "passed", "call_outcome": "passed", "teardown_outcome": "passed",
    "dask_version": "2023.5.0", "distributed_version": "2023.5.0", "python_version": "3.9.16",
    "platform": "linux", "start": "2023-05-02 01:02:03.123456", "end": "2023-05-02 01:02:23.5",
    "duration": 20.25, "average_memory": 1.5e9, "peak_memory": 3e9, "cluster_id": 77,
    "cluster_name": "array-1", "cluster_details_url": "https://cloud.example/77",
}  # fmt: skip


TESTS = [
    {"id": 1, "name": "test_sum[fast-thin]", "coiled_runtime_version": "upstream",
     "scheduler_cpu_avg": 0.25, "scheduler_max_tick": 0.5, "worker_max_tick": 1.5,
     "scheduler_memory_max": 2e8, "compute_time": 40.0, "disk_spill_time": 1.0,
     "serializing_time": 2.0, "transfer_time": 3.0, "memray_profiles_url": "s3://x"},
    {"id": 2, "name": "test_sum[fast-thin]", "coiled_runtime_version": "upstream",
     "call_outcome": "failed", "duration": None, "average_memory": None, "peak_memory": None},
    # A repeated row: the same test ran twice in one session.
    {"id": 3, "name": "test_sum[fast-thin]", "coiled_runtime_version": "upstream"},
    {"id": 4, "name": "test_dot", "setup_outcome": "failed", "call_outcome": None,
     "teardown_outcome": None, "start": None, "end": None, "duration": None,
     "coiled_software_name": "benchmarks-ab"},
    {"id": 5, "name": "test_dot", "call_outcome": "skipped", "path": None, "start": "2023-05-04",
     "platform": None, "cluster_id": None},
    {"id": 6, "name": "test_dot", "duration": float("inf"), "peak_memory": "none",
     "start": "2023-05-05 01:00:00"},
]  # fmt: skip


QUERIES = [
    {"id": 1, "name": "test_query_1", "path": "benchmarks/tpch/test_dask.py", "scale": 100,
     "query": 1, "local": 0, "n_workers": 16, "worker_vm_type": "m6i.large",
     "dask_expr_version": "0.4.0", "compression": "snappy", "cluster_disk_size": 60},
    {"id": 2, "name": "test_query_1", "path": "benchmarks/tpch/test_duckdb.py", "scale": 10,
     "query": 1, "local": 1, "duckdb_version": "0.9.2", "cluster_id": None},
]  # fmt: skip


def make_database(path, tests=TESTS, queries=QUERIES, leave_out=(), more=()):
    with closing(sqlite3.connect(path)) as database, database:
        for table, rows in (("test_run", tests), ("tpch_run", queries)):
            names = [*(name for name in TABLES[table] if name not in leave_out), *more]
            kinds = [f'"{name}" {TABLES[table].get(name, "TEXT")}' for name in names]
            database.execute(f"CREATE TABLE {table} ({', '.join(kinds)})")
            for row in rows:
                full = {**COMMON, **row}
                values = [full.get(name) for name in names]
                marks = ", ".join("?" * len(names))
                database.execute(f"INSERT INTO {table} VALUES ({marks})", values)
    return path


def rows_of(path, table):
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute(f"SELECT * FROM {table} ORDER BY id")]


@pytest.fixture
def database(tmp_path):
    return make_database(tmp_path / "benchmark.db")


def test_import_copies_numbers_of_a_row(store, database):
    import_sqlite(store, database)
    (first,) = store.runs("array.sum[fast-thin]").dropna(subset="compute_time").to_dict("records")

    assert first["duration"] == 20.25
    assert first["memory_mean"] == 1.5e9
    assert first["scheduler_cpu_mean"] == 25.0
    assert first["scheduler_lag_max"] == 0.5
    assert first["serialize_time"] == 2.0
    assert json.loads(first["extra_metrics"]) == {"disk_spill_time": 1.0}
    assert first["started"] == pd.Timestamp("2023-05-02 01:02:03.123456", tz="UTC")
    assert first["environment"] == "upstream"
    assert (first["dask"], first["python"]) == ("2023.5.0", "3.9.16")
    assert store.open(first["id"]).tree["duration"].attrs["units"] == "s"


def test_import_makes_a_run_of_every_row(store, database):
    report = import_sqlite(store, database)
    runs = store.runs()

    assert (report.rows, report.added, len(runs)) == (8, 8, 8)
    assert runs["outcome"].value_counts().to_dict() == {
        "ok": 5, "failed": 1, "infrastructure": 1, "skipped": 1
    }  # fmt: skip
    assert any("no start" in line for line in report.odd)
    assert any("peak_memory is not a number" in line for line in report.odd)
    assert store.check().healthy


def test_import_names_queries_by_engine_and_size(store, database):
    import_sqlite(store, database)
    runs = store.runs("tpch.*")

    assert sorted(runs["workload"]) == [
        "tpch.dask.query_1[scale=100,local=False,compression=snappy]",
        "tpch.duckdb.query_1[scale=10,local=True]",
    ]
    assert set(runs["category"]) == {"tpch"}
    assert json.loads(runs["params"].iloc[0])["query"] == 1


def test_import_of_later_copy_adds_only_new_rows(store, tmp_path):
    import_sqlite(store, make_database(tmp_path / "old.db", tests=TESTS[:3]))
    before = store.ids()

    again = import_sqlite(store, tmp_path / "old.db")
    assert (again.added, store.ids()) == (0, before)

    later = import_sqlite(store, make_database(tmp_path / "new.db"))
    assert later.added == 3
    assert set(before) < set(store.ids())


def test_export_returns_imported_rows_unchanged(store, tmp_path):
    database = make_database(tmp_path / "odd.db", leave_out=("worker_max_tick",), more=("newer",))
    import_sqlite(store, database)

    assert export_runs(store, tmp_path / "back.db") == 8
    for table in TABLES:
        exported, original = rows_of(tmp_path / "back.db", table), rows_of(database, table)
        assert len(exported) == len(original) > 0
        for back, row in zip(exported, original, strict=True):
            assert {name: back[name] for name in row} == row


def test_export_of_measured_runs_can_be_imported(store, make_run, tmp_path):
    store.add(make_run("array.sum[kind=thin]", duration=12.5, memory_peak=3e9))
    store.add(make_run("array.sum[kind=thin]", outcome="infrastructure"))
    export_runs(store, tmp_path / "ours.db")
    ok, failed = rows_of(tmp_path / "ours.db", "test_run")

    assert (ok["name"], ok["call_outcome"]) == ("test_sum[kind=thin]", "passed")
    assert (ok["duration"], ok["peak_memory"]) == (12.5, 3e9)
    assert (failed["setup_outcome"], failed["call_outcome"]) == ("failed", None)

    other = Store(tmp_path / "other")
    import_sqlite(other, tmp_path / "ours.db")
    assert other.runs(outcome="ok")["duration"].tolist() == [12.5]
    assert set(other.runs()["workload"]) == {"array.sum[kind=thin]"}


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_export_writes_parquet_and_csv(store, make_run, tmp_path, suffix):
    store.add(make_run(duration=1.5))
    path = tmp_path / f"runs{suffix}"
    export_runs(store, path)
    read = pd.read_parquet if suffix == ".parquet" else pd.read_csv

    assert read(path)["duration"].tolist() == [1.5]
    assert json.loads(read(path)["params"].iloc[0]) == {"chunks": "thin"}


def test_import_and_export_reject_invalid_files(store, tmp_path):
    (tmp_path / "text.db").write_text("no database at all, only words")
    with closing(sqlite3.connect(tmp_path / "other.db")) as database, database:
        database.execute("CREATE TABLE people (name TEXT)")

    with pytest.raises(InvalidImportError, match="no such file"):
        import_sqlite(store, tmp_path / "nothing.db")
    with pytest.raises(InvalidImportError, match=r"text\.db: cannot be read as a benchmark\.db"):
        import_sqlite(store, tmp_path / "text.db")
    with pytest.raises(InvalidImportError, match="neither table test_run nor tpch_run, but people"):
        import_sqlite(store, tmp_path / "other.db")
    with pytest.raises(UsageError, match="already exists"):
        export_runs(store, tmp_path / "other.db")
    with pytest.raises(UsageError, match=r"use \.db"):
        export_runs(store, tmp_path / "runs.txt")
    assert len(store) == 0


def test_import_that_fails_keeps_and_lists_written_runs(store, database, monkeypatch):
    class StopNow(Exception):
        pass

    n_written, encode = 0, runfile.encode_run

    def encode_three(tree):
        nonlocal n_written
        n_written += 1
        if n_written == 4:
            raise StopNow
        return encode(tree)

    monkeypatch.setattr(runfile, "encode_run", encode_three)
    with pytest.raises(StopNow):
        import_sqlite(store, database)

    assert len(store) == 3
    monkeypatch.undo()
    assert import_sqlite(store, database).added == 5
    assert store.check().healthy
