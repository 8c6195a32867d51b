"""Input datasets on disk: made once by a recipe, found again by its key.

Knows folders, locks and manifests; does not know what is in a dataset (`recipes` does). A dataset
appears whole or not at all: it is made under a temporary name and renamed. Two processes that
want the same one make it once. The lock is the kernel's, so it ends with its holder, also with
kill -9, and cannot go stale; where a file system has no locks both make it, and the second copy is
thrown away.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import dask

from benchkit.measure.data.recipe import Recipe, find_recipe
from benchkit.measure.data.remote_copy import data_url, publish
from benchkit.measure.deadline import pause_deadlines
from benchkit.measure.errors import (
    BenchkitError,
    DatasetError,
    InvalidParameterError,
    MissingPackage,
    did_you_mean,
)

try:
    import fcntl
except ImportError:  # Windows: no lock, and publication is atomic all the same
    fcntl = None  # type: ignore[assignment]

__all__ = ["Dataset", "clear", "data_folder", "dataset", "list_datasets"]

#: The largest recipe takes minutes; who waits longer waits for somebody who hangs.
LOCK_TIMEOUT_S = 3600.0
LOCK_POLL_S = 0.1
MANIFEST = "manifest.json"
#: Tells the processes of an environment which Python has what data are made with.
HELPER_VARIABLE = "BENCHKIT_PYTHON"
_HELPER = """
import json, os, sys
wanted = json.load(sys.stdin)
os.environ["BENCHKIT_DATA"] = wanted["folder"]
from benchkit.measure.data.recipes import dataset
found = dataset(wanted["name"], **wanted["params"])
if wanted["sql"]:
    found.answer(wanted["sql"])
"""
#: What a file system answers that has no locks (some network and cluster ones).
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}


@dataclass(frozen=True)
class Dataset:
    """A dataset that is there.

    Attributes
    ----------
    path : Path
        Its folder.
    manifest : dict
        Recipe, version, params, made (Unix s), seconds, bytes, files (B by name), and what the
        recipe added: rows, tables, seed, generators.
    url : str
        Where workers read it, if that is not its folder (see `published`).
    """

    path: Path
    manifest: dict[str, Any]
    url: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes on disk."""
        return int(self.manifest["bytes"])

    @property
    def label(self) -> str:
        """Recipe and parameters, as in ``tpch(sf=0.1, parts=4)``."""
        return _label(self.manifest["recipe"], self.manifest["params"])

    def at(self, name: str) -> str:
        """Return where workers read a file or a folder of it: a path, or a URL."""
        return f"{self.url}/{name}" if self.url else str(self.path / name)

    def files(self, table: str, *, here: bool = False) -> list[str]:
        """Return where a table's files are, in order: paths, or URLs.

        Parameters
        ----------
        table : str
            Its name in the manifest.
        here : bool, default False
            Paths on the machine that the dataset was made on, for who reads only there.

        Raises
        ------
        InvalidParameterError
            There is no such table.
        """
        tables = self.manifest.get("tables", {})
        if table not in tables:
            hint = did_you_mean(table, tables, f"there are {', '.join(tables) or 'none'}")
            raise InvalidParameterError(f"{self.label} has no table {table!r}: {hint}")
        names = sorted(p.relative_to(self.path).as_posix() for p in self.path.glob(tables[table]))
        return [str(self.path / name) if here else self.at(name) for name in names]

    def answer(self, sql: str) -> Any:
        """Return what DuckDB says to a query over the tables; kept beside the data.

        Environments that only read a kept answer do not need DuckDB, nor those that an experiment
        measures in: the Python that benchkit runs in asks for them.

        Parameters
        ----------
        sql : str
            One select statement; each table of the dataset is a view.

        Returns
        -------
        pandas.DataFrame

        Raises
        ------
        MissingPackage
            The answer is not known yet and DuckDB is not installed.
        """
        import pandas as pd

        digest = hashlib.sha256(" ".join(sql.split()).encode()).hexdigest()[:12]
        path = self.path / "answers" / f"{digest}.parquet"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            draft = path.with_name(f"{uuid4().hex}.draft")
            try:
                self._ask_duckdb(sql, draft)
                os.replace(draft, path)
            except MissingPackage:
                if not _done_elsewhere(self.manifest["recipe"], self.manifest["params"], sql):
                    raise
            finally:
                draft.unlink(missing_ok=True)
        return pd.read_parquet(path)

    def _ask_duckdb(self, sql: str, target: Path) -> None:
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
    """Return a dataset, made now if it is not there yet, and copied to where workers read.

    The time that this takes counts for no deadline of a workload's steps.

    Parameters
    ----------
    name : str
        Name of a recipe.
    size : {"tiny", "ci", "laptop", "cluster"}, optional
        Named parameters.
    **params
        Parameters of the recipe; they win over those of the size.

    Returns
    -------
    Dataset

    Raises
    ------
    UsageError, InvalidParameterError
        There is no such recipe, size or parameter.
    MissingPackage
        What the recipe needs is not installed.
    DatasetError
        It could not be made: disk full, no permission, the generator failed.
    """
    chosen = find_recipe(name)
    bound = chosen.bind(size, **params)
    with pause_deadlines():  # made once, however large it is
        found = _made(chosen, bound)
        if not data_url():
            return found
        return replace(found, url=publish(found.path, found.manifest, MANIFEST, found.label))


def _made(chosen: Recipe, bound: dict[str, Any]) -> Dataset:
    name, key = chosen.name, chosen.key(bound)
    found = _read(data_folder() / key)
    if found is not None:
        return found
    try:
        with _locked(key):
            # While we waited somebody else may have made it.
            return _read(data_folder() / key) or _make(chosen, bound, key)
    except MissingPackage:
        if not _done_elsewhere(name, bound):
            raise
        made = _read(data_folder() / key)
        if made is None:
            raise
        return made
    except BenchkitError:
        raise
    except Exception as error:
        text = (str(error).strip().splitlines() or [""])[0]
        raise DatasetError(
            f"{_label(name, bound)} could not be made in {data_folder()}: "
            f"{type(error).__name__}: {text}"
        ) from error


def _done_elsewhere(name: str, params: Mapping[str, Any], sql: str | None = None) -> bool:
    """Let the Python that benchkit runs in make data or an answer, if it is another than this."""
    python = os.environ.get(HELPER_VARIABLE)
    if not python or Path(python) == Path(sys.executable):
        return False
    wanted = {"name": name, "params": dict(params), "sql": sql, "folder": str(data_folder())}
    try:
        done = subprocess.run(
            [python, "-c", _HELPER], input=json.dumps(wanted), capture_output=True, text=True,
            check=False,
        )  # fmt: skip
    except OSError:
        return False
    return done.returncode == 0


def list_datasets() -> list[Dataset]:
    """Return the datasets that are there, by recipe and size."""
    folder = data_folder()
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    found = [each for path in paths if (each := _read(path)) is not None]
    return sorted(found, key=lambda each: (each.manifest["recipe"], each.nbytes))


def clear(name: str | None = None) -> list[Dataset]:
    """Remove the datasets of a recipe, or all; those being made are left alone.

    Returns
    -------
    list of Dataset
        What was removed.

    Raises
    ------
    UsageError
        There is neither such a recipe nor a dataset of that name.
    """
    known = list_datasets()
    chosen = [each for each in known if name is None or each.manifest["recipe"] == name]
    if name is not None and not chosen:
        find_recipe(name)
    removed = []
    for each in chosen:
        with contextlib.suppress(DatasetError), _locked(each.path.name, timeout_s=0):
            _discard(each.path)
            removed.append(each)
    for path in (data_folder() / "tmp").glob("*") if name is None else ():
        # The leftovers of makers that were killed; one at work holds its lock.
        with contextlib.suppress(DatasetError), _locked(path.name.split(".")[0], timeout_s=0):
            shutil.rmtree(path, ignore_errors=True)
    return removed


def data_folder() -> Path:
    """Return where datasets are kept.

    ``$BENCHKIT_DATA``, else Dask's configuration ``benchkit.data``, else ``benchkit/data`` in the
    user's cache folder. Workers on other machines must see it under the same path, or read a copy
    (see `benchkit.measure.data.remote_copy.data_url`).
    """
    chosen = os.environ.get("BENCHKIT_DATA") or dask.config.get("benchkit.data", None)
    if chosen:
        return Path(chosen).expanduser().absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser().absolute() / "benchkit" / "data"


def _label(name: str, params: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value}' for key, value in params.items())})"


def _read(path: Path) -> Dataset | None:
    """Return the dataset of a folder; None if it is not one, or a file is missing or cut."""
    try:
        manifest = json.loads((path / MANIFEST).read_text())
        intact = all((path / n).stat().st_size == size for n, size in manifest["files"].items())
        return Dataset(path, manifest) if intact and manifest["recipe"] else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _make(chosen: Recipe, params: dict[str, Any], key: str) -> Dataset:
    folder = data_folder()
    for leftover in (folder / "tmp").glob(f"{key}.*"):
        shutil.rmtree(leftover, ignore_errors=True)  # we hold the lock: its maker is dead
    draft = folder / "tmp" / f"{key}.{uuid4().hex}"
    draft.mkdir(parents=True)
    try:
        begin = time.perf_counter()
        facts = dict(chosen.function(draft, **params))
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
            **facts,
        }
        (draft / MANIFEST).write_text(json.dumps(manifest, indent=1))
        for name in (*files, MANIFEST):
            _sync(draft / name)  # after a power cut a manifest must not outlive its files
        final = folder / key
        if final.exists() and _read(final) is None:
            _discard(final)  # damaged
        try:
            os.rename(draft, final)
        except OSError:
            if (other := _read(final)) is None:
                raise
            return other  # made twice, where there are no locks
        return Dataset(final, manifest)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _discard(path: Path) -> None:
    """Remove a folder such that nobody ever sees half of it."""
    grave = data_folder() / "tmp" / f"{path.name}.{uuid4().hex}"
    grave.parent.mkdir(parents=True, exist_ok=True)
    os.rename(path, grave)
    shutil.rmtree(grave, ignore_errors=True)


@contextlib.contextmanager
def _locked(key: str, *, timeout_s: float | None = None) -> Iterator[None]:
    """Hold the lock of a dataset; it ends with this process, however that ends."""
    timeout_s = LOCK_TIMEOUT_S if timeout_s is None else timeout_s
    path = data_folder() / "locks" / f"{key}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    # The file stays for ever: removing it would let two processes lock two files of one name.
    with path.open("a+") as file:
        _take(file, key, time.monotonic() + timeout_s)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def _take(file: Any, key: str, end: float) -> None:
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
                    "wait for it, or end it"
                ) from error
            time.sleep(LOCK_POLL_S)
        else:
            return
