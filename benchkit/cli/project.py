"""`benchkit init` and `benchkit notebooks`: files of a new project, and shipped notebooks."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchkit.cli.options import common
from benchkit.cli.rows import print_json
from benchkit.whole_file import write_new

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


_NEXT = """
Next, in {folder}:
  benchkit run own.sums
  benchkit ab two-workers own.sums --sweep param.method=single,batched -n 5
  jupyter lab notebooks/explore.ipynb"""
#: The same for a package with workloads of its own.
_NEXT_OF_PACKAGE = """
Next, in {folder}:
  benchkit list workloads --workloads workloads
  jupyter lab notebooks/explore.ipynb"""
#: The workload of a new project.
_OWN = Path("workloads/own.py")


@click.command()
@click.argument("folder", default=".", type=click.Path(file_okay=False, path_type=Path))
@common("json")
def init(folder: Path, as_json: bool) -> None:
    """Write the files of a new project.

    A workload with two variants, an environment, a notebook and a workflow for GitHub Actions. In
    the folder of a Python package also a workflow that compares each pull request with its base, by
    exact counts and CPU seconds; both workflows measure the package's own workloads, and its tests
    with the mark `benchkit`. Existing files stay as they are.

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
    text = _NEXT if (folder / _OWN).exists() else _NEXT_OF_PACKAGE
    click.echo(text.format(folder=folder), err=True)


def create_project(folder: Path) -> tuple[list[Path], list[Path]]:
    """Write the files of a new project; existing files stay as they are."""
    from benchkit.experiment.paths import notebook_path
    from benchkit.whole_file import write_new

    project = files("benchkit.experiment.project")
    sources = dict(_files(project / "files", Path()))
    sources[Path("notebooks/explore.ipynb")] = notebook_path("explore")
    if _is_package(folder):
        sources |= dict(_files(project / "package", Path()))
    if any(folder.glob("workloads/*.py")) and not (folder / _OWN).exists():
        del sources[_OWN]  # the package has workloads of its own
    words = _words(folder)
    written: list[Path] = []
    kept: list[Path] = []
    for name, source in sorted(sources.items()):
        target = folder / name
        text = source.read_text(encoding="utf-8")
        if target.suffix == ".yml":
            for mark, word in words.items():
                text = text.replace(mark, word)
        (written if write_new(target, text) else kept).append(target)
    return written, kept


def _is_package(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("pyproject.toml", "setup.py"))


def _has_marked_tests(folder: Path) -> bool:
    """Return whether a file of tests has the mark `benchkit`."""
    return any(b"mark.benchkit" in path.read_bytes() for path in folder.rglob("*.py"))


def _words(folder: Path) -> dict[str, str]:
    """Return the words that a workflow has in place of its marks.

    A package is installed, and its tests are measured if any of them has the mark `benchkit`.
    """
    is_package, has_tests = _is_package(folder), _has_marked_tests(folder / "tests")
    return {
        "@PACKAGES@": (" ." if is_package else "") + (" pytest" if has_tests else ""),
        "@FOLDERS@": "head/workloads head/tests" if has_tests else "head/workloads",
        "@TESTS@": " --pytest tests -k 'tag:benchkit or not ::'" if has_tests else "",
    }


def _files(folder: Traversable, name: Path) -> list[tuple[Path, Traversable]]:
    found: list[tuple[Path, Traversable]] = []
    for entry in folder.iterdir():
        if entry.name == "__pycache__":
            continue
        path = name / entry.name
        found += _files(entry, path) if entry.is_dir() else [(path, entry)]
    return found


@click.group()
def notebooks() -> None:
    """List and copy the shipped notebooks."""


def _shipped() -> list[Path]:
    from benchkit.experiment.paths import shipped

    return sorted(shipped("notebooks").glob("*.ipynb"))


@notebooks.command("list")
@common("json")
def list_notebooks(as_json: bool) -> None:
    """List the shipped notebooks with their titles.

    \b
    Example:
      benchkit notebooks list
    """
    import nbformat

    rows = []
    for path in _shipped():
        cells = nbformat.read(str(path), as_version=4).cells
        title = next((c.source.lstrip("# ").partition("\n")[0] for c in cells), "")
        rows.append({"name": path.stem, "title": title, "path": str(path)})
    if as_json:
        print_json(rows)
        return
    for row in rows:
        click.echo(f"{row['name']:10} {row['title']}")


@notebooks.command("copy")
@click.argument("folder", default="notebooks", type=click.Path(file_okay=False, path_type=Path))
def copy_notebooks(folder: Path) -> None:
    """Copy the shipped notebooks to a folder.

    By default to ./notebooks; existing files are kept.

    \b
    Example:
      benchkit notebooks copy
    """
    for path in _shipped():
        target = folder / path.name
        if write_new(target, path.read_text(encoding="utf-8")):
            click.echo(target)
        else:
            click.echo(f"kept: {target} exists", err=True)
