"""Find workloads, environments and notebooks in the working directory or the shipped copy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import benchkit
from benchkit.errors import UsageError

__all__ = ["file_name", "folders_of", "notebook_path", "shipped"]

KINDS = ("workloads", "environments", "notebooks")


def shipped(kind: str) -> Path:
    """Return the folder shipped with benchkit: inside the package, or next to it in a checkout."""
    package = Path(benchkit.__file__).resolve().parent
    inside = package / "shipped" / kind
    return inside if inside.is_dir() else package.parent / kind


def folders_of(kind: str, given: Sequence[str | Path] = ()) -> list[Path]:
    """Return the folders to search: the given ones, else ``./<kind>``, else the shipped folder.

    Raises
    ------
    UsageError
        A given folder does not exist.
    """
    if given:
        for folder in given:
            if not Path(folder).is_dir():
                raise UsageError(f"{folder}: no such folder of {kind}")
        return [Path(folder) for folder in given]
    here = Path(kind)
    return [here if here.is_dir() else shipped(kind)]


def notebook_path(name: str) -> Path:
    """Return the path of a notebook: in ``./notebooks`` first, then in the shipped folder."""
    for folder in (Path("notebooks"), shipped("notebooks")):
        path = folder / f"{name}.ipynb"
        if path.is_file():
            return path
    known = sorted(path.stem for path in shipped("notebooks").glob("*.ipynb"))
    raise UsageError(f"no notebook named {name!r}: there are {', '.join(known) or 'none'}")


def file_name(text: str) -> str:
    """Return a valid file name for an arm or a variant, at most 80 characters."""
    return "".join(c if c.isalnum() or c in "._=,-" else "-" for c in text)[:80]
