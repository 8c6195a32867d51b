from __future__ import annotations

import errno
import os
import threading
import time

import pytest

from benchkit.errors import AlreadyStored, StoreError
from benchkit.store import files as objects
from benchkit.store.files import LocalFiles


@pytest.fixture
def files(tmp_path):
    return LocalFiles(tmp_path / "root")


def everything(files):
    return sorted(p.relative_to(files.root).as_posix() for p in files.root.rglob("*"))


def no_hard_links(*_):
    raise OSError(errno.EPERM, "Operation not permitted")


def test_what_is_created_can_be_read_and_nothing_else_is_left(files):
    files.create("a/b/c.txt", b"hello")

    assert files.read("a/b/c.txt") == b"hello"
    assert everything(files) == ["a", "a/b", "a/b/c.txt", "tmp"]


def test_a_name_that_is_taken_is_refused_and_keeps_its_content(files):
    files.create("a.txt", b"first")

    with pytest.raises(AlreadyStored, match=r"a\.txt"):
        files.create("a.txt", b"second")
    assert files.read("a.txt") == b"first"
    assert files.list("tmp") == []


@pytest.mark.parametrize("has_links", [True, False])
def test_of_many_writers_of_one_name_exactly_one_wins(files, monkeypatch, has_links):
    if not has_links:
        monkeypatch.setattr(objects.os, "link", no_hard_links)
    barrier, won, lost = threading.Barrier(8), [], []

    def write(number):
        barrier.wait()
        try:
            files.create("one.txt", str(number).encode() * 5000)
            won.append(number)
        except AlreadyStored:
            lost.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(won) == 1
    assert len(lost) == 7
    assert files.read("one.txt") == str(won[0]).encode() * 5000
    assert files.list("tmp") == []


def test_a_file_system_without_hard_links_works_and_replaces_nothing(files, monkeypatch):
    monkeypatch.setattr(objects.os, "link", no_hard_links)

    files.create("a.txt", b"first")
    with pytest.raises(AlreadyStored):
        files.create("a.txt", b"second")

    assert files.read("a.txt") == b"first"
    assert files.list("tmp") == []


def test_a_link_whose_answer_was_lost_is_a_success(files, monkeypatch):
    link = os.link

    def answer_lost(source, target):
        link(source, target)
        raise FileExistsError(target)  # NFS retries and finds its own link

    monkeypatch.setattr(objects.os, "link", answer_lost)

    files.create("a.txt", b"data")

    assert files.read("a.txt") == b"data"


def test_trouble_while_writing_is_one_line_and_leaves_nothing(files, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(objects.os, "fsync", full)
    files.root.mkdir()
    (files.root / "tmp").mkdir()

    with pytest.raises(StoreError, match="No space left on device") as caught:
        files.create("a.txt", b"data")

    assert "\n" not in str(caught.value)
    assert "a.txt" in str(caught.value)
    assert everything(files) == ["tmp"]


def test_a_file_where_a_folder_should_be_is_one_line(files):
    files.create("a", b"data")

    with pytest.raises(StoreError, match="Not a directory"):
        files.create("a/b", b"data")


def test_listing_shows_files_of_one_folder_only(files):
    for name in ("index/b.parquet", "index/new/a.json", "index/a.parquet", "top.json"):
        files.create(name, b"")

    assert files.list("index") == ["index/a.parquet", "index/b.parquet"]
    assert files.list("index", ".json") == []
    assert files.list("nowhere") == []
    assert files.folders("index") == ["index/new"]


def test_walking_finds_all_but_unfinished_writes(files):
    for name in ("runs/2026-08/b.nc", "runs/2026-07/a.nc", "top.json", "x/tmp/y"):
        files.create(name, b"")
    (files.root / "tmp" / "draft").write_bytes(b"")

    assert list(files.walk()) == ["runs/2026-07/a.nc", "runs/2026-08/b.nc", "top.json", "x/tmp/y"]
    assert list(files.walk("runs")) == ["runs/2026-07/a.nc", "runs/2026-08/b.nc"]


def test_deleting_what_somebody_else_deleted_is_fine(files):
    files.create("a.txt", b"data")

    files.delete("a.txt")
    files.delete("a.txt")

    assert not files.exists("a.txt")
    with pytest.raises(FileNotFoundError):
        files.read("a.txt")


def test_only_old_unfinished_writes_are_leftovers(files):
    files.create("a.txt", b"data")
    for name in ("young", "old"):
        (files.root / "tmp" / name).write_bytes(b"half")
    day_ago = time.time() - 25 * 3600
    os.utime(files.root / "tmp" / "old", (day_ago, day_ago))

    assert files.leftovers() == ["tmp/old"]
