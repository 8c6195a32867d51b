"""Interface to the files of a store: a folder (`LocalFiles`) or a bucket (`BucketFiles`).

Handles names, content and digests only; runs, marks and the index use the same methods. A file of
a run, of the index, a mark, an event or a plan never changes: `Files.create` writes a new name and
never replaces a file, and the slower of two concurrent writers gets `AlreadyStored`. Recordings,
logs, notebooks and reports are written by other programs, which need a local folder:
`Files.workspace`.
"""

from __future__ import annotations

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from benchkit.errors import AlreadyStored, StoreError, UnreadableRun
from benchkit.measure.run_ids import id_time

#: Workspace with the recordings that are not runs yet.
RECORDINGS = "tmp/recordings"
#: Requests to a bucket at a time.
PARALLEL = 16
_HIDDEN = re.compile(r"(experiments/[^/]+)/(?:.+/)?\.[^/]+")
_KERNEL_LOG = re.compile(r"(experiments/[^/]+)/kernel-[^/]+\.log")
_DIGEST = re.compile("[0-9a-f]{64}")
#: End of a run file.
TRAILER = b"\nbenchkit sha256 %s\n"
_TRAILER_BYTES = len(TRAILER) - 2 + 64
_TRAILER_PATTERN = re.compile(rb"\nbenchkit sha256 ([0-9a-f]{64})\n")
#: Digests that are kept; a page of the dashboard opens a few runs.
_MAX_KEPT = 10_000
#: Path -> identity of the file, and digest, or the error if it is damaged. Files of a store never
#: change, so each is read once in a process.
_kept: dict[str, tuple[tuple[int, ...], str | UnreadableRun]] = {}
T = TypeVar("T")
R = TypeVar("R")


class Files(ABC):
    """Files of a store, named by their path in it with ``/`` between the parts."""

    #: Number of files to read or write at a time.
    n_threads = 1

    def __init__(self, root: Path | str) -> None:
        self.root = root

    @property
    @abstractmethod
    def address(self) -> str:
        """Text that opens the store from any folder."""

    @abstractmethod
    def path(self, name: str) -> Path:
        """Return the local path of a file, copied to the cache if the store is not local."""

    @abstractmethod
    def fetch(self, names: Iterable[str], *, fresh: bool = False) -> None:
        """Copy files to the local cache in parallel, so that reading them one by one is fast."""

    @abstractmethod
    def create(self, name: str, data: bytes) -> None:
        """Write a new file durably and atomically; never replace an existing file."""

    def batch(self) -> Batch:
        """Return what writes many new files."""
        return Batch(self)

    @abstractmethod
    def replace(self, name: str, data: bytes) -> None:
        """Write a file atomically, and replace an earlier one: only for files that may change."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return the content of a file."""

    def read_objects(self, folder: str) -> list[dict[str, Any]]:
        """Return the JSON objects in the files of a folder; raise if one is damaged."""
        objects = []
        names = self.list(folder, ".json")
        self.fetch(names)
        for name in names:
            try:
                objects.append(decode_object(self.read(name)))
            except ValueError as error:
                raise StoreError(
                    f"{self.path(name)}: damaged ({error}): `benchkit store check --set-aside` "
                    "moves it to the folder trash"
                ) from error
        return objects

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Return whether a file exists."""

    @abstractmethod
    def list(self, folder: str, suffix: str = "") -> Sequence[str]:
        """Return the names of the files directly in a folder, sorted; none if it is missing."""

    @abstractmethod
    def folders(self, folder: str) -> Sequence[str]:
        """Return the names of the folders directly in a folder, sorted; none if it is missing."""

    def entries(self, folder: str) -> Sequence[str]:
        """Return the names of the files and folders directly in a folder."""
        return [*self.list(folder), *self.folders(folder)]

    @abstractmethod
    def walk(self, folder: str = "") -> Iterator[str]:
        """Iterate over the files in and below a folder."""
        # returned: Name of a file, sorted per folder; unfinished writes excluded. Other programs
        # may have written files whose names are not names of a store, see `manifest.STORE_FILE`.

    @abstractmethod
    def delete(self, *names: str) -> None:
        """Delete files; a missing file is not an error."""

    @abstractmethod
    def move(self, name: str, to: str) -> None:
        """Rename a file durably; a missing file is not an error."""

    @abstractmethod
    def leftovers(self) -> Sequence[str]:
        """Return the names of unfinished writes."""

    @abstractmethod
    def size(self, name: str) -> int:
        """Return the size of a file."""

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return the sizes of the files in and below a folder."""
        return {name: self.size(name) for name in self.walk(folder)}

    @abstractmethod
    def workspace(self, folder: str) -> Path:
        """Return the local folder in which other programs write the files of a folder."""

    @abstractmethod
    def publish(self, folder: str) -> None:
        """Store the files of a workspace, where the workspace is not the folder of the store."""

    @abstractmethod
    def rescue(self) -> None:
        """Publish the workspaces of experiments that were killed on this machine."""


class Batch:
    """New files that are complete after `publish`; here each by itself, as in a bucket."""

    def __init__(self, files: Files) -> None:
        self.files, self._created = files, list[str]()

    def add(self, name: str, data: bytes) -> None:
        """Add a file, unless it exists."""
        with suppress(AlreadyStored):
            self.files.create(name, data)
            self._created.append(name)

    def publish(self) -> Sequence[str]:
        """Return the names of the added files that exist now and did not before."""
        created, self._created = self._created, []
        return created


def unfinished_files(names: Iterable[str]) -> Sequence[str]:
    """Return drafts in experiments, and the logs of kernels of which a draft notebook was left.

    Earlier versions wrote both into the store, with secrets, and removed the secrets at the end.
    """
    names = list(names)
    drafts = {name: match[1] for name in names if (match := _HIDDEN.fullmatch(name))}
    killed = {experiment for name, experiment in drafts.items() if name.endswith(".ipynb")}
    logs = [n for n in names if (match := _KERNEL_LOG.fullmatch(n)) and match[1] in killed]
    return [*drafts, *logs]


def encode_object(content: dict[str, Any], indent: int | None = None) -> bytes:
    """Return a JSON object as bytes that end with their digest: its last item."""
    text = json.dumps(content, allow_nan=False, indent=indent)
    digest = sha256(text.encode()).hexdigest()
    return f'{text.removesuffix("}").rstrip()}, "sha256": "{digest}"}}'.encode()


def decode_object(data: bytes) -> dict[str, Any]:
    """Return a JSON object without its digest; raise ValueError if it is damaged.

    Objects of before November 2026 have no digest. Records of runs ended with that of their file.
    """
    try:
        content = json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    last = list(content)[-1] if content else ""
    if last == "sha256":
        digest = content.pop(last)
        texts = (json.dumps(content, indent=indent) for indent in (None, 1))
        if all(sha256(text.encode()).hexdigest() != digest for text in texts):
            raise ValueError("its content differs from its digest")
    elif last != "digest" and _DIGEST.fullmatch(str(content.get(last))):
        raise ValueError("the name of its digest is damaged")
    return content


def in_parallel(
    function: Callable[[T], R], items: Iterable[T], n_threads: int = PARALLEL
) -> Iterator[R]:
    """Call a function for each item in threads."""
    # returned: Results in the order of the items; an error ends it, and the calls that did not
    # start.
    if n_threads == 1:
        yield from map(function, items)
        return
    pool = ThreadPoolExecutor(n_threads)
    try:
        yield from pool.map(function, items)
    finally:
        pool.shutdown(cancel_futures=True)


# -- names and digests of run files ---------------------------------------------------------------


def run_name(run_id: str) -> str:
    """Return the name of a run's file in a store."""
    month = datetime.fromtimestamp(id_time(run_id), timezone.utc).strftime("%Y-%m")
    return f"runs/{month}/{run_id}.nc"


def index_record(record: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    """Return the record of a run for the index, with the digest of the file."""
    return {**record, "digest": sha256(data).hexdigest()}


def is_whole(data: bytes) -> bool:
    """Return whether the bytes of a run file match the digest at their end."""
    trailer = _TRAILER_PATTERN.fullmatch(data[-_TRAILER_BYTES:])
    digest = sha256(memoryview(data)[:-_TRAILER_BYTES]).hexdigest()
    return trailer is not None and digest.encode() == trailer[1]


def verify(path: Path) -> str:
    """Return the SHA-256 digest of a run file, as `sha256sum` prints it; raise if it is damaged."""
    name, status = str(path), os.stat(path)
    identity = (status.st_size, status.st_mtime_ns, status.st_ino)
    kept = _kept.get(name)
    if kept is None or kept[0] != identity:
        if len(_kept) >= _MAX_KEPT:
            _kept.clear()
        kept = _kept[name] = (identity, _examine(path))
    if isinstance(kept[1], UnreadableRun):
        raise UnreadableRun(str(kept[1]))
    return kept[1]


def _examine(path: Path) -> str | UnreadableRun:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:  # not kept: the user can permit it
        raise UnreadableRun(f"{path}: cannot be read: {error.strerror or error}") from error
    if is_whole(data):
        return sha256(data).hexdigest()
    if _TRAILER_PATTERN.fullmatch(data[-_TRAILER_BYTES:]):
        return UnreadableRun(f"{path}: damaged run file: its bytes differ from its SHA-256 digest")
    return UnreadableRun(
        f"{path}: damaged run file, or of another program: it does not end with a digest; "
        "`benchkit store import` reads files of other programs"
    )
