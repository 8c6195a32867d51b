"""Files of other programs in the folder or bucket of a store, wrong clocks, and a full disk."""

import os
import time
from collections import Counter

import boto3
import pytest
from click.testing import CliRunner

from benchkit.cli.store import store_info
from benchkit.errors import StoreError, UnlistableFolder
from benchkit.measure import recording
from benchkit.store.bucket import BucketFiles
from benchkit.store.files import STALE_AFTER_S
from benchkit.store.store import Store
from validation.fault_proxy import FaultProxy, _Handler
from validation.s3_server import BUCKET
from validation.synthetic_runs import make_run

#: Keys that are no names of files of a store; obstore refuses to list a folder that has one.
FOREIGN = [
    "experiments//x", "runs//", "runs//a.nc", "a/./b", "a/../b", "..", "marks/./m.json",
    "index//new/x", "trash/../x", "notes.txt",
]  # fmt: skip


@pytest.fixture
def keys(bucket):
    """Return functions that write an object and list all keys of the store in the bucket."""
    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    prefix = bucket.removeprefix(f"s3://{BUCKET}").strip("/")

    def put(name):
        client.put_object(Bucket=BUCKET, Key=f"{prefix}/{name}".lstrip("/"), Body=b"foreign")

    def listed():
        found = client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
        return {item["Key"].removeprefix(prefix).lstrip("/") for item in found}

    yield put, listed
    client.close()


@pytest.mark.parametrize("name", FOREIGN)
def test_bucket_with_foreign_key_is_checked_read_and_copied(bucket, keys, tmp_path, name):
    put, listed = keys
    store = Store(bucket)
    run_id = store.add(make_run(groups=False))
    put(name)

    report = Store(bucket).check()
    assert report.healthy
    assert report.runs == 1
    assert len(report.strangers) == 1
    assert len([line for line in repr(report).splitlines() if line.startswith("  ")]) == 1
    assert Store(bucket).runs()["id"].tolist() == [run_id]
    assert Store(bucket).info()["runs"] == 1
    copy = Store(tmp_path / "copy")
    assert Store(bucket).copy(copy) == 1
    assert copy.check().strangers == []
    assert name in listed()


@pytest.fixture
def as_google(monkeypatch):
    """List as at Google and Azure: with obstore alone, which refuses a folder with such a name."""
    connect = BucketFiles._connect

    def connected(files, silent_s):
        objects = connect(files, silent_s)
        files._scheme = "gs"
        return objects

    monkeypatch.setattr(BucketFiles, "_connect", connected)


@pytest.mark.parametrize("name", FOREIGN)
def test_bucket_at_google_with_foreign_key_is_checked_read_and_copied(
    bucket, keys, tmp_path, name, as_google
):
    put, _ = keys
    store = Store(bucket)
    run_id = store.add(make_run(groups=False))
    store.files.create("experiments/e1/plan.json", b"{}")
    put(name)
    folder, copy = name.partition("/")[0], Store(tmp_path / "copy")

    report = Store(bucket).check()
    if folder in ("marks", "index"):  # no number is right without them
        problem = f"/{folder}/: holds files with invalid names"
        with pytest.raises(UnlistableFolder, match=problem):
            Store(bucket).runs()
        assert not report.healthy
        assert report.runs == 1
        (damage,) = report.unreadable
        info = Store(bucket).info()
        assert "runs" not in info
        for text in (damage, info["problem"]):
            assert problem in text
        result = CliRunner().invoke(store_info, ["--store", bucket])
        assert result.exit_code == 3
        assert problem in result.stdout
        assert "problem" in Store(bucket)._repr_html_()
    else:
        assert report.healthy
        assert Store(bucket).runs()["id"].tolist() == [run_id]
        assert Store(bucket).info()["runs"] == 1
    assert report.runs == 1
    assert report.strangers == [
        name if name == "notes.txt" else f"{name.strip('.').split('/')[0]}//"
    ]
    if folder in ("marks", "experiments"):
        with pytest.raises(UnlistableFolder, match=rf"/{folder}/: .* everything else was"):
            Store(bucket).copy(copy)
    else:
        assert Store(bucket).copy(copy) == 1
        assert copy.files.exists("experiments/e1/plan.json")
    assert copy.runs()["id"].tolist() == [run_id]


def test_folder_with_foreign_names_is_checked_and_not_copied(tmp_path):
    store = Store(tmp_path / "store")
    store.add(make_run(groups=False))
    for name in ("marks/a\nb.json", "experiments/a\nb/log", "runs/x.nc", "ledger/notes.txt"):
        path = tmp_path / "store" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")

    report = store.check()
    copy = Store(tmp_path / "copy")

    assert len(report.strangers) == 4
    assert "'marks/a\\nb.json'" in repr(report)
    assert store.copy(copy) == 1
    assert copy.check().strangers == []


def test_first_run_in_a_bucket_needs_few_list_requests(bucket, monkeypatch):
    requests = Counter()
    parse = _Handler.parse_request

    def counted_parse(handler):
        is_whole = parse(handler)
        kind = "LIST" if "list-type" in handler.path else handler.command
        requests[kind] += 1
        return is_whole

    monkeypatch.setattr(_Handler, "parse_request", counted_parse)
    with FaultProxy(os.environ["AWS_ENDPOINT_URL"], {}) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        Store(bucket).add(make_run(groups=False))
        assert requests["LIST"] <= 2
        requests.clear()
        Store(bucket).runs()
        assert requests["LIST"] <= 3
        requests.clear()
        assert Store(bucket).check().healthy
        assert requests["LIST"] <= 12


# -- clocks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset_s", [2 * STALE_AFTER_S, -2 * STALE_AFTER_S])
def test_draft_is_judged_by_the_clock_of_the_file_system(tmp_path, monkeypatch, offset_s):
    store = Store(tmp_path)
    store.add(make_run(groups=False))
    (tmp_path / "tmp").mkdir(exist_ok=True)
    new, old = tmp_path / "tmp/new", tmp_path / "tmp/old"
    for path in (new, old):
        path.write_bytes(b"draft")
    os.utime(old, (time.time() - 1.5 * STALE_AFTER_S,) * 2)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + offset_s)  # of the machine that looks

    assert store.check().leftovers == ["tmp/old"]
    assert new.exists()
    assert not old.exists()


def test_recording_is_judged_by_the_clock_of_the_file_system(tmp_path, monkeypatch):
    folder = tmp_path / "a.recording"
    folder.mkdir()
    (folder / "head.json").write_text("{}")
    (folder / "tail.json").write_text("{}")
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 10 * recording.WRITER_SILENT_S)

    assert not recording.is_abandoned(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["a.recording"]


# -- full disk ------------------------------------------------------------------------------------


def test_prune_without_space_for_the_index_moves_nothing(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.add_many([make_run(groups=False) for _ in range(4)])  # one segment
    ids = store.ids()

    def full(name, data):
        raise StoreError(f"{name}: could not be written: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(store.files, "create", full)
        with pytest.raises(StoreError, match="No space left"):
            store.prune(ids[:2])
    assert store.ids() == ids
    assert Store(tmp_path).check().healthy
    assert list(store.files.walk("trash")) == []

    assert store.prune(ids[:2]) == 2
    assert Store(tmp_path).ids() == ids[2:]
    assert Store(tmp_path).check().healthy


def test_prune_without_permission_lists_the_runs_that_stay(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.add_many([make_run(groups=False) for _ in range(3)])
    first, *others = store.ids()
    move = store.files.move

    def refuse_second(name, to):
        if first not in name:
            raise StoreError(f"{name}: not moved")
        move(name, to)

    monkeypatch.setattr(store.files, "move", refuse_second)
    with pytest.raises(StoreError, match="not moved"):
        store.prune([first, *others])

    assert Store(tmp_path).ids() == others
