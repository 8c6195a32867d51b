"""Read and write the files of a store in a bucket: Amazon S3 and servers like it, Google, Azure.

Create-if-absent is a condition of the bucket's own request, so concurrent writers need no lock. A
request whose answer was lost is repeated; each write carries an id, by which it recognises itself.
"""

from __future__ import annotations

import errno
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from benchkit.errors import (
    AlreadyStored,
    InvalidStoreError,
    StoreAccessError,
    StoreError,
    UnlistableFolder,
    UsageError,
    needs_extra,
)
from benchkit.measure.recording import file_system_time
from benchkit.measure.settings import setting
from benchkit.store.files import LocalFiles
from benchkit.store.storage import (
    PARALLEL,
    RECORDINGS,
    Files,
    in_parallel,
    is_whole,
    unfinished_files,
)
from benchkit.whole_file import drafted
from benchkit.working_folder import cache_folder

#: Seconds within which a request is repeated; a command must not wait for a dead server for long.
RETRY_S = 20.0
#: Seconds without a byte after which a request is repeated. Large files need longer to send.
SILENT_S, SILENT_WHEN_LARGE_S = 8.0, 600.0
#: 8 MiB: at 1 MB/s a file of this size takes as long as a request may be silent.
LARGE_BYTES = 2**23
#: Seconds without a written file after which an experiment was killed.
ABANDONED_S = 600.0
#: Seconds between two attempts of a write at first; then twice as long each time.
_FIRST_PAUSE_S = 0.1
#: Attribute of a stored file with the id of its write.
_WRITE_ID = "benchkit-write"
#: Scheme -> variables that hold its credentials.
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
_URL = re.compile(rf"({'|'.join(_CREDENTIALS)})://([^/@?#]+)((?:/[^/?#]+)*)/*")
#: Files that never change once they exist.
_UNCHANGING = re.compile(
    r"(?:runs|marks|ledger|index|trash)/.*|experiments/[^/]+/(?:plan\.json|extras/.*)"
)
#: Texts of errors: no bucket, no credentials, and where a server says why it refused.
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|The specified bucket does not exist")
_NO_CREDENTIALS = re.compile(
    r"169\.254\.169\.254|metadata\.google|token request|[Aa]ccount must be specified|[Cc]redentials"
)
_INVALID_NAME = re.compile(r"empty path segment|illegal character|parsing [Pp]ath")
_SERVER = re.compile(r"https?://[^/\s]+")
_REASON = re.compile(r"<Code>(\w+)</Code>(?:\s*<Message>([^<]*)</Message>)?")
#: Folders of a store, and the year of its first runs.
_FOLDERS = ("experiments", "index", "ledger", "marks", "runs", "tmp", "trash")
_FIRST_YEAR = 2024
T = TypeVar("T")


class BucketFiles(Files):
    """Files below a prefix of a bucket, with a local cache of those that never change."""

    root: str
    n_threads = PARALLEL

    def __init__(self, url: str) -> None:
        match = _URL.fullmatch(url)
        if match is None:
            raise InvalidStoreError(
                f"{url}: not a store: give a folder, s3://bucket/prefix, gs://bucket/prefix or "
                "az://container/prefix"
            )
        self._scheme, bucket, prefix = match.groups()
        super().__init__(f"{self._scheme}://{bucket}{prefix}")
        self._obstore = _import_obstore()
        self._objects = self._connect(SILENT_S)
        servers = [value for key, value in os.environ.items() if key.startswith("AWS_ENDPOINT")]
        digest = sha256(" ".join((self.root, *sorted(servers))).encode()).hexdigest()[:8]
        name = re.sub(r"[^\w.]+", "-", self.root)
        local = cache_folder() / "stores" / f"{name[:80]}-{digest}"
        self._cache, self._workspaces = FileCache(local / "files"), local / "work"

    def _connect(self, silent_s: float) -> Any:
        options: dict[str, Any] = {
            "client_options": {
                "allow_http": True,  # only if the user's address says so
                "connect_timeout": timedelta(seconds=5),
                "read_timeout": timedelta(seconds=silent_s),
                "timeout": timedelta(minutes=30),
            },
            "retry_config": {"retry_timeout": timedelta(seconds=RETRY_S)},
        }
        if self._scheme == "s3" and not _has_own_credentials():
            options["credential_provider"] = self._profile()
        try:
            return self._obstore.store.from_url(self.root, **options)
        except self._obstore.exceptions.BaseError as error:
            raise self._explain(error, "") from error

    def _profile(self) -> Any:
        """Return the credentials of AWS's profiles, its single sign-on, or this machine's role."""
        with needs_extra("cloud"):
            from botocore.exceptions import BotoCoreError
            from obstore.auth.boto3 import Boto3CredentialProvider
        try:
            return Boto3CredentialProvider()
        except (ValueError, BotoCoreError) as error:
            raise self._no_credentials() from error

    # -- errors -------------------------------------------------------------------------------

    def _request(self, call: Callable[[], T], name: str) -> T:
        """Return the result of a request; translate its errors.

        Repeats it if the connection breaks: obstore does not repeat conditional writes and
        deletions of many files.
        """
        errors = self._obstore.exceptions
        pause_s, until = _FIRST_PAUSE_S, time.monotonic() + RETRY_S
        while True:
            try:
                return call()
            except errors.AlreadyExistsError:
                raise
            except (errors.BaseError, FileNotFoundError, ValueError) as error:
                problem = self._explain(error, name)
                is_final = type(problem) is not StoreError or "status code: 4" in str(error)
                if is_final or time.monotonic() + pause_s > until:
                    raise problem from error
            time.sleep(pause_s)
            pause_s *= 2

    def _explain(self, error: Exception, name: str) -> Exception:
        """Return the error of benchkit for an error of obstore, in one line."""
        errors, text = self._obstore.exceptions, str(error)
        reason = _REASON.search(text)
        short = ": ".join(filter(None, reason.groups())) if reason else _last_part(text)
        if _NO_BUCKET.search(text):
            bucket = "/".join(self.root.split("/")[:3])
            return InvalidStoreError(f"{self.root}: there is no bucket {bucket}: create it first")
        if isinstance(error, (FileNotFoundError, ValueError)):  # no such name, or an invalid one
            return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{self.root}/{name}")
        if isinstance(error, (errors.PermissionDeniedError, errors.UnauthenticatedError)):
            variables = _CREDENTIALS[self._scheme]
            return StoreAccessError(
                f"{self.root}: access denied ({short}): check {variables}, and what they permit"
            )
        if _NO_CREDENTIALS.search(text):
            return self._no_credentials()
        server = _SERVER.search(text)
        if "HTTP error" in text and server:
            return StoreError(f"{self.root}: no answer from {server[0]}: check network and address")
        return StoreError(f"{self.root}: request failed: {short}")

    def _no_credentials(self) -> StoreAccessError:
        return StoreAccessError(f"{self.root}: no credentials: set {_CREDENTIALS[self._scheme]}")

    # -- one file -----------------------------------------------------------------------------

    @property
    def address(self) -> str:
        return self.root

    def path(self, name: str) -> Path:
        keep = _UNCHANGING.fullmatch(name)
        return (self._cache.get(name) if keep else None) or self._download(name)

    def _download(self, name: str) -> Path:
        try:
            data = self._get(name)
        except FileNotFoundError:
            self._cache.remove(name)
            return self._cache.folder / name
        # A damaged run is not kept: another machine may replace it.
        keep = bool(_UNCHANGING.fullmatch(name)) and (not name.endswith(".nc") or is_whole(data))
        return self._cache.put(name, data, keep=keep)

    def read(self, name: str) -> bytes:
        if _UNCHANGING.fullmatch(name):
            return self.path(name).read_bytes()
        return self._get(name)

    def _get(self, name: str) -> bytes:
        return self._request(lambda: bytes(self._obstore.get(self._objects, name).bytes()), name)

    def create(self, name: str, data: bytes) -> None:
        write_id = uuid4().hex
        try:
            self._put(name, data, mode="create", attributes={_WRITE_ID: write_id})
        except self._obstore.exceptions.AlreadyExistsError as error:
            if self._write_id(name) != write_id:  # else only the answer was lost
                raise AlreadyStored(name) from error

    def replace(self, name: str, data: bytes) -> None:
        self._cache.remove(name)
        self._put(name, data, mode="overwrite")

    def _put(self, name: str, data: bytes, **options: Any) -> None:
        large = len(data) > LARGE_BYTES
        objects = self._connect(SILENT_WHEN_LARGE_S) if large else self._objects
        self._request(
            lambda: self._obstore.put(objects, name, data, use_multipart=False, **options), name
        )

    def _write_id(self, name: str) -> str:
        try:
            result = self._request(lambda: self._obstore.get(self._objects, name), name)
        except FileNotFoundError:  # deleted meanwhile
            return ""
        return str(result.attributes.get(_WRITE_ID, ""))

    def exists(self, name: str) -> bool:
        return self._head(name) is not None

    def size(self, name: str) -> int:
        head = self._head(name)
        return int(head["size"]) if head else 0

    def _head(self, name: str) -> dict[str, Any] | None:
        try:
            return dict(self._request(lambda: self._obstore.head(self._objects, name), name))
        except FileNotFoundError:
            return None

    def move(self, name: str, to: str) -> None:
        try:
            self._request(lambda: self._obstore.copy(self._objects, name, to), name)
        except FileNotFoundError:
            return
        self.delete(name)

    # -- many files ---------------------------------------------------------------------------

    def fetch(self, names: Iterable[str], *, fresh: bool = False) -> None:
        for _ in in_parallel(self._download if fresh else self.path, names):
            pass

    def delete(self, *names: str) -> None:
        if not names:
            return
        self._cache.remove(*names)
        try:
            self._request(lambda: self._obstore.delete(self._objects, list(names)), names[0])
        except FileNotFoundError:  # Google and Azure stop at a missing file
            for name in names if len(names) > 1 else ():
                self.delete(name)

    def list(self, folder: str, suffix: str = "") -> Sequence[str]:
        return [name for name in self._level(folder)[0] if name.endswith(suffix)]

    def folders(self, folder: str) -> Sequence[str]:
        return self._level(folder)[1]

    def entries(self, folder: str) -> Sequence[str]:
        files, folders = self._level(folder)
        return [*files, *folders]

    def _level(self, folder: str) -> tuple[dict[str, int], Sequence[str]]:
        """Return the files directly in a folder with their sizes, and its folders, sorted."""
        prefix = f"{folder}/" if folder else ""

        def level() -> tuple[dict[str, int], Sequence[str]]:
            try:
                result = self._obstore.list_with_delimiter(self._objects, folder or None)
            except (self._obstore.exceptions.BaseError, ValueError) as error:
                if not _INVALID_NAME.search(str(error)):
                    raise
                if self._scheme != "s3":
                    return self._known_level(folder)
                names = self._raw_sizes(prefix)
                files = {name: names[name] for name in names if "/" not in name[len(prefix) :]}
                folders = {prefix + name[len(prefix) :].split("/")[0] for name in names}
                return files, sorted(folders - files.keys())
            files = {item["path"]: item["size"] for item in result["objects"]}
            return dict(sorted(files.items())), sorted(result["common_prefixes"])

        return self._request(level, folder)

    def _known_level(self, folder: str) -> tuple[dict[str, int], Sequence[str]]:
        """Return the files and folders of a store that are in a folder with invalid names."""
        if folder not in ("", "runs"):
            self._raw_sizes(f"{folder}/")  # raises
        names = _FOLDERS if not folder else tuple(f"runs/{month}" for month in _months())

        def is_there(name: str) -> bool:
            try:
                stream = self._obstore.list(self._objects, name, chunk_size=1)
                return any(len(page) for page in stream)
            except (self._obstore.exceptions.BaseError, ValueError) as error:
                if not _INVALID_NAME.search(str(error)):
                    raise
                return True

        present = in_parallel(is_there, names, self.n_threads)
        files = {} if folder else {"store.json": self.size("store.json")}
        known = {name: size for name, size in files.items() if size}
        known[f"{folder}//"] = 0  # what is not listed, under a name that no file of a store has
        return known, sorted(n for n, there in zip(names, present, strict=True) if there)

    def _raw_sizes(self, prefix: str) -> dict[str, int]:
        """Return names and sizes below a prefix, also names that obstore refuses to list."""
        if self._scheme != "s3":
            raise UnlistableFolder(
                f"{self.root}/{prefix}: holds files with invalid names (empty parts, '..'): "
                "delete them with the tools of the server"
            )
        with needs_extra("cloud"):
            import boto3
        bucket, _, own = self.root.partition("://")[2].partition("/")
        own = f"{own}/" if own else ""
        client = boto3.client("s3")
        try:
            pages = client.get_paginator("list_objects_v2").paginate(
                Bucket=bucket, Prefix=own + prefix
            )
            found = {
                item["Key"][len(own) :]: item["Size"]
                for page in pages
                for item in page.get("Contents", ())
            }
        finally:
            client.close()
        return dict(sorted(found.items()))

    def walk(self, folder: str = "") -> Iterator[str]:
        return iter(self.sizes(folder))

    def sizes(self, folder: str = "") -> dict[str, int]:
        def below(part: str) -> dict[str, int]:
            def listed() -> dict[str, int]:
                try:
                    pages = [*self._obstore.list(self._objects, part)]
                except (self._obstore.exceptions.BaseError, ValueError) as error:
                    if not _INVALID_NAME.search(str(error)):
                        raise
                    return self._raw_sizes(f"{part}/")
                return {item["path"]: item["size"] for page in pages for item in page}

            return self._request(listed, part)

        if folder not in ("", "runs"):
            return below(folder)
        found, parts = self._level(folder)
        if "runs" in parts:  # a page has 1000 names at most: list the months in parallel
            files, months = self._level("runs")
            found |= files
            parts = [*(part for part in parts if part != "runs"), *months]

        def below_if_listed(part: str) -> dict[str, int]:
            try:
                return below(part)
            except UnlistableFolder:
                return {f"{part}//": 0}

        for sizes in in_parallel(below if folder else below_if_listed, parts):
            found |= sizes
        return dict(sorted(found.items()))

    def leftovers(self) -> Sequence[str]:
        return []  # a bucket shows no unfinished writes

    # -- workspaces ---------------------------------------------------------------------------

    def workspace(self, folder: str) -> Path:
        return self._workspaces / folder

    def publish(self, folder: str) -> None:
        base = self.workspace(folder)
        for path in sorted(base.rglob("[!.]*")):
            if path.is_file():
                name = path.relative_to(self._workspaces).as_posix()
                self.replace(name, path.read_bytes())
                path.unlink()
        for part in sorted((base, *base.rglob("*")), reverse=True):
            with suppress(OSError):  # not a folder, or not empty
                part.rmdir()

    def rescue(self) -> None:
        for folder in self.workspace("experiments").glob("*"):
            recordings = self.workspace(f"{RECORDINGS}/{folder.name}")
            written = [
                path.stat().st_mtime
                for parent in (folder, recordings)
                for path in parent.rglob("*")
                if path.is_file()
            ]
            if file_system_time(self._workspaces) - max(written, default=0.0) > ABANDONED_S:
                names = (p.relative_to(self._workspaces).as_posix() for p in folder.rglob("*"))
                for name in unfinished_files(names):
                    self.workspace(name).unlink()
                self.publish(f"experiments/{folder.name}")


def _months() -> list[str]:
    """Return the names of the folders that may hold runs: months until tomorrow's."""
    last = datetime.now(timezone.utc) + timedelta(days=1)
    months = (f"{year}-{month:02}" for year in range(_FIRST_YEAR, last.year + 1)
              for month in range(1, 13))  # fmt: skip
    return [month for month in months if month <= f"{last:%Y-%m}"]


def open_files(location: str) -> Files:
    """Return access to the files of a store."""
    location = location.removeprefix("file://")
    return BucketFiles(location) if "://" in location else LocalFiles(Path(location).expanduser())


def _import_obstore() -> Any:
    with needs_extra("cloud"):
        import obstore.exceptions
        import obstore.store
    return obstore


def _has_own_credentials() -> bool:
    """Return whether the environment has what obstore itself reads."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE", "AWS_WEB_IDENTITY_TOKEN_FILE")
    return any(os.environ.get(name) for name in names)


def _last_part(text: str) -> str:
    """Return the reason in the first line of an error of obstore, without the request."""
    return text.strip().partition("\n")[0].rpartition(" - ")[2][:200]


# -- local copies ---------------------------------------------------------------------------------

#: Size of all copies together if neither ``$BENCHKIT_CACHE_SIZE`` nor Dask's configuration
#: ``benchkit.cache-size`` sets another limit.
DEFAULT_SIZE = "10 GiB"
#: Share of the limit that is left when files are deleted, and that is written between two checks.
_KEPT, _STEP = 0.9, 0.05
_lock = threading.Lock()
#: Bytes written by this process since the last check of the size; None before the first.
_n_new: int | None = None


class FileCache:
    """Local copies of the files of a bucket, verified by a digest and limited in size."""

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
        digest = sha256(data).hexdigest() if keep else ""
        self._verified.discard(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            for target, content in ((_digest_file(path), digest.encode()), (path, data)):
                with drafted(target, durable=False) as draft:
                    draft.write_bytes(content)
        except OSError as error:
            raise StoreError(
                f"{path}: no local copy could be written: {error.strerror or error}: "
                "free space there, or set BENCHKIT_CACHE to another folder"
            ) from error
        finally:
            with suppress(OSError):
                draft.unlink()
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
    from dask.utils import parse_bytes

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
