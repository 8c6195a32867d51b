import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchkit.errors import (
    AlreadyStored,
    InvalidStoreError,
    MissingExtra,
    StoreAccessError,
    StoreError,
    UsageError,
)
from benchkit.store import bucket as module
from benchkit.store.bucket import BucketFiles
from benchkit.store.runfile import encode_run
from benchkit.store.storage import run_name
from benchkit.store.store import Store
from validation.fault_proxy import FaultProxy
from validation.s3_server import BUCKET


@pytest.fixture
def files(bucket):
    return BucketFiles(bucket)


@pytest.fixture
def proxy(bucket, monkeypatch):
    """Return a proxy without faults of its own, between the client and the server."""
    with FaultProxy(os.environ["AWS_ENDPOINT_URL"], {}) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        yield proxy


def elsewhere(monkeypatch, tmp_path):
    """Continue as on another machine: with another local cache."""
    monkeypatch.setenv("BENCHKIT_CACHE", str(tmp_path / "elsewhere"))


# -- faults of the network ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["unavailable", "reset", "lost"])
def test_create_succeeds_after_a_fault(bucket, proxy, kind):
    files = BucketFiles(bucket)
    proxy.next = [kind, kind]

    files.create("marks/a.json", b"data")

    assert files.read("marks/a.json") == b"data"
    assert proxy.counts[kind] == 2


@pytest.mark.parametrize("kind", ["lost", "reset"])
def test_create_after_fault_rejects_existing_name(bucket, proxy, kind):
    files = BucketFiles(bucket)
    files.create("marks/a.json", b"data")
    proxy.next = [kind]

    with pytest.raises(AlreadyStored, match=r"marks/a\.json"):
        files.create("marks/a.json", b"data")


@pytest.mark.parametrize("kind", ["unavailable", "reset", "lost"])
def test_other_requests_succeed_after_a_fault(bucket, proxy, kind):
    files = BucketFiles(bucket)
    files.create("runs/a.txt", b"data")

    proxy.next = [kind]
    assert files.exists("runs/a.txt")
    proxy.next = [kind]
    assert list(files.walk("runs")) == ["runs/a.txt"]
    proxy.next = [kind]
    files.move("runs/a.txt", "trash/a.txt")
    proxy.next = [kind]
    files.delete("trash/a.txt", "trash/b.txt")
    assert not files.exists("trash/a.txt")
    assert not files.exists("runs/a.txt")


def test_silent_server_is_an_error_in_limited_time(bucket, proxy, monkeypatch):
    monkeypatch.setattr(module, "RETRY_S", 2.0)
    monkeypatch.setattr(module, "SILENT_S", 0.5)
    files = BucketFiles(bucket)
    proxy.next = ["stall"] * 50

    with pytest.raises(StoreError, match=rf"no answer from {proxy.url}"):
        files.create("marks/a.json", b"data")
    with pytest.raises(StoreError, match=rf"no answer from {proxy.url}"):
        files.read("marks/a.json")
    assert len(proxy.next) > 30  # each request was tried a few times


# -- mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["s3://", "s3:///x", "http://host/x", "s3://a?b=c", "s3://u@b/x"])
def test_address_that_is_no_bucket_is_refused(url):
    with pytest.raises(InvalidStoreError, match="not a store: give a folder, s3://bucket/prefix"):
        Store(url)


def test_missing_bucket_is_named(bucket):
    with pytest.raises(InvalidStoreError, match=r"there is no bucket s3://nowhere: create it"):
        Store("s3://nowhere/x")


def test_store_that_does_not_exist_is_refused(bucket):
    with pytest.raises(InvalidStoreError, match=f"^{bucket}: no store there"):
        Store(bucket, create=False)


def test_other_content_of_a_bucket_is_refused(bucket, files):
    files.create("photos/cat.jpg", b"x")

    with pytest.raises(InvalidStoreError, match=r"not a store .*, and not empty"):
        Store(bucket)


def test_missing_credentials_are_named(bucket, monkeypatch, tmp_path):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))

    with pytest.raises(StoreAccessError, match=r"no credentials: set AWS_ACCESS_KEY_ID") as caught:
        Store(bucket)
    assert caught.value.exit_code == 2


def test_credentials_of_a_profile_are_used(bucket, monkeypatch, tmp_path):
    key, secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    file = tmp_path / "credentials"
    file.write_text(f"[lab]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_PROFILE", "lab")

    BucketFiles(bucket).create("marks/a.json", b"data")

    assert BucketFiles(bucket).read("marks/a.json") == b"data"


def test_server_that_does_not_listen_is_named(bucket, monkeypatch):
    monkeypatch.setattr(module, "RETRY_S", 1.0)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")

    with pytest.raises(StoreError, match=r"no answer from http://127\.0\.0\.1:9: check") as caught:
        Store(bucket)
    assert caught.value.exit_code == 3


def test_missing_package_is_named(bucket, monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore.store", None)

    with pytest.raises(MissingExtra, match=r"obstore.* is not installed: run .*benchkit\[cloud\]"):
        Store(bucket)


def test_command_prints_one_line_and_exits_with_2(bucket):
    command = [sys.executable, "-m", "benchkit", "list", "runs", "--store", "s3://nowhere/x"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)

    line = "error: s3://nowhere/x: there is no bucket s3://nowhere: create it first\n"
    assert (done.returncode, done.stderr) == (2, line)


# -- local copies ---------------------------------------------------------------------------------


def test_unchanging_file_is_fetched_once(bucket, proxy):
    files = BucketFiles(bucket)
    files.create("runs/a.txt", b"data")
    files.read("runs/a.txt")
    n_requests = proxy.counts.total()

    assert files.read("runs/a.txt") == b"data"
    assert BucketFiles(bucket).path("runs/a.txt").read_bytes() == b"data"
    assert proxy.counts.total() == n_requests


def test_changing_file_is_fetched_again(files):
    files.replace("experiments/a/left-out.json", b"1")
    assert files.read("experiments/a/left-out.json") == b"1"
    files.replace("experiments/a/left-out.json", b"2")

    assert files.read("experiments/a/left-out.json") == b"2"
    assert files.path("experiments/a/left-out.json").read_bytes() == b"2"


def test_damaged_copy_is_fetched_again(bucket, files):
    files.create("runs/a.txt", b"data")
    files.path("runs/a.txt").write_bytes(b"dada")

    assert BucketFiles(bucket).read("runs/a.txt") == b"data"


def test_damaged_run_is_read_again_after_its_repair(files, make_run):
    whole = encode_run(make_run(groups=False))[2]
    files.replace("runs/a.nc", whole.replace(b"duration", b"durations"))
    files.read("runs/a.nc")
    files.replace("runs/a.nc", whole)

    assert files.read("runs/a.nc") == whole


def test_deleted_file_has_no_copy(files):
    files.create("runs/a.txt", b"data")
    path = files.path("runs/a.txt")

    files.delete("runs/a.txt")

    assert not path.exists()
    assert not files.path("runs/a.txt").exists()


def test_oldest_copies_are_deleted_above_the_limit(bucket, files, monkeypatch):
    monkeypatch.setenv("BENCHKIT_CACHE_SIZE", "1 kB")
    names = [f"runs/{letter}.txt" for letter in "abcd"]
    for age, name in enumerate(names):
        files.create(name, bytes(300))
        os.utime(files.path(name), (1e9 + age, 1e9 + age))
    monkeypatch.setattr(module, "_n_new", None)

    files.create("runs/e.txt", bytes(300))
    files.read("runs/e.txt")

    cached = Path(os.environ["BENCHKIT_CACHE"]).glob("stores/*/files/runs/*.txt")
    assert sorted(path.name for path in cached) == ["c.txt", "d.txt", "e.txt"]
    assert files.read("runs/a.txt") == bytes(300)


def test_wrong_limit_is_refused(files, monkeypatch):
    monkeypatch.setenv("BENCHKIT_CACHE_SIZE", "much")
    files.create("runs/a.txt", b"data")

    with pytest.raises(UsageError, match="'much': must be a size such as 10 GiB"):
        files.read("runs/a.txt")


def test_check_compares_the_bytes_of_the_bucket(bucket, make_run):
    store = Store(bucket)
    run_id = store.add(make_run(groups=False))
    store.open(run_id)
    name = run_name(run_id)
    data = bytearray(store.files.read(name))
    data[len(data) // 2] ^= 1
    store.files.replace(name, bytes(data))

    assert store.check(quick=True).healthy
    assert store.check().damaged_runs == [run_id]


# -- workspaces -----------------------------------------------------------------------------------


def write(files, name, text="text"):
    path = files.workspace(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_publish_moves_files_of_a_workspace(files):
    kept = write(files, "experiments/a/kernel-main.log")
    moved = write(files, "experiments/a/notebooks/0.ipynb")
    write(files, "experiments/a/notebooks/.draft")

    files.publish("experiments/a/notebooks")

    assert kept.exists()
    assert not moved.exists()
    assert list(files.walk()) == ["experiments/a/notebooks/0.ipynb"]
    assert files.read("experiments/a/notebooks/0.ipynb") == b"text"


def test_rescue_publishes_only_experiments_that_ended(files):
    names = [f"experiments/{name}/kernel-main.log" for name in ("ended", "running", "new")]
    hour_ago = time.time() - 3600
    for name in names[:2]:
        os.utime(write(files, name), (hour_ago, hour_ago))
    write(files, names[2])
    write(files, "tmp/recordings/running/a.recording/head.json")
    raw = [f"experiments/killed/{name}" for name in ("kernel-a.log", "notebooks/.0000-a.ipynb")]
    for name in raw:
        os.utime(write(files, name), (hour_ago, hour_ago))

    files.rescue()

    assert list(files.walk()) == names[:1]
    assert not any(files.workspace(name).exists() for name in raw)


# -- stores ---------------------------------------------------------------------------------------


def test_store_is_read_on_another_machine(bucket, make_run, monkeypatch, tmp_path):
    store = Store(bucket)
    ids = [store.add(make_run(groups=False)) for _ in range(3)]
    store.compact()

    elsewhere(monkeypatch, tmp_path)
    other = Store(bucket, create=False)

    assert other.ids() == ids
    assert [run.tree.attrs["id"] for run in other.load(ids)] == ids
    assert repr(other) == f"<benchkit.Store {bucket}: 3 runs>"


def test_stores_of_two_servers_have_no_common_copies(bucket, proxy):
    """The proxy is another address: as if it were another server with a bucket of that name."""
    files = BucketFiles(bucket)
    files.create("runs/a.txt", b"data")

    os.environ["AWS_ENDPOINT_URL"] = proxy.url.replace("127.0.0.1", "localhost")
    other = BucketFiles(bucket)

    assert other.path("runs/a.txt") != files.path("runs/a.txt")


def test_copy_between_folder_and_bucket_keeps_everything(bucket, filled, tmp_path):
    filled.mark("exclude", workload="frame.join", reason="no")
    store = Store(bucket)
    back = Store(tmp_path / "back")

    assert (filled.copy(store), store.copy(back), filled.copy(store)) == (6, 6, 0)

    assert back.runs().equals(filled.runs())
    assert back.marks() == filled.marks() == store.marks()
    assert set(back.files.walk("runs")) == set(filled.files.walk("runs"))


def test_bucket_lists_more_than_a_page(files):
    for number in range(1100):
        files.create(f"marks/{number:04d}.json", b"{}")

    assert len(files.list("marks", ".json")) == 1100
    assert len(files.sizes()) == 1100
    files.delete(*files.list("marks"))
    assert BUCKET in files.root
    assert files.list("marks") == []
