"""`benchkit data`: list, make and clear the input datasets of workloads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from benchkit.cli.options import common
from benchkit.cli.rows import print_json
from benchkit.errors import UsageError

#: File next to workloads that lists the public data they are modelled on.
_ORIGINALS = "originals.json"


@click.group()
def data() -> None:
    """Manage the datasets that workloads read."""


@data.command("list")
@common("json")
def list_data(as_json: bool) -> None:
    """List the datasets on this machine.

    \b
    Example:
      benchkit data list --json
    """
    from benchkit.formatting import counted, format_bytes
    from benchkit.measure.data.dataset import data_folder, list_datasets
    from benchkit.table import Table

    datasets = list_datasets()
    if as_json:
        print_json([{"name": d.label, "path": str(d.path), "bytes": d.nbytes} for d in datasets])
        return
    rows = [
        {"name": item.label, "size": format_bytes(item.nbytes), "folder": item.path.name}
        for item in datasets
    ]
    if rows:
        click.echo(Table(rows).to_text())
    click.echo(f"{counted(len(datasets), 'dataset')} in {data_folder()}", err=True)


@data.command("originals")
@common("workloads", "json")
def list_originals(folders: tuple[str, ...], as_json: bool) -> None:
    """List the public data that workloads model.

    With address and size.

    \b
    Example:
      benchkit data originals
    """
    from benchkit.experiment.paths import folders_of

    paths = [Path(folder) / _ORIGINALS for folder in folders_of("workloads", folders)]
    rows = [row for path in paths if path.exists() for row in _originals(path)]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        click.echo(f"{row['url']}\n    {row['size']}; {', '.join(row['workloads'])}")
        click.echo(f"    {row['about']}")
    if not rows:
        click.echo(f"no {_ORIGINALS} next to these workloads", err=True)


def _originals(path: Path) -> list[dict[str, Any]]:
    try:
        rows = json.loads(path.read_text("utf-8"))
        if all({"url", "size", "workloads", "about"} <= set(row) for row in rows):
            return rows
    except (ValueError, TypeError):
        pass
    raise UsageError(f"{path}: must be a list of objects with url, size, workloads and about")


@data.command("make")
@common("workloads")
@click.argument("name")
@click.option(
    "--size",
    type=click.Choice(["tiny", "ci", "laptop", "cluster"]),
    default="ci",
    show_default=True,
    help="Size of the dataset.",
)
def make_data(folders: tuple[str, ...], name: str, size: str) -> None:
    """Make a dataset, unless it exists.

    Recipes are those of benchkit and those that workload files declare.

    \b
    Example:
      benchkit data make tpch --size tiny
    """
    from benchkit.experiment.paths import collect_workloads
    from benchkit.measure.data.dataset import dataset

    collect_workloads(folders)  # workload files declare recipes
    made = dataset(name, size=size)
    click.echo(f"{made.label}  {made.url or made.path}")


@data.command("clear")
@click.argument("name", required=False)
def clear_data(name: str | None) -> None:
    """Remove the datasets of a recipe, or all.

    \b
    Example:
      benchkit data clear tpch
    """
    from benchkit.measure.data.dataset import clear

    for removed in clear(name):
        click.echo(f"removed {removed.label}")
