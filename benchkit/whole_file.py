"""Write a file or folder whole or not at all, and check before that it can be written.

`benchkit.measure` has its own code for this: it runs where only that package is, and a recording
must not wait for the disk.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from benchkit.errors import UsageError
from benchkit.interruption import uninterrupted

#: Seconds to wait for the claim of another writer on file systems without hard links; it holds the
#: claim for some ms, unless it was killed.
CLAIM_WAIT_S = 10.0
#: Error numbers of `os.link` on file systems without hard links.
_NO_HARD_LINK_ERRORS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
#: ERROR_INVALID_FUNCTION: the error of Windows for these (FAT, exFAT).
_NO_HARD_LINK_WINDOWS_ERROR = 1


def write_whole(path: Path, content: str | bytes) -> None:
    """Write or replace a file; after an error an earlier file is unchanged."""
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and not path.is_file():  # /dev/stdout must not be replaced
        path.write_bytes(data)
        return
    final = Path(os.path.realpath(path))
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        with drafted(final) as draft:
            draft.write_bytes(data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_new(path: Path, content: str) -> bool:
    """Write a file unless it exists; return whether it was written."""
    if path.exists():
        return False
    try:
        write_whole(path, content)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error
    return True


@contextmanager
def drafted(
    final: Path,
    *,
    folder: Path | None = None,
    suffix: str = "",
    replace: bool = True,
    durable: bool = True,
) -> Iterator[Path]:
    """Yield the path of a draft, which `publish` moves at the end; after an error it is removed."""
    # A hidden name, which `benchkit store check` removes if this process is killed.
    draft = (folder or final.parent) / f".{final.name[:20]}-{uuid4().hex}{suffix}"
    try:
        yield draft
        publish(draft, final, replace=replace, durable=durable)
    finally:
        with suppress(OSError):  # a full disk or read-only folder must not hide the first error
            shutil.rmtree(draft) if draft.is_dir() else draft.unlink(missing_ok=True)


def publish(draft: Path, final: Path, *, replace: bool = True, durable: bool = True) -> None:
    """Move a complete file or folder to its name at once.

    Without `replace`, raises FileExistsError if there is one, also of a concurrent writer. If
    `durable`, content and name are on the disk at the end; caches can do without.
    """
    is_folder = draft.is_dir()
    for path in (draft.rglob("*") if is_folder else [draft]) if durable else ():
        if path.is_file():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
    if is_folder:
        _move_folder(draft, final, replace)
    elif replace:
        os.replace(draft, final)
    else:
        _link(draft, final)
    if durable:
        sync_folder(final.parent)


def _move_folder(draft: Path, final: Path, replace: bool) -> None:
    old = draft.with_name(f"{draft.name}-old")
    with uninterrupted():  # or the folder is neither the old nor the new one
        if replace and final.exists():
            os.rename(final, old)
        try:
            os.rename(draft, final)
        except OSError as error:
            if old.exists():
                os.rename(old, final)
            elif final.is_dir():
                text = os.strerror(errno.EEXIST)
                raise FileExistsError(errno.EEXIST, text, str(final)) from error
            raise
    shutil.rmtree(old, ignore_errors=True)


def _link(draft: Path, final: Path) -> None:
    try:
        os.link(draft, final)  # os.rename would replace a file
    except FileExistsError:
        # NFS can lose the reply to a successful link and send the request again.
        if draft.stat().st_nlink == 1 or not final.samefile(draft):
            raise
    except OSError as error:
        windows_error = getattr(error, "winerror", None)
        if error.errno not in _NO_HARD_LINK_ERRORS and windows_error != _NO_HARD_LINK_WINDOWS_ERROR:
            raise
        _rename_without_replacing(draft, final)
        return
    with suppress(OSError):
        draft.unlink()  # the content has its name


def _rename_without_replacing(draft: Path, final: Path) -> None:
    # The claim file is a lock. Reserving the final name with an empty file would leave a partial
    # file if the process were killed here.
    claim = draft.parent / f"{sha256(str(final).encode()).hexdigest()}.claim"
    until = time.monotonic() + CLAIM_WAIT_S
    while True:
        try:
            claim.touch(exist_ok=False)
            break
        except FileExistsError:
            if final.exists():
                raise
            if time.monotonic() > until:
                claim.unlink(missing_ok=True)
            time.sleep(0.01)
    try:
        if final.exists():
            raise FileExistsError(final)
        os.rename(draft, final)
    finally:
        claim.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents durably."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir()
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    sync_folder(folder.parent)


def sync_files(paths: Iterable[Path]) -> None:
    """Flush the content of many files to disk; on Linux by one call for all file systems."""
    if sys.platform == "linux":  # elsewhere `sync` need not wait
        os.sync()
        return
    for path in paths:
        with path.open("rb+") as file:
            os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to disk."""
    if os.name == "nt":  # Windows cannot open folders and needs no fsync
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # files may be written in it, but it cannot be read
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_folder(option: str, folder: str) -> None:
    """Check that results can be written, before a measurement that may take hours."""
    made = [path for path in (Path(folder), *Path(folder).parents) if not path.exists()]
    try:
        with uninterrupted():
            os.makedirs(folder, exist_ok=True)
            descriptor, draft = tempfile.mkstemp(dir=folder)
            os.close(descriptor)
            os.unlink(draft)
            with suppress(OSError):  # something else was put there
                for path in made:
                    path.rmdir()
    except OSError as error:
        raise UsageError(f"{option} {folder}: cannot be written: {error.strerror}") from error
