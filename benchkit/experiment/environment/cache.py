"""Built environments on disk: named by what is in them, whole or not there, removable.

A built environment is a folder ``environments/<hash>`` of the cache: the environment itself in a
folder with a random name, and ``benchkit.json``, written last, which names it. What a crash leaves
has no ``benchkit.json`` and is swept away by the next build. Does not know how one is built.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from filelock import FileLock, Timeout

from benchkit.errors import EnvironmentBuildError

__all__ = ["Built", "cache_folder", "find_built", "list_built", "locked", "publish", "remove"]

_MANIFEST = "benchkit.json"
_SETTINGS = "settings.json"


@dataclass(frozen=True)
class Built:
    """An environment that can be started.

    Attributes
    ----------
    python : path
        Its Python.
    prefix : path
        The folder it is installed in.
    packages : dict of str to str
        Name -> version of all packages.
    hash : str
        Of Python, platform, packages and the content of local sources: equal environments, equal
        hash.
    created : float or None
        When it was built, in s since 1970; None for the environment benchkit runs in.
    python_version : str
        Such as ``3.11.7``.
    sources : dict of str to str
        Requirement line -> commit or hash of content, of what did not come from an index.
    nbytes : int
        Size of its files; most are links into uv's cache.
    as_of : str
        The day as of which it was resolved, for an old release; else "".
    """

    python: Path
    prefix: Path
    packages: Mapping[str, str]
    hash: str
    created: float | None
    python_version: str
    sources: Mapping[str, str] = field(default_factory=dict)
    nbytes: int = 0
    as_of: str = ""

    @property
    def is_own(self) -> bool:
        """Whether it is the environment benchkit runs in."""
        return self.created is None

    def settings(self) -> dict[str, Any]:
        """Return what its Dask can be told, as `probe.settings` found it."""
        if self.is_own:
            from benchkit.experiment.environment.validate import own_settings

            return own_settings()
        return json.loads((self.prefix.parent / _SETTINGS).read_text(encoding="utf-8"))

    def to_dict(self) -> dict[str, Any]:
        """Return what is recorded of it: its packages a run asks itself; no paths are told."""
        return {
            "hash": self.hash,
            "python": self.python_version,
            "sources": dict(self.sources),
            "as_of": self.as_of,
            "created": self.created,
        }


def cache_folder() -> Path:
    """Return the cache: $BENCHKIT_CACHE, else ``benchkit`` below the user's cache folder."""
    own = os.environ.get("BENCHKIT_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "benchkit"


def _environments() -> Path:
    return cache_folder() / "environments"


def find_built(name: str) -> Built | None:
    """Return the built environment of that hash, or None: half of one is none."""
    folder = _environments() / name
    try:
        content = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        prefix = folder / content.pop("folder")
        built = Built(python=prefix / content.pop("executable"), prefix=prefix, **content)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return built if built.python.exists() else None


def list_built() -> list[Built]:
    """Return all built environments, the oldest first."""
    folders = _environments().iterdir() if _environments().is_dir() else ()
    found = [built for folder in folders if (built := find_built(folder.name))]
    return sorted(found, key=lambda built: built.created or 0.0)


def publish(built: Built, settings: Mapping[str, Any]) -> Built:
    """Make a finished environment known, at one moment."""
    folder = built.prefix.parent
    content = {name: value for name, value in asdict(built).items() if name != "prefix"}
    content["folder"] = built.prefix.name
    content["executable"] = str(content.pop("python").relative_to(built.prefix))
    write_whole(folder / _SETTINGS, settings)
    write_whole(folder / _MANIFEST, content)
    return built


def write_whole(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file so that nobody ever reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}-{uuid4().hex}")
    try:
        with draft.open("x", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def draft_folder(name: str) -> Iterator[Path]:
    """Give a folder that is gone afterwards, unless a manifest has come to name it."""
    folder = _environments() / name / uuid4().hex[:12]
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        built = find_built(name)
        if built is None or built.prefix != folder:
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):
                folder.parent.rmdir()


@contextmanager
def scratch_folder(name: str) -> Iterator[Path]:
    """Give a folder for the files of one build; its name is locked by whoever builds."""
    folder = cache_folder() / "scratch" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def locked(name: str, waiting: Any = lambda: None) -> Iterator[None]:
    """Hold the lock of a name; a lock ends with its process, however it ends.

    Parameters
    ----------
    name : str
        What is built.
    waiting : callable
        Called once if somebody else holds it.
    """
    folder = cache_folder() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / f"{name}.lock")
    try:
        lock.acquire(timeout=0.05)
    except Timeout:
        waiting()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def sweep() -> None:
    """Remove what builders left that were killed; never what one is working on."""
    for folder in _idle(cache_folder() / "scratch"):
        shutil.rmtree(folder, ignore_errors=True)
    for folder in _idle(_environments()):
        built = find_built(folder.name)
        for entry in _inside(folder):
            if entry.is_dir() and (built is None or entry != built.prefix):
                shutil.rmtree(entry, ignore_errors=True)
        if built is None:
            shutil.rmtree(folder, ignore_errors=True)


def _inside(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _idle(folder: Path) -> Iterator[Path]:
    """Give the folders inside one whose name nobody has locked, each locked meanwhile."""
    locks = cache_folder() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    for entry in _inside(folder):
        with suppress(Timeout), FileLock(locks / f"{entry.name}.lock").acquire(timeout=0):
            yield entry


def users(built: Built) -> list[int]:
    """Return the ids of processes that run from an environment right now."""
    import psutil

    found = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        command = process.info["cmdline"] or [""]
        if command[0].startswith(f"{built.prefix}{os.sep}"):
            found.append(process.info["pid"])
    return found


def remove(built: Built) -> None:
    """Remove a built environment; it stops being one before its first file goes.

    Raises
    ------
    EnvironmentBuildError
        A process runs from it, or it is the one that benchkit runs in.
    """
    if built.is_own:
        raise EnvironmentBuildError("the environment that benchkit runs in is not removed")
    running = users(built)
    if running:
        raise EnvironmentBuildError(
            f"environment {built.hash}: process {running[0]} runs from it: end it first"
        )
    with locked(built.hash):
        (built.prefix.parent / _MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(built.prefix.parent, ignore_errors=True)
