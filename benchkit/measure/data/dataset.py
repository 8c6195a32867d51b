"""Input datasets on disk: made once by a recipe and reused by key.

Handles folders, locks and manifests; a `recipe` defines the contents. A dataset is made under a
temporary name and then renamed, so that it is always complete. Concurrent processes make it only
once: a file lock protects it, which the kernel releases when the process ends, also by kill -9. On
a file system without locks both processes make the dataset, and the second copy is removed.
"""

from __future__ import annotations

import errno
import hashlib
import inspect
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from dask.utils import format_bytes

from benchkit.measure.data.other_python import ANSWER, MAKE, run_elsewhere
from benchkit.measure.data.recipe import Recipe, find_recipe
from benchkit.measure.data.remote_copy import data_url, upload_dataset
from benchkit.measure.deadline import pause_deadlines
from benchkit.measure.errors import (
    BenchkitError,
    DatasetError,
    InvalidParameterError,
    MissingPackage,
    did_you_mean,
    error_summary,
)
from benchkit.measure.html_table import html_table
from benchkit.measure.settings import setting

if TYPE_CHECKING:
    import pandas as pd

try:
    import fcntl
except ImportError:  # Windows has no such lock; the rename is still atomic
    fcntl = None  # type: ignore[assignment]

#: The largest recipe takes minutes; a longer wait means that the other process hangs.
LOCK_TIMEOUT_S = 3600.0
#: Seconds between two attempts to get the lock: far less than making any data takes.
LOCK_POLL_S = 0.1
#: Error numbers of file systems without locks (some network and cluster file systems).
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}


@contextmanager
def dataset_lock(folder: Path, key: str, *, timeout_s: float | None = None) -> Iterator[None]:
    """Hold the lock of a dataset; the kernel releases it when the process ends."""
    timeout_s = LOCK_TIMEOUT_S if timeout_s is None else timeout_s
    path = folder / "locks" / f"{key}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    # Never remove the file: two processes could then lock two files of the same name.
    with path.open("a+") as file:
        _acquire(file, key, time.monotonic() + timeout_s)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def _acquire(file: Any, key: str, end: float) -> None:
    while fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            if time.monotonic() >= end:
                file.seek(0)
                raise DatasetError(
                    f"dataset {key} is being made by {file.read() or 'another process'}: "
                    "wait, or end that process"
                ) from error
            time.sleep(LOCK_POLL_S)
        else:
            return


MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Dataset:
    """A dataset on disk."""

    path: Path  # Folder of the dataset
    # Recipe, version, params, made (Unix s), seconds, bytes, files (B by name), and entries of the
    # recipe: rows, tables, seed, generators.
    manifest: dict[str, Any]
    url: str = ""  # URL from which workers read it; "": they read the folder (see `remote_copy`)

    @property
    def nbytes(self) -> int:
        """Bytes on disk."""
        return int(self.manifest["bytes"])

    @property
    def label(self) -> str:
        """Recipe and parameters, as in ``tpch(sf=0.1, parts=4)``."""
        return _label(self.manifest["recipe"], self.manifest["params"])

    def _repr_html_(self) -> str:
        texts = {
            "folder": str(self.path),
            "url": self.url,
            "size": format_bytes(self.nbytes),
            "files": len(self.manifest["files"]),
            **{f"rows of {name}": rows for name, rows in self.manifest.get("rows", {}).items()},
        }
        return html_table(self.label, texts.items())

    def at(self, name: str) -> str:
        """Return the path or URL from which workers read a file or folder of the dataset."""
        return f"{self.url}/{name}" if self.url else str(self.path / name)

    def files(self, table: str, *, here: bool = False) -> list[str]:
        """Return the sorted paths or URLs of the files of a table."""
        tables = self.manifest.get("tables", {})
        if table not in tables:
            hint = did_you_mean(table, tables, f"there are {', '.join(tables) or 'none'}")
            raise InvalidParameterError(f"{self.label} has no table {table!r}: {hint}")
        names = sorted(p.relative_to(self.path).as_posix() for p in self.path.glob(tables[table]))
        return [str(self.path / name) if here else self.at(name) for name in names]

    def answer(self, sql: str) -> pd.DataFrame:
        """Return the result of a DuckDB query over the tables; cached next to the data.

        Environments that only read a cached result do not need DuckDB. If the measured environment
        has no DuckDB, the Python of benchkit runs the query.
        """
        import pandas as pd

        digest = hashlib.sha256(" ".join(sql.split()).encode()).hexdigest()[:12]
        path = self.path / "answers" / f"{digest}.parquet"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            draft = path.with_name(f"{uuid4().hex}.draft")
            try:
                self._query_duckdb(sql, draft)
                os.replace(draft, path)
            except MissingPackage:
                request = {"path": str(self.path), "manifest": self.manifest, "sql": sql}
                if not run_elsewhere(ANSWER, request):
                    raise
            finally:
                draft.unlink(missing_ok=True)
        return pd.read_parquet(path)

    def _query_duckdb(self, sql: str, target: Path) -> None:
        try:
            import duckdb
        except ImportError as error:
            raise MissingPackage(
                f"the known answer for {self.label} needs duckdb, not installed here: "
                "pip install duckdb"
            ) from error
        with duckdb.connect() as connection:
            for table, pattern in self.manifest["tables"].items():
                files = str(self.path / pattern).replace("'", "''")
                connection.execute(f"create view {table} as from read_parquet('{files}')")
            connection.sql(sql).write_parquet(str(target))


def dataset(name: str, /, *, size: str | None = None, **params: Any) -> Dataset:
    """Return a dataset; make it and copy it to `data_url` if that has not been done.

    Deadlines of the steps of a workload are paused meanwhile.

    Parameters
    ----------
    name : str
        Name of a recipe.
    size : {"tiny", "ci", "laptop", "cluster"}, optional
        Named parameters.
    **params
        Parameters of the recipe; they replace those of the size.

    Returns
    -------
    Dataset
        With a `url` if `data_url` is set.

    Raises
    ------
    UsageError, InvalidParameterError
        The recipe, size or parameter does not exist.
    MissingPackage
        A package of the recipe is not installed.
    DatasetError
        The dataset could not be made: disk full, no permission, the generator failed.
    """
    chosen = find_recipe(name)
    bound = chosen.bind(size, **params)
    with pause_deadlines():
        made = _find_or_make(chosen, bound)
        if not data_url():
            return made
        return replace(made, url=upload_dataset(made.path, made.manifest, MANIFEST, made.label))


def _find_or_make(chosen: Recipe, bound: dict[str, Any]) -> Dataset:
    name, key = chosen.name, chosen.key(bound)
    existing = _read(data_folder() / key)
    if existing is not None:
        return existing
    try:
        with dataset_lock(data_folder(), key):
            # Another process may have made it during the wait.
            return _read(data_folder() / key) or _make(chosen, bound, key)
    except MissingPackage:
        request = {
            "folder": str(data_folder()),
            "file": inspect.getfile(chosen.function),
            "name": name,
            "params": bound,
        }
        made = _read(data_folder() / key) if run_elsewhere(MAKE, request) else None
        if made is None:
            raise
        return made
    except BenchkitError:
        raise
    except Exception as error:
        raise DatasetError(
            f"{_label(name, bound)} could not be made in {data_folder()}: {error_summary(error)}"
        ) from error


def list_datasets() -> list[Dataset]:
    """Return all datasets on disk, sorted by recipe and size."""
    folder = data_folder()
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    datasets = [item for path in paths if (item := _read(path)) is not None]
    return sorted(datasets, key=lambda item: (item.manifest["recipe"], item.nbytes))


def clear(name: str | None = None) -> list[Dataset]:
    """Remove the datasets of a recipe, or all, except those that are being made."""
    chosen = [item for item in list_datasets() if name is None or item.manifest["recipe"] == name]
    if name is not None and not chosen:
        find_recipe(name)
    folder, removed = data_folder(), []
    for item in chosen:
        with suppress(DatasetError), dataset_lock(folder, item.path.name, timeout_s=0):
            _discard(item.path)
            removed.append(item)
    for path in (folder / "tmp").glob("*") if name is None else ():
        # Drafts of killed processes; a running process holds its lock.
        key = path.name.split(".")[0]
        with suppress(DatasetError), dataset_lock(folder, key, timeout_s=0):
            shutil.rmtree(path, ignore_errors=True)
    return removed


def data_folder() -> Path:
    """Return the folder of all datasets.

    ``$BENCHKIT_DATA``, else Dask's configuration ``benchkit.data``, else ``benchkit/data`` in the
    user's cache folder. Workers on other machines must have it under the same path, or read a copy
    (see `benchkit.measure.data.remote_copy.data_url`).
    """
    chosen = setting("data")
    if chosen:
        return Path(str(chosen)).expanduser().absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser().absolute() / "benchkit" / "data"


def _label(name: str, params: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value}' for key, value in params.items())})"


def _read(path: Path) -> Dataset | None:
    """Return the dataset of a folder; None if a file is missing or truncated."""
    try:
        manifest = json.loads((path / MANIFEST).read_text())
        intact = all((path / n).stat().st_size == size for n, size in manifest["files"].items())
        return Dataset(path, manifest) if intact and manifest["recipe"] else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _make(chosen: Recipe, params: dict[str, Any], key: str) -> Dataset:
    folder = data_folder()
    for leftover in (folder / "tmp").glob(f"{key}.*"):
        shutil.rmtree(leftover, ignore_errors=True)  # of a dead process: the lock is free
    draft = folder / "tmp" / f"{key}.{uuid4().hex}"
    try:
        draft.mkdir(parents=True)
        begin = time.perf_counter()
        entries = dict(chosen.function(draft, **params))
        files = {
            path.relative_to(draft).as_posix(): path.stat().st_size
            for path in sorted(draft.rglob("*"))
            if path.is_file()
        }
        manifest = {
            "recipe": chosen.name,
            "version": chosen.version,
            "params": params,
            "made": time.time(),
            "seconds": time.perf_counter() - begin,
            "bytes": sum(files.values()),
            "files": files,
            **entries,
        }
        (draft / MANIFEST).write_text(json.dumps(manifest, indent=1))
        for name in (*files, MANIFEST):
            _sync(draft / name)  # a manifest must not be on disk before its files
        final = folder / key
        if final.exists() and _read(final) is None:
            _discard(final)  # damaged
        try:
            os.rename(draft, final)
        except OSError:
            if (other := _read(final)) is None:
                raise
            return other  # another process made it (no locks)
        return Dataset(final, manifest)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _discard(path: Path) -> None:
    """Rename a folder, then remove it, so that no process reads a part of it."""
    trash = data_folder() / "tmp" / f"{path.name}.{uuid4().hex}"
    trash.parent.mkdir(parents=True, exist_ok=True)
    os.rename(path, trash)
    shutil.rmtree(trash, ignore_errors=True)
