"""`benchkit init`: write the files of a new project."""

from __future__ import annotations

from pathlib import Path

import click

from benchkit.cli.options import common
from benchkit.cli.rows import print_json

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
    from benchkit.experiment.project.project import create_project

    written, kept = create_project(folder)
    if as_json:
        print_json([{"written": [str(p) for p in written], "kept": [str(p) for p in kept]}])
        return
    for path in written:
        click.echo(path)
    for path in kept:
        click.echo(f"kept: {path} exists", err=True)
    click.echo(_NEXT.format(folder=folder), err=True)
