"""Text files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from benchkit import whole_file
from benchkit.whole_file import write_whole


def test_write_whole_makes_folders_and_replaces(tmp_path):
    path = tmp_path / "a" / "b.txt"

    write_whole(path, "first")
    write_whole(path, "µ")

    assert path.read_text(encoding="utf-8") == "µ"
    assert [p.name for p in path.parent.iterdir()] == ["b.txt"]


def test_write_whole_on_full_disk_keeps_earlier_file(tmp_path, monkeypatch):
    path = tmp_path / "b.txt"
    write_whole(path, "first")

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(whole_file.os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        write_whole(path, "second")

    assert caught.value.filename == str(path)
    assert path.read_text() == "first"
    assert [p.name for p in tmp_path.iterdir()] == ["b.txt"]


def test_write_whole_keeps_links_and_devices(tmp_path):
    target, link = tmp_path / "target.txt", tmp_path / "link.txt"
    target.write_text("old")
    link.symlink_to(target)

    write_whole(link, "new")
    write_whole(Path(os.devnull), "nothing")

    assert link.is_symlink()
    assert target.read_text() == "new"
    assert not os.path.isfile(os.devnull)
