"""Read and write the files of a store: a folder, or a prefix in a bucket.

Knows names and bytes. Does not know what a run is, so the same few calls serve runs, marks and the
index. Every write creates a new name and never replaces one: two writers can race, and one of them
is told. A class for buckets needs the same calls; its `path` fetches the file into a local cache.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from benchkit.errors import AlreadyStored, StoreError

__all__ = ["LocalFiles"]

#: Unfinished writes older than this are rubbish; a whole write takes seconds.
STALE_AFTER_S = 24 * 3600
#: What `link` answers where a file system has no hard links.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


class LocalFiles:
    """Files below one folder, named by their path in it with ``/`` between the parts.

    Parameters
    ----------
    root : Path
        The folder; made when something is first written.
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(root)

    def path(self, name: str) -> Path:
        """Return where on this machine a file of that name can be opened."""
        return self.root / name

    def create(self, name: str, data: bytes) -> None:
        """Write a new file, durably, whole or not at all; refuse to touch an existing one.

        Raises
        ------
        AlreadyStored
            The name is taken.
        StoreError
            It could not be written (disk full, no permission); nothing is left behind.
        """
        draft, final = self.root / "tmp" / uuid4().hex, self.root / name
        try:
            _make_folder(draft.parent)
            _make_folder(final.parent)
            with draft.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            self._publish(draft, final)
            _sync_folder(final.parent)
        except FileExistsError as error:
            raise AlreadyStored(name) from error
        except OSError as error:
            raise StoreError(
                f"{final}: could not be written: {error.strerror or error}; nothing was left there"
            ) from error
        finally:
            with suppress(OSError):  # also when the disk is full; and never hide the first error
                draft.unlink()

    def _publish(self, draft: Path, final: Path) -> None:
        """Give a whole file its name; atomic, and fails if the name is taken."""
        try:
            os.link(draft, final)  # a rename would replace
        except FileExistsError:
            # NFS can lose the answer to a link that was made, and ask again.
            if draft.stat().st_nlink == 1 or not final.samefile(draft):
                raise
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self._rename_without_replacing(draft, final)

    def _rename_without_replacing(self, draft: Path, final: Path) -> None:
        # Whoever makes the claim may rename. Reserving the name itself with an empty file would
        # leave half a file there if the process were killed now.
        claim = draft.parent / f"{sha256(str(final).encode()).hexdigest()}.claim"
        claim.touch(exist_ok=False)
        try:
            if final.exists():
                raise FileExistsError(final)
            os.rename(draft, final)
        finally:
            claim.unlink()

    def read(self, name: str) -> bytes:
        """Return a file's bytes.

        Raises
        ------
        FileNotFoundError
            There is no such file, or no longer.
        """
        return (self.root / name).read_bytes()

    def exists(self, name: str) -> bool:
        """Whether there is a file of that name."""
        return (self.root / name).is_file()

    def list(self, folder: str, suffix: str = "") -> Sequence[str]:
        """Return the names of the files directly in a folder, sorted; none without the folder."""
        return [name for name, is_folder in self._entries(folder, suffix) if not is_folder]

    def folders(self, folder: str) -> Sequence[str]:
        """Return the names of the folders directly in a folder, sorted."""
        return [name for name, is_folder in self._entries(folder, "") if is_folder]

    def _entries(self, folder: str, suffix: str) -> Sequence[tuple[str, bool]]:
        prefix = f"{folder}/" if folder else ""
        try:
            with os.scandir(self.root / folder) as entries:
                found = [(prefix + e.name, e.is_dir()) for e in entries if e.name.endswith(suffix)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(found)

    def walk(self, folder: str = "") -> Iterator[str]:
        """Yield the names of all files in a folder and below, but not of unfinished writes."""
        for name, is_folder in self._entries(folder, ""):
            if not is_folder:
                yield name
            elif name != "tmp":
                yield from self.walk(name)

    def delete(self, name: str) -> None:
        """Delete a file; nothing happens if somebody else did."""
        (self.root / name).unlink(missing_ok=True)

    def move(self, name: str, to: str) -> None:
        """Give a file another name, durably; nothing happens if it is gone.

        Raises
        ------
        StoreError
            It could not be moved; it is where it was.
        """
        try:
            _make_folder((self.root / to).parent)
            with suppress(FileNotFoundError):
                os.rename(self.root / name, self.root / to)
            _sync_folder((self.root / to).parent)
        except OSError as error:
            raise StoreError(f"{self.root / name}: not moved to {to}: {error.strerror}") from error

    def leftovers(self) -> Sequence[str]:
        """Return unfinished writes that are a day old: their writer is dead."""
        return [name for name in self.list("tmp") if self._age_s(name) > STALE_AFTER_S]

    def _age_s(self, name: str) -> float:
        with suppress(FileNotFoundError):
            return time.time() - (self.root / name).stat().st_mtime
        return 0.0

    def size(self, name: str) -> int:
        """Return a file's size in B; 0 if it is gone."""
        with suppress(FileNotFoundError):
            return (self.root / name).stat().st_size
        return 0


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, so that they survive a power cut."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir()
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    if os.name == "nt":  # there a folder cannot be opened, and needs no fsync
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
