import dataclasses
import errno
import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchkit.errors import InvalidStoreError, StoreError, UnreadableRun
from benchkit.measure.recording import RecordingWriter
from benchkit.measure.run_ids import derived_id, new_id
from benchkit.store import storage
from benchkit.store.check import CheckReport
from benchkit.store.runfile import encode_run
from benchkit.store.storage import RECORDINGS, run_name
from benchkit.store.store import Store

pytestmark = pytest.mark.store_kinds("folder", "bucket", "real_bucket")


def put_unlisted(store, run):
    """Write a run file without an index entry, as after a crash between the writes of `add`."""
    run_id, _, data = encode_run(run)
    store.files.create(run_name(run_id), data)
    return run_id


def test_check_reports_healthy_store(filled):
    report = filled.check()

    assert report == CheckReport(runs=6)
    assert report.healthy
    assert repr(report) == "6 runs, healthy"


def test_check_adds_unlisted_run_of_any_month(filled, make_run):
    orphan = put_unlisted(filled, make_run(groups=False, id=derived_id(1e9, "old")))
    assert orphan not in filled.ids()

    report = filled.check()

    assert report.adopted == [orphan]
    assert report.healthy
    assert orphan in filled.ids()
    assert filled.check().adopted == []


def test_check_without_repair_changes_nothing(filled, make_run):
    orphan = put_unlisted(filled, make_run(groups=False))
    before = sorted(filled.files.walk())

    report = filled.check(repair=False)

    assert report.orphans == [orphan]
    assert not report.healthy
    assert sorted(filled.files.walk()) == before


def test_check_rebuilds_missing_index_from_runs(filled):
    before = filled.runs()
    filled.compact()
    filled.files.delete(*filled.files.walk("index"))

    report = filled.check()

    assert len(report.adopted) == 6
    assert filled.runs().equals(before)


@pytest.mark.parametrize("compacted", [True, False])
def test_check_rebuilds_damaged_index_from_runs(filled, compacted):
    before = filled.runs()
    if compacted:
        filled.compact()
    (name,) = filled.files.list("index", ".parquet") or filled.files.list("index/new")[:1]
    filled.files.replace(name, b"rubbish")

    report = type(filled)(filled.path).check()

    assert report.damaged_index == [name]
    assert len(report.adopted) == (6 if compacted else 1)
    assert type(filled)(filled.path).runs().equals(before)


def test_check_reports_damaged_run_by_name(filled):
    name = run_name(filled.ids()[0])
    filled.files.replace(name, filled.files.read(name)[:1000])

    report = filled.check()

    assert len(report.unreadable) == 1
    assert name in report.unreadable[0]
    assert not report.healthy
    assert report.runs == 5
    assert report.missing == []


def damage(store, run_id):
    """Flip one bit in the middle of a run's file."""
    data = bytearray(store.files.read(run_name(run_id)))
    data[len(data) // 2] ^= 1
    store.files.replace(run_name(run_id), bytes(data))


def test_check_finds_one_flipped_bit(filled):
    run_id = filled.ids()[3]
    damage(filled, run_id)

    report = filled.check()

    assert report.damaged_runs == [run_id]
    assert "its bytes differ from its SHA-256 digest" in report.unreadable[0]
    assert "benchkit store check --set-aside" in repr(report)
    assert filled.check(quick=True).healthy  # compares names only


def test_check_finds_exchanged_run(filled, make_run):
    """A complete file of the same run, but with other values than the one that was added."""
    run_id = filled.ids()[3]
    other = make_run(groups=False, id=run_id, duration=1.0)
    filled.files.replace(run_name(run_id), encode_run(other)[2])

    report = filled.check()

    assert report.damaged_runs == [run_id]
    assert "not the file that was added" in report.unreadable[0]


def test_damaged_run_is_set_aside_and_brought_back(filled, tmp_path):
    copy = type(filled)(tmp_path / "copy")
    filled.copy(copy)
    before, run_id = filled.runs(), filled.ids()[3]
    damage(filled, run_id)

    report = filled.check(set_aside=True)

    assert report.set_aside == [run_id]
    assert not report.healthy
    assert filled.check().healthy
    assert run_id not in filled
    assert filled.files.exists(f"trash/{run_name(run_id)}")
    assert copy.copy(filled) == 1
    assert filled.runs().equals(before)
    assert filled.check().healthy


def test_copy_leaves_out_damaged_runs_and_says_so(filled, tmp_path):
    run_id = filled.ids()[3]
    damage(filled, run_id)
    copy = type(filled)(tmp_path / "copy")

    with pytest.raises(UnreadableRun, match="not copied; everything else was"):
        filled.copy(copy)

    assert sorted(copy.ids()) == sorted(set(filled.ids()) - {run_id})
    assert copy.check().healthy


def test_check_reports_run_with_wrong_file_name(filled):
    run_id = new_id()
    data = filled.files.read(run_name(filled.ids()[0]))
    filled.files.create("runs/copy.nc", data)
    filled.files.create(run_name(run_id), data)

    report = filled.check()

    assert report.strangers == ["runs/copy.nc"]
    assert len(report.unreadable) == 1
    assert "contains run" in report.unreadable[0]


def test_check_reports_and_keeps_foreign_files(filled):
    run_id = filled.ids()[0]
    wrong_month = f"runs/1999-01/{run_id}.nc"
    for name in ("notes.txt", "index/new/x.json", wrong_month, "runs/2026-08/x.nc"):
        filled.files.create(name, b"")
    filled.files.create("experiments/nightly/report.html", b"")

    report = filled.check()

    assert report.strangers == ["index/new/x.json", "notes.txt", wrong_month, "runs/2026-08/x.nc"]
    assert all(filled.files.exists(name) for name in report.strangers)
    assert report.healthy


def test_check_reports_listed_run_without_file(filled):
    run_id = filled.ids()[2]
    filled.files.delete(run_name(run_id))

    report = filled.check()

    assert report.missing == [run_id]
    assert not report.healthy


@pytest.mark.store_kinds("folder")
def test_check_removes_and_copy_leaves_out_what_killed_kernels_wrote(filled, tmp_path):
    killed, ended = (f"experiments/{derived_id(1e9 + n, 'a')}" for n in range(2))
    raw = [f"{killed}/notebooks/.0000-main-sum.ipynb", f"{killed}/kernel-main.log"]
    kept = [f"{killed}/notebooks/0001-main-sum.ipynb", f"{ended}/kernel-main.log"]
    for name in (*raw, *kept):
        filled.files.create(name, b"token")
    filled.copy(tmp_path / "copy")

    assert list(Store(tmp_path / "copy").files.walk("experiments")) == kept
    assert filled.check().leftovers == []  # the process may still run

    for name in raw:
        os.utime(filled.files.path(name), (1e9, 1e9))
    assert filled.check().leftovers == raw
    assert list(filled.files.walk("experiments")) == kept


@pytest.mark.parametrize("folder", ["marks", "ledger"])
def test_damaged_mark_stops_readers_until_it_is_set_aside(filled, folder):
    filled.mark("exclude", runs=filled.ids()[:1])
    filled.add_event("night", runs=1)
    (name,) = filled.files.list(folder)
    data = bytearray(filled.files.read(name))
    data[data.index(b":") + 3] ^= 1
    filled.files.replace(name, bytes(data))

    with pytest.raises(StoreError, match=f"{name}: damaged .*check --set-aside"):
        filled.runs() if folder == "marks" else filled.events()
    assert name in filled.check().unreadable[0]

    assert filled.check(set_aside=True).set_aside == [name]
    assert len(filled.runs()) == 6
    assert filled.check().healthy


def test_damaged_description_of_the_store_is_named(filled):
    data = filled.files.read("store.json").replace(b"created", b"crested")
    filled.files.replace("store.json", data)

    with pytest.raises(InvalidStoreError, match=r"store\.json: damaged: .* digest"):
        type(filled)(filled.path)
    assert "store.json: damaged description of the store" in filled.check().unreadable[0]


def test_check_corrects_values_of_the_index(filled):
    """Of a segment without digests, or one that another program wrote."""
    before = filled.runs()
    filled.compact()
    (name,) = filled.files.list("index", ".parquet")
    table = filled.index.table()
    wrong = pc.multiply(table["duration"], pa.scalar(2.0))
    table = table.set_column(table.column_names.index("duration"), "duration", wrong)
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(None), sink)
    filled.files.delete(name)
    filled.files.create(f"index/{new_id()}.parquet", sink.getvalue())

    report = type(filled)(filled.path).check()

    n_values = before["duration"].notna().sum()
    assert len(report.corrected) == n_values > 0
    assert type(filled)(filled.path).runs().equals(before)
    assert filled.check().corrected == []


def test_check_report_is_frozen_json_and_readable(filled, make_run):
    put_unlisted(filled, make_run(groups=False))
    filled.files.create("notes.txt", b"")

    report = filled.check(repair=False)

    assert report.to_dict()["strangers"] == ["notes.txt"]
    assert report.to_dict()["healthy"] is False
    assert "1 missing from the index:" in repr(report)
    assert "notes.txt" in repr(report)
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.runs = 3


def test_run_without_permission_is_not_set_aside(filled, monkeypatch):
    """Replaces the calls of the system, because root may read every file."""
    path, read = filled.files.path(run_name(filled.ids()[0])), Path.read_bytes

    def refuse(self):
        if self == path:
            raise PermissionError(13, "Permission denied")
        return read(self)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", refuse)
        patch.setattr("benchkit.store.check.os.access", lambda name, mode: name != path)
        storage._kept.clear()
        report = filled.check(set_aside=True)

    assert "cannot be read: Permission denied" in report.unreadable[0]
    assert report.set_aside == report.damaged_runs == []
    assert filled.check().healthy


@pytest.fixture
def full_disk(monkeypatch):
    """Return a function that fills the disk: replaces a call of the system."""
    sync = os.fsync

    def full(descriptor):
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    return lambda: monkeypatch.setattr("benchkit.store.files.os.fsync", full)


@pytest.mark.store_kinds("folder")
def test_check_on_full_disk_reports_what_it_cannot_repair(filled, make_run, full_disk):
    orphan = put_unlisted(filled, make_run(groups=False))
    run_id = filled.ids()[0]
    damage(filled, run_id)
    full_disk()

    report = filled.check(set_aside=True)

    assert report.orphans == [orphan]
    assert report.set_aside == report.damaged_runs == [run_id]  # renamed only
    (line,) = report.not_repaired
    assert line.endswith("could not be written: No space left on device; no partial file remains")
    assert "1 not repaired:" in repr(report)
    assert not report.healthy


def finished_recording(store, pid):
    """Write a finished recording of a process."""
    writer = RecordingWriter(store.files.workspace(RECORDINGS), new_id())
    writer.head(id=writer.path.stem)
    head = json.loads((writer.path / "head.json").read_text())
    head["writer"]["pid"] = pid
    (writer.path / "head.json").write_text(json.dumps(head))
    writer.tail(outcome="ok")
    return writer.path


@pytest.mark.store_kinds("folder")
def test_check_counts_recordings_that_wait_for_adoption(filled):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    finished_recording(filled, ended.pid)
    finished_recording(filled, os.getpid())  # still stored by its command

    report = filled.check()

    assert report.waiting == 1
    assert report.healthy
    assert "1 recording waits for adoption: check again 10 minutes after" in repr(report)
