"""Local copies of the files of a bucket, verified by a digest and limited in size."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from dask.utils import parse_bytes

from benchkit.errors import StoreError, UsageError
from benchkit.measure.settings import setting
from benchkit.working_folder import cache_folder

__all__ = ["FileCache"]

#: Size of all copies together if neither ``$BENCHKIT_CACHE_SIZE`` nor Dask's configuration
#: ``benchkit.cache-size`` sets another limit.
DEFAULT_SIZE = "10 GiB"
#: Share of the limit that is left when files are deleted, and that is written between two checks.
_KEPT, _STEP = 0.9, 0.05
_lock = threading.Lock()
#: Bytes written by this process since the last check of the size; None before the first.
_n_new: int | None = None


class FileCache:
    """Copies of files below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._verified: set[str] = set()

    def get(self, name: str) -> Path | None:
        """Return an undamaged copy; a process verifies each copy once."""
        path = self.folder / name
        if name not in self._verified:
            try:
                digest = sha256(path.read_bytes()).hexdigest()
                if _digest_file(path).read_text(encoding="ascii") != digest:
                    return None
                os.utime(path)  # the oldest copies are deleted first
            except (OSError, ValueError):
                return None
            self._verified.add(name)
        return path if path.exists() else None

    def put(self, name: str, data: bytes, *, keep: bool = True) -> Path:
        """Write a copy."""
        path = self.folder / name
        draft = path.with_name(f".{uuid4().hex}.tmp")
        digest = sha256(data).hexdigest() if keep else ""
        self._verified.discard(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            for target, content in ((_digest_file(path), digest.encode()), (path, data)):
                draft.write_bytes(content)
                draft.replace(target)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise StoreError(
                f"{path}: no local copy could be written: {error.strerror or error}: "
                "free space there, or set BENCHKIT_CACHE to another folder"
            ) from error
        _limit_size(len(data))
        return path

    def remove(self, *names: str) -> None:
        """Delete copies; a missing copy is not an error."""
        for name in names:
            self._verified.discard(name)
            _delete(self.folder / name)


def _digest_file(path: Path) -> Path:
    return path.with_name(f".{path.name}.sha256")


def _delete(path: Path) -> None:
    with suppress(OSError):
        _digest_file(path).unlink(missing_ok=True)
        path.unlink(missing_ok=True)


def _limit_size(n_bytes: int) -> None:
    """Delete the copies that were not used for the longest time, if all exceed the limit."""
    global _n_new
    text = setting("cache-size") or DEFAULT_SIZE
    try:
        limit = parse_bytes(text)
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"BENCHKIT_CACHE_SIZE or benchkit.cache-size: {text!r}: must be a size such as 10 GiB"
        ) from error
    with _lock:
        if _n_new is not None and _n_new + n_bytes < _STEP * limit:
            _n_new += n_bytes
            return
        _n_new = 0
        copies = []
        for path in cache_folder().glob("stores/*/files/**/[!.]*"):
            with suppress(OSError):  # another process deletes, too
                status = path.stat()
                if path.is_file():
                    copies.append((status.st_mtime, status.st_size, path))
        size = sum(copy[1] for copy in copies)
        if size > limit:
            for _, n_freed, path in sorted(copies):
                _delete(path)
                size -= n_freed
                if size <= _KEPT * limit:
                    break
