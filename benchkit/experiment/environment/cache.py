"""Store built environments on disk, named by the hash of their content.

A built environment is a folder ``environments/<hash>`` of the cache: the environment itself in a
folder with a random name, and ``benchkit.json``, written last, with that name. Folders without
``benchkit.json`` are left by a crash and removed by the next build.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from filelock import FileLock, Timeout

from benchkit.errors import EnvironmentBuildError
from benchkit.whole_file import write_whole
from benchkit.working_folder import cache_folder

_MANIFEST = "benchkit.json"
_SETTINGS = "settings.json"


@dataclass(frozen=True)
class Built:
    """An environment that can be started."""

    python: Path  # Executable of its Python
    prefix: Path  # Folder of the installation
    packages: Mapping[str, str]  # Name -> version of all packages
    hash: str  # Hash of Python, platform, packages and the content of local sources
    # When it was built, in s since 1970; None for the environment benchkit runs in.
    created: float | None
    python_version: str  # Such as `3.11.7`.
    # Requirement line -> commit or hash of content, of packages that are not from an index.
    sources: Mapping[str, str] = field(default_factory=dict)
    nbytes: int = 0  # Size of its files; most are links into uv's cache
    as_of: str = ""  # Date of the index that an old release was resolved with; else ""

    @property
    def is_own(self) -> bool:
        """Whether it is the environment that benchkit runs in."""
        return self.created is None

    def settings(self) -> dict[str, Any]:
        """Return the Dask settings of the environment."""
        if self.is_own:
            from benchkit.experiment.environment.validate import own_settings

            return own_settings()
        return json.loads((self.prefix.parent / _SETTINGS).read_text(encoding="utf-8"))

    def to_dict(self) -> dict[str, Any]:
        """Return the values to record with a run, without paths; a run records packages itself."""
        return {
            "hash": self.hash,
            "python": self.python_version,
            "sources": dict(self.sources),
            "as_of": self.as_of,
            "created": self.created,
        }


def _environments() -> Path:
    return cache_folder() / "environments"


def find_built(name: str) -> Built | None:
    """Return the built environment of a hash."""
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
    environments = [built for folder in folders if (built := find_built(folder.name))]
    return sorted(environments, key=lambda built: built.created or 0.0)


def publish(built: Built, settings: Mapping[str, Any]) -> Built:
    """Write the manifest of a finished environment, atomically."""
    folder = built.prefix.parent
    content = {name: value for name, value in asdict(built).items() if name != "prefix"}
    content["folder"] = built.prefix.name
    content["executable"] = str(content.pop("python").relative_to(built.prefix))
    write_whole(folder / _SETTINGS, json.dumps(settings, indent=1))
    write_whole(folder / _MANIFEST, json.dumps(content, indent=1))
    return built


def link_bytecode(prefix: Path, python_version: str) -> None:
    """Link the compiled modules of the newest environment whose sources are the same files.

    uv links the files of a package from its cache. Compiling Dask and ipykernel takes 2 s.
    """
    alike = [built.prefix for built in list_built() if built.python_version == python_version]
    for folder, _, names in os.walk(alike[-1]) if alike else ():
        if os.path.basename(folder) != "__pycache__":
            continue
        theirs = Path(folder).parent
        ours = prefix / theirs.relative_to(alike[-1])
        for name in names:
            source = name.partition(".")[0] + ".py"
            with suppress(OSError):  # is not there, or is there already
                if os.path.samefile(theirs / source, ours / source):
                    (ours / "__pycache__").mkdir(exist_ok=True)
                    os.link(os.path.join(folder, name), ours / "__pycache__" / name)


@contextmanager
def draft_folder(name: str) -> Iterator[Path]:
    """Yield a folder that is removed at the end unless a manifest names it."""
    folder = _environments() / name / uuid4().hex[:12]
    try:
        folder.mkdir(parents=True)
        yield folder
    finally:
        built = find_built(name)
        if built is None or built.prefix != folder:
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):
                folder.parent.rmdir()


@contextmanager
def scratch_folder(name: str) -> Iterator[Path]:
    """Yield a folder for the files of one build; the caller holds the lock of its name."""
    folder = cache_folder() / "scratch" / name
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(parents=True)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def locked(name: str, waiting: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Hold the lock of a name; the lock is released when the process ends."""
    folder = cache_folder() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / f"{name}.lock")
    try:
        held = lock.acquire(timeout=0.05)
    except Timeout:
        waiting()
        held = lock.acquire()
    with held:
        yield


def try_lock(name: str, stack: ExitStack) -> bool:
    """Hold the lock of a name until a stack is closed, unless another process holds it."""
    folder = cache_folder() / "locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stack.enter_context(FileLock(folder / f"{name}.lock").acquire(timeout=0))
    except Timeout:
        return False
    except OSError:
        return True  # a cache that cannot be written holds no locks
    return True


def sweep() -> None:
    """Remove folders of killed builds; folders of running builds are locked and kept."""
    for folder in _unlocked(cache_folder() / "scratch"):
        shutil.rmtree(folder, ignore_errors=True)
    for folder in _unlocked(_environments()):
        built = find_built(folder.name)
        for entry in _entries(folder):
            if entry.is_dir() and (built is None or entry != built.prefix):
                shutil.rmtree(entry, ignore_errors=True)
        if built is None:
            shutil.rmtree(folder, ignore_errors=True)


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _unlocked(folder: Path) -> Iterator[Path]:
    """Yield the unlocked subfolders of a folder, and hold the lock of each while it is used."""
    locks = cache_folder() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    for entry in _entries(folder):
        with suppress(Timeout), FileLock(locks / f"{entry.name}.lock").acquire(timeout=0):
            yield entry


def users(built: Built) -> list[int]:
    """Return the ids of processes that run from an environment right now."""
    import psutil

    pids = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        command = process.info["cmdline"] or [""]
        if command[0].startswith(f"{built.prefix}{os.sep}"):
            pids.append(process.info["pid"])
    return pids


def remove(built: Built) -> None:
    """Remove a built environment; its manifest is removed first."""
    if built.is_own:
        raise EnvironmentBuildError("the environment that benchkit runs in cannot be removed")
    running = users(built)
    if running:
        raise EnvironmentBuildError(
            f"environment {built.hash}: process {running[0]} uses it: end the process first"
        )
    with locked(built.hash):
        (built.prefix.parent / _MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(built.prefix.parent, ignore_errors=True)
