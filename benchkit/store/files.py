"""Read and write the files of a store in a folder.

Every file is written as a draft first and then moved to its name, durably and atomically.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from benchkit.errors import AlreadyStored, StoreError
from benchkit.measure.recording import file_system_time
from benchkit.store.storage import Batch, Files, unfinished_files
from benchkit.whole_file import drafted, make_folder, publish, sync_files, sync_folder

#: Age in s after which an unfinished write is abandoned; a write takes seconds.
STALE_AFTER_S = 24 * 3600


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
        self._write(name, data, replace=False)

    def batch(self) -> Batch:
        return _LocalBatch(self)

    def replace(self, name: str, data: bytes) -> None:
        self._write(name, data, replace=True)

    def _write(self, name: str, data: bytes, *, replace: bool) -> None:
        drafts, final = self.root / "tmp", self.root / name
        try:
            make_folder(drafts)
            make_folder(final.parent)
            with drafted(final, folder=drafts, replace=replace) as draft:
                draft.write_bytes(data)
        except FileExistsError as error:
            raise AlreadyStored(name) from error
        except OSError as error:
            raise _not_written(final, error) from error

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
            make_folder((self.root / to).parent)
            with suppress(FileNotFoundError):
                os.rename(self.root / name, self.root / to)
            sync_folder((self.root / to).parent)
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


class _LocalBatch(Batch):
    """Files that are flushed to disk together: to flush one takes 5 to 40 ms."""

    files: LocalFiles

    def __init__(self, files: LocalFiles) -> None:
        super().__init__(files)
        self._drafts: dict[str, Path] = {}

    def add(self, name: str, data: bytes) -> None:
        if name in self._drafts:
            return
        folder = self.files.root / "tmp"
        draft = folder / f".{name.rpartition('/')[2][:20]}-{uuid4().hex}"
        try:
            if not self._drafts:
                make_folder(folder)
            try:
                draft.write_bytes(data)
            except BaseException:
                draft.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise _not_written(self.files.root / name, error) from error
        self._drafts[name] = draft

    def publish(self) -> Sequence[str]:
        drafts, self._drafts = self._drafts, {}
        created = []
        try:
            sync_files(drafts.values())
            folders = {self.files.root / name.rpartition("/")[0] for name in drafts}
            for folder in folders:
                make_folder(folder)
            for name, draft in drafts.items():
                with suppress(FileExistsError):  # of another writer, or there before
                    publish(draft, self.files.root / name, replace=False, durable=False)
                    created.append(name)
            for folder in folders:
                sync_folder(folder)
        except OSError as error:
            raise _not_written(self.files.root, error) from error
        finally:
            if len(created) < len(drafts):
                for draft in drafts.values():
                    draft.unlink(missing_ok=True)
        return created


def _not_written(path: Path, error: OSError) -> StoreError:
    reason = error.strerror or error
    return StoreError(f"{path}: could not be written: {reason}; no partial file remains")
