"""`benchkit init`: write the files of a new project."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchkit.cli.options import common
from benchkit.cli.rows import print_json

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_NEXT = """
Next, in {folder}:
  benchkit run own.sums
  benchkit ab two-workers own.sums --sweep param.method=single,batched -n 5
  jupyter lab notebooks/explore.ipynb"""


@click.command()
@click.argument("folder", default=".", type=click.Path(file_okay=False, path_type=Path))
@common("json")
def init(folder: Path, as_json: bool) -> None:
    """Write the files of a new project.

    A workload with two variants, an environment, a notebook and a workflow for GitHub Actions.
    Existing files stay as they are.

    \b
    Examples:
      benchkit init
      benchkit init my-benchmarks
    """
    written, kept = create_project(folder)
    if as_json:
        print_json([{"written": [str(p) for p in written], "kept": [str(p) for p in kept]}])
        return
    for path in written:
        click.echo(path)
    for path in kept:
        click.echo(f"kept: {path} exists", err=True)
    click.echo(_NEXT.format(folder=folder), err=True)


def create_project(folder: Path) -> tuple[list[Path], list[Path]]:
    """Write the files of a new project; existing files stay as they are."""
    from benchkit.experiment.paths import notebook_path
    from benchkit.whole_file import write_new

    sources = dict(_files(files("benchkit.experiment.project") / "files", Path()))
    sources[Path("notebooks/explore.ipynb")] = notebook_path("explore")
    written: list[Path] = []
    kept: list[Path] = []
    for name, source in sorted(sources.items()):
        target = folder / name
        is_new = write_new(target, source.read_text(encoding="utf-8"))
        (written if is_new else kept).append(target)
    return written, kept


def _files(folder: Traversable, name: Path) -> list[tuple[Path, Traversable]]:
    found: list[tuple[Path, Traversable]] = []
    for entry in folder.iterdir():
        if entry.name == "__pycache__":
            continue
        path = name / entry.name
        found += _files(entry, path) if entry.is_dir() else [(path, entry)]
    return found
