"""Write the files of a new project."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from benchkit.errors import UsageError
from benchkit.experiment.paths import notebook_path
from benchkit.whole_file import write_whole


def create_project(folder: Path) -> tuple[list[Path], list[Path]]:
    """Write the files of a new project; existing files stay as they are."""
    sources = dict(_files(files("benchkit.experiment.project") / "files", Path()))
    sources[Path("notebooks/explore.ipynb")] = notebook_path("explore")
    written, kept = [], []
    for name, source in sorted(sources.items()):
        target = folder / name
        if target.exists():
            kept.append(target)
            continue
        try:
            write_whole(target, source.read_text(encoding="utf-8"))
        except OSError as error:
            raise UsageError(f"{target}: cannot be written: {error.strerror}") from error
        written.append(target)
    return written, kept


def _files(folder: Traversable, name: Path) -> list[tuple[Path, Traversable]]:
    found: list[tuple[Path, Traversable]] = []
    for entry in folder.iterdir():
        if entry.name == "__pycache__":
            continue
        path = name / entry.name
        found += _files(entry, path) if entry.is_dir() else [(path, entry)]
    return found
