"""Find workloads, environments and notebooks in the working directory or the shipped copy."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import benchkit
from benchkit.errors import UsageError
from benchkit.measure.arguments import list_of
from benchkit.measure.discovery import Collection, collect
from benchkit.measure.secrets import redact_text
from benchkit.measure.settings import setting
from benchkit.measure.suite.collect import absolute_folder, is_suite
from benchkit.working_folder import working_folder


def defined_names(*kinds: str) -> list[str]:
    """Return the names that files define, sorted, for completion by shells."""
    names: set[str] = set()
    if "environments" in kinds:
        names |= {
            path.stem for folder in folders_of("environments") for path in folder.glob("*.yaml")
        }
    if "workloads" in kinds:
        # The shell reads the names from the standard output; a workload file may print.
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            names |= set(collect_workloads().workloads)
    return sorted(names)


def shipped(kind: str) -> Path:
    """Return the folder shipped with benchkit: inside the package, or next to it in a checkout."""
    package = Path(benchkit.__file__).resolve().parent
    inside = package / "shipped" / kind
    return inside if inside.is_dir() else package.parent / kind


def folders_of(kind: str, given: str | Path | Sequence[str | Path] = ()) -> list[Path]:
    """Return the folders to search: those given, else the user's and the shipped folder.

    The user's are those in Dask's configuration (``benchkit.workloads``,
    ``benchkit.environments``), else the folder of this name in the working directory.
    """
    chosen = _existing(given, kind)
    if chosen:
        return chosen
    own = _existing(setting(kind), kind, " (benchkit.{kind} in Dask's configuration)")
    if not own and (working_folder() / kind).is_dir():
        own = [working_folder() / kind]
    is_shipped = [folder.resolve() == shipped(kind).resolve() for folder in own]
    return own if any(is_shipped) else [*own, shipped(kind)]


def _existing(given: Any, kind: str, source: str = "") -> list[Path]:
    """Return folders that the user selected; raise an error if one does not exist."""
    folders = [
        Path(absolute_folder(folder) if is_suite(folder) else folder).expanduser()
        for folder in list_of(given or (), kind)
    ]
    for folder in folders:
        if not (is_suite(folder) or folder.is_dir()):
            raise UsageError(f"{folder}: no such folder of {kind}{source.format(kind=kind)}")
    return folders


def collect_workloads(
    given: str | Path | Sequence[str | Path] = (), graphs: Sequence[Path] = ()
) -> Collection:
    """Collect the workloads of the user and, unless folders are given, the shipped ones."""
    folders = folders_of("workloads", given)
    *own, last = folders
    if own and not list_of(given, "workloads") and last == shipped("workloads"):
        return collect([*own, *graphs], shipped=last)
    return collect([*folders, *graphs])


def notebook_path(name: str) -> Path:
    """Return the path of a notebook: in ``./notebooks`` first, then in the shipped folder."""
    for folder in (Path("notebooks"), shipped("notebooks")):
        path = folder / f"{name}.ipynb"
        if path.is_file():
            return path
    names = sorted(path.stem for path in shipped("notebooks").glob("*.ipynb"))
    raise UsageError(f"no notebook named {name!r}: available: {', '.join(names) or 'none'}")


def file_name(text: str) -> str:
    """Return a valid file name for an arm or a variant."""
    text = redact_text(text)
    return "".join(c if c.isalnum() or c in "._=,-" else "-" for c in text)[:80]
