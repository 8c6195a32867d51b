"""Read and write the files of a store in a folder.

Every file is written as a draft first and then moved to its name, durably and atomically.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from benchkit.errors import AlreadyStored, StoreError
from benchkit.measure.recording import file_system_time
from benchkit.store.storage import Files, unfinished_files

__all__ = ["LocalFiles"]

#: Age in s after which an unfinished write is abandoned; a write takes seconds.
STALE_AFTER_S = 24 * 3600
#: Seconds to wait for the claim of another writer on file systems without hard links; it holds the
#: claim for some ms, unless it was killed.
CLAIM_WAIT_S = 10.0
#: Error numbers of `os.link` on file systems without hard links.
_NO_HARD_LINK_ERRORS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
#: ERROR_INVALID_FUNCTION: the error of Windows for these (FAT, exFAT).
_NO_HARD_LINK_WINDOWS_ERROR = 1


class LocalFiles(Files):
    """Files below one folder."""

    root: Path  # The folder; created by the first write

    def __init__(self, root: Path) -> None:
        super().__init__(Path(root))

    @property
    def address(self) -> str:
        return str(self.root.resolve())

    def path(self, name: str) -> Path:
        return self.root / name

    def fetch(self, names: Iterable[str], *, fresh: bool = False) -> None:
        pass

    def workspace(self, folder: str) -> Path:
        return self.root / folder

    def publish(self, folder: str) -> None:
        pass

    def rescue(self) -> None:
        pass

    def create(self, name: str, data: bytes) -> None:
        self._write(name, data, self._publish_draft)

    def replace(self, name: str, data: bytes) -> None:
        self._write(name, data, os.replace)

    def _write(self, name: str, data: bytes, move: Callable[[Path, Path], object]) -> None:
        draft, final = self.root / "tmp" / uuid4().hex, self.root / name
        try:
            _make_folder(draft.parent)
            _make_folder(final.parent)
            with draft.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            move(draft, final)
            _sync_folder(final.parent)
        except FileExistsError as error:
            raise AlreadyStored(name) from error
        except OSError as error:
            raise StoreError(
                f"{final}: could not be written: {error.strerror or error}; no partial file remains"
            ) from error
        finally:
            with suppress(OSError):  # a full disk must not hide the first error
                draft.unlink()

    def _publish_draft(self, draft: Path, final: Path) -> None:
        """Move a complete draft to its name atomically; fail if the name exists."""
        try:
            os.link(draft, final)  # os.rename would replace a file
        except FileExistsError:
            # NFS can lose the reply to a successful link and send the request again.
            if draft.stat().st_nlink == 1 or not final.samefile(draft):
                raise
        except OSError as error:
            windows_error = getattr(error, "winerror", None)
            if (
                error.errno not in _NO_HARD_LINK_ERRORS
                and windows_error != _NO_HARD_LINK_WINDOWS_ERROR
            ):
                raise
            self._rename_without_replacing(draft, final)

    def _rename_without_replacing(self, draft: Path, final: Path) -> None:
        # The claim file is a lock. Reserving the final name with an empty file would leave a
        # partial file if the process were killed here.
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

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def exists(self, name: str) -> bool:
        return (self.root / name).is_file()

    def list(self, folder: str, suffix: str = "") -> Sequence[str]:
        return [name for name, is_folder in self._entries(folder, suffix) if not is_folder]

    def folders(self, folder: str) -> Sequence[str]:
        return [name for name, is_folder in self._entries(folder, "") if is_folder]

    def _entries(self, folder: str, suffix: str) -> Sequence[tuple[str, bool]]:
        prefix = f"{folder}/" if folder else ""
        try:
            with os.scandir(self.root / folder) as entries:
                return sorted(
                    (prefix + e.name, e.is_dir()) for e in entries if e.name.endswith(suffix)
                )
        except (FileNotFoundError, NotADirectoryError):
            return []

    def walk(self, folder: str = "") -> Iterator[str]:
        for name, is_folder in self._entries(folder, ""):
            if not is_folder:
                yield name
            elif name != "tmp":
                yield from self.walk(name)

    def delete(self, *names: str) -> None:
        for name in names:
            (self.root / name).unlink(missing_ok=True)

    def move(self, name: str, to: str) -> None:
        try:
            _make_folder((self.root / to).parent)
            with suppress(FileNotFoundError):
                os.rename(self.root / name, self.root / to)
            _sync_folder((self.root / to).parent)
        except OSError as error:
            raise StoreError(f"{self.root / name}: not moved to {to}: {error.strerror}") from error

    def leftovers(self) -> Sequence[str]:
        names = (*self.list("tmp"), *unfinished_files(self.walk("experiments")))
        now = file_system_time(self.root / "tmp") if names else 0.0
        return [name for name in names if now - self._written(name, now) > STALE_AFTER_S]

    def _written(self, name: str, otherwise: float) -> float:
        with suppress(FileNotFoundError):
            return (self.root / name).stat().st_mtime
        return otherwise

    def size(self, name: str) -> int:
        with suppress(FileNotFoundError):
            return (self.root / name).stat().st_size
        return 0


def _make_folder(folder: Path) -> None:
    """Create a folder and its parents durably (fsync)."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir()
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to disk."""
    if os.name == "nt":  # Windows cannot open folders and needs no fsync
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
