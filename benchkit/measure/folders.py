"""Folders of workloads, and their files.

Only files that import benchkit are executed: a folder may hold other code.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchkit.measure.arguments import as_list
from benchkit.measure.errors import UsageError

__all__ = ["checked_folders", "workload_files"]

#: Folders of installed packages, which import benchkit without being workloads.
_INSTALLED = ("site-packages", "dist-packages", "node_modules")
_IMPORT = re.compile(rb"^\s*(?:from|import)\s+(benchkit\b|_\w+)", re.MULTILINE)


def checked_folders(folders: Any, kind: str) -> list[Path]:
    """Return folders that exist and may be searched.

    Parameters
    ----------
    folders : path, text or iterable of them
        See `benchkit.measure.arguments.as_list`.
    kind : str
        What the folders contain, for errors.

    Returns
    -------
    list of path
        The folders.

    Raises
    ------
    UsageError
        A folder does not exist, or is above the working directory.
    """
    here, checked = Path.cwd(), []
    for folder in as_list(folders, kind):
        path = Path(folder)
        if not str(folder) or not path.is_dir():
            raise UsageError(f"{folder}: no such folder of {kind}")
        if path.resolve() in here.parents:
            raise UsageError(
                f"{folder}: above the working directory, so it is not searched for {kind}: name "
                "the folder that contains them"
            )
        checked.append(path)
    return checked


def workload_files(folder: Path) -> Iterator[Path]:
    """Yield the Python files below a folder that import benchkit, sorted by path.

    Files and folders whose name begins with ``_`` or ``.``, and installed packages, are skipped.

    Parameters
    ----------
    folder : path
        Where to search.

    Yields
    ------
    path
        One file.
    """
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if _is_searched(Path(root, name)))
        for name in sorted(files):
            path = Path(root, name)
            if name.endswith(".py") and not name.startswith(("_", ".")) and _uses_benchkit(path):
                yield path


def _is_searched(folder: Path) -> bool:
    if folder.name.startswith(("_", ".")) or folder.name in _INSTALLED:
        return False
    return not (folder / "pyvenv.cfg").exists()


def _uses_benchkit(path: Path, seen: frozenset[Path] = frozenset()) -> bool:
    """Return whether a file imports benchkit, itself or through helpers next to it."""
    try:
        imported = set(_IMPORT.findall(path.read_bytes()))
    except OSError:
        return True  # reported as broken
    helpers = {path.parent / f"{name.decode()}.py" for name in imported} - seen
    return b"benchkit" in imported or any(
        helper.is_file() and _uses_benchkit(helper, seen | helpers) for helper in helpers
    )
