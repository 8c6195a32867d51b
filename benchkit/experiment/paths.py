"""Find workloads, environments and notebooks in the working directory or the shipped copy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import benchkit
from benchkit.errors import UsageError
from benchkit.measure.discovery import Collection, collect
from benchkit.measure.folders import checked_folders

__all__ = ["collect_workloads", "file_name", "folders_of", "notebook_path", "shipped"]


def shipped(kind: str) -> Path:
    """Return the folder shipped with benchkit: inside the package, or next to it in a checkout.

    Parameters
    ----------
    kind : {"workloads", "environments", "notebooks"}
        Content of the folder.

    Returns
    -------
    path
        The folder.
    """
    package = Path(benchkit.__file__).resolve().parent
    inside = package / "shipped" / kind
    return inside if inside.is_dir() else package.parent / kind


def folders_of(kind: str, given: Sequence[str | Path] = ()) -> list[Path]:
    """Return the folders to search: those given, else ``./<kind>``, and the shipped folder.

    Parameters
    ----------
    kind : {"workloads", "environments", "notebooks"}
        Content of the folders.
    given : path, text or sequence of them
        Folders that the user selected; see `benchkit.measure.folders.as_list`. Given folders of
        workloads are the only ones: the others of an experiment take long.

    Returns
    -------
    list of path
        At least one folder; a name in several is that of the first.

    Raises
    ------
    UsageError
        A given folder does not exist, or is above the working directory.
    """
    own = (
        checked_folders(given, kind) if given else [path for path in [Path(kind)] if path.is_dir()]
    )
    if given and kind == "workloads":
        return own
    known = {path.resolve() for path in own}
    return own if shipped(kind).resolve() in known else [*own, shipped(kind)]


def collect_workloads(folders: Sequence[str | Path] = ()) -> Collection:
    """Return the workloads of folders.

    Parameters
    ----------
    folders : path, text or sequence of them
        By default ``./workloads`` and the shipped folder.

    Returns
    -------
    Collection
        Workloads and broken files.

    Raises
    ------
    UsageError
        A given folder does not exist, or is above the working directory.
    """
    chosen = folders_of("workloads", folders)
    return collect(chosen, chosen[-1] if len(chosen) > 1 and not folders else None)


def notebook_path(name: str) -> Path:
    """Return the path of a notebook: in ``./notebooks`` first, then in the shipped folder.

    Parameters
    ----------
    name : str
        File name without suffix.

    Returns
    -------
    path
        The notebook.

    Raises
    ------
    UsageError
        Neither folder has the notebook.
    """
    for folder in (Path("notebooks"), shipped("notebooks")):
        path = folder / f"{name}.ipynb"
        if path.is_file():
            return path
    names = sorted(path.stem for path in shipped("notebooks").glob("*.ipynb"))
    raise UsageError(f"no notebook named {name!r}: available: {', '.join(names) or 'none'}")


def file_name(text: str) -> str:
    """Return a valid file name for an arm or a variant.

    Parameters
    ----------
    text : str
        Name of an arm or a variant.

    Returns
    -------
    str
        At most 80 characters; special characters are replaced by a hyphen.
    """
    return "".join(c if c.isalnum() or c in "._=,-" else "-" for c in text)[:80]
