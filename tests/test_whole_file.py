"""Files and folders that are written whole or not at all."""

import errno
import os
from hashlib import sha256
from pathlib import Path

import pytest

from benchkit import whole_file
from benchkit.whole_file import drafted, publish, write_whole


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


def no_hard_links(*_):
    raise OSError(errno.EPERM, "Operation not permitted")


def fat_of_windows(*_):
    error = OSError(errno.EINVAL, "Incorrect function")
    error.winerror = 1
    raise error


def draft_in(folder, text="new", kind="file"):
    draft = folder / "draft"
    if kind == "file":
        draft.write_text(text)
    else:
        (draft / "sub").mkdir(parents=True)
        (draft / "sub" / "a.txt").write_text(text)
    return draft


def text_of(final):
    return (final if final.is_file() else final / "sub" / "a.txt").read_text()


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_publish_replaces_only_if_asked(tmp_path, kind):
    final = tmp_path / "final"

    publish(draft_in(tmp_path, "first", kind), final, replace=False)
    with pytest.raises(FileExistsError):
        publish(draft_in(tmp_path, "second", kind), final, replace=False)
    assert text_of(final) == "first"

    publish(tmp_path / "draft", final)
    assert text_of(final) == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["final"]


def test_publish_keeps_earlier_folder_after_error(tmp_path, monkeypatch):
    final, rename = tmp_path / "final", os.rename
    publish(draft_in(tmp_path, "first", "folder"), final)
    draft = draft_in(tmp_path, "second", "folder")

    def fail_once(source, target):
        if source == draft:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail_once)
    with pytest.raises(OSError, match="Input/output error"):
        publish(draft, final)

    assert text_of(final) == "first"


@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("durable", [True, False])
def test_publish_writes_content_before_the_name_to_disk(tmp_path, monkeypatch, kind, durable):
    synced, final, fsync = [], tmp_path / "final", os.fsync

    def record(descriptor):
        synced.append((os.path.samestat(os.fstat(descriptor), tmp_path.stat()), final.exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    publish(draft_in(tmp_path, kind=kind), final, durable=durable)

    # The content, before there is the name; then the folder with the name.
    assert synced == ([(False, False), (True, True)] if durable else [])


@pytest.mark.parametrize("link", [no_hard_links, fat_of_windows])
def test_publish_without_hard_links_replaces_nothing(tmp_path, monkeypatch, link):
    monkeypatch.setattr(os, "link", link)
    final = tmp_path / "final"

    publish(draft_in(tmp_path, "first"), final, replace=False)
    with pytest.raises(FileExistsError):
        publish(draft_in(tmp_path, "second"), final, replace=False)

    assert final.read_text() == "first"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["draft", "final"]


def test_publish_replaces_claim_of_killed_writer(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", no_hard_links)
    monkeypatch.setattr(whole_file, "CLAIM_WAIT_S", 0.02)
    final = tmp_path / "final"
    (tmp_path / f"{sha256(str(final).encode()).hexdigest()}.claim").touch()

    publish(draft_in(tmp_path), final, replace=False)

    assert [path.name for path in tmp_path.iterdir()] == ["final"]


def test_publish_accepts_link_whose_reply_was_lost(tmp_path, monkeypatch):
    link = os.link

    def reply_lost(source, target):
        link(source, target)
        raise FileExistsError(target)  # NFS retries and finds its own link

    monkeypatch.setattr(os, "link", reply_lost)
    publish(draft_in(tmp_path), tmp_path / "final", replace=False)

    assert (tmp_path / "final").read_text() == "new"


def test_publish_reports_invalid_link(tmp_path, monkeypatch):
    def link(*_):
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(OSError, match="Invalid argument"):
        publish(draft_in(tmp_path), tmp_path / "final", replace=False)


def fail_while_writing(final, kind):
    with drafted(final) as draft:
        if kind == "folder":
            draft.mkdir()
        (draft / "a.txt" if kind == "folder" else draft).write_text("half")
        raise RuntimeError


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_drafted_removes_draft_after_error(tmp_path, kind):
    with pytest.raises(RuntimeError):
        fail_while_writing(tmp_path / "final", kind)

    assert list(tmp_path.iterdir()) == []


def test_drafted_has_a_hidden_name_that_fits(tmp_path):
    final = tmp_path / ("x" * 250 + ".csv")

    with drafted(final, suffix=".csv") as draft:
        assert draft.name.startswith(".")
        assert draft.suffix == ".csv"
        draft.write_text("text")

    assert final.read_text() == "text"
