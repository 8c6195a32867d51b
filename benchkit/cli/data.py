"""`benchkit data`: list, make and clear the input datasets of workloads."""

from __future__ import annotations

import click

from benchkit.cli.options import common
from benchkit.cli.rows import print_json


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
