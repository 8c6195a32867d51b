"""`benchkit notebooks`: list the shipped notebooks, and copy them to a folder."""

from __future__ import annotations

from pathlib import Path

import click

from benchkit.cli.options import common
from benchkit.cli.rows import print_json
from benchkit.whole_file import write_new


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
