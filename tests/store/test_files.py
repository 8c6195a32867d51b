import errno
import os
import threading
import time

import pytest

from benchkit.errors import AlreadyStored, StoreError
from benchkit.store.files import LocalFiles


@pytest.fixture
def files(tmp_path):
    return LocalFiles(tmp_path / "root")


def all_paths(files):
    return sorted(p.relative_to(files.root).as_posix() for p in files.root.rglob("*"))


def no_hard_links(*_):
    raise OSError(errno.EPERM, "Operation not permitted")


def test_create_writes_only_the_file(files):
    files.create("a/b/c.txt", b"hello")

    assert files.read("a/b/c.txt") == b"hello"
    assert all_paths(files) == ["a", "a/b", "a/b/c.txt", "tmp"]


def test_create_rejects_existing_name(files):
    files.create("a.txt", b"first")

    with pytest.raises(AlreadyStored, match=r"a\.txt"):
        files.create("a.txt", b"second")
    assert files.read("a.txt") == b"first"
    assert files.list("tmp") == []


@pytest.mark.parametrize("has_links", [True, False])
def test_create_succeeds_for_one_of_concurrent_writers(files, monkeypatch, has_links):
    if not has_links:
        monkeypatch.setattr(os, "link", no_hard_links)
    barrier, successes, failures = threading.Barrier(8), [], []

    def write(number):
        barrier.wait()
        try:
            files.create("a.txt", str(number).encode() * 5000)
            successes.append(number)
        except AlreadyStored:
            failures.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(successes) == 1
    assert len(failures) == 7
    assert files.read("a.txt") == str(successes[0]).encode() * 5000
    assert files.list("tmp") == []


def test_create_on_full_disk_leaves_nothing(files, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    files.root.mkdir()
    (files.root / "tmp").mkdir()

    with pytest.raises(StoreError, match="No space left on device") as caught:
        files.create("a.txt", b"data")

    assert "\n" not in str(caught.value)
    assert "a.txt" in str(caught.value)
    assert all_paths(files) == ["tmp"]


def test_create_rejects_file_in_place_of_folder(files):
    files.create("a", b"data")

    with pytest.raises(StoreError, match="Not a directory"):
        files.create("a/b", b"data")


def test_list_returns_files_of_one_folder(files):
    for name in ("index/b.parquet", "index/new/a.json", "index/a.parquet", "top.json"):
        files.create(name, b"")

    assert files.list("index") == ["index/a.parquet", "index/b.parquet"]
    assert files.list("index", ".json") == []
    assert files.list("nowhere") == []
    assert files.folders("index") == ["index/new"]


def test_walk_omits_unfinished_writes(files):
    for name in ("runs/2026-08/b.nc", "runs/2026-07/a.nc", "top.json", "x/tmp/y"):
        files.create(name, b"")
    (files.root / "tmp" / "draft").write_bytes(b"")

    assert list(files.walk()) == ["runs/2026-07/a.nc", "runs/2026-08/b.nc", "top.json", "x/tmp/y"]
    assert list(files.walk("runs")) == ["runs/2026-07/a.nc", "runs/2026-08/b.nc"]


def test_delete_ignores_missing_file(files):
    files.create("a.txt", b"data")

    files.delete("a.txt")
    files.delete("a.txt")

    assert not files.exists("a.txt")
    with pytest.raises(FileNotFoundError):
        files.read("a.txt")


def test_leftovers_are_old_drafts_and_logs_of_killed_kernels(files):
    day_ago = time.time() - 2 * 86400
    names = [
        "experiments/killed/notebooks/.0000-a-b.ipynb",
        "experiments/killed/kernel-a.log",
        "experiments/killed/notebooks/0001-a-b.ipynb",
        "experiments/ended/notebooks/.0000-a-b.ipynb-0123abcd",  # redacted
        "experiments/ended/kernel-a.log",
        "experiments/running/notebooks/.0000-a-b.ipynb",
        "experiments/running/kernel-a.log",
    ]
    for name in names:
        files.create(name, b"text")
        if "running" not in name:
            os.utime(files.path(name), (day_ago, day_ago))

    assert sorted(files.leftovers()) == sorted([names[0], names[1], names[3]])


def test_leftovers_are_old_unfinished_writes(files):
    files.create("a.txt", b"data")
    for name in ("new", "old"):
        (files.root / "tmp" / name).write_bytes(b"half")
    day_ago = time.time() - 25 * 3600
    os.utime(files.root / "tmp" / "old", (day_ago, day_ago))

    assert files.leftovers() == ["tmp/old"]
